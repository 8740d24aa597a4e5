//! Agents: which exist, whether each can be started, and their properties.

use super::Word;
use adjutant_core::Permissions;
use adjutant_core::units::duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lists the agents.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    /// The caller's environment, as in a dispatch: its `PATH` locates programs, and its variables
    /// show whether an account is signed in. Empty: the hub's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Includes the versions already known, and queries the other programs in the background.
    #[serde(default)]
    pub versions: bool,
    /// Waits for the version of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub await_version_of: Option<String>,
    /// Also lists built-in agents whose program is not installed.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentList {
    pub agents: Vec<AgentView>,
    /// Problems in the configuration, as text for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentView {
    pub name: String,
    pub harness: String,
    pub description: String,
    /// Whether the program was found and can be started.
    pub found: bool,
    /// The program's absolute path, if found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Why the agent cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The error code of `problem`: `agent_not_found` or `agent_not_executable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem_code: Option<String>,
    /// `built-in`, or the path of the configuration file.
    pub source: String,
    /// The version that the program reports. Absent if the program was not asked or gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program is being asked for its version; a later list includes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub version_pending: bool,
    /// A remark on the version, or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_note: Option<String>,
    /// The versions that Adjutant was tested with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_tried: Option<String>,
    /// The oldest version that Adjutant starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_min: Option<VersionMinView>,
    /// Its preset was written from the vendor's documentation and never tested with the program.
    #[serde(default)]
    pub documented_only: bool,
    /// Whether a user seems to be signed in; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInView>,
    /// Absent for a program that Adjutant knows nothing about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can: Option<CanView>,
    /// The permission profile of runs that specify none.
    #[serde(default)]
    pub permissions: Word<Permissions>,
    /// The permission profiles that the agent does not support, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_profiles: BTreeMap<Word<Permissions>, String>,
    /// The pool of its runs.
    #[serde(default)]
    pub pool: String,
    /// The agent has reached its usage limit, as its vendor reported: no run of it starts before
    /// this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<String>,
    /// When a run last met that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_reported_at: Option<String>,
    /// The gate through which its model is called. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateView>,
    /// Whether its preset knows how to configure its CLI for a gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub can_have_gate: bool,
    /// How much of its quota is used, as its vendor last stated through the gate: rolling windows,
    /// the shortest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quota_windows: Vec<QuotaWindowView>,
    /// Nothing enforces the profile that the agent's configuration names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissions_not_enforced: bool,
}

/// The gate of an agent. It never contains the key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GateView {
    /// The API of its model.
    pub base_url: String,
    /// Where the key is: `file PATH` or `variable NAME`.
    pub key: String,
}

/// A rolling window of an agent's quota: what is used of it falls as time passes, at the latest
/// until the reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QuotaWindowView {
    pub minutes: u32,
    pub used_percent: u8,
    pub resets_at: String,
    pub reported_at: String,
}

impl QuotaWindowView {
    /// Describes the window for people.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "rolling {}: {} % used, resets at {}",
            duration::text(i64::from(self.minutes) * 60_000),
            self.used_percent,
            self.resets_at
        )
    }
}

/// The oldest version that Adjutant starts, and the problem of older ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VersionMinView {
    pub version: String,
    pub why: String,
}

/// Whether traces of a sign-in exist. Only their existence is checked; their content is never read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SignInView {
    pub found: bool,
    /// The file that exists, or the variable that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How to sign in.
    pub how: String,
}

/// What an agent supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CanView {
    /// Adjutant's tools, over MCP.
    pub tools: bool,
    /// Resuming its own session.
    pub resume: bool,
    /// Receiving messages while it runs.
    pub live: bool,
    /// Turning actions outside its permissions into approval requests.
    pub approvals: bool,
    /// Reporting its token usage.
    pub usage: bool,
}
