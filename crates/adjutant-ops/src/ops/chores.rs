//! Periodic work: deadlines, retention, and the `.meta.json` copies of runs.

use crate::config::Home;
use crate::ops::escalation::escalate_due;
use crate::ops::first_reports::FirstReports;
use crate::ops::runs::{Cleaner, Cleaning};
use crate::ops::settings::Settings;
use crate::ops::tokens::Tokens;
use crate::ops::{Caller, OpError, Ops, render};
use crate::store::{
    Connection, KEYS_KEPT_MS, Store, StoreError, due_estimates, due_stopped, due_time_budgets,
    newest_of, next_time_budget, next_until, run_by_id,
};
use crate::view::{METADATA_MESSAGES_MAX, metadata};
use crate::{clock, files};
use adjutant_core::{BudgetKind, Principal, RunEvent, RunId, RunState, SteadyTime, StopReason};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long permanently failed webhook deliveries are kept.
const PARKED_KEPT_MS: i64 = 14 * 24 * 60 * 60 * 1000;

/// Returns the next deadline of a request, a run or a budget of time.
fn next_deadline(
    connection: &Connection,
    unreported: &BTreeSet<RunId>,
) -> Result<Option<SteadyTime>, StoreError> {
    Ok([
        next_until(connection)?,
        next_time_budget(connection, clock::steady(), unreported)?,
    ]
    .into_iter()
    .flatten()
    .min())
}

/// The periodic work of the hub.
#[derive(Debug, Clone)]
pub struct Chores {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    first_reports: Arc<FirstReports>,
    tokens: Tokens,
    cleaner: Cleaner,
}

impl Chores {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            first_reports: Arc::clone(&ops.first_reports),
            tokens: Tokens::of(ops),
            cleaner: Cleaner::of(ops),
        }
    }

    /// Applies all due deadlines, then escalates the requests that still wait. Returns the next due
    /// time.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn apply_deadlines_and_escalate(&self) -> Result<Option<SteadyTime>, OpError> {
        let deadline = self.apply_deadlines().await?;
        let escalation = escalate_due(&self.store, &self.settings).await?;
        Ok([deadline, escalation].into_iter().flatten().min())
    }

    async fn apply_deadlines(&self) -> Result<Option<SteadyTime>, OpError> {
        if clock::has_changed() {
            // The writer thread records the clock change.
            self.store.write(|_| Ok(())).await?;
        }
        let unreported = self.first_reports.runs_without_report();
        let next = self
            .store
            .read(|connection| next_deadline(connection, &unreported))?;
        if next.is_none_or(|at| at > clock::steady()) {
            return Ok(next);
        }
        let (retention, excepted) = (self.settings.retention(), unreported.clone());
        self.store
            .write(move |tx| {
                for settled in tx.apply_request_deadlines()? {
                    tx.deliver_outcome(&settled, retention)?;
                }
                for run in due_estimates(tx.connection(), tx.steady())? {
                    tx.set_overdue(&run)?;
                }
                for holder in due_time_budgets(tx.connection(), tx.steady(), &excepted)? {
                    tx.check_budget(holder, BudgetKind::Time, None, retention)?;
                }
                for run in due_stopped(tx.connection(), tx.steady())? {
                    let event = match run.state {
                        RunState::Stopped { reason, .. }
                            if reason.waits_for_model() || reason == StopReason::MemoryPressure =>
                        {
                            RunEvent::Resumed
                        }
                        _ => RunEvent::Retired,
                    };
                    tx.advance(&run, event, retention, "hub", "")?;
                }
                Ok(())
            })
            .await?;
        Ok(self
            .store
            .read(|connection| next_deadline(connection, &unreported))?)
    }

    /// Deletes expired keys, waits, unfinished imports and finished runs past their retention, and
    /// revokes expired tokens; then restores the reserved disk space and removes unused
    /// credentials.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn remove_expired(&self) -> Result<(), OpError> {
        // First, so that a failure of the rest does not leave expired tokens valid.
        self.tokens.revoke_expired().await?;
        self.store
            .write(|tx| {
                tx.forget_keys(tx.steady().plus_ms(-KEYS_KEPT_MS))?;
                tx.forget_parked(tx.steady().plus_ms(-PARKED_KEPT_MS))?;
                tx.forget_tasks()
            })
            .await?;
        // An interrupted import can continue as long as its keys are known.
        while self
            .store
            .write(|tx| tx.forget_imports(tx.steady().plus_ms(-KEYS_KEPT_MS)))
            .await?
        {}
        if let Some(retention_ms) = self.settings.config()?.times.finished_retention_ms {
            let cleaned = self
                .cleaner
                .clean(
                    Caller {
                        who: Principal::Person,
                        key: None,
                    },
                    retention_ms,
                    &[],
                    Cleaning::default(),
                )
                .await?;
            for kept in &cleaned.kept {
                tracing::warn!(
                    run = kept.run,
                    reason = kept.reason,
                    "a run is kept past its retention period; see adj clean"
                );
            }
        }
        self.store
            .write(|tx| tx.forget_keys_of_removed_runs())
            .await?;
        self.store.release_free_pages().await?;
        self.store.reserve_space();
        Ok(self.store.sweep_credentials().await?)
    }

    /// Writes a run's `.meta.json` with the field names of the original protocol. It is a copy:
    /// nothing reads it back.
    ///
    /// # Errors
    /// A failure of the store, or the file cannot be written.
    pub fn render_meta(&self, id: RunId) -> Result<(), OpError> {
        let found = self
            .store
            .read(|connection| match run_by_id(connection, id)? {
                Some(run) => {
                    connection.announce(|connection| {
                        newest_of(connection, id, true, METADATA_MESSAGES_MAX)
                    });
                    let view = render::with_report(connection, &self.home, &run)?;
                    Ok(Some((
                        view,
                        newest_of(connection, id, true, METADATA_MESSAGES_MAX)?,
                    )))
                }
                None => Ok::<_, StoreError>(None),
            })?;
        let Some((run, requests)) = found else {
            return Ok(());
        };
        let meta = metadata(
            &run,
            &requests.iter().map(render::request).collect::<Vec<_>>(),
        );
        let text =
            serde_json::to_vec_pretty(&meta).map_err(|error| OpError::Io(error.to_string()))?;
        let path = self
            .home
            .logs_dir()
            .join(format!("{}.meta.json", run.identity.run_id));
        files::write_atomically(&self.home.dir, &path, &text)
            .map_err(|error| OpError::Io(format!("{}: {error}", path.display())))
    }
}
