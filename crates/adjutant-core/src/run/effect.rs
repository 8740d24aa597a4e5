//! What follows from a change of a run's state, for the run and for others.

use super::outcome::Outcome;
use super::parking::{Blocking, awaits_requests};
use super::state::{RunEvent, RunState};
use crate::SteadyTime;

/// A change of a run's state that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunChange {
    pub from: RunState,
    pub event: RunEvent,
    pub to: RunState,
    /// Its blocking requests, if it has stopped.
    pub blocking: Option<Blocking>,
    /// Another run has started it.
    pub has_parent: bool,
}

/// One effect of a [`RunChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEffect {
    /// Counts the start of its attempt, and spreads the next starts.
    CountStart,
    /// Withdraws its open requests: `all`, or those that are useless without it.
    WithdrawRequests { all: bool },
    /// Wakes the callers that wait for a run above it.
    WakeAncestors,
    /// Informs the run that asked for it in a delegation how it has ended.
    InformRequester,
    /// Resumes it if its blocking requests are settled. `settled`: see [`Blocking`].
    ResumeIfSettled { settled: bool },
    /// Lets runs start that waited for its ports.
    FreePorts,
    /// Offers the slot that it has left, or itself, to the queue.
    OfferSlot,
    /// Checks the deadlines at this time at the latest.
    WakeAt(SteadyTime),
    /// Lets the chats take their next turns.
    OfferTurns,
    /// Charges its time, and returns what its budgets have left.
    SettleBudgets,
    /// Schedules the checks of its estimate and its budget of time.
    CheckLimits,
    /// Starts or cancels the runs that were to start after it.
    ResolveDependents,
}

impl RunChange {
    /// Returns whether the run ends: a run that awaits its requests has not ended, because it
    /// resumes by itself.
    #[must_use]
    pub fn ends(&self) -> bool {
        let waits = |blocking| awaits_requests(self.to, blocking);
        self.to.is_finished() || self.blocking.is_some_and(|blocking| !waits(blocking))
    }

    /// Returns whether the run has no attempt any more.
    #[must_use]
    pub fn frees_slot(&self) -> bool {
        self.from.is_live() && !self.to.is_live()
    }

    /// Returns the effects in the order in which they are worked off.
    #[must_use]
    pub fn effects(&self) -> Vec<RunEffect> {
        let mut effects = Vec::new();
        if self.to == RunState::Starting {
            effects.push(RunEffect::CountStart);
        }
        if let RunState::Finished(outcome) = self.to {
            let all = outcome != Outcome::Succeeded;
            effects.push(RunEffect::WithdrawRequests { all });
        }
        if self.ends() && self.has_parent {
            effects.push(RunEffect::WakeAncestors);
            if self.to.is_finished() {
                effects.push(RunEffect::InformRequester);
            }
        }
        if let Some(Blocking { settled, .. }) = self.blocking {
            effects.push(RunEffect::ResumeIfSettled { settled });
        }
        if self.frees_slot() {
            effects.push(RunEffect::FreePorts);
        }
        if self.frees_slot() || self.to == RunState::Queued {
            effects.push(RunEffect::OfferSlot);
        }
        if let RunState::Stopped { until, .. } = self.to {
            effects.push(RunEffect::WakeAt(until));
        }
        if self.ends() {
            effects.push(RunEffect::OfferTurns);
        }
        if self.to.is_finished() {
            effects.push(RunEffect::SettleBudgets);
        }
        effects.push(RunEffect::CheckLimits);
        // The result of a run is known only after its evidence was examined.
        if self.to.is_finished() && !matches!(self.event, RunEvent::Ended(_)) {
            effects.push(RunEffect::ResolveDependents);
        }
        effects
    }
}
