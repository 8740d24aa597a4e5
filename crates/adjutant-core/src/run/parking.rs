//! Stopped runs that wait for their requests.

use super::state::RunState;
use super::stop_reason::StopReason;

/// The blocking requests of a stopped run. A delegation that the run waits for counts until its
/// child ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking {
    /// At least one is open.
    pub open: bool,
    /// At least one was settled after the run announced its stop, or its answer has not been
    /// delivered.
    pub settled: bool,
}

/// Returns whether a stopped run resumes automatically when its blocking requests are settled. A
/// run that announced its stop while a request was open counts as parked, and keeps its reason and
/// checkpoint.
#[must_use]
pub fn awaits_requests(state: RunState, blocking: Blocking) -> bool {
    match state {
        RunState::Stopped {
            reason: StopReason::Parked,
            ..
        } => true,
        RunState::Stopped { reason, .. } if reason.is_announced() => {
            blocking.open || blocking.settled
        }
        _ => false,
    }
}

/// Returns whether a stopped run resumes automatically now.
#[must_use]
pub fn resumes_now(state: RunState, blocking: Blocking) -> bool {
    !blocking.open && awaits_requests(state, blocking)
}
