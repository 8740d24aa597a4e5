//! A check of `adj doctor` and what it has found.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Finding {
    Good,
    /// Works, but could be better.
    Note,
    Broken,
}

#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub name: &'static str,
    pub finding: Finding,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The client whose entry `--fix` can update.
    #[serde(rename = "fixable_client", skip_serializing_if = "Option::is_none")]
    pub client: Option<&'static str>,
}

pub(super) fn good(name: &'static str, message: impl Into<String>) -> Check {
    Check {
        name,
        finding: Finding::Good,
        message: message.into(),
        fix: None,
        client: None,
    }
}

pub(super) fn note(
    name: &'static str,
    message: impl Into<String>,
    fix: impl Into<String>,
) -> Check {
    Check {
        name,
        finding: Finding::Note,
        message: message.into(),
        fix: Some(fix.into()),
        client: None,
    }
}

pub(super) fn broken(
    name: &'static str,
    message: impl Into<String>,
    fix: impl Into<String>,
) -> Check {
    Check {
        name,
        finding: Finding::Broken,
        message: message.into(),
        fix: Some(fix.into()),
        client: None,
    }
}
