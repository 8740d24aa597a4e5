//! `gate`, `base_url` and `key` of an agent: whether its model is called through the gate.

use super::env_pass::{self, EnvPassProblem};
use super::values::UnusableValues;
use crate::preset::Preset;
use adjutant_core::agent::AgentGate;
use adjutant_core::webhook::is_public;
use http::Uri;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const URL_BYTES_MAX: usize = 2_048;

/// The gate of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSettings {
    /// The API of the model.
    pub base_url: Uri,
    pub key: KeySource,
}

impl GateSettings {
    /// Returns what a run of the agent keeps of its gate.
    pub(super) fn of_agent(&self) -> AgentGate {
        let key_variable = match &self.key {
            KeySource::File(_) => None,
            KeySource::Env(name) => Some(name.clone()),
        };
        AgentGate { key_variable }
    }
}

/// Where the key of the API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file that only its user can read.
    File(PathBuf),
    /// In a variable of the dispatcher.
    Env(String),
}

/// A secret: `{ file = "…" }` or `{ env = "…" }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileKey {
    file: Option<PathBuf>,
    env: Option<String>,
}

/// The gate settings in an agent's entry.
pub(super) struct DeclaredGate<'a> {
    pub(super) agent: &'a str,
    pub(super) harness: &'a str,
    pub(super) gate: Option<bool>,
    pub(super) base_url: Option<&'a str>,
    pub(super) key: Option<&'a FileKey>,
}

/// Reads an agent's gate. `config` is the path of the file. `None`: it has none, or it is invalid,
/// which is reported.
pub(super) fn gate(
    agent: &DeclaredGate<'_>,
    preset: Option<&Preset>,
    config: &Path,
    unusable: &mut UnusableValues,
) -> Option<GateSettings> {
    let field = |key: &str| format!("agents.{}.{key}", agent.agent);
    let base_url = agent
        .base_url
        .and_then(|url| unusable.check(&field("base_url"), address(url)));
    let key = agent
        .key
        .and_then(|key| unusable.check(&field("key"), source(key, config)));
    match agent.gate {
        Some(true) => {}
        Some(false) => return None,
        None => {
            for key in [
                agent.base_url.is_some().then_some("base_url"),
                agent.key.is_some().then_some("key"),
            ]
            .into_iter()
            .flatten()
            {
                unusable.report(field(key), "is for the gate: set gate = true");
            }
            return None;
        }
    }
    let Some(form) = preset.and_then(|preset| preset.gate.as_ref()) else {
        unusable.report(
            field("gate"),
            format!(
                "{} does not support a gate: its preset has no [presets.NAME.gate]",
                agent.harness
            ),
        );
        return None;
    };
    let base_url = match (agent.base_url, form.base_url.is_empty()) {
        (Some(_), _) => base_url,
        (None, false) => unusable.check(&field("gate"), address(&form.base_url)),
        (None, true) => {
            unusable.report(
                field("base_url"),
                "required with gate = true: the URL of the model's API",
            );
            None
        }
    };
    if agent.key.is_none() {
        unusable.report(
            field("key"),
            "required with gate = true: { file = \"PATH\" } or { env = \"NAME\" }",
        );
    }
    Some(GateSettings {
        base_url: base_url?,
        key: key?,
    })
}

/// Why the place of a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyProblem {
    #[error("{0:?} is not a variable")]
    Pattern(String),
    #[error(transparent)]
    Variable(#[from] EnvPassProblem),
    #[error("use either {{ file = \"PATH\" }} or {{ env = \"NAME\" }}")]
    NotOne,
}

pub(super) fn source(key: &FileKey, config: &Path) -> Result<KeySource, KeyProblem> {
    match (&key.file, &key.env) {
        (Some(file), None) => Ok(KeySource::File(
            config.parent().unwrap_or(Path::new("/")).join(file),
        )),
        (None, Some(name)) if name.ends_with('*') => Err(KeyProblem::Pattern(name.clone())),
        (None, Some(name)) => {
            env_pass::check(std::slice::from_ref(name))?;
            Ok(KeySource::Env(name.clone()))
        }
        _ => Err(KeyProblem::NotOne),
    }
}

/// Why the base URL of an API cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BaseUrlProblem {
    #[error("use an address such as https://api.example.org")]
    NotAddress,
    #[error("must not contain a user name, password or query")]
    HasUserOrQuery,
    #[error("use https: http is for localhost and for addresses of private networks")]
    PlainText,
    #[error("use https")]
    NotHttps,
}

/// Parses the base URL of an API. The key goes there, so it is `https`, or `http` in the user's own
/// network.
fn address(url: &str) -> Result<Uri, BaseUrlProblem> {
    let parsed = url.parse::<Uri>().ok().filter(|parsed| {
        url.len() <= URL_BYTES_MAX && parsed.host().is_some_and(|host| !host.is_empty())
    });
    let parsed = parsed.ok_or(BaseUrlProblem::NotAddress)?;
    if parsed
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
        || parsed.query().is_some()
    {
        return Err(BaseUrlProblem::HasUserOrQuery);
    }
    let host = parsed
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let is_own_network = host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| !is_public(address));
    match parsed.scheme_str() {
        Some("https") => Ok(parsed),
        Some("http") if is_own_network => Ok(parsed),
        Some("http") => Err(BaseUrlProblem::PlainText),
        _ => Err(BaseUrlProblem::NotHttps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_keeps_the_key_off_open_networks() {
        for good in [
            "https://api.example.org",
            "https://api.example.org:8443/v1/",
            "http://127.0.0.1:8080",
            "http://localhost/v1",
            "http://[::1]:9",
            "http://192.168.1.7:8000/v1",
        ] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "http://api.example.org",
            "http://8.8.8.8",
            "ftp://localhost",
            "api.example.org",
            "https://",
            "https://u:p@example.org",
            "https://x/?key=1",
            "/v1",
            "unix:/x",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
