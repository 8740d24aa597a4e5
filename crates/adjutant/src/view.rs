//! The one JSON contract: what every interface takes and gives, on the hub's socket, over HTTP, as
//! MCP's `structuredContent` and as the CLI's `--json`.
//!
//! Each use case is one [`Call`]: `POST /api/v1/<NAME>` with the call as body, its reply or an
//! [`ErrorView`] back. Fields are snake_case, times RFC 3339 UTC, durations carry their unit.
//! Additive changes only.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A use case with its arguments.
pub trait Call: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its path below `/api/v1/`.
    const NAME: &'static str;
    /// Whether it changes anything, be it only for a run: such a call takes an idempotency key (header
    /// `adj-key`).
    const WRITES: bool;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

macro_rules! call {
    ($call:ident = $name:literal, writes $writes:literal -> $reply:ty) => {
        impl Call for $call {
            const NAME: &'static str = $name;
            const WRITES: bool = $writes;
            type Reply = $reply;
        }
    };
}

// ---- runs ---------------------------------------------------------------------------------

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
    /// What success means, in words: told to the run, and shown beside its report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// The acceptance command, a program and its arguments, run in the run's directory when its agent
    /// has ended. No shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
    /// What it may do without approval: `read`, `edit` or `full`. Left out: the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
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
}

/// Looks at one run; a run that looks at itself takes its messages. `run` is an id, a name, a unique prefix of either, or `@last`; a worker may
/// leave it empty for itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetRun {
    #[serde(default)]
    pub run: String,
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

/// Makes a new run of an ended one, with `retry_of` pointing back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    pub run: String,
    /// Replaces the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}
call!(Retry = "retry", writes true -> RunView);

/// Stops a run's attempt, to go on later.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub run: String,
}
call!(Pause = "pause", writes true -> RunView);

/// Begins a new attempt of a stopped run. It is told what it left behind, what was decided since,
/// and what is said here.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub run: String,
    /// How its blocker was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// What to do about what stopped it, where its `choices` offer that: `skip`, `retry`, `delegate` or
    /// `reduce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
}
call!(Resume = "resume", writes true -> RunView);

/// Sends a message to a live run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendToRun {
    pub run: String,
    pub text: String,
}
call!(SendToRun = "send", writes true -> MessageView);

/// A message to a run and how it reached it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    pub message_id: String,
    pub run_id: String,
    pub run_name: String,
    pub from: String,
    pub text: String,
    pub sent_at: String,
    /// `queued`, `live` (given to the running process) or `tool_result` (with its next tool call).
    pub delivery: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
}

/// By a run about itself: progress or its report. By a parent: an annotation, which never ends or
/// revives a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetStatus {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    /// `running`, or a report: `success`, `completed`, `partial_success`, `failed` or `error`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// When it thinks that it will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliverables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_achieved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issues_encountered: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration: Option<String>,
}
call!(SetStatus = "status", writes true -> RunView);

/// By a run about itself: it cannot go on (or stops for good), and this is what it leaves behind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopWork {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    /// `blocker`, `error` or `completion`.
    pub stop_reason: String,
    pub details: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_requirements: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_recovery: Option<String>,
}
call!(StopWork = "stop-work", writes true -> RunView);

/// Signals that did not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredView {
    pub count: u64,
    /// Why the last one did not.
    pub last: String,
}

impl RunView {
    /// Tells whether it has finished well, its acceptance command included: one that could not be run has
    /// not passed.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.outcome.as_deref() == Some("succeeded") && self.acceptance.as_ref().is_none_or(|acceptance| acceptance.passed == Some(true))
    }
}

