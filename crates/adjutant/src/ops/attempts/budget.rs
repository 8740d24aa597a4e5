//! Answers the gate of an attempt: whether another request may begin.

use crate::clock;
use crate::link::{AskBudget, BudgetLeft};
use crate::ops::attempts::AttemptId;
use crate::ops::budgets::{record_totals, totals};
use crate::ops::{OpError, Ops};
use crate::store::{BudgetRow, Connection, StoreError, budgets_of, gate_usage_of, has_grown, run_by_id};
use adjutant_core::budget::check_left;
use adjutant_core::{BudgetKind, RunId, RunState};

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

/// Returns whether a run draws on a budget of what a gate counts.
fn draws_on_usage(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(budgets_of(connection, run, clock::steady())?.iter().any(|row| row.kind != BudgetKind::Time))
}

impl Ops {
    /// Records what an attempt's gate has counted, and returns what is left. Only a statement with something new writes.
    /// If it cannot be written, no request begins under a budget: what is left is not known. Without a budget one may,
    /// because the next statement contains the same.
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
        let written = self
            .store
            .write(move |tx| {
                if let Some(run) = run_by_id(tx.connection(), id.run)?.filter(|run| run.attempt == id.n && !run.state.is_finished()) {
                    record_totals(tx, &run, &used, &terms)?;
                }
                budget_left(tx.connection(), id)
            })
            .await;
        match written {
            Err(StoreError::Full | StoreError::Unknown(_) | StoreError::Sql(_))
                if !self.store.read(|connection| draws_on_usage(connection, id.run))? =>
            {
                tracing::warn!(attempt = %id, "what the gate has counted cannot be recorded now; the run has no budget of it");
                Ok(self.store.read(|connection| budget_left(connection, id))?)
            }
            written => Ok(written?),
        }
    }
}
