//! How a CLI is configured to use the gate.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a CLI is made to call its model through the gate, which has the key. Texts may contain
/// `{gate_url}` (without a trailing slash) and, except in arguments, `{gate_token}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateForm {
    /// The base URL that replaces `{gate_url}`, unless the agent's configuration names another one.
    #[serde(default)]
    pub base_url: String,
    /// Environment variables. They override the dispatcher's and the configuration's. An object in
    /// JSON is added to that of the profile.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Arguments, after all others.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that the CLI must not have: other keys and other ways to its vendor. A name may
    /// end in `*`.
    #[serde(default)]
    pub unset: Vec<String>,
    /// Variables without which the CLI would call another address: a run that lacks one does not
    /// start.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Requirements of the gate, and its limits.
    #[serde(default)]
    pub about: String,
}
