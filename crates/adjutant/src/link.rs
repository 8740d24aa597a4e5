//! What the hub and a supervisor say to each other: the order that starts an attempt, the facts
//! that come back, the orders that follow. Additive changes only: both ends may be one version
//! apart.

use crate::preset::Preset;
use crate::view::{MessageView, ResourcesView, SubagentView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
    /// What the working directory says about agents is honoured.
    #[serde(default)]
    pub trust_repo: bool,
    /// The vendor's session to go on in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What it is given instead, in a new session, should that one be gone.
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
    /// Its last message is kept whole (see [`AttemptDir::answer`]) up to this length in bytes, if that is more than
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

/// Files of one attempt, below `<home>/runs/<run-id>/<attempt>/`, directory 0700.
#[derive(Debug, Clone)]
pub struct AttemptDir(pub PathBuf);

impl AttemptDir {
    /// Names the directory of an attempt.
    #[must_use]
    pub fn new(home: &Path, run_id: &str, attempt: u32) -> Self {
        Self(home.join("runs").join(run_id).join(attempt.to_string()))
    }

    /// Returns the home that it lies in, below which no link is followed.
    #[must_use]
    pub fn home(&self) -> &Path {
        let runs = self.0.ancestors().find(|dir| dir.file_name().is_some_and(|name| name == "runs"));
        runs.and_then(Path::parent).unwrap_or(&self.0)
    }

    /// Held (flock) by the supervisor for as long as it lives; holds its pid.
    #[must_use]
    pub fn supervisor_lock(&self) -> PathBuf {
        self.0.join("supervisor.lock")
    }

    /// Held (flock) by the guard for as long as it lives; holds its pid.
    #[must_use]
    pub fn guard_lock(&self) -> PathBuf {
        self.0.join("guard.lock")
    }

    /// Created with `O_EXCL` and filled just before the agent is started: without it, or with an empty one,
    /// nothing ever ran.
    #[must_use]
    pub fn started_marker(&self) -> PathBuf {
        self.0.join("started")
    }

    /// One [`Fact`] in JSON on each line, numbered from 1 without gaps.
    #[must_use]
    pub fn facts(&self) -> PathBuf {
        self.0.join("facts.jsonl")
    }

    /// What guard and supervisor have to say for themselves.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// The agent's last message, where it is longer than a fact shows: there before the last fact.
    #[must_use]
    pub fn answer(&self) -> PathBuf {
        self.0.join("answer")
    }

    /// The supervisor's own endpoint for its worker.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join("worker.sock")
    }

    /// For the agent's own temporary files, where its preset asks for that; removed when it has ended.
    #[must_use]
    pub fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// What a fenced agent finds as `/tmp` and `/var/tmp`; removed when it has ended.
    #[must_use]
    pub fn fence(&self) -> PathBuf {
        self.0.join("fence")
    }

    /// The supervisor's own git directory, with an index of its own.
    #[must_use]
    pub fn git(&self) -> PathBuf {
        self.0.join("git")
    }

    /// For `adj mcp --token-file`: a [`WorkerAccess`] in JSON, 0600.
    #[must_use]
    pub fn worker_access(&self) -> PathBuf {
        self.0.join("worker.json")
    }
}

/// How a worker reaches its supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerAccess {
    pub run_id: String,
    pub attempt: u32,
    pub socket: PathBuf,
    /// `http://127.0.0.1:<port>/mcp`.
    pub mcp_url: String,
    pub token: String,
}

