//! Charging usage and time, and what follows when a budget is used up.

use super::Flow;
use crate::store::budgets::{
    charge, charge_minimum, check_own_budget, exhaust_hard, has_budget_left, record_gate_usage,
    record_usage, stop_if_hard_unmetered, stop_if_kind_unknown, stop_if_used_up,
    stopped_for_budget,
};
use crate::store::{ModelTotals, Run, StoreError, Tx, Usage};
use adjutant_core::budget::{Price, Unmetered};
use adjutant_core::cascade::{Cause, Step};
use adjutant_core::run::Retention;
use adjutant_core::{BudgetKind, RunEvent, RunId, RunState, StopReason};

impl Tx<'_> {
    /// Warns of a nearly used up budget, and stops the runs that draw on a used up one. Does not
    /// stop a run that waits for a child run, because it uses nothing, and a run that has ended by
    /// itself (`except`).
    ///
    /// # Errors
    /// A failure of the store.
    pub fn check_budget(
        &mut self,
        holder: RunId,
        kind: BudgetKind,
        except: Option<RunId>,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| {
            check_own_budget(tx, holder, kind, except).map(drop)
        })
    }

    /// Stops a run if a budget on which it draws is used up. Returns whether it is.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn stop_without_budget(
        &mut self,
        run: &Run,
        retention: Retention,
    ) -> Result<bool, StoreError> {
        self.flow(retention, |tx, _| stop_if_used_up(tx, run.id))
    }

    /// Charges the active time of a run before its counter is reset, because the run has ended or
    /// receives a new time limit.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn charge_active_time(
        &mut self,
        run: &Run,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| {
            charge(tx, run.id, BudgetKind::Time, run.active_ms, None)
        })
    }

    /// Charges the minimum for attempts or requests of a run without reported usage. Does not stop
    /// a run that has ended by itself (`except`).
    ///
    /// # Errors
    /// A failure of the store.
    pub fn charge_unstated(
        &mut self,
        run: RunId,
        count: u64,
        price: Option<Price>,
        except: Option<RunId>,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| {
            charge_minimum(tx, run, count, price, except)
        })
    }

    /// Counts the whole rest of a hard budget as used, because an agent that draws on it does not
    /// report its usage.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn use_up_hard(
        &mut self,
        run: RunId,
        kind: BudgetKind,
        why: &str,
        except: Option<RunId>,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| exhaust_hard(tx, run, kind, why, except))
    }

    /// Stops a live run whose hard budget of a kind cannot be enforced.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn stop_if_unknown(
        &mut self,
        run: RunId,
        kind: BudgetKind,
        why: &str,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| stop_if_kind_unknown(tx, run, kind, why))
    }

    /// Stops a queued run instead of starting it if a budget on which it draws is hard and its
    /// agent does not report its usage. Returns whether the run was stopped.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn stop_if_unmetered(
        &mut self,
        run: &Run,
        retention: Retention,
        unmetered: impl FnOnce(&Self) -> Result<Vec<Unmetered>, StoreError>,
    ) -> Result<bool, StoreError> {
        self.flow(retention, |tx, _| {
            stop_if_hard_unmetered(tx, run, unmetered)
        })
    }

    /// Records the totals that a run's agent reports, and charges their growth. Ignores
    /// implausible, smaller and repeated totals, and those of an agent with a gate. `price`: if the
    /// agent reports no cost. Does not stop a run that has ended by itself (`is_over`).
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_usage(
        &mut self,
        run: &Run,
        stated: &Usage,
        price: Option<Price>,
        is_over: bool,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| {
            record_usage(tx, run, stated, price, is_over)
        })
    }

    /// Records the totals that the gate has counted for an attempt, and charges their growth.
    /// `prices` has one entry for each total; `None`: no price is configured.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_gate_usage(
        &mut self,
        run: &Run,
        stated: &[ModelTotals],
        prices: &[Option<Price>],
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| {
            record_gate_usage(tx, run, stated, prices)
        })
    }

    /// Resumes the runs that were stopped because a budget was used up, if no budget on which they
    /// draw is used up any more.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn resume_after_raise(
        &mut self,
        holder: RunId,
        retention: Retention,
        by: &str,
    ) -> Result<(), StoreError> {
        let cause = Cause {
            by: by.to_owned(),
            text: "its budget was raised".into(),
        };
        self.flow(retention, |tx, _| tx.resume_stopped(holder, &cause))
    }

    pub(super) fn stop_run_for_budget(
        &mut self,
        id: RunId,
        text: &str,
        flow: &mut Flow,
    ) -> Result<(), StoreError> {
        if matches!(self.run(id)?.state, RunState::Stopping(_)) {
            return Ok(());
        }
        self.set_detail(id, text)?;
        let run = self.run(id)?;
        let event = RunEvent::StopAsked(StopReason::Budget);
        self.change_run(&run, event, "hub", text, flow)?;
        self.add_active_time(id, self.steady())
    }

    /// Stops a run that works if a budget on which it draws is used up.
    pub(super) fn stop_working_without_budget(&mut self, run: RunId) -> Result<(), StoreError> {
        let run = self.run(run)?;
        if run.holding == 0 && matches!(run.state, RunState::Starting | RunState::Running) {
            stop_if_used_up(self, run.id)?;
        }
        Ok(())
    }

    /// Names the runs that a used up budget has stopped, which resume if there is something left.
    pub(super) fn resume_stopped(
        &mut self,
        holder: RunId,
        cause: &Cause,
    ) -> Result<(), StoreError> {
        for run in stopped_for_budget(self, holder)? {
            let cause = cause.clone();
            self.then(Step::ResumeIfBudgetLeft { run, cause });
        }
        Ok(())
    }

    pub(super) fn resume_if_budget_left(
        &mut self,
        run: RunId,
        cause: Cause,
    ) -> Result<(), StoreError> {
        if has_budget_left(self, run)? {
            let event = RunEvent::Resumed;
            self.then(Step::Advance { run, event, cause });
        }
        Ok(())
    }
}
