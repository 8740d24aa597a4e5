//! The configuration's part on webhooks.

use adjutant_core::EventKind;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The event of an entry that is added to a chat; all others are those of the history.
const CHAT_MESSAGE: &str = "chat.message";
/// What a webhook is told when it does not say.
const EVENTS_DEFAULT: [&str; 7] =
    ["run.finished", "run.stopped", "request.asked", "request.answered", "request.expired", "request.withdrawn", CHAT_MESSAGE];
const WEBHOOKS_MAX: usize = 16;
const URL_BYTES_MAX: usize = 2_048;

/// Somebody who is told what happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: http::Uri,
    /// Absolute. Holds what deliveries are signed with.
    pub secret_file: PathBuf,
    pub events: Vec<String>,
    /// It may lie on this machine or in a private network.
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

/// Reads the part. The error names the field and what is wrong with it.
pub(super) fn read(files: Vec<FileWebhook>, config: &Path) -> Result<Vec<Webhook>, (String, String)> {
    if files.len() > WEBHOOKS_MAX {
        return Err(("webhooks".to_owned(), format!("at most {WEBHOOKS_MAX}")));
    }
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, FileWebhook { url, secret_file, events, allow_private }) in files.into_iter().enumerate() {
        let wrong = |field: &str, problem: String| Err((format!("webhooks[{index}].{field}"), problem));
        let parsed = match url.parse::<http::Uri>() {
            Ok(parsed) if url.len() <= URL_BYTES_MAX && parsed.host().is_some_and(|host| !host.is_empty()) => parsed,
            _ => return wrong("url", "use an address such as https://example.org/hook".to_owned()),
        };
        if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return wrong("url", "must hold no user name or password".to_owned());
        }
        match parsed.scheme_str() {
            Some("https") => {}
            Some("http") if allow_private => {}
            Some("http") => return wrong("url", "use https: http is for your own network, with allow_private = true".to_owned()),
            _ => return wrong("url", "use https".to_owned()),
        }
        if webhooks.iter().any(|other| other.url == parsed) {
            return wrong("url", "is there twice: name all its events in one".to_owned());
        }
        let events = events.unwrap_or_else(|| EVENTS_DEFAULT.map(str::to_owned).to_vec());
        if let Some(unknown) = events.iter().find(|event| *event != CHAT_MESSAGE && EventKind::from_word(event).is_none()) {
            let known = EventKind::ALL.map(EventKind::word).join(", ");
            return wrong("events", format!("no event {unknown:?}: there are {known}, {CHAT_MESSAGE}"));
        }
        let secret_file = config.parent().unwrap_or(Path::new("/")).join(secret_file);
        webhooks.push(Webhook { url: parsed, secret_file, events, allow_private });
    }
    Ok(webhooks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> Result<Vec<Webhook>, (String, String)> {
        let file: FileWebhook = toml::from_str(text).expect("TOML");
        read(vec![file], Path::new("/etc/adj/config.toml"))
    }

    #[test]
    fn a_webhook_names_a_place_that_can_be_used() {
        let good = read_one("url = \"https://example.org/x?y=1\"\nsecret_file = \"hook.secret\"").expect("good");
        assert_eq!((good[0].secret_file.to_str(), good[0].events.len()), (Some("/etc/adj/hook.secret"), EVENTS_DEFAULT.len()));
        for bad in ["http://example.org/", "ftp://example.org/", "example.org", "https://", "https://u:p@example.org/", "/x", "unix:/x"] {
            assert!(read_one(&format!("url = \"{bad}\"\nsecret_file = \"s\"")).is_err(), "{bad}");
        }
        let unknown = read_one("url = \"https://example.org/\"\nsecret_file = \"s\"\nevents = [\"run.ended\"]").expect_err("refused");
        assert!(unknown.0 == "webhooks[0].events" && unknown.1.contains("run.finished"), "{unknown:?}");
    }
}
