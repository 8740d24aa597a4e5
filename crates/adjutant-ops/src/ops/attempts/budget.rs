//! Answers the gate of an attempt: whether another request may begin.

use super::reservations::{HardBudget, Reservations};
use crate::clock;
use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::ops::budgets::{record_totals, totals};
use crate::ops::settings::Settings;
use crate::ops::terms::Terms;
use crate::protocol::{AskBudget, BudgetLeft, ModelUsage};
use crate::store::{
    BudgetRow, Connection, Store, StoreError, budgets_of, gate_usage_of, has_grown, run_by_id,
};
use adjutant_core::budget::check_left;
use adjutant_core::{BudgetKind, RunId, RunState};
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for requests under way. The supervisor then asks again.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Returns what a run may still use.
fn budget_left(connection: &Connection, id: AttemptId) -> Result<BudgetLeft, StoreError> {
    let run = run_by_id(connection, id.run)?.filter(|run| run.attempt == id.n);
    let Some(run) = run.filter(|run| matches!(run.state, RunState::Starting | RunState::Running))
    else {
        return Ok(BudgetLeft {
            refusal: Some("the run is being stopped".to_owned()),
            ..BudgetLeft::default()
        });
    };
    let rows = budgets_of(connection, run.id, clock::steady())?;
    let of = |kind: BudgetKind| {
        rows.iter()
            .find(|row| row.kind == kind)
            .map(|row| row.account.left().unsigned_abs())
    };
    let refusal = match check_left(rows.iter().map(|row| (row.kind, row.account))) {
        Ok(()) => None,
        Err(kind) => {
            let row = rows
                .iter()
                .find(|row| row.kind == kind)
                .map(BudgetRow::text)
                .unwrap_or_default();
            Some(format!(
                "the budget of {} of this task is used up ({row})",
                kind.word()
            ))
        }
    };
    Ok(BudgetLeft {
        may_begin: refusal.is_none(),
        waits: false,
        refusal,
        tokens_left: of(BudgetKind::Tokens),
        cost_micros_left: of(BudgetKind::Cost),
        time_ms_left: of(BudgetKind::Time),
        is_hard: rows
            .iter()
            .any(|row| row.is_hard && row.kind != BudgetKind::Time),
    })
}

/// Returns whether a run draws on a budget of what a gate counts.
fn draws_on_usage(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(budgets_of(connection, run, clock::steady())?
        .iter()
        .any(|row| row.kind != BudgetKind::Time))
}

/// Returns the hard budgets of usage that a run draws on.
fn hard_budgets(connection: &Connection, run: RunId) -> Result<Vec<HardBudget>, StoreError> {
    let rows = budgets_of(connection, run, clock::steady())?;
    let hard = rows
        .iter()
        .filter(|row| row.is_hard && row.kind != BudgetKind::Time);
    Ok(hard
        .map(|row| HardBudget {
            run: row.run,
            kind: row.kind,
            left: row.account.left(),
        })
        .collect())
}

/// Returns whether an attempt can have requests under way.
fn is_live(connection: &Connection, id: AttemptId) -> Result<bool, StoreError> {
    let run = run_by_id(connection, id.run)?.filter(|run| run.attempt == id.n);
    Ok(run.is_some_and(|run| {
        !run.state.is_finished()
            && !matches!(run.state, RunState::Queued | RunState::Stopped { .. })
    }))
}

/// The gates of attempts, and what requests through them have reserved of hard budgets. Clones
/// share the reservations.
#[derive(Debug, Clone)]
pub struct Gates {
    store: Store,
    settings: Settings,
    reservations: Arc<Reservations>,
}

impl Gates {
    pub(in crate::ops) fn new(store: Store, settings: Settings) -> Self {
        Self {
            store,
            settings,
            reservations: Arc::default(),
        }
    }

    /// Records what an attempt's gate has counted, and returns what is left. If a request is about
    /// to begin, reserves what it may use of hard budgets; it waits while others have reserved too
    /// much.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn ask_budget(&self, id: AttemptId, ask: AskBudget) -> Result<BudgetLeft, OpError> {
        let AskBudget {
            used,
            begins: _,
            begins_no,
            requests,
            next_no,
        } = ask;
        let mut left = self.record_gate_usage(id, used).await?;
        let prices = Terms::of(&self.settings).prices;
        let amount = |kind: BudgetKind, tokens: u64| match kind {
            BudgetKind::Cost => prices.highest_cost_micros(tokens),
            BudgetKind::Tokens | BudgetKind::Time => tokens,
        };
        let mut ends = self.reservations.ends();
        let budgets = self
            .store
            .read(|connection| hard_budgets(connection, id.run))?;
        self.reservations
            .restate(id, &requests, next_no, &budgets, amount);
        let Some(request) = requests
            .iter()
            .find(|request| Some(request.no) == begins_no)
            .copied()
        else {
            return Ok(left);
        };
        let end = tokio::time::Instant::now() + WAIT_MAX;
        while left.may_begin {
            ends.mark_unchanged();
            // Another report may have used up a budget.
            let budgets;
            (left, budgets) = self.store.read(|connection| {
                Ok::<_, StoreError>((
                    budget_left(connection, id)?,
                    hard_budgets(connection, id.run)?,
                ))
            })?;
            if !left.may_begin {
                break;
            }
            let lives = |other| {
                self.store.read(|connection| is_live(connection, other)).unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot tell whether an attempt lives: it keeps what it has reserved");
                    true
                })
            };
            if self
                .reservations
                .reserve(id, request, &budgets, lives, amount)
            {
                return Ok(left);
            }
            if tokio::time::timeout_at(end, ends.changed()).await.is_err() {
                return Ok(BudgetLeft {
                    may_begin: false,
                    waits: true,
                    ..left
                });
            }
        }
        Ok(left)
    }

    /// Records what an attempt's gate has counted, and returns what is left. Only a statement with
    /// something new writes. If it cannot be written, no request begins under a budget: what is
    /// left is not known. Without a budget one may, because the next statement contains the same.
    async fn record_gate_usage(
        &self,
        id: AttemptId,
        used: Vec<ModelUsage>,
    ) -> Result<BudgetLeft, OpError> {
        let used = totals(used);
        let known = self.store.read(|connection| {
            let known = gate_usage_of(connection, id.run, id.n)?.unwrap_or_default();
            if has_grown(&known, &used) {
                Ok(None)
            } else {
                budget_left(connection, id).map(Some)
            }
        })?;
        if let Some(left) = known {
            return Ok(left);
        }
        let terms = Terms::of(&self.settings);
        let written = self
            .store
            .write(move |tx| {
                if let Some(run) = run_by_id(tx.connection(), id.run)?
                    .filter(|run| run.attempt == id.n && !run.state.is_finished())
                {
                    record_totals(tx, &run, &used, &terms)?;
                }
                budget_left(tx.connection(), id)
            })
            .await;
        match written {
            Err(StoreError::Full | StoreError::Unknown(_) | StoreError::Sql(_))
                if !self
                    .store
                    .read(|connection| draws_on_usage(connection, id.run))? =>
            {
                tracing::warn!(attempt = %id, "what the gate has counted cannot be recorded now; the run has no budget of it");
                Ok(self.store.read(|connection| budget_left(connection, id))?)
            }
            written => Ok(written?),
        }
    }
}