/// One numbered statement of a supervisor about its attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// From 1, without gaps within the attempt.
    pub n: u64,
    /// Wall clock, milliseconds since the epoch.
    pub at_ms: i64,
    #[serde(flatten)]
    pub what: FactKind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum FactKind {
    /// The agent's process is there.
    Started {
        pid: u32,
        guard_pid: u32,
        containment: String,
        /// The fence, where one was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<FenceText>,
    },
    /// What the attempt's workspace was given, beside the files of git.
    WorkspacePrepared(PreparationText),
    /// It could not be started. `code` is one of [`crate::view::codes`].
    SpawnFailed { code: String, message: String },
    /// Output has come since the last such fact (at most one each second; never synced by itself).
    Output { total_bytes: u64 },
    /// A message was given to the running process.
    Delivered { message_id: String },
    /// The vendor's session that the agent works in: a later attempt can go on in it.
    Session { session: String },
    /// Something in the agent's own words looks like a signal.
    Signal { found: FoundText },
    /// The guard died; the supervisor goes on without it.
    GuardLost {},
    /// The active time (of all attempts together) is used up; the supervisor is stopping the attempt.
    LimitReached { active_ms: i64 },
    /// The processes use more memory than they may; the supervisor is stopping the attempt.
    MemoryLimitReached { memory_bytes: u64 },
    /// It has written nothing and called nobody for so long.
    Stalled { silent_ms: i64 },
    /// A sign of life after that.
    #[serde(rename = "stirred")]
    ActiveAgain {},
    /// Its output has reported writes that the fence denied: so many, and the last line that did.
    WriteDenied { times: u64, line: String },
    /// Its CLI repeats a call to its model that has kept failing for so long. `cause` is the stable word of a
    /// [`adjutant_core::Cause`], `words` are the CLI's own.
    Retrying { cause: String, words: String, tries: u32, for_ms: i64 },
    /// Progress after that.
    Recovered {},
    /// The sub-agents that its CLI has started by itself, as far as they are known, and how many more there were.
    Subagents(SubagentsText),
    /// What the attempt's processes use of the machine.
    Resources(ResourcesView),
    /// What the agent's stream says that was used so far: totals, as `usage` of the last fact.
    Usage(UsageText),
    /// What the gate to the model has counted so far. From then on the stream's usage does not count.
    GateUsage { used: Vec<ModelUsage> },
    /// The agent calls its model without the gate.
    GateIgnored { why: String },
    /// The vendor accepts no further request of the agent before this time, in milliseconds since the epoch.
    UsageLimitReported { until_ms: i64 },
    /// How much of the agent's quota is used, as its vendor has stated it.
    QuotaWindows { windows: Vec<QuotaWindowText> },
    /// The agent has ended a turn and continues with another one.
    TurnEnded {},
    /// A snapshot of the run's tree was taken. `cause` is the stable word of a [`adjutant_core::snapshot::SnapshotCause`].
    SnapshotTaken { snapshot: u32, cause: String },
    /// A snapshot of the run's tree could not be taken.
    SnapshotFailed { why: String },
    /// The agent has ended, and what it left behind is about to be looked at. Should the supervisor die
    /// over that, `end` (an `Ended`) is how the attempt ended.
    AgentEnded { end: Box<FactKind> },
    /// What was found of what it left behind.
    #[serde(rename = "looked")]
    EvidenceCollected(AttemptEvidence),
    /// The agent's process has ended and everything it started is gone. Always the last fact.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        /// Killed because they were still there.
        swept: u32,
        /// A descendant kept the output open and was cut off.
        output_left_open: bool,
        /// Active time of all attempts together.
        active_ms: i64,
        /// The agent's last message: the last 16 KiB of it at most, whole characters.
        result: String,
        /// Length of the whole message, which the `answer` file has where that is more. 0: nobody said it.
        #[serde(default)]
        result_bytes: u64,
        /// Why the message is no result, and what was said before it. `None`: it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<GapText>,
        output_bytes: u64,
        /// What the agent's stream said about its end. `None`: it has none, the exit status counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<VerdictText>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<UsageText>,
    },
}

/// What a workspace was given, beside the files of git.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreparationText {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied: Vec<NotCopiedText>,
    /// The result of the setup command. `None`: there is none, or it has not run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandEvidence>,
}

/// A configured file that a workspace was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopiedText {
    pub path: String,
    pub why: String,
}

/// Why a last message is no result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapText {
    /// `empty`, `cut` or `pointer`.
    pub word: String,
    /// Substantial messages before it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<String>,
}

/// The fence of an attempt, as it was tested from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceText {
    /// `mount_namespace`, `landlock` or `none`.
    pub enforced: String,
    /// What it does not enforce of a whole fence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Why there is none, or a lesser one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the run can write, beside temporary files of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
}

/// The sub-agents of a CLI's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentsText {
    pub all: Vec<SubagentView>,
    /// There were more than those.
    #[serde(default)]
    pub more: u64,
}

/// What was seen of what an attempt left behind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptEvidence {
    /// One for each path that the report names. `None`: nobody has looked.
    #[serde(default)]
    pub files: Option<Vec<FileEvidence>>,
    /// What changed in the run's directory, by git. `None`: no repository, or nobody has looked.
    #[serde(default)]
    pub changed: Option<Vec<String>>,
    /// There are more than those.
    #[serde(default)]
    pub changed_cut: bool,
    /// Commits that were made in the work tree since the attempt's start, the newest first: a short id and the subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// They changed since the attempt's start. Otherwise they are all that differs from what is committed.
    #[serde(default)]
    pub changed_since_start: bool,
    #[serde(default)]
    pub acceptance: Option<CommandEvidence>,
}

