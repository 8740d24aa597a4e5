//! What the gate of an attempt asks: whether another request may begin.

use crate::clock;
use crate::link::{AskBudget, BudgetLeft};
use crate::ops::attempts::AttemptId;
use crate::ops::budgets::{record_totals, totals};
use crate::ops::{OpError, Ops};
use crate::store::{BudgetRow, Connection, StoreError, budgets_of, gate_usage_of, has_grown, run_by_id};
use adjutant_core::budget::check_left;
use adjutant_core::{BudgetKind, RunState};

/// Returns what a run may still use.
fn budget_left(connection: &Connection, id: AttemptId) -> Result<BudgetLeft, StoreError> {
    let run = run_by_id(connection, id.run)?.filter(|run| run.attempt == id.n);
    let Some(run) = run.filter(|run| matches!(run.state, RunState::Starting | RunState::Running)) else {
        return Ok(BudgetLeft { refusal: Some("the run is being stopped".to_owned()), ..BudgetLeft::default() });
    };
    let rows = budgets_of(connection, run.id, clock::steady())?;
    let of = |kind: BudgetKind| rows.iter().find(|row| row.kind == kind).map(|row| row.account.left().unsigned_abs());
    let refusal = match check_left(rows.iter().map(|row| (row.kind, row.account))) {
        Ok(()) => None,
        Err(kind) => {
            let row = rows.iter().find(|row| row.kind == kind).map(BudgetRow::text).unwrap_or_default();
            Some(format!("the budget of {} of this task is used up ({row})", kind.word()))
        }
    };
    Ok(BudgetLeft {
        may_begin: refusal.is_none(),
        refusal,
        tokens_left: of(BudgetKind::Tokens),
        cost_micros_left: of(BudgetKind::Cost),
        time_ms_left: of(BudgetKind::Time),
        is_hard: rows.iter().any(|row| row.is_hard && row.kind != BudgetKind::Time),
    })
}

impl Ops {
    /// Records the usage that an attempt's gate has counted, and returns the remaining budget. Writes only if the usage is new.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn ask_budget(&self, id: AttemptId, ask: AskBudget) -> Result<BudgetLeft, OpError> {
        let AskBudget { used, begins: _ } = ask;
        let used = totals(used);
        let known = self.store.read(|connection| {
            let known = gate_usage_of(connection, id.run, id.n)?.unwrap_or_default();
            if has_grown(&known, &used) { Ok(None) } else { budget_left(connection, id).map(Some) }
        })?;
        if let Some(left) = known {
            return Ok(left);
        }
        let terms = self.terms();
        Ok(self
            .store
            .write(move |tx| {
                if let Some(run) = run_by_id(tx.connection(), id.run)?.filter(|run| run.attempt == id.n && !run.state.is_finished()) {
                    record_totals(tx, &run, &used, &terms)?;
                }
                budget_left(tx.connection(), id)
            })
            .await?)
    }
}