/// Everything about a run that an interface shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    /// The original protocol's word: `queued`, `starting`, `running`,
    /// `waiting_parent_reply`, `parent_replied`, `stopped`, `success`, `completed`, `error`,
    /// `cancelled`.
    pub status: String,
    /// Our word: `queued`, `starting`, `running`, `stopping`, `stopped`, `finished`.
    pub state: String,
    /// `succeeded`, `failed`, `cancelled`, `spawn_failed` or `lost`, once finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why it is stopping, stopped, failed or could not be started, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When a run goes on by itself that a limit of its model has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_at: Option<String>,
    /// Since when a run at work has written nothing and called nobody, where that is longer than its
    /// agent's `stall` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// What the user should know about how its newest attempt was started: what of its directory's own
    /// agent configuration is honoured, with its hash, or could not be kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The first line of the prompt, shortened.
    pub task: String,
    pub cwd: String,
    /// What it may do without approval: `read`, `edit` or `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// The dispatching principal: `person`, `client:<name>` or `run:<id>`.
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub root: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    pub attempt: u32,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    pub updated_at: String,
    /// What the run said it achieved, else nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The agent's last words, once it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When it thinks that it will be done, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// What success means, in the dispatcher's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// Its completion report, held against what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    /// What came of the acceptance command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<AcceptanceView>,
    /// What git called changed in its directory when its last attempt ended, whoever changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<Vec<String>>,
    /// There are more than those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_files_more: bool,
    /// What can be chosen for `resume`, where an error or a limit stopped it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceView>,
    /// A parent's remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<String>,
    /// What looked like signals of the run and had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_signals: Option<IgnoredView>,
    /// What a stopped run left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
    /// Every open request, oldest first; for a run that looks at itself also those that were
    /// answered and not read yet.
    #[serde(default)]
    pub pending: Vec<RequestView>,
    /// How many there are, should there be more than `pending` carries.
    #[serde(default)]
    pub pending_total: u64,
    /// The newest of its requests that are settled, oldest first, where a run is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<RequestView>,
    /// There are more than those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled_more: bool,
    /// How the attempt's processes are held together: `pid_namespace` or `subreaper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// Processes that were still there when the agent's own process had ended, and were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<u32>,
    /// A descendant kept the output open after the end.
    #[serde(default)]
    pub output_left_open: bool,
    /// Time spent at work, waiting excluded.
    #[serde(default)]
    pub active_ms: u64,
    /// The vendor's session that it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What all attempts used up together, where the agent tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// Place in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_place: Option<u64>,
    /// The name of the run that it was delegated by, and of those that it has delegated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// Other live runs in the same directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares_directory_with: Vec<String>,
    pub log_path: String,
    /// Position of the newest event about the run; a wait with `after` below it reports its end.
    #[serde(default)]
    pub cursor: i64,
    /// Messages for the run that came along with its own look at itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageView {
    pub input_tokens: u64,
    /// Read from a cache, beside or within those.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl std::fmt::Display for UsageView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { input_tokens, cached_tokens, output_tokens, cost_usd } = self;
        write!(f, "{input_tokens} tokens in, {cached_tokens} cached, {output_tokens} out")?;
        cost_usd.map_or(Ok(()), |cost| write!(f, ", {cost:.4} USD"))
    }
}

/// What a run left behind so that a later attempt can continue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// `run`, or `adjutant` where the run left none and this was put together from what was known.
    #[serde(default)]
    pub made_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker_type: Option<String>,
    pub details: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_requirements: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_recovery: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// What git called changed there when the attempt ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
}

/// One thing that can be chosen for a run that an error or a limit stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChoiceView {
    /// `skip`, `retry`, `delegate` or `reduce`.
    pub choice: String,
    pub about: String,
}

/// A run's completion report: its claims, and beside them what was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportView {
    /// `success`, `partial_success` or `failed`, whatever the exit code.
    pub status: String,
    /// `verified`, `unverified` or `contradicted`: what all of `checked` comes to.
    pub verdict: String,
    pub summary: String,
    #[serde(default)]
    pub deliverables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_achieved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issues_encountered: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration: Option<String>,
    /// The files that the deliverables name, as they were found.
    #[serde(default)]
    pub files: Vec<DeliverableView>,
    /// Requests of the run that nobody has settled.
    #[serde(default)]
    pub open_requests: u64,
    /// A finding for each field.
    #[serde(default)]
    pub checked: Vec<FindingView>,
}

/// What became of one field of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingView {
    pub field: String,
    /// `verified`, `unverified` or `contradicted`.
    pub verdict: String,
    pub reason: String,
}

/// One file that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliverableView {
    pub path: String,
    pub verdict: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What came of the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceView {
    pub command: Vec<String>,
    /// Nothing where that is not known.
    #[serde(default)]
    pub passed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it was stopped, or why nobody knows what it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of what it wrote.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}

