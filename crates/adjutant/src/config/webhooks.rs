//! The `[[webhooks]]` part of the configuration.

use super::values::UnusableValues;
use adjutant_core::EventKind;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The event of a new chat entry. All other events are those of the history.
const CHAT_MESSAGE: &str = "chat.message";
/// The default events of a webhook.
const EVENTS_DEFAULT: [&str; 8] =
    ["run.finished", "run.stopped", "request.asked", "request.escalated", "request.answered", "request.expired", "request.withdrawn", CHAT_MESSAGE];
const WEBHOOKS_MAX: usize = 16;
const URL_BYTES_MAX: usize = 2_048;

/// A configured webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: http::Uri,
    /// The absolute path of the file with the signing secret.
    pub secret_file: PathBuf,
    pub events: Vec<String>,
    /// Allow addresses on this machine and in private networks.
    pub allow_private: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileWebhook {
    url: String,
    secret_file: PathBuf,
    events: Option<Vec<String>>,
    #[serde(default)]
    allow_private: bool,
}

/// Reads this part of the file. An invalid webhook is reported.
pub(super) fn read(files: Vec<FileWebhook>, config: &Path, unusable: &mut UnusableValues) -> Vec<Webhook> {
    if files.len() > WEBHOOKS_MAX {
        unusable.report("webhooks", format!("at most {WEBHOOKS_MAX}"));
        return Vec::new();
    }
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, FileWebhook { url, secret_file, events, allow_private }) in files.into_iter().enumerate() {
        let url = unusable.check(&format!("webhooks[{index}].url"), address(&url, allow_private, &webhooks));
        let events = unusable.check(&format!("webhooks[{index}].events"), known_events(events));
        let secret_file = config.parent().unwrap_or(Path::new("/")).join(secret_file);
        webhooks.extend(url.zip(events).map(|(url, events)| Webhook { url, secret_file, events, allow_private }));
    }
    webhooks
}

fn address(url: &str, allow_private: bool, others: &[Webhook]) -> Result<http::Uri, String> {
    let parsed = match url.parse::<http::Uri>() {
        Ok(parsed) if url.len() <= URL_BYTES_MAX && parsed.host().is_some_and(|host| !host.is_empty()) => parsed,
        _ => return Err("use an address such as https://example.org/hook".to_owned()),
    };
    if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must not contain a user name or password".to_owned());
    }
    match parsed.scheme_str() {
        Some("https") => {}
        Some("http") if allow_private => {}
        Some("http") => return Err("use https: http is for your own network, with allow_private = true".to_owned()),
        _ => return Err("use https".to_owned()),
    }
    if others.iter().any(|other| other.url == parsed) {
        return Err("is listed twice: put all its events in one entry".to_owned());
    }
    Ok(parsed)
}

fn known_events(events: Option<Vec<String>>) -> Result<Vec<String>, String> {
    let events = events.unwrap_or_else(|| EVENTS_DEFAULT.map(str::to_owned).to_vec());
    match events.iter().find(|event| *event != CHAT_MESSAGE && EventKind::from_word(event).is_none()) {
        Some(unknown) => {
            let known = EventKind::ALL.map(EventKind::word).join(", ");
            Err(format!("no event {unknown:?}: there are {known}, {CHAT_MESSAGE}"))
        }
        None => Ok(events),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Vec<Webhook>, UnusableValues> {
        let file: FileWebhook = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let read = read(vec![file], Path::new("/etc/adj/config.toml"), &mut unusable);
        if unusable.fields().is_empty() { Ok(read) } else { Err(unusable) }
    }

    #[test]
    fn webhook_has_a_usable_address() {
        let good = read_one("url = \"https://example.org/x?y=1\"\nsecret_file = \"hook.secret\"").expect("good");
        assert_eq!((good[0].secret_file.to_str(), good[0].events.len()), (Some("/etc/adj/hook.secret"), EVENTS_DEFAULT.len()));
        for bad in ["http://example.org/", "ftp://example.org/", "example.org", "https://", "https://u:p@example.org/", "/x", "unix:/x"] {
            assert!(read_one(&format!("url = \"{bad}\"\nsecret_file = \"s\"")).is_err(), "{bad}");
        }
        let unknown = read_one("url = \"https://example.org/\"\nsecret_file = \"s\"\nevents = [\"run.ended\"]").expect_err("refused");
        assert!(unknown.fields() == ["webhooks[0].events"] && format!("{unknown:?}").contains("run.finished"), "{unknown:?}");
    }
}
