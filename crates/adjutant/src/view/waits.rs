//! Waiting for runs, their history, and waits that are kept.

use super::{Call, RequestView, RunView, Word};
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{EventKind, words};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitUntil {
    /// A request is open, or a run stopped, finished or has gone silent.
    #[default]
    Attention,
    /// Any of the runs has finished or stopped.
    Any,
    /// Each of the runs has finished or needs attention.
    All,
}

/// Waits for runs. Without `runs`: for all that the caller may see, beginning with the stops and ends of its
/// own runs that it was not notified of (see [`super::ConfirmNotified`]; the wait itself confirms nothing).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    #[serde(default)]
    pub runs: Vec<String>,
    #[serde(default)]
    pub until: WaitUntil,
    /// A cursor of an earlier wait. With `runs`: ends that were reported by then are not reported again.
    /// Without: ends since then are reported, too. Open requests and stopped runs always are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// At most this long; 0 looks and returns.
    #[serde(default)]
    pub wait_ms: u64,
}
call!(Wait = "wait", writes false -> Waited);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitOutcome {
    /// What was waited for has happened.
    Event,
    /// It has not happened in time.
    Timeout,
    /// There is nothing to wait for.
    Idle,
}

words!(WaitOutcome { Event = "event", Timeout = "timeout", Idle = "idle" });

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Waited {
    pub outcome: Word<WaitOutcome>,
    /// Open requests of the runs, oldest first.
    pub needs: Vec<RequestView>,
    /// Stopped runs that nothing resumes by itself, the longest stopped first: of the runs and below them.
    #[serde(default)]
    pub stopped: Vec<RunView>,
    /// How many more there are than `stopped` carries.
    #[serde(default)]
    pub stopped_more: u64,
    /// Runs that have finished or were paused, oldest end first: with `runs` since `after` (all of them
    /// without it), else those of which the caller was not notified.
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
    pub kind: Word<EventKind>,
    pub run_id: String,
    pub run_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who did it: a principal, `hub` or `supervisor`.
    pub by: String,
    /// One line for people.
    pub text: String,
    /// The kind of signal that it comes from. It took effect, unless `kind` is `signal.malformed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Word<SignalKind>>,
    /// How that signal came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Word<Source>>,
}

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

/// How far a kept wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStatus {
    Working,
    Completed,
    Cancelled,
}

words!(TaskStatus { Working = "working", Completed = "completed", Cancelled = "cancelled" });

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TaskView {
    pub task_id: String,
    pub status: Word<TaskStatus>,
    /// One line about how far it is.
    pub message: String,
    pub created_at: String,
    pub updated_at: String,
    pub ttl_ms: u64,
    /// The wait that it is.
    #[serde(default)]
    pub wait: Wait,
    /// What the wait found, once completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Waited>,
}
