//! How a CLI receives the name of its model.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a CLI receives the name of its model. Texts may contain `{model}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelForm {
    /// Arguments, after those of the agent's configuration.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment variables. An object in JSON is added to that of the profile.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}
