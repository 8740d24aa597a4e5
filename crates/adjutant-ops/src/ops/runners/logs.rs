//! The logs of attempts on runners: the runner sends them after the end of the attempt, and the hub
//! keeps them in its home.

use super::foreign_attempt;
use crate::config::Home;
use crate::failpoint::failpoint;
use crate::logs::kept::{AttemptLogs, is_plausible};
use crate::ops::kept_logs::KeptLogs;
use crate::ops::log_store::LogStore;
use crate::ops::runner_sessions::RunnerSession;
use crate::ops::{AttemptId, OpError, Ops};
use crate::protocol::{LogBytes, LogBytesStored, LogFilesStored, PostLogFiles};
use crate::store::{Store, attempt_row};
use adjutant_core::Denied;
use std::io;
use std::sync::Arc;

/// The logs that runners send.
#[derive(Debug, Clone)]
pub struct HostedLogs {
    store: Store,
    home: Arc<Home>,
    kept_logs: KeptLogs,
    log_store: LogStore,
}

impl HostedLogs {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            kept_logs: ops.kept_logs.clone(),
            log_store: ops.log_store.clone(),
        }
    }

    /// Begins to keep the logs of an attempt, or continues, and returns what the hub has of them.
    /// May be repeated.
    ///
    /// # Errors
    /// The attempt is not on this runner, the logs are too large, or the disk failed.
    pub async fn accept(
        &self,
        session: &RunnerSession,
        call: PostLogFiles,
    ) -> Result<LogFilesStored, OpError> {
        let PostLogFiles { attempt, files } = call;
        if !is_plausible(&files) {
            return Err(Denied::invalid("files", "they are too many or too large").into());
        }
        let (record, bytes) = self
            .with_logs(session, &attempt, move |logs| logs.accept(files))
            .await?;
        if record.is_complete {
            failpoint!("logs.accepted");
            AttemptId::parse(&attempt)
                .into_iter()
                .for_each(|id| self.log_store.note_complete(id));
        }
        Ok(LogFilesStored {
            is_complete: record.is_complete,
            bytes,
        })
    }

    /// Stores bytes of a log. Returns when they are durable. May be repeated.
    ///
    /// # Errors
    /// The attempt is not on this runner, the bytes do not belong to a listed file, or the disk
    /// failed.
    pub async fn store_bytes(
        &self,
        session: &RunnerSession,
        at: LogBytes,
        bytes: axum::body::Bytes,
    ) -> Result<LogBytesStored, OpError> {
        let LogBytes { attempt, file, at } = at;
        let stored = self
            .with_logs(session, &attempt, move |logs| logs.append(file, at, &bytes))
            .await?;
        failpoint!("logs.part_stored");
        let bytes = stored
            .ok_or_else(|| Denied::invalid("file", "these bytes are not part of a listed file"))?;
        Ok(LogBytesStored { bytes })
    }

    /// Changes the kept logs of an attempt. It is on this runner, and its run is not removed
    /// meanwhile.
    async fn with_logs<T: Send + 'static>(
        &self,
        session: &RunnerSession,
        attempt: &str,
        change: impl FnOnce(&AttemptLogs) -> io::Result<T> + Send + 'static,
    ) -> Result<T, OpError> {
        let id = AttemptId::parse(attempt)
            .ok_or_else(|| Denied::invalid("attempt", "use RUN-ID/NUMBER"))?;
        let only = self.kept_logs.lock(attempt).await;
        // Also of an attempt whose lease has expired: its log says what it did.
        let row = self
            .store
            .read(|connection| attempt_row(connection, id.run, id.n))?;
        row.filter(|row| row.host.as_deref() == Some(session.host.as_str()))
            .ok_or_else(foreign_attempt)?;
        let logs = AttemptLogs {
            home: self.home.dir.clone(),
            run_id: id.run.to_string(),
            attempt: id.n.0,
        };
        let changed = tokio::task::spawn_blocking(move || {
            // The change continues if the runner closes the connection.
            let _only = only;
            change(&logs)
        });
        let changed = changed
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        changed.map_err(|error| OpError::Io(format!("the logs of {id} cannot be kept: {error}")))
    }
}