/// Reads a run's log: what the agent said, readable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    pub run: String,
    /// Byte position in the whole output; what is returned begins there. Left out: the last part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Only lines that contain this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// Wait this long for more when there is none.
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadLogs = "logs", writes false -> LogPage);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LogPage {
    pub run_id: String,
    pub name: String,
    pub text: String,
    /// Where `text` begins in the whole output.
    pub from: u64,
    /// Pass as `after` to go on.
    pub next: u64,
    /// Length of the whole output so far.
    pub total: u64,
    /// Bytes within this page that were dropped because the log's cap was reached.
    pub omitted: u64,
    /// Nothing more will ever come.
    pub ended: bool,
    pub path: String,
}

// ---- requests -----------------------------------------------------------------------------

/// Asks whoever is responsible for the calling run. Committed before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub question: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Becomes the answer when nobody gave one by the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The run cannot go on without the answer.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
call!(Ask = "ask", writes true -> RequestView);

/// Asks several questions as one group: all of them or none. Committed before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskTogether {
    pub questions: Vec<Ask>,
}
call!(AskTogether = "ask-together", writes true -> RequestList);

fn yes() -> bool {
    true
}

/// Asks for leave to do something. Committed before it returns; [`ReadRequest`] waits for the
/// decision. Nothing else than what is shown here is approved by a yes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// One line that says what would be done.
    pub action: String,
    /// What exactly: a text, a command, a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Why it is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Ways to say yes; the one that was chosen comes back as the decision's `reason`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// What counts when nobody has decided by the deadline. A no, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DecisionWord>,
    /// The run cannot go on without the decision.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
call!(RequestApproval = "request-approval", writes true -> RequestView);

/// Asks that somebody else does a task. Committed before it returns; [`ReadRequest`] waits for the
/// decision, and where the run waits for the task, for its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// What is to be done, for an agent that sees nothing else.
    pub task: String,
    /// The caller's own agent when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Below the caller's own directory unless absolute; that directory when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `can_proceed_parallel` (when left out), `blocks_current_work` or `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub independence: Option<String>,
    /// `P0`, `P1` (when left out) or `P2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the other agent has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_required: Option<String>,
    /// How the two are to keep out of each other's way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    /// Deadline of the decision, in seconds from now. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
call!(Delegate = "delegate", writes true -> RequestView);

/// What a delegation says beside its task, and what it was approved with instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `blocks_current_work`, `can_proceed_parallel` or `optional`.
    pub independence: String,
    /// `P0`, `P1` or `P2`.
    pub priority: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_required: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
}

/// A decision about an approval or a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    Approve,
    Deny,
}

/// Reads one request. The asker's own read of an answered one marks it retrieved; the answer stays
/// readable. With `wait_ms` the call returns as soon as the request is settled.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// A request's id or short number (`Q12`).
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadRequest = "request", writes true -> RequestView);

/// Reads the calling run's own group of questions. With `wait_ms` the call returns as soon as no
/// blocking one of them is open; no answer counts as read before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTogether {
    /// Any of them.
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadTogether = "request-together", writes true -> RequestList);

/// Lists open requests that the caller may answer, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequests {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Settled ones too.
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ListRequests = "requests", writes false -> RequestList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RequestList {
    pub requests: Vec<RequestView>,
    #[serde(default)]
    pub more: u64,
}

/// Answers one or several requests, each by `message_id`, or by `run` when that run has exactly one
/// open: a question in words, an approval or a delegation by a decision. All are answered or none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequests {
    pub answers: Vec<AnswerOne>,
}
call!(AnswerRequests = "answer", writes true -> Answered);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerOne {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// To a question.
    #[serde(default)]
    pub answer: String,
    /// About an approval or a delegation. A no to an approval that was approved and has not been
    /// used yet takes the yes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionWord>,
    /// Why not; needed for a no. With a yes: a note, for instance which of the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What a delegation is approved with instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
    /// The request's `content_hash` as it was shown to whoever decided: another content is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
}

