//! The order that starts an attempt.

use crate::preset::Preset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything that a supervisor needs for its attempt. The hub writes it to an unlinked file, which
/// the guard and the supervisor inherit as standard input. It never has a name on disk and is in no
/// argument or environment variable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub home: PathBuf,
    pub run_id: String,
    pub run_name: String,
    pub attempt: u32,
    pub agent: String,
    /// `echo`, `plain` or `vendor`.
    pub harness: String,
    /// How a vendor's CLI is driven.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// `read`, `edit` or `full`.
    #[serde(default)]
    pub permissions: String,
    /// Whether the working directory's own agent configuration is loaded.
    #[serde(default)]
    pub trust_repo: bool,
    /// The vendor's session to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the program has the run's tools. Without them it has no token, and all its calls are
    /// refused.
    #[serde(default = "has_tools_by_default")]
    pub has_tools: bool,
    /// The prompt for a new session, used if the vendor no longer has `session`.
    #[serde(
        default,
        rename = "prompt_anew",
        skip_serializing_if = "Option::is_none"
    )]
    pub new_session_prompt: Option<String>,
    /// The program as an absolute path, and its arguments without the prompt. With a preset: only
    /// the program; `args` are added to the preset's arguments.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The model that the dispatcher named, for a CLI with a preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Arguments of the dispatcher, after all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_args: Vec<String>,
    /// `stdin`, `arg` or `stream`.
    pub prompt_via: String,
    /// The identity statement and the task.
    pub prompt: String,
    pub cwd: PathBuf,
    /// The workspace that contains `cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceOrder>,
    /// The agent's whole environment.
    pub env: BTreeMap<String, String>,
    /// Active time after which the supervisor stops the attempt.
    pub timeout_ms: Option<i64>,
    /// Active time of earlier attempts.
    pub active_ms_before: i64,
    pub patience_ms: i64,
    /// Time without output and calls after which the agent is reported as silent. `None`: never.
    #[serde(default)]
    pub stall_ms: Option<i64>,
    /// Memory of its processes above which the attempt is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
    pub grace_ms: i64,
    /// Silence after its report after which the run needs attention. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_grace_ms: Option<i64>,
    /// The agent is ended then instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_after_report: bool,
    /// The acceptance command: a program and its arguments. Empty: none.
    #[serde(default)]
    pub accept: Vec<String>,
    /// Longest last message that is kept whole, in bytes, if above `limits::RESULT_BYTES_MAX` (see
    /// [`AttemptDir::answer`](super::AttemptDir::answer)). The beginning of a longer one is cut.
    #[serde(default)]
    pub answer_bytes_max: usize,
    /// Cap of the readable log, in bytes.
    pub log_bytes_max: u64,
    /// Proves to the hub that a call comes from this attempt's supervisor.
    pub token: String,
    /// `auto`, `pid_namespace` or `subreaper`.
    pub containment: String,
    /// The requested fence. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceOrder>,
    /// The lease of an attempt on a runner, in milliseconds. `None`: the attempt is on the hub's
    /// own machine and needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The gate to the model. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateOrder>,
}

/// Orders of hubs before this field.
fn has_tools_by_default() -> bool {
    true
}

/// The gate to open for an attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GateOrder {
    /// The API of the model.
    pub base_url: String,
    pub key: Secret,
}

/// A text that is never printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// The fence to set up around an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceOrder {
    /// The stable word of an [`adjutant_core::Fence`].
    pub wanted: String,
    /// The workspace of a run in the user's own files, as resolved at the dispatch. `None`: only
    /// its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Further writable directories.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// Directories and files that are hidden from the run, in addition to the home.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
}

/// The state with which the workspace of an attempt begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeStart {
    /// A workspace that exists is used; another one has the files of the base.
    #[default]
    Base,
    /// A workspace that exists is used; another one has the files of the newest snapshot of the
    /// run.
    Newest,
    /// The run has worked on another machine since: a workspace that exists is set aside, and
    /// another one has the files of the newest snapshot.
    Moved,
}

/// The workspace of an isolated run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkspaceOrder {
    /// `clone` or `worktree`.
    pub isolation: String,
    /// The top of the user's work tree.
    pub repository: PathBuf,
    pub base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit of the user's uncommitted changes that it starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
    /// The top of the workspace.
    pub path: PathBuf,
    /// Files of the user's work tree to copy, relative to its top.
    #[serde(default)]
    pub copy: Vec<String>,
    /// The setup command: a program and its arguments. Empty: none.
    #[serde(default)]
    pub setup: Vec<String>,
    #[serde(default)]
    pub setup_timeout_ms: i64,
    /// Directories that it shares with other workspaces of the repository.
    #[serde(default)]
    pub caches: Vec<PathBuf>,
    /// How the workspace begins.
    #[serde(default)]
    pub start: TreeStart,
    /// The run that the workspace is created for. Its child runs work in it too.
    pub run_id: String,
    pub run_name: String,
}
