//! Budgets of runs and of the trees below them: transferring, charging, warning, stopping, returning unused amounts.

mod read;
mod usage;

pub use read::{BudgetRow, budgets_of, due_time_budgets, next_time_budget, stated_budgets, usage_gaps};
pub use usage::{ModelTotals, gate_usage_of, has_grown};

use super::{Run, StoreError, Tx, append_event};
use adjutant_core::budget::{Account, TooLittleLeft, check_left};
use adjutant_core::run::Retention;
use adjutant_core::{Budget, BudgetKind, Denied, EventKind, RunEvent, RunId, StopReason};
use read::{drawing_runs, own_budgets, run_and_ancestors, time_due, unfinished_below};
use rusqlite::params;

/// A budget of a new run: the account, and the run from whose budget it is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct PlannedBudget {
    kind: BudgetKind,
    account: Account,
    lender: Option<RunId>,
    is_hard: bool,
}

impl Tx<'_> {
    /// Checks that a new run below `parent` can have this budget and may use anything. Writes nothing.
    ///
    /// # Errors
    /// The budgets above have less.
    pub(in crate::store) fn plan_budget(&self, parent: Option<RunId>, budget: &Budget) -> Result<Vec<PlannedBudget>, StoreError> {
        let above = match parent {
            Some(parent) => budgets_of(self.connection(), parent, self.steady())?,
            None => Vec::new(),
        };
        if let Err(kind) = check_left(above.iter().map(|row| (row.kind, row.account))) {
            return Err(self.used_up(&above, kind)?.into());
        }
        let mut planned = Vec::new();
        for (kind, amount) in budget.amounts() {
            let lender = above.iter().find(|row| row.kind == kind);
            let account = match lender {
                None => Account::new(amount),
                Some(row) => match row.account.transfer(amount) {
                    Ok((_, below)) => below,
                    Err(TooLittleLeft { left }) => {
                        let (asked, left) = (kind.text(amount), kind.text(left));
                        let name = self.run(row.run)?.name;
                        return Err(Denied::Budget {
                            problem: format!("{asked} of {} is more than the budget of {name} has left ({left})", kind.word()),
                        }
                        .into());
                    }
                },
            };
            planned.push(PlannedBudget { kind, account, lender: lender.map(|row| row.run), is_hard: budget.is_hard });
        }
        Ok(planned)
    }

    /// Returns the refusal for a used up budget.
    fn used_up(&self, rows: &[BudgetRow], kind: BudgetKind) -> Result<Denied, StoreError> {
        let of = match rows.iter().find(|row| row.kind == kind) {
            Some(row) => format!(" of {} ({})", self.run(row.run)?.name, row.text()),
            None => String::new(),
        };
        Ok(Denied::Budget { problem: format!("the budget of {}{of} is used up", kind.word()) })
    }

    /// Opens the budgets of a new run, and reserves them above.
    pub(in crate::store) fn open_budgets(&self, run: RunId, planned: &[PlannedBudget]) -> Result<(), StoreError> {
        for PlannedBudget { kind, account, lender, is_hard } in planned {
            self.prepare("INSERT INTO budgets (run, kind, amount, lender, is_hard) VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
                run.to_string(),
                kind.word(),
                account.limit,
                lender.map(|run| run.to_string()),
                is_hard
            ])?;
            if let Some(lender) = lender {
                self.prepare("UPDATE budgets SET reserved = reserved + ?3 WHERE run = ?1 AND kind = ?2")?.execute(params![
                    lender.to_string(),
                    kind.word(),
                    account.limit
                ])?;
            }
        }
        Ok(())
    }

    /// Charges usage of a run to the budget on which it draws, and stops what draws on it if nothing is left.
    ///
    /// # Errors
    /// A failure of the store.
    pub(in crate::store) fn charge(
        &mut self,
        run: RunId,
        kind: BudgetKind,
        amount: i64,
        retention: Retention,
        except: Option<RunId>,
    ) -> Result<(), StoreError> {
        if amount <= 0 {
            return Ok(());
        }
        let rows = own_budgets(self.connection(), &run_and_ancestors(self.connection(), run)?, kind)?;
        let Some(row) = rows.first() else { return Ok(()) };
        self.set_account(row.run, kind, row.account.charge(amount))?;
        self.check_budget(row.run, kind, except, retention)
    }

    fn set_account(&self, run: RunId, kind: BudgetKind, account: Account) -> Result<(), StoreError> {
        let Account { limit, used, reserved } = account;
        self.prepare("UPDATE budgets SET amount = ?3, used = ?4, reserved = ?5 WHERE run = ?1 AND kind = ?2")?.execute(params![
            run.to_string(),
            kind.word(),
            limit,
            used,
            reserved
        ])?;
        Ok(())
    }

    /// Warns of a nearly used up budget, and stops the runs that draw on an empty one. A run that is
    /// held by a child uses nothing, and one that has ended by itself (`except`) is not stopped.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn check_budget(&mut self, holder: RunId, kind: BudgetKind, except: Option<RunId>, retention: Retention) -> Result<(), StoreError> {
        let rows = budgets_of(self.connection(), holder, self.steady())?;
        let Some(row) = rows.into_iter().find(|row| row.kind == kind && row.run == holder) else { return Ok(()) };
        if row.account.is_nearly_used() && !row.is_warned {
            let run = self.run(holder)?;
            let text = format!("{} % of its budget of {} is used: {}", row.account.percent(), kind.word(), row.text());
            let seq = append_event(self, EventKind::BudgetNearlyUsed, run.id, &run.owner.to_string(), None, "hub", &text)?;
            self.prepare("UPDATE budgets SET is_warned = 1 WHERE run = ?1 AND kind = ?2")?.execute(params![holder.to_string(), kind.word()])?;
            self.prepare("UPDATE runs SET budget_seq = ?2 WHERE id = ?1")?.execute(params![holder.to_string(), seq.0])?;
            self.touch(run.id, seq)?;
            self.notify_ancestors(&run)?;
        }
        if !row.account.has_left() {
            let of = self.run(holder)?.name;
            for id in drawing_runs(self.connection(), holder, kind)?.into_iter().filter(|id| Some(*id) != except) {
                let of = if id == holder { String::new() } else { format!(" of {of}") };
                let text = format!("budget of {}{of} used up: {}", kind.word(), row.text());
                self.stop_for_budget(id, &text, retention)?;
            }
        }
        Ok(())
    }

    /// Stops a run for its budget.
    ///
    /// # Errors
    /// A failure of the store.
    pub(in crate::store) fn stop_for_budget(&mut self, id: RunId, text: &str, retention: Retention) -> Result<(), StoreError> {
        self.set_detail(id, text)?;
        let run = self.run(id)?;
        self.advance(&run, RunEvent::StopAsked(StopReason::Budget), retention, "hub", text)?;
        Ok(())
    }

    /// Stops a queued run instead of starting it if a budget on which it draws is used up. Returns whether it did.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn stop_without_budget(&mut self, run: &Run, retention: Retention) -> Result<bool, StoreError> {
        let rows = budgets_of(self.connection(), run.id, self.steady())?;
        let Err(kind) = check_left(rows.iter().map(|row| (row.kind, row.account))) else { return Ok(false) };
        let text = self.used_up(&rows, kind)?.to_string();
        self.stop_for_budget(run.id, &text, retention)?;
        Ok(true)
    }

    /// Refuses to resume a run while a budget on which it draws is used up.
    ///
    /// # Errors
    /// `Denied::Budget`.
    pub fn check_budget_left(&self, run: &Run) -> Result<(), StoreError> {
        let rows = budgets_of(self.connection(), run.id, self.steady())?;
        match check_left(rows.iter().map(|row| (row.kind, row.account))) {
            Ok(()) => Ok(()),
            Err(kind) => Err(self.used_up(&rows, kind)?.into()),
        }
    }

    /// Ensures that a budget of time is checked when it will be used up.
    pub(in crate::store) fn look_by_budget(&mut self, run: RunId) -> Result<(), StoreError> {
        if let Some(due) = time_due(self.connection(), run, self.steady())? {
            self.wake_by(due);
        }
        Ok(())
    }

    /// Charges the active time of a run before it is no longer counted as the run's: it has ended, or its time limit is given again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn charge_active_time(&mut self, run: &Run, retention: Retention) -> Result<(), StoreError> {
        self.charge(run.id, BudgetKind::Time, run.active_ms, retention, None)
    }

    /// Updates the budgets above a finished run. A budget whose runs have all ended is returned.
    pub(in crate::store) fn settle_budgets(&mut self, run: &Run, retention: Retention) -> Result<(), StoreError> {
        self.charge_active_time(run, retention)?;
        for id in run_and_ancestors(self.connection(), run.id)? {
            let mut open = Vec::new();
            for kind in BudgetKind::ALL {
                open.extend(own_budgets(self.connection(), &[id], kind)?.into_iter().filter(|row| row.lender.is_some()));
            }
            if open.is_empty() {
                continue;
            }
            if unfinished_below(self.connection(), id)? {
                break;
            }
            for below in open {
                self.prepare("UPDATE budgets SET is_returned = 1 WHERE run = ?1 AND kind = ?2")?
                    .execute(params![id.to_string(), below.kind.word()])?;
                let Some(lender) = below.lender else { continue };
                for row in own_budgets(self.connection(), &[lender], below.kind)? {
                    self.set_account(lender, below.kind, row.account.take_back(below.account))?;
                    self.check_budget(lender, below.kind, None, retention)?;
                    // What was only reserved stopped them.
                    self.resume_with_budget(lender, retention, "hub", "a run below returned what it did not use")?;
                }
            }
        }
        Ok(())
    }

    /// Raises the budgets on which a run draws, or gives it one. Returns the runs whose budgets have changed.
    ///
    /// # Errors
    /// The budget above has too little, or the amount is too large.
    pub fn raise_budgets(&mut self, run: &Run, add: &Budget, by: &str) -> Result<Vec<RunId>, StoreError> {
        let rows = budgets_of(self.connection(), run.id, self.steady())?;
        let mut holders = Vec::new();
        for (kind, amount) in add.amounts() {
            let too_large = || Denied::invalid("add", format!("the budget of {} would be too large", kind.word()));
            let Some(row) = rows.iter().find(|row| row.kind == kind) else {
                // The budget begins now.
                let before = match kind {
                    BudgetKind::Time => read::active_below(self.connection(), run.id, kind, self.steady())?.0,
                    BudgetKind::Tokens | BudgetKind::Cost => 0,
                };
                let limit = Account::new(before).raise(amount).ok_or_else(too_large)?;
                self.open_budgets(run.id, &[PlannedBudget { kind, account: limit, lender: None, is_hard: add.is_hard }])?;
                holders.push(run.id);
                continue;
            };
            let own = own_budgets(self.connection(), &[row.run], kind)?;
            let Some(stored) = own.first() else { continue };
            let raised = stored.account.raise(amount).ok_or_else(too_large)?;
            if let Some(lender) = row.lender {
                let above = budgets_of(self.connection(), lender, self.steady())?;
                if let Some(above) = above.iter().find(|above| above.kind == kind && above.run == lender) {
                    above.account.transfer(amount).map_err(|TooLittleLeft { left }| Denied::Budget {
                        problem: format!("{} is more than the budget above it has left ({})", kind.text(amount), kind.text(left)),
                    })?;
                    self.prepare("UPDATE budgets SET reserved = reserved + ?3 WHERE run = ?1 AND kind = ?2")?.execute(params![
                        lender.to_string(),
                        kind.word(),
                        amount
                    ])?;
                }
            }
            self.set_account(row.run, kind, raised)?;
            let is_warned = Account { limit: raised.limit, ..row.account }.is_nearly_used();
            self.prepare("UPDATE budgets SET is_warned = ?3, is_hard = is_hard OR ?4 WHERE run = ?1 AND kind = ?2")?.execute(params![
                row.run.to_string(),
                kind.word(),
                is_warned,
                add.is_hard
            ])?;
            holders.push(row.run);
        }
        holders.sort_unstable_by_key(ToString::to_string);
        holders.dedup();
        for holder in &holders {
            let of = self.run(*holder)?;
            let seq = append_event(self, EventKind::BudgetChanged, of.id, &of.owner.to_string(), None, by, &format!("raised by {add}"))?;
            self.touch(of.id, seq)?;
        }
        self.look_by_budget(run.id)?;
        Ok(holders)
    }

    /// Resumes the runs that were stopped because a budget was used up, where each of theirs has something left again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn resume_after_raise(&mut self, holder: RunId, retention: Retention, by: &str) -> Result<(), StoreError> {
        self.resume_with_budget(holder, retention, by, "its budget was raised")
    }

    fn resume_with_budget(&mut self, holder: RunId, retention: Retention, by: &str, text: &str) -> Result<(), StoreError> {
        for id in read::stopped_for_budget(self.connection(), holder)? {
            let rows = budgets_of(self.connection(), id, self.steady())?;
            if check_left(rows.iter().map(|row| (row.kind, row.account))).is_ok() {
                let run = self.run(id)?;
                self.advance(&run, RunEvent::Resumed, retention, by, text)?;
            }
        }
        Ok(())
    }
}