/// How a delegated task is to be done otherwise than it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangesView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `P0`, `P1` or `P2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answered {
    pub requests: Vec<RequestView>,
    /// The runs concerned, as they are now.
    pub runs: Vec<RunView>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestView {
    pub message_id: String,
    /// `Q12`.
    pub number: String,
    pub run_id: String,
    pub run_name: String,
    /// `question`, `approval` or `delegation`.
    pub kind: String,
    /// The question, the action that needs leave, or the task for somebody else.
    pub question: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    pub blocking: bool,
    /// `pending`, `answered`, `retrieved`, `expired` or `withdrawn`.
    pub status: String,
    /// The original protocol's word: `pending_parent_reply`, `parent_replied`, `acknowledged_by_subagent`, …
    pub message_status: String,
    /// Where several were asked together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// Of an approval: what exactly would be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<DelegationView>,
    /// The run that an approved delegation has started, and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_name: Option<String>,
    /// How that run ended, with its last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_result: Option<String>,
    /// The asker waits until that run has ended.
    #[serde(default)]
    pub held: bool,
    /// Stands for everything that is decided about, see [`AnswerOne::content_hash`].
    #[serde(default)]
    pub content_hash: String,
    /// `approved` or `denied`, once decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Why not, or what was said along with a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer, or the decision with its reason, as one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `person`, `client:<name>`, `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    pub asked_at: String,
    pub expires_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieved_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How long one wait of the asker for this answer may go on, in milliseconds.
    pub patience_ms: u64,
    /// Messages for the asker that came along with this read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

/// The place of a request among those that were asked together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The number of the first of them, which stands for all.
    pub first: String,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

// ---- waiting and history ------------------------------------------------------------------

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// A request is open, or a run stopped, finished or has gone silent.
    #[default]
    Attention,
    /// Any of the runs has finished or stopped.
    Any,
    /// All of the runs have finished or stopped.
    All,
}

/// Waits for runs. Without `runs`: for all live runs that the caller may see.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    #[serde(default)]
    pub runs: Vec<String>,
    #[serde(default)]
    pub until: WaitUntil,
    /// A cursor of an earlier wait: ends that were reported by then are not reported again (open
    /// requests are, for as long as they are open).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// At most this long; 0 looks and returns.
    #[serde(default)]
    pub wait_ms: u64,
}
call!(Wait = "wait", writes false -> Waited);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Waited {
    /// `event`: what was waited for has happened; `timeout`: not yet; `idle`: there is nothing to
    /// wait for.
    pub outcome: String,
    /// Open requests of the runs, oldest first.
    pub needs: Vec<RequestView>,
    /// Runs that have finished or stopped since `after` (all of them without it), oldest end first.
    pub ended: Vec<RunView>,
    /// How many more have ended than `ended` carries.
    #[serde(default)]
    pub ended_more: u64,
    /// The first of those that did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<RunView>>,
    /// Runs still under way.
    pub working: Vec<RunView>,
    pub cursor: i64,
}

/// Reads the event history that the caller may see.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadEvents {
    #[serde(default)]
    pub after: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadEvents = "events", writes false -> EventPage);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EventPage {
    pub events: Vec<EventView>,
    pub cursor: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EventView {
    pub seq: i64,
    pub at: String,
    /// For instance `request.asked`.
    pub kind: String,
    pub run_id: String,
    pub run_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who did it: a principal, `hub` or `supervisor`.
    pub by: String,
    /// One line for people.
    pub text: String,
    /// The type of the signal that it comes from, for instance `STOP_WORK`. It was taken, unless `kind`
    /// is `signal.malformed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How that signal came: by a `tool` or in a `block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

// ---- agents, clients, the hub --------------------------------------------------------------

mod agents;
pub use agents::*;

/// Moves runs (with everything under them) to another client, so that a parent which came back
/// under another name finds them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    pub runs: Vec<String>,
    /// The new client's name; empty: the person.
    #[serde(default)]
    pub client: String,
}
call!(Adopt = "adopt", writes true -> RunList);

/// Removes finished runs and their files.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clean {
    /// Only those that ended at least this long ago.
    pub older_than_s: u64,
    #[serde(default)]
    pub dry_run: bool,
}
call!(Clean = "clean", writes true -> Cleaned);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cleaned {
    pub runs: Vec<String>,
    pub dry_run: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetHub {}
call!(GetHub = "hub", writes false -> HubView);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HubView {
    pub version: String,
    pub pid: u32,
    pub home: String,
    pub started_at: String,
    pub live_runs: u64,
    pub queued_runs: u64,
    pub live_runs_max: u64,
    pub pending_requests: u64,
    pub sqlite_version: String,
    /// What is wrong at the moment, for instance a full disk.
    #[serde(default)]
    pub problems: Vec<String>,
    /// For the person only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookView>,
}

/// Lists the configured webhooks. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListWebhooks {}
call!(ListWebhooks = "webhooks", writes false -> WebhookList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WebhookList {
    pub webhooks: Vec<WebhookView>,
}

/// Has webhooks told again what failed too often, and at once what waits for its next try. Only for
/// the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryWebhooks {
    /// The address of one of them, or the beginning of it; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}
call!(RetryWebhooks = "webhooks-retry", writes true -> WebhooksRetried);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WebhooksRetried {
    /// So many are sent again.
    pub deliveries: u64,
}

/// How things stand with one webhook.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WebhookView {
    /// The beginning of its address.
    pub place: String,
    /// What it is told.
    #[serde(default)]
    pub events: Vec<String>,
    pub waiting: i64,
    /// Failed too often, and no longer tried.
    pub parked: i64,
    /// Given up because too many waited.
    pub dropped: i64,
    /// The first of those that wait has failed, and is tried again then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<String>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl WebhookView {
    /// Says how many deliveries wait, have failed, or were given up.
    #[must_use]
    pub fn standing(&self) -> String {
        let mut shown = format!("{} waiting", self.waiting);
        for (count, what) in [(self.parked, "failed for good"), (self.dropped, "given up, too many waited")] {
            if count > 0 {
                shown.push_str(&format!(", {count} {what}"));
            }
        }
        shown
    }
}

/// Ends the hub. Runs go on; the next command starts a hub again.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopHub {}
call!(StopHub = "stop", writes false -> HubView);

/// Asks the hub to hand over to another binary: it stops taking calls, lets go of the home and
/// becomes `exe`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    pub exe: String,
    pub version: String,
}
call!(HandOver = "hand-over", writes false -> HubView);

