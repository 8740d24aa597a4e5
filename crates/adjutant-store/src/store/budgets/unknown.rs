//! Usage that is not reported. It is charged a minimum and counted; under a hard budget, the run is
//! stopped.

use super::read::{budgets_of, has_budgets, own_budgets, run_and_ancestors};
use super::unmetered_text;
use crate::store::db::params;
use crate::store::{Run, StoreError, Tx};
use adjutant_core::budget::{Price, Tokens, UNSTATED_TOKENS, Unmetered};
use adjutant_core::cascade::Step;
use adjutant_core::{BudgetKind, RunId};

impl Tx<'_> {
    /// Counts unknown usage in the budget on which a run draws.
    pub(super) fn count_unknown(
        &self,
        run: RunId,
        kind: BudgetKind,
        unstated: i64,
        unpriced: i64,
    ) -> Result<(), StoreError> {
        if unstated == 0 && unpriced == 0 {
            return Ok(());
        }
        let rows = own_budgets(
            self.connection(),
            &run_and_ancestors(self.connection(), run)?,
            kind,
        )?;
        rows.first().map_or(Ok(()), |row| {
            self.add_unknown(row.run, kind, unstated, unpriced)
        })
    }

    pub(super) fn add_unknown(
        &self,
        holder: RunId,
        kind: BudgetKind,
        unstated: i64,
        unpriced: i64,
    ) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE budgets SET unstated = unstated + ?3, unpriced = larger(0, unpriced + ?4) WHERE run = ?1 AND kind = ?2 AND is_returned = 0",
        )?
        .run(params![holder.to_string(), kind.word(), unstated, unpriced])?;
        Ok(())
    }

    /// Charges the minimum for attempts or requests of a run without reported usage.
    pub(in crate::store) fn charge_minimum(
        &mut self,
        run: RunId,
        count: u64,
        price: Option<Price>,
        except: Option<RunId>,
    ) -> Result<(), StoreError> {
        if !has_budgets(self.connection())? {
            return Ok(());
        }
        let floor = Tokens {
            input: count.saturating_mul(UNSTATED_TOKENS),
            ..Tokens::default()
        };
        let cost = price.map_or(0, |price| price.cost_micros(&floor));
        for (kind, amount) in [
            (BudgetKind::Tokens, floor.charged()),
            (BudgetKind::Cost, cost),
        ] {
            self.count_unknown(run, kind, i64::try_from(count).unwrap_or(i64::MAX), 0)?;
            self.charge(run, kind, amount, except)?;
        }
        Ok(())
    }

    /// Counts the whole rest of a hard budget as used, because an agent that draws on it does not
    /// report its usage.
    pub(in crate::store) fn exhaust_hard(
        &mut self,
        run: RunId,
        kind: BudgetKind,
        why: &str,
        except: Option<RunId>,
    ) -> Result<(), StoreError> {
        let rows = budgets_of(self.connection(), run, self.steady())?;
        let Some(row) = rows
            .into_iter()
            .find(|row| row.kind == kind && row.is_hard && row.account.has_left())
        else {
            return Ok(());
        };
        self.set_account(&row, row.account.exhaust())?;
        let text = format!("is hard, and {why}: all of it counts as used");
        self.warn_of_budget(&row, &format!("its budget of {} {text}", kind.word()))?;
        self.stop_drawing(&row, &text, except)
    }

    /// Names a live run to stop whose hard budget of a kind cannot be enforced.
    pub(in crate::store) fn stop_if_kind_unknown(
        &mut self,
        run: RunId,
        kind: BudgetKind,
        why: &str,
    ) -> Result<(), StoreError> {
        let rows = budgets_of(self.connection(), run, self.steady())?;
        let is_hard = rows.iter().any(|row| row.is_hard && row.kind == kind);
        if is_hard && self.run(run)?.state.is_live() {
            let text = format!("its budget is hard, and {why}");
            self.then(Step::StopForBudget { run, text });
        }
        Ok(())
    }

    /// Names a queued run to stop, instead of starting it, if a budget on which it draws is hard and
    /// its agent does not report its usage. Returns whether it is to stop.
    pub(in crate::store) fn stop_if_hard_unmetered(
        &mut self,
        run: &Run,
        unmetered: impl FnOnce(&Self) -> Result<Vec<Unmetered>, StoreError>,
    ) -> Result<bool, StoreError> {
        let rows = budgets_of(self.connection(), run.id, self.steady())?;
        if !rows.iter().any(|row| row.is_hard) {
            return Ok(false);
        }
        let is_hard = |kind: BudgetKind| rows.iter().any(|row| row.is_hard && row.kind == kind);
        let Some((kind, why)) = unmetered(self)?
            .into_iter()
            .find(|(kind, _)| is_hard(*kind))
        else {
            return Ok(false);
        };
        let text = unmetered_text(kind, &run.agent, why);
        self.then(Step::StopForBudget { run: run.id, text });
        Ok(true)
    }
}
