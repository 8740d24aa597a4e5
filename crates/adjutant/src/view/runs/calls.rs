//! The calls that start, show, stop, resume and end runs.

use super::run::RunView;
use crate::view::{Call, Word};
use adjutant_core::checkpoint::Choice;
use adjutant_core::{Isolation, Permissions};
use serde::{Deserialize, Serialize};

/// Starts a run (or queues it).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    pub agent: String,
    pub prompt: String,
    /// Absolute. Must exist and be a directory.
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Active time after which the attempt is stopped, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Success criteria in words: part of the prompt, and shown beside the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// The acceptance command, a program and its arguments, run in the run's directory when its agent
    /// has ended. No shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// What it may do without approval. Left out: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
    /// Whether it works in a workspace of its own, made from the commit that is checked out in `cwd`. Left out: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Word<Isolation>>,
    /// What the directory says about agents (servers, hooks, settings) is honoured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_repo: bool,
    /// Variables for the agent beside the allow-list, from the dispatcher.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}
call!(Dispatch = "dispatch", writes true -> RunView);

/// Lists runs that the caller may see, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// Finished ones too.
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ListRuns = "runs", writes false -> RunList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunList {
    pub runs: Vec<RunView>,
    /// How many more there are beyond `limit`.
    #[serde(default)]
    pub more: u64,
    /// The machine's clock was set lately, and by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
}

/// Looks at one run; a run that looks at itself takes its messages. `run` is an id, a name, a unique prefix of either, or `@last`; a worker may
/// leave it empty for itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetRun {
    #[serde(default)]
    pub run: String,
    /// With the snapshots of its tree, which are read from its repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
}
call!(GetRun = "run", writes true -> RunView);

/// Ends a run: its attempt is stopped and everything it started with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
call!(Cancel = "cancel", writes true -> RunView);

/// Reads a run's whole result.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadResult {
    pub run: String,
}
call!(ReadResult = "result", writes false -> ResultView);

/// A run's whole result: at most 1 MiB; what is longer is in its log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultView {
    pub run_id: String,
    pub run_name: String,
    /// The agent's last message, or what is put together in its place.
    pub result: String,
    /// It is put together from what was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconstructed: bool,
    /// The agent's last message, where that is not the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// It is the end of a longer message, which the log has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Starts a new run from an ended one; its `retry_of` names that one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    pub run: String,
    /// Replaces the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Where the new run finds its credentials: those of the run before are not kept.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}
call!(Retry = "retry", writes true -> RunView);

/// Stops a run's attempt, to be resumed later.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub run: String,
}
call!(Pause = "pause", writes true -> RunView);

/// Starts a new attempt of a stopped run. Its prompt has the checkpoint, what was decided since, and the
/// fields of this call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub run: String,
    /// How its blocker was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// What to do about what stopped it, where its `choices` offer that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Word<Choice>>,
    /// Where the next attempt finds its credentials: those of the attempts before are not kept.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}
call!(Resume = "resume", writes true -> RunView);
