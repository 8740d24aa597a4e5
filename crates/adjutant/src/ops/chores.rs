//! What is due by itself: deadlines, retention, and the rendered copies of runs beside their logs.

use crate::ops::{OpError, Ops, render};
use crate::store::{KEYS_KEPT_MS, StoreError, due_estimates, due_stopped, newest_of, next_until, run_by_id};
use crate::view::{METADATA_MESSAGES_MAX, metadata};
use crate::{clock, files};
use adjutant_core::{Principal, RunEvent, RunId, RunState, SteadyTime, StopReason};

/// How long webhooks' deliveries are kept and shown that failed for good.
const PARKED_KEPT_MS: i64 = 14 * 24 * 60 * 60 * 1000;

impl Ops {
    /// Settles whatever is due now. Returns when the next is.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn settle_due(&self) -> Result<Option<SteadyTime>, OpError> {
        if clock::is_news() {
            // The writer takes it in.
            self.store.write(|_| Ok(())).await?;
        }
        let next = self.store.read(next_until)?;
        if next.is_none_or(|at| at > clock::steady()) {
            return Ok(next);
        }
        let retention = self.retention();
        self.store
            .write(move |tx| {
                for settled in tx.settle_due()? {
                    tx.hand_over(&settled, retention)?;
                }
                for run in due_estimates(tx.connection(), tx.steady())? {
                    tx.set_overdue(&run)?;
                }
                for run in due_stopped(tx.connection(), tx.steady())? {
                    let event = match run.state {
                        RunState::Stopped { reason: StopReason::RateLimited, .. } => RunEvent::Resumed,
                        _ => RunEvent::Retired,
                    };
                    tx.advance(&run, event, retention, "hub", "")?;
                }
                Ok(())
            })
            .await?;
        Ok(self.store.read(next_until)?)
    }

    /// Forgets what is old: keys, kept waits, imports that nobody ended, and finished runs past their retention;
    /// then keeps room free again that was used to stop a run, and removes credentials that nothing needs.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn forget_old(&self) -> Result<(), OpError> {
        self.store
            .write(|tx| {
                tx.forget_keys(tx.steady().plus_ms(-KEYS_KEPT_MS))?;
                tx.forget_parked(tx.steady().plus_ms(-PARKED_KEPT_MS))?;
                tx.forget_tasks()
            })
            .await?;
        // An import goes on where it was broken off for as long as its keys are known.
        while self.store.write(|tx| tx.forget_imports(tx.steady().plus_ms(-KEYS_KEPT_MS))).await? {}
        if let Some(retention_ms) = self.config()?.finished_retention_ms {
            self.clean(&Principal::Person, retention_ms, false).await?;
        }
        self.store.lay_ballast();
        Ok(self.store.sweep_credentials().await?)
    }

    /// Renders a run's `.meta.json`, field names as the original protocol has them. It is only a
    /// copy: the store is the truth, and nothing ever reads it back.
    ///
    /// # Errors
    /// A failure of the store, or the file cannot be written.
    pub fn render_meta(&self, id: RunId) -> Result<(), OpError> {
        let found = self.store.read(|connection| match run_by_id(connection, id)? {
            Some(run) => {
                let requests = newest_of(connection, id, true, METADATA_MESSAGES_MAX)?;
                Ok(Some((render::run(connection, &self.home, &run)?, requests)))
            }
            None => Ok::<_, StoreError>(None),
        })?;
        let Some((run, requests)) = found else { return Ok(()) };
        let meta = metadata(&run, &requests.iter().map(render::request).collect::<Vec<_>>());
        let text = serde_json::to_vec_pretty(&meta).map_err(|error| OpError::Io(error.to_string()))?;
        let path = self.home.logs_dir().join(format!("{}.meta.json", run.run_id));
        files::write_atomically(&self.home.dir, &path, &text).map_err(|error| OpError::Io(format!("{}: {error}", path.display())))
    }
}
