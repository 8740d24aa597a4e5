//! The order that starts an attempt.

use crate::preset::Preset;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything a supervisor needs for its attempt. The hub writes it to an unlinked file that the
/// guard and the supervisor inherit as standard input: it is never on disk under a name and never
/// in an argument or an environment.
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
    /// The prompt of a new session, for the case that the vendor no longer has `session`.
    #[serde(default, rename = "prompt_anew", skip_serializing_if = "Option::is_none")]
    pub new_session_prompt: Option<String>,
    /// The program and all its arguments (without the prompt); resolved to an absolute path. With a
    /// preset: the program, and `args` are added to the preset's.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// `stdin`, `arg` or `stream`.
    pub prompt_via: String,
    /// What the agent is given: identity statement and task.
    pub prompt: String,
    pub cwd: PathBuf,
    /// The workspace that `cwd` lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceOrder>,
    /// The agent's whole environment; nothing else is inherited.
    pub env: BTreeMap<String, String>,
    /// Active time (waiting excluded) after which the supervisor stops the attempt by itself.
    pub timeout_ms: Option<i64>,
    /// Active time used up by earlier attempts.
    pub active_ms_before: i64,
    pub patience_ms: i64,
    /// Reported as silent after this long without output or a call. `None`: never.
    #[serde(default)]
    pub stall_ms: Option<i64>,
    /// Memory of its processes above which it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
    pub grace_ms: i64,
    /// The acceptance command: a program and its arguments. Empty: none.
    #[serde(default)]
    pub accept: Vec<String>,
    /// Its last message is kept whole (see [`AttemptDir::answer`](super::AttemptDir::answer)) up to this length in bytes, if that is more than
    /// `limits::RESULT_BYTES_MAX`; a longer one loses its beginning.
    #[serde(default)]
    pub answer_bytes_max: usize,
    /// Cap of the readable log, in bytes.
    pub log_bytes_max: u64,
    /// Proves to the hub that a call comes from this attempt's supervisor.
    pub token: String,
    /// `auto`, `pid_namespace` or `subreaper`.
    pub containment: String,
    /// The fence that the run is to have. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceOrder>,
    /// The gate to the model that the attempt is to have. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateOrder>,
}

/// A gate that is to be opened for an attempt.
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

/// A fence that is to be made around an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceOrder {
    /// The stable word of an [`adjutant_core::Fence`].
    pub wanted: String,
    /// The workspace of a run in the user's own files, as it was found at the dispatch. `None`: its directory alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// Further directories that may be written.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// Directories and files that are not there for the run, beside the home.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
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
    /// Files of the user's work tree that it is given too, from the top.
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
    /// The run for which it is made. Another run works in it too, if this one has delegated to it.
    pub run_id: String,
    pub run_name: String,
}
