//! Waiting for requests while stopped.

use super::state::RunState;
use super::stop_reason::StopReason;

/// The blocking requests of a stopped run. A delegation counts until the child ends that the run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking {
    /// One of them is open.
    pub open: bool,
    /// One of them was settled after the run announced its stop, or its answer has not been delivered.
    pub settled: bool,
}

/// Tells whether a stopped run resumes by itself when its blocking requests are settled. A run that
/// stopped itself beside a request counts as parked, and keeps the reason and the checkpoint of its stop.
#[must_use]
pub fn awaits_requests(state: RunState, blocking: Blocking) -> bool {
    match state {
        RunState::Stopped { reason: StopReason::Parked, .. } => true,
        RunState::Stopped { reason, .. } if reason.is_announced() => blocking.open || blocking.settled,
        _ => false,
    }
}

/// Tells whether a stopped run resumes by itself now.
#[must_use]
pub fn resumes_now(state: RunState, blocking: Blocking) -> bool {
    !blocking.open && awaits_requests(state, blocking)
}
