//! Sends a message as an e-mail: a program such as `sendmail` reads it from its standard input. Its
//! recipient is an argument of its own; there is no shell.

use super::error::{DeliveryError, ProgramError};
use super::{Notice, notice, program};
use crate::config::mail_env;
use adjutant_core::shorten;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use std::ffi::OsString;
use std::time::Duration;

/// Bytes of text in one encoded word of a header, and in one line of the body.
const WORD_BYTES: usize = 39;
const LINE_BYTES: usize = 57;

/// Sends a message.
pub(super) async fn send(
    argv: &[String],
    to: &str,
    from: Option<&str>,
    notice: &Notice,
    limit: Duration,
) -> Result<(), DeliveryError> {
    let Some((program, args)) = argv.split_first() else {
        return Err(ProgramError::NoProgram { field: "sendmail" }.into());
    };
    let args = args
        .iter()
        .map(OsString::from)
        .chain(["--".into(), to.into()])
        .collect();
    let mail = mail(to, from, notice)?.into_bytes();
    Ok(program::run(program, args, mail_env(), mail, limit).await?)
}

/// Returns the whole message. Texts are encoded, so they can neither end a header nor the message.
fn mail(to: &str, from: Option<&str>, notice: &Notice) -> Result<String, jiff::Error> {
    let date = Timestamp::from_second(notice.timestamp_s)?.strftime("%a, %d %b %Y %H:%M:%S +0000");
    let host = from.unwrap_or(to).rsplit('@').next().unwrap_or_default();
    let from = from
        .map(|from| format!("From: Adjutant <{from}>\n"))
        .unwrap_or_default();
    let body = STANDARD.encode(notice::mail_text(notice));
    let lines: Vec<&str> = (0..body.len())
        .step_by(LINE_BYTES / 3 * 4)
        .map(|at| &body[at..body.len().min(at + LINE_BYTES / 3 * 4)])
        .collect();
    Ok(format!(
        "{from}To: {to}\nSubject: {}\nDate: {date}\nMessage-ID: <{}@{host}>\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n{}\n",
        encoded_words(&notice::title(notice)),
        notice.id,
        lines.join("\n"),
    ))
}

/// Encodes the value of a header (RFC 2047).
fn encoded_words(value: &str) -> String {
    let mut words = Vec::new();
    let mut rest = value;
    while !rest.is_empty() {
        let word = shorten::head(rest, WORD_BYTES);
        words.push(format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
        rest = &rest[word.len()..];
    }
    words.join("\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_neither_headers_nor_the_message() {
        let hostile = "x\r\nBcc: evil@example.org\n\n.\n";
        let notice = Notice {
            id: "d1".to_owned(),
            timestamp_s: 1_700_000_000,
            title: hostile.repeat(9),
            text: hostile.to_owned(),
            link: None,
        };
        let mail = mail("anna@example.org", Some("adj@example.org"), &notice).expect("a mail");
        let (head, body) = mail.split_once("\n\n").expect("a head and a body");
        assert!(
            mail.lines()
                .all(|line| line.len() <= 76 && !line.starts_with('.') && !line.contains("Bcc")),
            "{mail}"
        );
        let names: Vec<&str> = head
            .lines()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| Some(line.split_once(": ")?.0))
            .collect();
        let expected = [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "Auto-Submitted",
            "MIME-Version",
            "Content-Type",
            "Content-Transfer-Encoding",
        ];
        assert_eq!(names, expected);
        assert!(
            head.contains("Date: Tue, 14 Nov 2023 22:13:20 +0000"),
            "{head}"
        );
        let text = String::from_utf8(STANDARD.decode(body.replace('\n', "")).expect("base64"))
            .expect("text");
        assert!(text.contains("\n> Bcc: evil@example.org\n"), "{text}");
    }
}
