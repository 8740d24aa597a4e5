//! Runs: one task given to one agent, over one or more attempts.
//!
//! ```text
//!  Queued ──> Starting ──> Running ──> Stopping ──> Stopped ──> Queued (resume)
//!    │  <────────┘ │          │            │           │
//!    └─────────────┴──────────┴────────────┴───────────┴──────> Finished
//! ```
//! A finished run never changes. "Waiting" is not a state: a waiting run is a live one with an open
//! blocking request.

mod effect;
mod outcome;
mod parking;
mod state;
mod status;
mod stop_reason;
#[cfg(test)]
mod tests;

pub use effect::{RunChange, RunEffect};
pub use outcome::{Cause, Exit, Failure, Outcome, OutcomeKind, Verdict};
pub use parking::{Blocking, awaits_requests, resumes_now};
pub use state::{AttemptEnd, Retention, RunEvent, RunState, RunStateKind, StateRefusal, apply};
pub use status::{OpenRequests, RunStatus, status};
pub use stop_reason::StopReason;
