//! Agents: what is configured or built in, whether it can be started, what is known about it.

use super::{Call, Word};
use adjutant_core::Permissions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lists the agents.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    /// The caller's environment, as for a dispatch: programs are looked for on its `PATH`, and it
    /// tells whether an account is signed in. Empty: the hub's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The versions that are known come along; the other programs are asked for theirs, which is not waited for.
    #[serde(default)]
    pub versions: bool,
    /// The version of this agent is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub await_version_of: Option<String>,
    /// Built-in agents whose program is not there are listed too.
    #[serde(default)]
    pub all: bool,
}
call!(ListAgents = "agents", writes false -> AgentList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AgentList {
    pub agents: Vec<AgentView>,
    /// Problems of the configuration, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AgentView {
    pub name: String,
    pub harness: String,
    pub description: String,
    /// The program can be started.
    pub found: bool,
    /// Its absolute path, where found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The error code of that: `agent_not_found` or `agent_not_executable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem_code: Option<String>,
    /// `built-in` or the configuration file.
    pub source: String,
    /// As the program says it. Nothing where it was not asked, or did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its program is being asked for it: a later list has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub version_pending: bool,
    /// What is to be said about that version, or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_note: Option<String>,
    /// The versions that were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_tried: Option<String>,
    /// In an older version it is not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_min: Option<VersionMinView>,
    /// What is known about it is from its documentation: it was never started in a test.
    #[serde(default)]
    pub documented_only: bool,
    /// Whether a user seems to be signed in; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInView>,
    /// Nothing for a program of which nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can: Option<CanView>,
    /// The profile of permissions of a run that names none.
    #[serde(default)]
    pub permissions: Word<Permissions>,
    /// The profiles of permissions that it cannot be run with, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unsupported_profiles: BTreeMap<Word<Permissions>, String>,
    /// Nothing holds it to the profile that its configuration states.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissions_not_enforced: bool,
}

/// The oldest version that is started, and what an older one does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionMinView {
    pub version: String,
    pub why: String,
}

/// Whether what signing in leaves behind is there. Only that is looked at, never what it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInView {
    pub found: bool,
    /// The file that is there, or the variable that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How to sign in.
    pub how: String,
}

/// What an agent can do here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanView {
    /// It has our tools, over MCP.
    pub tools: bool,
    /// It goes on in its own session.
    pub resume: bool,
    /// It takes messages while it works.
    pub live: bool,
    /// What it may not do by itself becomes an approval request.
    pub approvals: bool,
    /// It tells what it uses up.
    pub usage: bool,
}
