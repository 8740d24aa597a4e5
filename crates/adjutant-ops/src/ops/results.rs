//! Results: reconstructing one if the last message has no content, and reading a whole one.

use super::log_store::LogStore;
use super::runner_sessions::Sessions;
use super::{OpError, Ops, lookup};
use crate::config::Home;
use crate::files;
use crate::logs::kept::AttemptLogs;
use crate::ops::evidence::parse_evidence;
use crate::protocol::{AttemptDir, GapText, LogFileName};
use crate::store::{Run, Store, StoreError, Tx, report_of};
use crate::view::{ReadResult, ResultView};
use adjutant_core::result::{ResultGap, WorkEvidence, reconstruct};
use adjutant_core::{Action, Principal};
use std::io::{self, Read as _};
use std::sync::Arc;

/// Maximum size of a stored result, in bytes.
const WHOLE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Stores why a run's last message is not a result, and the result reconstructed from what was
/// observed.
pub(super) fn note_gap(
    tx: &mut Tx<'_>,
    run: &Run,
    last_message: &str,
    gap: Option<&GapText>,
) -> Result<(), StoreError> {
    let word = gap.and_then(|gap| ResultGap::from_word(&gap.word));
    let (Some(gap), Some(word)) = (gap, word) else {
        return tx.set_result_gap(run.id, None, None);
    };
    let (report, evidence) = report_of(tx.connection(), run.id)?;
    let evidence = parse_evidence(evidence, run.id)?.unwrap_or_default();
    let report = report.map(|report| format!("{}\n{}", report.summary, report.details()));
    let seen = WorkEvidence {
        last_message,
        messages: &gap.messages,
        report: report.as_deref(),
        changed_files: evidence.changed.as_deref().unwrap_or_default(),
        has_more_files: evidence.changed_cut,
        commits: &evidence.commits,
    };
    tx.set_result_gap(run.id, Some(word), reconstruct(word, &seen).as_deref())
}

/// Stores the result of a run that was lost with its supervisor, reconstructed from what the store
/// and its output have.
pub(super) fn note_loss(tx: &mut Tx<'_>, run: &Run, last_output: &str) -> Result<(), StoreError> {
    let gap = if last_output.trim().is_empty() {
        ResultGap::Empty
    } else {
        ResultGap::Cut
    };
    // It is unknown which part of the output was a message.
    let messages = if gap == ResultGap::Cut {
        vec![last_output.trim().to_owned()]
    } else {
        Vec::new()
    };
    note_gap(
        tx,
        run,
        "",
        Some(&GapText {
            word: gap.word().to_owned(),
            messages,
        }),
    )
}

/// Reads the results of runs.
#[derive(Debug, Clone)]
pub struct Results {
    store: Store,
    home: Arc<Home>,
    log_store: LogStore,
    runners: Sessions,
}

impl Results {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            log_store: ops.log_store.clone(),
            runners: ops.sessions.clone(),
        }
    }

    /// Reads a run's whole result.
    ///
    /// # Errors
    /// Unknown or foreign, or a failure of the disk.
    pub async fn read(&self, who: &Principal, call: &ReadResult) -> Result<ResultView, OpError> {
        let run = self
            .store
            .read(|connection| lookup::run(connection, who, Action::See, &call.run))?;
        let (last_message, is_cut) = self.whole_message(&run).await?;
        let is_reconstructed = run.reconstructed.is_some();
        Ok(ResultView {
            run_id: run.id.to_string(),
            run_name: run.name,
            result: run.reconstructed.unwrap_or_else(|| last_message.clone()),
            reconstructed: is_reconstructed,
            last_message: is_reconstructed.then_some(last_message),
            is_cut,
        })
    }

    /// Returns a run's whole last message, or its end and `true` if the rest is only in the log.
    pub(super) async fn whole_message(&self, run: &Run) -> Result<(String, bool), OpError> {
        let end = run.result.clone().unwrap_or_default();
        let Some(bytes) = run.result_bytes.filter(|bytes| *bytes > end.len() as u64) else {
            return Ok((end, false));
        };
        let (home, id, newest) = (self.home.dir.clone(), run.id.to_string(), run.attempt.0);
        let read = move || {
            // A newer attempt has not stored a result yet.
            let found = (1..=newest)
                .rev()
                .find_map(|n| read_answer(&home, &id, n, &end, bytes));
            found.ok_or(end)
        };
        match tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
        {
            Ok(whole) => {
                let is_cut = (whole.len() as u64) < bytes
                    || whole.len() >= adjutant_core::limits::RESULT_BYTES_MAX - 4;
                Ok((whole, is_cut))
            }
            Err(end) => {
                if let Some(whole) = self.answer_in_log_store(run, &end, bytes).await {
                    return Ok((whole, false));
                }
                tracing::warn!(run = %run.name, "the whole result cannot be read; its log has it");
                Ok((end, true))
            }
        }
    }

    /// Reads the last message of a run whose logs another home has moved to the log store.
    async fn answer_in_log_store(&self, run: &Run, end: &str, bytes: u64) -> Option<String> {
        if !self.log_store.is_configured() {
            return None;
        }
        for attempt in (1..=run.attempt.0).rev() {
            let logs = AttemptLogs {
                home: self.home.dir.clone(),
                run_id: run.id.to_string(),
                attempt,
            };
            let found = self.log_store.stored(run, &logs, None, &self.runners).await;
            let Some(stored) = found
                .inspect_err(
                    |error| tracing::warn!(run = run.name, %error, "a result cannot be read"),
                )
                .ok()
                .flatten()
            else {
                continue;
            };
            let _admitted = stored.objects.admit_reader().await;
            let read = tokio::task::spawn_blocking(move || {
                stored.read(LogFileName::Answer, WHOLE_BYTES_MAX)
            })
            .await;
            match read.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                Ok(Some(answer))
                    if answer.len() as u64 == bytes && answer.ends_with(end.as_bytes()) =>
                {
                    return Some(String::from_utf8_lossy(&answer).into_owned());
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(run = run.name, %error, "a result cannot be read"),
            }
        }
        None
    }
}

/// Reads the last message that an attempt stored, if it ends with `end`.
fn read_answer(
    home: &std::path::Path,
    run: &str,
    attempt: u32,
    end: &str,
    bytes: u64,
) -> Option<String> {
    let dir = AttemptDir::new(home, run, attempt);
    let mut read = Vec::new();
    match files::open(dir.home(), &dir.answer())
        .and_then(|file| file.take(WHOLE_BYTES_MAX).read_to_end(&mut read))
    {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, path = %dir.answer().display(), "a result cannot be read");
            return None;
        }
    }
    let text = String::from_utf8_lossy(&read).into_owned();
    (text.len() as u64 == bytes && text.ends_with(end)).then_some(text)
}
