//! Cascades: a change of a run or a request has effects, which change others. They are steps, which
//! one place works off in one transaction, instead of functions that call each other.
//!
//! ```text
//!  a run ends ──> its requests are withdrawn ──> its parent is notified, and resumes
//!             └─> its budgets are returned   └─> a run that waited for it starts
//! ```
//! A step says what is to happen. Its performer reads what is true at that time.

#[cfg(test)]
mod tests;

use crate::run::{Retention, RunEffect, RunEvent};
use crate::{BudgetKind, RequestEvent, RequestId, RequestState, RunId};
use std::borrow::Cow;

/// Who caused a change of a run, and its text in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub by: String,
    pub text: Cow<'static, str>,
}

impl Cause {
    /// The hub itself is the cause.
    #[must_use]
    pub fn hub(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            by: "hub".to_owned(),
            text: text.into(),
        }
    }
}

/// One step of a cascade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An effect of a change of a run.
    Effect { run: RunId, effect: RunEffect },
    /// An event of a run.
    Advance {
        run: RunId,
        event: RunEvent,
        cause: Cause,
    },
    /// Cancels a run, unless it has finished.
    Cancel { run: RunId, cause: Cause },
    /// Cancels everything below a run.
    CancelBelow { run: RunId, by: String },
    /// An event of a request.
    Settle {
        request: RequestId,
        event: RequestEvent,
    },
    /// Delivers the outcome of a request for which no call of its run waits.
    Deliver { request: RequestId },
    /// Looks what the end of a run means for one that was to start after it.
    Depend { run: RunId, on: RunId },
    /// Looks at the next run that has ended meanwhile and that others were to start after.
    NextEnded,
    /// Checks a budget, and then the budgets above it, which also pay for usage beyond it. Does not
    /// stop a run that has ended by itself (`except`).
    CheckBudgets {
        holder: RunId,
        kind: BudgetKind,
        except: Option<RunId>,
    },
    /// Stops a run because of its budget, unless it is being stopped already.
    StopForBudget { run: RunId, text: String },
    /// Stops a run that works if a budget on which it draws is used up.
    StopWithoutBudget { run: RunId },
    /// Stops a live run whose hard budget of a kind cannot be enforced.
    StopIfUnknown {
        run: RunId,
        kind: BudgetKind,
        why: Cow<'static, str>,
    },
    /// Returns what the budgets of a finished run and of the runs above it have left, the lowest
    /// first, as far as everything below them has finished.
    ReturnBudgets { runs: Vec<RunId> },
    /// Returns one of them to its lender.
    ReturnBudget { run: RunId, kind: BudgetKind },
    /// Resumes the runs that a used up budget has stopped, if there is something left for them.
    ResumeWithBudget { holder: RunId, cause: Cause },
    /// Resumes one of them.
    ResumeIfBudgetLeft { run: RunId, cause: Cause },
}

/// Returns the effects of a change of a request on the run that has asked.
#[must_use]
pub fn effects_of_request(
    is_blocking: bool,
    from: &RequestState,
    to: &RequestState,
) -> Vec<RunEffect> {
    if is_blocking && *from == RequestState::Pending && *to != RequestState::Pending {
        vec![
            RunEffect::CheckLimits,
            RunEffect::ResumeIfSettled { settled: true },
        ]
    } else {
        Vec::new()
    }
}

/// The steps that are left, with what the performer knows beside each. What follows from a step
/// comes before what was left: a cascade is finished before the next one begins.
#[derive(Debug)]
pub struct Cascade<C = ()> {
    /// The next one is the last.
    left: Vec<(Step, C)>,
    /// What follows from the step that is being performed, in order.
    following: Vec<(Step, C)>,
    /// For how long runs may stay stopped.
    pub retention: Retention,
}

impl<C> Cascade<C> {
    #[must_use]
    pub fn new(retention: Retention) -> Self {
        Self {
            left: Vec::new(),
            following: Vec::new(),
            retention,
        }
    }

    /// Adds a step that follows from the current one.
    pub fn then(&mut self, step: Step, context: C) {
        self.following.push((step, context));
    }

    /// Takes the next step.
    pub fn next_step(&mut self) -> Option<(Step, C)> {
        self.left.extend(self.following.drain(..).rev());
        self.left.pop()
    }
}