/// What was found at one path that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileEvidence {
    pub path: String,
    /// `file`, `directory`, `missing`, `outside` or `unreadable`.
    pub seen: String,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub sha256: Option<String>,
    #[serde(default)]
    pub problem: Option<String>,
}

/// The result of a command that runs beside the agent, such as the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandEvidence {
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    /// Why it was stopped.
    #[serde(default)]
    pub stopped: Option<String>,
    /// Why nobody knows what it came to.
    #[serde(default)]
    pub not_known: Option<String>,
    /// The end of what it wrote: at most 16 KiB, whole characters.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}

/// What an agent's stream said about its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictText {
    /// The stable word of a cause. `None`: it succeeded.
    pub cause: Option<String>,
    /// What went wrong and what to do about it, for people.
    #[serde(default)]
    pub message: String,
    /// When it can go on, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at_ms: Option<i64>,
}

/// What an attempt used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageText {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The tokens are those of all attempts in this session together.
    #[serde(default)]
    pub of_session: bool,
    /// The cost is.
    #[serde(default)]
    pub cost_of_session: bool,
    /// `input_tokens` includes `cached_tokens`.
    #[serde(default)]
    pub cached_in_input: bool,
}

/// A rolling window of an agent's quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaWindowText {
    #[serde(default)]
    pub minutes: u32,
    #[serde(default)]
    pub used_percent: u8,
    /// In milliseconds since the epoch.
    #[serde(default)]
    pub resets_at_ms: i64,
}

/// What an attempt has used of one model, as the gate counted it: totals of the attempt, which never become smaller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// As the requests name it. Empty: they name none.
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub requests: u64,
    /// Without those that were read from the cache or written to it.
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub cached_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    /// Requests whose responses did not state their usage.
    #[serde(default)]
    pub unknown_requests: u64,
}

/// `POST /link/budget`: states what was used so far, and asks whether a request may begin. Repeating it is harmless.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskBudget {
    #[serde(default)]
    pub used: Vec<ModelUsage>,
    /// A request is about to begin.
    #[serde(default)]
    pub begins: bool,
}

/// What an attempt may still use. An absent amount has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    pub may_begin: bool,
    /// Why not, in one line for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms_left: Option<u64>,
    /// Its budget is hard: an agent whose usage cannot be known is stopped.
    #[serde(default)]
    pub is_hard: bool,
}

/// What a scanner found, as it stood there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum FoundText {
    Block {
        tag: String,
        text: String,
    },
    Json {
        text: String,
    },
    /// It began and did not end well.
    Broken {
        tag: String,
        text: String,
        why: String,
    },
}

/// Header names of the socket protocol.
pub mod headers {
    /// An idempotency key: the same call with the same key has one effect and one reply.
    pub const KEY: &str = "adj-key";
    /// The client name that a parent's connection acts under. Absent: the person.
    pub const CLIENT: &str = "adj-client";
    /// The caller's version.
    pub const VERSION: &str = "adj-version";
    /// Of a reply to the person: what is wrong with the configuration, as `encode_name` writes it.
    pub const CONFIG_PROBLEM: &str = "adj-config-problem";
    /// `<run-id>/<attempt>`: who the supervisor speaks for. With `Authorization: Bearer <token>`.
    pub const ATTEMPT: &str = "adj-attempt";
}

/// `POST /link/facts`: facts from the supervisor, in order. Repeating some is harmless.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PostFacts {
    pub facts: Vec<Fact>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FactsTaken {
    /// Everything up to this number is in the store.
    pub cursor: u64,
}

/// `POST /link/orders`: waits for the next change of what the hub wants from the attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetOrders {
    /// The `version` of the orders that are known already; 0 at first.
    pub known: i64,
    pub wait_ms: u64,
}

/// `POST /link/closing`: the agent has ended, and all facts up to that are taken. What is to be looked
/// at?
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GetClosing {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Closing {
    /// The paths that the run's report names.
    #[serde(default)]
    pub files: Option<Vec<String>>,
    /// The run's end counts, so its acceptance command is to be run.
    #[serde(default)]
    pub accept: bool,
    /// What git calls changed is wanted.
    #[serde(default)]
    pub changed: bool,
}

/// What the hub wants from the attempt now: a level, not an edge, so that nothing is lost when
/// either end is restarted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Changes whenever anything below does.
    pub version: i64,
    /// The attempt is to be stopped, with this reason (`cancelled`, `paused`, …).
    pub stop: Option<String>,
    /// A blocking request is open: the active-time clock stands still.
    pub waiting: bool,
    /// Messages that were not delivered yet, oldest first.
    pub messages: Vec<MessageView>,
}
