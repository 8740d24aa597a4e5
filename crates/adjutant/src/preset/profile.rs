//! Profiles of permissions: how a preset holds its CLI to each.

use super::Exception;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What each profile of permissions adds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    #[serde(default)]
    pub read: Profile,
    #[serde(default)]
    pub edit: Profile,
    #[serde(default)]
    pub full: Profile,
}

impl Profiles {
    /// Returns the profile of a word.
    #[must_use]
    pub fn of(&self, word: &str) -> &Profile {
        match word {
            "read" => &self.read,
            "full" => &self.full,
            _ => &self.edit,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the agent may do then without being asked, and how the rest is handled, for people.
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Overrides the dispatcher and the configuration.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Added to the CLI's configuration, with a `config_home`.
    #[serde(default)]
    pub settings: toml::Table,
    /// ACP's session mode; Codex's sandbox.
    #[serde(default)]
    pub mode: Option<String>,
    /// Why the CLI cannot be held to this profile: no run is started with it.
    #[serde(default)]
    pub unsupported: Option<String>,
    /// What the CLI does otherwise than this profile promises of all.
    #[serde(default)]
    pub exceptions: Vec<Exception>,
}

impl Profile {
    /// Tells whether the profile sets anything.
    pub(super) fn is_empty(&self) -> bool {
        self.args.is_empty() && self.env.is_empty() && self.settings.is_empty() && self.mode.is_none()
    }
}
