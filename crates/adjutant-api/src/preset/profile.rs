//! Permission profiles: how a preset enforces each one.

use super::Exception;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The settings of each permission profile.
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
    /// What the agent may do without approval, and what happens to other actions, for people.
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Overrides the dispatcher's environment and the configuration.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// With a `config_home`: added to the CLI's configuration.
    #[serde(default)]
    pub settings: toml::Table,
    /// The ACP session mode, or Codex's sandbox.
    #[serde(default)]
    pub mode: Option<String>,
    /// Why this profile cannot be enforced. No run is started with it.
    #[serde(default)]
    pub unsupported: Option<String>,
    /// Actions for which the CLI differs from the profile's general promise.
    #[serde(default)]
    pub exceptions: Vec<Exception>,
}

impl Profile {
    /// Returns whether the profile sets nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.args.is_empty()
            && self.env.is_empty()
            && self.settings.is_empty()
            && self.mode.is_none()
    }
}
