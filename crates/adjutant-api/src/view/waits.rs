//! Waiting for runs, the event history, and stored waits.

use super::{RequestView, RunView, Word};
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{EventKind, words};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// A request is open, or a run has reported, stopped, finished or become silent.
    #[default]
    Attention,
    /// Any of the runs has finished or stopped.
    Any,
    /// Each of the runs has finished or needs attention.
    All,
}

/// Waits for runs. Without `runs`, waits for all runs that the caller may see, and first returns
/// the stops and ends of its own runs that it was not notified of. The wait does not confirm them;
/// [`super::ConfirmNotified`] does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Wait {
    #[serde(default)]
    pub runs: Vec<String>,
    #[serde(default)]
    pub until: WaitUntil,
    /// The cursor of an earlier wait. With `runs`, ends before the cursor are not reported again.
    /// Without `runs`, ends after the cursor are reported in addition. Open requests and stopped
    /// runs are always reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// Also returns because of reports of the caller's own live runs that it has not confirmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_reports: bool,
    /// The maximum time to wait. 0 returns at once.
    #[serde(default)]
    pub wait_ms: u64,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The awaited event has happened.
    Event,
    /// The event did not happen in time.
    Timeout,
    /// There is nothing to wait for.
    Idle,
}

words!(WaitOutcome { Event = "event", Timeout = "timeout", Idle = "idle" });

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Waited {
    pub outcome: Word<WaitOutcome>,
    /// Open requests of the runs, oldest first.
    pub needs: Vec<RequestView>,
    /// Stopped runs, among the runs and their descendants, that do not resume by themselves.
    /// Longest stopped first.
    #[serde(default)]
    pub stopped: Vec<RunView>,
    /// The number of stopped runs beyond those in `stopped`.
    #[serde(default)]
    pub stopped_more: u64,
    /// Runs that have finished or were paused, oldest first. With `runs`: those that ended after
    /// `after`, or all if it is absent. Otherwise: those that the caller was not notified of.
    pub ended: Vec<RunView>,
    /// The number of ended runs beyond those in `ended`.
    #[serde(default)]
    pub ended_more: u64,
    /// The first ended run that did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<RunView>>,
    /// Runs that have not ended.
    pub working: Vec<RunView>,
    pub cursor: i64,
    /// As in `EventPage`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
}

/// Reads the event history that the caller may see.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventPage {
    pub events: Vec<EventView>,
    pub cursor: i64,
    /// The caller knew of events that the store does not have: its database was set back, or is
    /// another one. What the caller knows may not be true any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventView {
    pub seq: i64,
    pub at: String,
    pub kind: Word<EventKind>,
    /// The run that the event is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_name: String,
    /// The pool, if the event is about one. Only you see these events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who caused the event: a principal, `hub` or `supervisor`.
    pub by: String,
    /// One line for people.
    pub text: String,
    /// The kind of signal that caused the event. The signal took effect unless `kind` is
    /// `signal.malformed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Word<SignalKind>>,
    /// How the signal was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Word<Source>>,
}

/// Stores a wait as a task that an MCP client can poll and return to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StartTask {
    pub wait: Wait,
    pub ttl_ms: u64,
    /// The ids of requests that the client's person has declined to answer. The task does not ask
    /// about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetTask {
    pub task_id: String,
    #[serde(default)]
    pub wait_ms: u64,
    /// Whether the client can ask its person. Then a request that is escalated to a person does not
    /// end the task: the task is `input_required` until the request is closed or declined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_person: bool,
}

/// Records the outcome of requests about which a task asked the client's person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UpdateTask {
    pub task_id: String,
    /// The ids of requests that the person declined to answer. They stay open; the task does not
    /// ask about them again.
    #[serde(default)]
    pub declined: Vec<String>,
    /// The ids of requests that were closed before the person's answer arrived. The task's message
    /// names them.
    #[serde(default)]
    pub closed: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelTask {
    pub task_id: String,
}

/// The status of a stored wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStatus {
    Working,
    /// It waits for an answer of the client's person.
    InputRequired,
    Completed,
    Cancelled,
}

words!(TaskStatus { Working = "working", InputRequired = "input_required", Completed = "completed", Cancelled = "cancelled" });

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskView {
    pub task_id: String,
    pub status: Word<TaskStatus>,
    /// One line about the task's progress.
    pub message: String,
    pub created_at: String,
    pub updated_at: String,
    pub ttl_ms: u64,
    /// The stored wait.
    #[serde(default)]
    pub wait: Wait,
    /// The requests about which the client's person is to be asked, oldest first. At most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<RequestView>,
    /// The ids of requests that the person declined to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined: Vec<String>,
    /// The result of the wait, when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Waited>,
}
