//! The displayed status of a run.

use super::outcome::Outcome;
use super::state::RunState;
use crate::report::Claim;
use crate::words;

/// The open requests of a run, as far as they matter for its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequests {
    pub blocking_pending: bool,
    pub answered_unread: bool,
}

/// The status of a run in the original protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunStatus {
    Queued,
    Starting,
    Running,
    WaitingParentReply,
    ParentReplied,
    Stopped,
    Success,
    Completed,
    PartialSuccess,
    Error,
    Cancelled,
}

words!(RunStatus {
    Queued = "queued",
    Starting = "starting",
    Running = "running",
    WaitingParentReply = "waiting_parent_reply",
    ParentReplied = "parent_replied",
    Stopped = "stopped",
    Success = "success",
    Completed = "completed",
    PartialSuccess = "partial_success",
    Error = "error",
    Cancelled = "cancelled",
});

/// Returns the status of a run. `claim` is the run's report about its end, if any: less than
/// success is never shown as success.
#[must_use]
pub fn status(state: RunState, open: OpenRequests, claim: Option<Claim>) -> RunStatus {
    match state {
        RunState::Queued => RunStatus::Queued,
        RunState::Starting => RunStatus::Starting,
        RunState::Running if open.blocking_pending => RunStatus::WaitingParentReply,
        RunState::Running if open.answered_unread => RunStatus::ParentReplied,
        RunState::Running | RunState::Stopping(_) => RunStatus::Running,
        RunState::Stopped { .. } => RunStatus::Stopped,
        RunState::Finished(Outcome::Succeeded) => match claim {
            Some(Claim::Completed) => RunStatus::Completed,
            Some(Claim::Partial) => RunStatus::PartialSuccess,
            Some(Claim::Success | Claim::Failed) | None => RunStatus::Success,
        },
        RunState::Finished(Outcome::Cancelled) => RunStatus::Cancelled,
        RunState::Finished(Outcome::Failed(_) | Outcome::SpawnFailed | Outcome::Lost) => {
            RunStatus::Error
        }
    }
}
