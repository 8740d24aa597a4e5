//! Raises budgets, and resumes the runs that they had stopped.

use super::PlannedBudget;
use super::read::{self, budgets_of, own_budgets};
use crate::store::db::params;
use crate::store::{Run, StoreError, Tx, append_event};
use adjutant_core::budget::{Account, check_left};
use adjutant_core::run::Retention;
use adjutant_core::{Budget, BudgetKind, Denied, EventKind, RunEvent, RunId};

impl Tx<'_> {
    /// Raises the budgets on which a run draws, or creates one for it. Returns the runs whose budgets have changed.
    ///
    /// # Errors
    /// The budget above has less left, or the amount is too large.
    pub fn raise_budgets(
        &mut self,
        run: &Run,
        add: &Budget,
        by: &str,
    ) -> Result<Vec<RunId>, StoreError> {
        let rows = budgets_of(self.connection(), run.id, self.steady())?;
        let mut holders = Vec::new();
        for (kind, amount) in add.amounts() {
            let too_large = || {
                Denied::invalid(
                    "add",
                    format!("the budget of {} would be too large", kind.word()),
                )
            };
            let Some(row) = rows.iter().find(|row| row.kind == kind) else {
                // A new budget does not include earlier usage.
                let before = match kind {
                    BudgetKind::Time => {
                        read::active_below(self.connection(), run.id, kind, self.steady())?.0
                    }
                    BudgetKind::Tokens | BudgetKind::Cost => 0,
                };
                let account = Account::new(before).raise(amount).ok_or_else(too_large)?;
                self.open_budgets(
                    run.id,
                    &[PlannedBudget {
                        kind,
                        account,
                        lender: None,
                        is_hard: add.is_hard,
                    }],
                )?;
                holders.push(run.id);
                continue;
            };
            let own = own_budgets(self.connection(), &[row.run], kind)?;
            let Some(stored) = own.first() else { continue };
            let raised = stored.account.raise(amount).ok_or_else(too_large)?;
            if let Some(lender) = row.lender {
                let taken = raised.claim().saturating_sub(stored.account.claim());
                let above = budgets_of(self.connection(), lender, self.steady())?;
                if let Some(above) = above
                    .iter()
                    .find(|above| above.kind == kind && above.run == lender)
                    && taken > above.account.left()
                {
                    let (amount, left) = (kind.text(amount), kind.text(above.account.left()));
                    let problem =
                        format!("{amount} is more than the budget above it has left ({left})");
                    return Err(Denied::Budget {
                        problem,
                        of: Some((self.run(lender)?.name, kind)),
                    }
                    .into());
                }
            }
            self.set_account(stored, raised)?;
            let is_warned = Account {
                limit: raised.limit,
                ..row.account
            }
            .is_nearly_used();
            self.prepare("UPDATE budgets SET is_warned = ?3, is_hard = larger(is_hard, ?4) WHERE run = ?1 AND kind = ?2")?.run(params![
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
            let seq = append_event(
                self,
                EventKind::BudgetChanged,
                of.id,
                &of.owner.to_string(),
                None,
                by,
                &format!("raised by {add}"),
            )?;
            self.touch(of.id, seq)?;
        }
        self.schedule_budget_check(run.id)?;
        Ok(holders)
    }

    /// Resumes the runs that were stopped because a budget was used up, if no budget on which they draw is used up any more.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn resume_after_raise(
        &mut self,
        holder: RunId,
        retention: Retention,
        by: &str,
    ) -> Result<(), StoreError> {
        self.resume_with_budget(holder, retention, by, "its budget was raised")
    }

    pub(super) fn resume_with_budget(
        &mut self,
        holder: RunId,
        retention: Retention,
        by: &str,
        text: &str,
    ) -> Result<(), StoreError> {
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
