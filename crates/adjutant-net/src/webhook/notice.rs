//! Formats a message for a service. The texts are data: none of them can mention anybody, format
//! the message, or hide or imitate a link.

use super::Notice;
use crate::text;
use adjutant_core::shorten;
use serde_json::{Value, json};

/// The limits of the services are higher: ntfy 4096 bytes, Telegram 4096 UTF-16 units, Slack 3000
/// characters in a block and 150 in a header, Discord 2000 characters. Escapes at most multiply a
/// text by five (Slack) or two (Discord).
const TITLE_CHARS_MAX: usize = 120;
const NTFY_BYTES_MAX: usize = 3_500;
const TELEGRAM_CHARS_MAX: usize = 1_800;
const SLACK_CHARS_MAX: usize = 2_900;
const DISCORD_CHARS_MAX: usize = 1_500;
const MAIL_CHARS_MAX: usize = 8_000;
const DESKTOP_CHARS_MAX: usize = 500;
/// Discord's flag for a message whose links are not expanded.
const SUPPRESS_EMBEDS: u32 = 4;

/// Returns the title: one line without control, hidden or reordering characters.
pub(super) fn title(notice: &Notice) -> String {
    shorten::to_chars(text::line(&notice.title).trim(), TITLE_CHARS_MAX).into_owned()
}

/// Returns the text of an e-mail.
pub(super) fn mail_text(notice: &Notice) -> String {
    let text = plain_text(notice);
    // The words of an agent are quoted, so that none of them looks like the line with the link.
    let quoted: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    let link = notice
        .link
        .as_ref()
        .map(|link| format!("\nAnswer: {link}\n"))
        .unwrap_or_default();
    format!("{}\n\n{}\n{link}", title(notice), quoted.join("\n"))
}

/// Returns the text for a program of the user.
pub(super) fn plain_text(notice: &Notice) -> String {
    shorten::to_chars(text::block(&notice.text).trim(), MAIL_CHARS_MAX).into_owned()
}

/// Returns the text for a desktop, which may show some markup. Only the beginning is shown there.
pub(super) fn markup_text(notice: &Notice) -> String {
    escaped(
        &text::block(&notice.text),
        DESKTOP_CHARS_MAX,
        escaped_markup,
    )
}

/// Returns the body of a message in JSON to ntfy, which shows plain text.
pub(super) fn ntfy(topic: &str, notice: &Notice) -> Vec<u8> {
    let text = text::block(&notice.text);
    let message = shorten::to_bytes(&text, NTFY_BYTES_MAX);
    let mut body = json!({"topic": topic, "title": title(notice), "message": message});
    if let Some(link) = &notice.link {
        body["click"] = json!(link);
        body["actions"] = json!([{"action": "view", "label": "Answer", "url": link}]);
    }
    bytes(&body)
}

/// Returns the body for an incoming webhook of Slack. Its blocks are plain text; the fallback for
/// notifications is not formatted either. In all of them, Slack reads the three characters that it
/// documents.
pub(super) fn slack(notice: &Notice) -> Vec<u8> {
    let plain = |text: &str| json!({"type": "plain_text", "text": text, "emoji": false});
    let title = escaped(&title(notice), TITLE_CHARS_MAX, escaped_markup);
    let text = escaped(&text::block(&notice.text), SLACK_CHARS_MAX, escaped_markup);
    let mut blocks = vec![json!({"type": "section", "text": plain(&title)})];
    if !text.trim().is_empty() {
        blocks.push(json!({"type": "section", "text": plain(&text)}));
    }
    if let Some(link) = &notice.link {
        let button =
            json!({"type": "button", "text": plain("Answer"), "url": link, "action_id": "answer"});
        blocks.push(json!({"type": "actions", "elements": [button]}));
    }
    bytes(
        &json!({"text": title, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false, "blocks": blocks}),
    )
}

fn escaped_markup(c: char) -> String {
    match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        c => c.to_string(),
    }
}

/// Returns the body for a webhook of Discord. Nobody is mentioned, no link is expanded, and
/// Markdown is escaped.
pub(super) fn discord(notice: &Notice) -> Vec<u8> {
    let title = escaped(&title(notice), TITLE_CHARS_MAX * 2, escaped_for_discord);
    let text = escaped(
        &text::block(&notice.text),
        DISCORD_CHARS_MAX,
        escaped_for_discord,
    );
    let link = notice
        .link
        .as_ref()
        .map(|link| format!("\nAnswer: <{link}>"))
        .unwrap_or_default();
    bytes(
        &json!({"content": format!("{title}\n{text}{link}"), "allowed_mentions": {"parse": []}, "flags": SUPPRESS_EMBEDS}),
    )
}

fn escaped_for_discord(c: char) -> String {
    if c.is_ascii_punctuation() {
        format!("\\{c}")
    } else {
        c.to_string()
    }
}

