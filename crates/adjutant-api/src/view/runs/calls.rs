//! Calls that start, show, stop, resume and cancel runs.

use super::run::RunView;
use crate::view::Word;
use adjutant_core::checkpoint::Choice;
use adjutant_core::pool::AfterFailed;
use adjutant_core::signal::Priority;
use adjutant_core::{Fence, Isolation, Permissions};
use serde::{Deserialize, Serialize};

/// Starts or queues a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    pub agent: String,
    pub prompt: String,
    /// The working directory: an absolute path of an existing directory.
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Active time in seconds after which the attempt is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Success criteria as text. They are part of the prompt and shown with the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// The acceptance command: a program and its arguments, run without a shell in the run's
    /// directory after the agent has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// What the run may do without approval. Default: the agent's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
    /// Whether the run gets its own workspace, created from the commit that is checked out in
    /// `cwd`. Default: the agent's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Word<Isolation>>,
    /// Whether the workspace starts with the uncommitted changes in `cwd`: staged, unstaged and
    /// untracked files, but not ignored ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_changes: bool,
    /// Whether the directory's own agent configuration (servers, hooks, settings) is honoured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_repo: bool,
    /// Whether the run stays stopped after a usage limit or an overload, until a caller resumes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_auto_resume: bool,
    /// The fence of the run. Default: the agent's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Word<Fence>>,
    /// The pool whose slot the run needs. Default: the agent's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// P0 starts before P1, P1 before P2. Default: P1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Word<Priority>>,
    /// Runs that must have succeeded before it starts. `RUN:any` waits for any end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What happens if one of them fails. Default: the run is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_failed: Option<Word<AfterFailed>>,
    /// The budget of the run and the runs below it, such as `cost=5,tokens=2M,time=1h`, and `hard`.
    /// Default: the setting of the pool, the agent, or in general.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Environment variables for the agent, in addition to the allowed ones.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
    /// The model, for an agent whose CLI takes one on its command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Arguments of the agent's program, after all others, in every attempt. They are not checked
    /// and can override `permissions`, so only a person may give them. `adj show` prints them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the agent, above all others, in every attempt. Only a person may
    /// give them. The values are kept apart from the database until the run is removed, and are
    /// never shown.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub set_env: std::collections::BTreeMap<String, String>,
}

/// Lists runs that the caller may see: live ones, then stopped, queued and finished ones, each
/// newest first. With `before`, in the order of their dispatch, newest first, to read all of them
/// in pages.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// Also lists finished runs.
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Lists only runs that were dispatched before this one. Empty: from the newest run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunList {
    pub runs: Vec<RunView>,
    /// The number of runs beyond `limit`, counted up to 1000.
    #[serde(default)]
    pub more: u64,
    /// There are at least `more`: they were not counted further.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_at_least: bool,
    /// A note if the machine's clock was recently changed, and by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
}

/// Returns one run. A run that reads itself also receives its messages. `run` is an id, a name, a
/// unique prefix of either, or `@last`; empty means the calling run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetRun {
    #[serde(default)]
    pub run: String,
    /// Includes the snapshots of the run's tree, which are read from its repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
    /// Reads the newest of the runs that retry or follow the run instead, if there is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest: bool,
}

/// Cancels a run. Its attempt is stopped, with all processes of the attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Reads a run's whole result.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadResult {
    pub run: String,
}

/// A run's whole result, cut to its last 1 MiB. The log has a longer one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResultView {
    pub run_id: String,
    pub run_name: String,
    /// The agent's last message, or a reconstructed result.
    pub result: String,
    /// Whether `result` was reconstructed from other evidence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconstructed: bool,
    /// The agent's last message, if it is not the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// Whether `result` is only the end of a longer message, which the log has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Starts a new run with the task of an ended one, which the new run's `retry_of` names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Retry {
    pub run: String,
    /// Replaces the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Environment variables, including credentials, which are not kept from the earlier run.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// Starts a run that continues the work of an ended one, or of the newest run that follows it: in
/// its directory, with the same agent, and in its session if the agent's CLI can resume one. The
/// new run's `retry_of` names it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowUp {
    pub run: String,
    pub prompt: String,
    /// Environment variables, including credentials, which are not kept from the earlier run.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// Stops a run's attempt. The run can be resumed later.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub run: String,
}

/// Starts a new attempt of a stopped run. Its prompt contains the checkpoint, the decisions since,
/// and the fields of this call.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub run: String,
    /// How the blocker was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// How to proceed, one of the run's `choices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<Word<Choice>>,
    /// Raises the budgets on which it draws, as `add` of `budget` does. Then the run may also be
    /// one that is not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Environment variables, including credentials, which are not kept from earlier attempts.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}