// ---- waits kept as MCP tasks ----------------------------------------------------------------

/// Keeps one wait in the store, so that an MCP client can poll it and come back to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartTask {
    pub wait: Wait,
    pub ttl_ms: u64,
}
call!(StartTask = "task-start", writes true -> TaskView);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetTask {
    pub task_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(GetTask = "task", writes false -> TaskView);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelTask {
    pub task_id: String,
}
call!(CancelTask = "task-cancel", writes true -> TaskView);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TaskView {
    pub task_id: String,
    /// `working`, `completed` or `cancelled`.
    pub status: String,
    /// One line about how far it is.
    pub message: String,
    pub created_at: String,
    pub updated_at: String,
    pub ttl_ms: u64,
    /// What the wait found, once completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Waited>,
}

// ---- chats ----------------------------------------------------------------------------------

mod chats;
mod search;
pub use chats::*;
pub use search::*;

// ---- errors ---------------------------------------------------------------------------------

/// Every failure, on every interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorView {
    /// A stable word, see [`codes`].
    pub code: String,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The stable words for failures: one table for exit codes, HTTP statuses and MCP.
pub mod codes {
    /// Unknown, malformed or foreign.
    pub const NOT_FOUND: &str = "not_found";
    pub const AMBIGUOUS: &str = "ambiguous";
    pub const NOT_ALLOWED: &str = "not_allowed";
    /// The caller lives under a supervisor and has to go there.
    pub const USE_SUPERVISOR: &str = "use_supervisor";
    pub const INVALID: &str = "invalid";
    /// The state has moved on: answered, expired, withdrawn, finished.
    pub const CONFLICT: &str = "conflict";
    pub const ALREADY_ANSWERED: &str = "already_answered";
    /// That cannot be said to a request of this kind.
    pub const UNFITTING: &str = "unfitting";
    /// An approval was used before it was taken back.
    pub const USED: &str = "used";
    pub const EXPIRED: &str = "expired";
    pub const WITHDRAWN: &str = "withdrawn";
    pub const RUN_FINISHED: &str = "run_finished";
    pub const KEY_REUSED: &str = "key_reused";
    pub const LIMIT: &str = "limit";
    pub const AGENT_NOT_FOUND: &str = "agent_not_found";
    pub const AGENT_NOT_EXECUTABLE: &str = "agent_not_executable";
    /// The hub cannot be reached or started.
    pub const UNREACHABLE: &str = "unreachable";
    /// This hub has closed its store: the next one takes the call. Our clients repeat it there.
    pub const CLOSING: &str = "closing";
    /// The home's disk is full; nothing was changed.
    pub const STORAGE_FULL: &str = "storage_full";
    /// The store failed; what became of the call is unknown until it is repeated with its key.
    pub const STORAGE: &str = "storage";
    /// Nobody answered within the patience of this wait.
    pub const STALLED: &str = "stalled";
    pub const INTERNAL: &str = "internal";
}