/// Returns the body for `sendMessage` of Telegram's Bot API. Without a parse mode, Telegram would
/// still make links of names, tags, commands and addresses; in preformatted text, it does not.
pub(super) fn telegram(chat: &str, notice: &Notice) -> Vec<u8> {
    let shown = format!(
        "{}\n{}",
        title(notice),
        shorten::to_chars(text::block(&notice.text).trim(), TELEGRAM_CHARS_MAX)
    );
    let length = shown.encode_utf16().count();
    let link = notice
        .link
        .as_ref()
        .map(|link| format!("\nAnswer: {link}"))
        .unwrap_or_default();
    bytes(&json!({
        "chat_id": chat,
        "text": format!("{shown}{link}"),
        "entities": [{"type": "pre", "offset": 0, "length": length}],
        "link_preview_options": {"is_disabled": true},
    }))
}

/// Escapes a text, and shortens it to a number of characters with the mark. No escape is split.
fn escaped(text: &str, chars_max: usize, escape: impl Fn(char) -> String) -> String {
    let (mut out, mut used, mut marked_from) = (String::new(), 0, 0);
    for c in text.trim().chars() {
        let escaped = escape(c);
        used += escaped.chars().count();
        if used > chars_max {
            out.truncate(marked_from);
            out.push(shorten::MARK);
            break;
        }
        out.push_str(&escaped);
        if used < chars_max {
            marked_from = out.len();
        }
    }
    out
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> Notice {
        let (id, title, text) = (
            "d1".to_owned(),
            "otter asks (Q1)".to_owned(),
            text.to_owned(),
        );
        Notice {
            id,
            timestamp_s: 0,
            title,
            text,
            link: Some("https://adj.example.org/a/code".to_owned()),
        }
    }

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).expect("JSON")
    }

    #[test]
    fn texts_stay_below_the_limits_of_services() {
        for text in [
            "<".repeat(100_000),
            "*".repeat(100_000),
            "😀".repeat(100_000),
            "é\n".repeat(50_000),
            String::new(),
        ] {
            let mut notice = notice(&text);
            notice.title.clone_from(&text);
            let (slack, discord, telegram) = (
                parsed(&slack(&notice)),
                parsed(&discord(&notice)),
                parsed(&telegram("1", &notice)),
            );
            let blocks = slack["blocks"].as_array().expect("blocks");
            assert!(
                blocks.iter().all(|block| block["text"]["text"]
                    .as_str()
                    .is_none_or(|text| text.chars().count() <= 3_000)),
                "{slack}"
            );
            assert!(
                discord["content"]
                    .as_str()
                    .is_some_and(|text| text.chars().count() <= 2_000),
                "{discord}"
            );
            let sent = telegram["text"].as_str().expect("a text");
            assert!(
                sent.encode_utf16().count() <= 4_096 && sent.ends_with("/a/code"),
                "{telegram}"
            );
            let ntfy = parsed(&ntfy("t", &notice));
            assert!(
                ntfy["message"]
                    .as_str()
                    .is_some_and(|text| text.len() <= 4_096),
                "{ntfy}"
            );
        }
    }

    #[test]
    fn agent_text_mentions_and_formats_nothing() {
        let notice = notice(
            "<!channel> <https://evil.example|ok> @everyone <@1> [ok](https://evil.example) *b*\n\u{1b}[31m\u{202e}x",
        );
        let slack = slack(&notice);
        let slack = String::from_utf8_lossy(&slack);
        assert!(
            !slack.contains("<!")
                && !slack.contains("<https")
                && slack.contains("&lt;!channel&gt;"),
            "{slack}"
        );
        let discord = parsed(&discord(&notice));
        let content = discord["content"].as_str().expect("a text");
        assert!(
            content.contains("\\@everyone \\<\\@1\\> \\[ok\\]\\(https\\:\\/\\/")
                && content.contains("\\*b\\*"),
            "{content}"
        );
        assert_eq!(discord["allowed_mentions"]["parse"], json!([]));
        let telegram = parsed(&telegram("1", &notice));
        let (text, entity) = (
            telegram["text"].as_str().expect("a text"),
            &telegram["entities"][0],
        );
        let covered: Vec<u16> = text
            .encode_utf16()
            .take(usize::try_from(entity["length"].as_u64().expect("a number")).expect("small"))
            .collect();
        assert!(
            String::from_utf16_lossy(&covered).contains("@everyone")
                && !String::from_utf16_lossy(&covered).contains("/a/code"),
            "{telegram}"
        );
        for body in [
            slack.to_string(),
            content.to_owned(),
            text.to_owned(),
            mail_text(&notice),
        ] {
            assert!(
                !body.contains('\u{1b}') && !body.contains('\u{202e}'),
                "{body}"
            );
        }
    }

    #[test]
    fn quoted_words_imitate_no_link_in_a_mail() {
        let mail = mail_text(&notice("a\nAnswer: https://evil.example\n.\nFrom x"));
        assert_eq!(
            mail.lines()
                .filter(|line| line.starts_with("Answer: "))
                .collect::<Vec<_>>(),
            ["Answer: https://adj.example.org/a/code"]
        );
    }
}
