//! Evidence collected after the end of an attempt's agent.

use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::protocol::{AttemptEvidence, Closing};
use crate::store::{Run, Store, StoreError, Tx, acceptance_of, report_of, run_by_id};
use adjutant_core::report::named_files;
use adjutant_core::{RunState, StopReason};

/// Maximum number of changed files kept for all attempts together.
const CHANGED_MAX: usize = 500;
/// Maximum number of commits kept for all attempts together.
const COMMITS_MAX: usize = 100;

/// Returns the evidence to collect after an attempt's agent has ended. `by_itself`: before a
/// stop of it began.
///
/// # Errors
/// A failure of the store.
pub fn closing_of(store: &Store, id: AttemptId, by_itself: bool) -> Result<Closing, OpError> {
    Ok(store.read(|connection| {
        let Some(run) = run_by_id(connection, id.run)?.filter(|run| run.attempt == id.n) else {
            return Ok(Closing::default());
        };
        let (report, _) = report_of(connection, run.id)?;
        let leaves =
            matches!(run.state, RunState::Stopping(reason) if reason != StopReason::Cancelled);
        // A run that ends by itself while it is being stopped has finished.
        let ends = match run.state {
            RunState::Starting | RunState::Running | RunState::Stopping(StopReason::Budget) => {
                !run.is_waiting()
            }
            RunState::Stopping(reason) => {
                by_itself
                    && reason != StopReason::Cancelled
                    && !reason.outlasts_an_exit()
                    && !run.is_waiting()
            }
            RunState::Queued | RunState::Stopped { .. } | RunState::Finished(_) => false,
        };
        Ok(Closing {
            files: report
                .as_ref()
                .filter(|_| ends || leaves)
                .map(|report| named_files(&report.deliverables)),
            accept: ends && !acceptance_of(connection, run.id)?.1.is_empty(),
            changed: leaves || matches!(run.state, RunState::Starting | RunState::Running),
        })
    })?)
}

/// Stores the evidence of an attempt.
pub(super) fn store_evidence(
    tx: &mut Tx<'_>,
    run: &Run,
    evidence: &AttemptEvidence,
) -> Result<(), StoreError> {
    if run.state.is_finished() {
        return Ok(());
    }
    let evidence = with_earlier(tx, run, evidence.clone())?;
    let text =
        serde_json::to_string(&evidence).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    tx.set_evidence(run.id, &text)
}

/// Adds the files that earlier attempts changed: each attempt records only changes since its own
/// start.
fn with_earlier(
    tx: &Tx<'_>,
    run: &Run,
    mut evidence: AttemptEvidence,
) -> Result<AttemptEvidence, StoreError> {
    if run.attempt.0 <= 1 || (evidence.changed.is_some() && !evidence.changed_since_start) {
        return Ok(evidence);
    }
    let (_, earlier) = report_of(tx.connection(), run.id)?;
    let Some(earlier) = crate::ops::evidence::parse_evidence(earlier, run.id)? else {
        return Ok(evidence);
    };
    let Some(files) = earlier.changed else {
        return Ok(evidence);
    };
    evidence.changed_since_start = earlier.changed_since_start;
    let mut all: std::collections::BTreeSet<String> = files.into_iter().collect();
    all.extend(evidence.changed.take().unwrap_or_default());
    evidence.changed_cut |= earlier.changed_cut || all.len() > CHANGED_MAX;
    evidence.changed = Some(all.into_iter().take(CHANGED_MAX).collect());
    let known: std::collections::BTreeSet<&String> = evidence.commits.iter().collect();
    let before: Vec<String> = earlier
        .commits
        .iter()
        .filter(|commit| !known.contains(commit))
        .cloned()
        .collect();
    evidence.commits.extend(before);
    evidence.commits.truncate(COMMITS_MAX);
    Ok(evidence)
}
