//! Runs: what is asked of them, and how they are shown.

use super::{AttentionView, Call, EventView, RequestView, Word};
use adjutant_core::checkpoint::{CheckpointAuthor, Choice};
use adjutant_core::report::{ReportStatus, Verdict};
use adjutant_core::run::RunStatus;
use adjutant_core::signal::StopCause;
use adjutant_core::{Cause, OutcomeKind, Permissions, RunStateKind, words};
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

/// Sends a message to a live run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendToRun {
    pub run: String,
    pub text: String,
}
call!(SendToRun = "send", writes true -> MessageView);

/// How a message reaches its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Queued,
    /// To the running process.
    Live,
    /// With the run's next tool call.
    ToolResult,
    /// With the prompt of its next attempt.
    Prompt,
}

words!(Delivery { Queued = "queued", Live = "live", ToolResult = "tool_result", Prompt = "prompt" });

/// A message to a run and how it reached it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    pub message_id: String,
    pub run_id: String,
    pub run_name: String,
    pub from: String,
    pub text: String,
    pub sent_at: String,
    pub delivery: Word<Delivery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
}

/// What a run reports about itself, or a parent notes about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedStatus {
    /// Progress.
    Running,
    Success,
    Completed,
    PartialSuccess,
    Failed,
    Error,
}

words!(ReportedStatus {
    Running = "running",
    Success = "success",
    Completed = "completed",
    PartialSuccess = "partial_success",
    Failed = "failed",
    Error = "error",
});

/// By a run about itself: progress or its report. By a parent: an annotation, which never ends or
/// revives a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetStatus {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    pub status: Word<ReportedStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// When it expects to be done.
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

/// Stops the calling run, which cannot continue (or is done), with a checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopWork {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    pub stop_reason: Word<StopCause>,
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
    /// Tells whether it has finished with this outcome.
    #[must_use]
    pub fn has_outcome(&self, outcome: OutcomeKind) -> bool {
        self.outcome.as_ref().is_some_and(|found| *found == outcome)
    }

    /// Tells whether it has finished well, its acceptance command included: one that could not be run has
    /// not passed.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.has_outcome(OutcomeKind::Succeeded) && self.acceptance.as_ref().is_none_or(|acceptance| acceptance.passed == Some(true))
    }
}

/// Everything about a run that an interface shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    /// In the original protocol's words.
    pub status: Word<RunStatus>,
    pub state: Word<RunStateKind>,
    /// Once finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Word<OutcomeKind>>,
    /// Why it is stopping, stopped, failed or could not be started, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why its agent failed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Word<Cause>>,
    /// Why it needs attention, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionView>,
    /// It is stopped and resumes by itself: with an answer, the end of a child run, or
    /// at `resumes_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes_by_itself: bool,
    /// When a run that its model's rate limit has stopped resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_at: Option<String>,
    /// Since when a running run has neither written output nor made a call, if that exceeds its agent's
    /// `stall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// The CLI retries a call to its model that has failed for 10 s or longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrying: Option<RetryingView>,
    /// Sub-agents that its CLI has started by itself, as far as its stream tells of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<SubagentView>,
    /// There were so many more than those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagents_more: u64,
    /// What the user should know about how its newest attempt was started: what of its directory's own
    /// agent configuration is honoured, with its hash, or could not be kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The first line of the prompt, shortened.
    pub task: String,
    pub cwd: String,
    /// What it may do without approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
    /// Nothing holds it to that: its agent is any program, declared by the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissions_not_enforced: bool,
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
    /// When it expects to be done, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// What success means, in the dispatcher's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// Its completion report, held against what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    /// The result of the acceptance command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<AcceptanceView>,
    /// The files that changed in its directory, by git, while its attempts ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<Vec<String>>,
    /// There are more than those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_files_more: bool,
    /// What was changed before it started is not known: `changed_files` is all that differs from what is
    /// committed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_before_too: bool,
    /// Runs that worked in its directory at the same time, where a run is looked at alone: each file may be
    /// theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_beside: Vec<String>,
    /// What can be chosen for `resume`, where an error or a limit stopped it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceView>,
    /// A parent's remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<String>,
    /// What looked like signals of the run and had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_signals: Option<IgnoredView>,
    /// The checkpoint of a stopped run.
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
    /// The newest events that come from its signals, oldest first, where a run is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<EventView>,
    /// How the attempt's processes are held together: `pid_namespace` or `subreaper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// Processes that were still there when the agent's own process had ended, and were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<u32>,
    /// A descendant kept the output open after the end.
    #[serde(default)]
    pub output_left_open: bool,
    /// Active time so far, without waiting.
    #[serde(default)]
    pub active_ms: u64,
    /// The `active_ms` at which it was to be done, by the newest estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
    /// Since when a live run works longer than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_since: Option<String>,
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
    /// The log of the newest attempt.
    pub log_path: String,
    /// The logs of all attempts, oldest first.
    #[serde(default)]
    pub log_paths: Vec<String>,
    /// Position of the newest event about the run; a wait with `after` below it reports its end.
    #[serde(default)]
    pub cursor: i64,
    /// Messages for the run that came along with its own look at itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

/// A sub-agent that a run's CLI has started by itself. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentView {
    /// What kind of agent it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The CLI's word for it: `running`, `completed`, … Absent where the run ended before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Tokens that it has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl SubagentView {
    /// Tells whether it works, by the last that was seen.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.as_deref() == Some(adjutant_core::subagent::RUNNING)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call to its model that a run's CLI retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryingView {
    /// Why the calls fail, as in `cause` of a run that failed.
    pub cause: Word<Cause>,
    /// When the first try failed.
    pub since: String,
    /// Failed tries, counted again once a minute.
    pub tries: u32,
    /// The CLI's own words: one line.
    pub words: String,
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

/// What a later attempt needs to continue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointView {
    /// `adjutant` where the run left none and this was put together from what was known.
    #[serde(default)]
    pub made_by: Word<CheckpointAuthor>,
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
    pub choice: Word<Choice>,
    pub about: String,
}

/// A run's completion report: its claims, and beside them what was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportView {
    /// As the run reported it, whatever the exit code.
    pub status: Word<ReportStatus>,
    /// What all of `checked` comes to.
    pub verdict: Word<Verdict>,
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

/// The verdict about one field of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingView {
    pub field: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
}

/// One file that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliverableView {
    pub path: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The result of the acceptance command.
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

impl AcceptanceView {
    /// Says why it has not passed, with the command; `None` where it has.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let command = self.command.join(" ");
        let reason = self.reason.as_deref().unwrap_or("nobody has said how it ended");
        match (self.passed, self.exit_code, &self.reason) {
            (Some(true), ..) => None,
            (Some(false), Some(code), None) => Some(format!("\"{command}\" ended with exit code {code}")),
            (Some(false), ..) => Some(format!("\"{command}\" was stopped: {reason}")),
            (None, ..) => Some(format!("\"{command}\" could not run: {reason}")),
        }
    }
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
    /// The log of the newest attempt.
    pub path: String,
    /// The logs of all attempts, oldest first: together they are the whole output.
    #[serde(default)]
    pub paths: Vec<String>,
}
