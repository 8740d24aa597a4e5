//! Changes of runs, requests, budgets and chats, with everything that follows from them. The modules
//! of the tables below write their own rows and name what follows as steps; this one works the steps
//! off in the same transaction, so that none of them calls another. Nothing below uses it.

mod attempts;
mod budgets;
mod delegations;
mod dependents;
mod dispatch;
mod entries;
mod followed;
mod imports;
mod limits;
mod owners;
mod reading;
mod requests;
mod runs;
mod tokens;

pub use dispatch::NewRun;

use super::{Run, StoreError, Tx, request_by_id};
use crate::store::budgets::{
    check_budget_and_next, return_budget, return_budgets, stop_if_kind_unknown,
};
use crate::store::queue::depend;
use adjutant_core::cascade::{Cascade, Step};
use adjutant_core::run::Retention;
use adjutant_core::{EventSeq, RunEvent, RunId, StopReason};
use std::rc::Rc;

/// A run before a change of its state, and the event that recorded the change.
#[derive(Debug)]
struct Changed {
    run: Run,
    seq: EventSeq,
}

/// A cascade in progress.
#[derive(Debug)]
struct Flow {
    cascade: Cascade<Option<Rc<Changed>>>,
    /// Runs that have ended while the dependencies on one are resolved. Chains of them can be long.
    ended: Option<Vec<RunId>>,
}

impl Flow {
    fn retention(&self) -> Retention {
        self.cascade.retention
    }

    fn then(&mut self, step: Step) {
        self.cascade.then(step, None);
    }
}

impl Tx<'_> {
    /// Runs `first`, and then all steps that follow. A step of the flow itself is performed before
    /// those that the modules of the tables have named.
    fn flow<T>(
        &mut self,
        retention: Retention,
        first: impl FnOnce(&mut Self, &mut Flow) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut flow = Flow {
            cascade: Cascade::new(retention),
            ended: None,
        };
        debug_assert!(!self.has_steps(), "each flow works off its own steps");
        let done = first(self, &mut flow).and_then(|done| {
            self.work_off(&mut flow)?;
            Ok(done)
        });
        if done.is_err() {
            // They would follow from the next change.
            drop(self.take_steps());
        }
        done
    }

    fn work_off(&mut self, flow: &mut Flow) -> Result<(), StoreError> {
        loop {
            for step in self.take_steps() {
                flow.then(step);
            }
            let Some((step, changed)) = flow.cascade.next_step() else {
                return Ok(());
            };
            self.perform(step, changed.as_deref(), flow)?;
        }
    }

    fn perform(
        &mut self,
        step: Step,
        changed: Option<&Changed>,
        flow: &mut Flow,
    ) -> Result<(), StoreError> {
        match step {
            Step::Effect { run, effect } => self.take_effect(run, effect, changed, flow),
            Step::Advance { run, event, cause } => {
                let run = self.run(run)?;
                self.change_run(&run, event, &cause.by, &cause.text, flow)
            }
            Step::Cancel { run, cause } => {
                let run = self.run(run)?;
                if run.state.is_finished() {
                    return Ok(());
                }
                let event = RunEvent::StopAsked(StopReason::Cancelled);
                self.change_run(&run, event, &cause.by, &cause.text, flow)
            }
            Step::CancelBelow { run, by } => self.cancel_all_below(run, &by),
            Step::Settle { request, event } => {
                let request = self.request(request)?;
                self.settle(&request, event)
            }
            Step::Deliver { request } => {
                let request = self.request(request)?;
                self.deliver(&request)
            }
            Step::Depend { run, on } => depend(self, run, on),
            Step::NextEnded => self.next_ended(flow),
            Step::CheckBudgets {
                holder,
                kind,
                except,
            } => check_budget_and_next(self, holder, kind, except),
            Step::StopForBudget { run, text } => self.stop_run_for_budget(run, &text, flow),
            Step::StopWithoutBudget { run } => self.stop_working_without_budget(run),
            Step::StopIfUnknown { run, kind, why } => stop_if_kind_unknown(self, run, kind, &why),
            Step::ReturnBudgets { runs } => return_budgets(self, &runs),
            Step::ReturnBudget { run, kind } => return_budget(self, run, kind),
            Step::ResumeWithBudget { holder, cause } => self.resume_stopped(holder, &cause),
            Step::ResumeIfBudgetLeft { run, cause } => self.resume_if_budget_left(run, cause),
        }
    }

    fn request(&self, id: adjutant_core::RequestId) -> Result<super::Request, StoreError> {
        request_by_id(self.connection(), id)?
            .ok_or_else(|| StoreError::Corrupt(format!("request {id} is gone")))
    }
}
