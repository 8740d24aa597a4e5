//! Evidence of a run's work: the files its report names, what it changed, its acceptance command.

use crate::protocol::{AttemptEvidence, CommandEvidence, FileEvidence};
use crate::store::{Connection, Run, StoreError, Tx, report_of};
use adjutant_core::attention::shortfall;
use adjutant_core::checkpoint::Checkpoint;
use adjutant_core::report::{self, AcceptanceResult, Evidence, FileState, ReportedFile};
use adjutant_core::{Exit, Outcome, RunId, RunState};

/// Parses the stored evidence of a run, if there is any.
pub(super) fn parse_evidence(
    text: Option<String>,
    run: RunId,
) -> Result<Option<AttemptEvidence>, StoreError> {
    text.map(|text| {
        serde_json::from_slice(text.as_bytes()).map_err(|error| {
            StoreError::Corrupt(format!(
                "the evidence about run {run} cannot be read: {error}"
            ))
        })
    })
    .transpose()
}

/// Returns a run's checkpoint with its working directory and changed files.
pub(super) fn checkpoint(
    connection: &Connection,
    run: &Run,
) -> Result<Option<Checkpoint>, StoreError> {
    let Some(mut checkpoint) = run.checkpoint.clone() else {
        return Ok(None);
    };
    let (_, evidence) = report_of(connection, run.id)?;
    checkpoint
        .working_directory
        .get_or_insert_with(|| run.cwd.clone());
    checkpoint.changed_files = parse_evidence(evidence, run.id)?
        .and_then(|evidence| evidence.changed)
        .unwrap_or_default();
    Ok(Some(checkpoint))
}

/// Records the shortfall of a run that succeeded but failed its acceptance or report check.
pub(super) fn note_shortfall(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    if run.state != RunState::Finished(Outcome::Succeeded) {
        return Ok(());
    }
    let (report, evidence) = report_of(tx.connection(), run.id)?;
    let evidence = parse_evidence(evidence, run.id)?;
    let accepted = evidence
        .as_ref()
        .and_then(|evidence| evidence.acceptance.as_ref())
        .map(acceptance_result);
    let verdict = report.map(|report| {
        report::overall(&report::check(
            &report,
            &evidence_of(run, evidence.as_ref()),
        ))
    });
    match shortfall(accepted.as_ref(), verdict) {
        Some(shortfall) => tx.set_shortfall(run.id, shortfall),
        None => Ok(()),
    }
}

/// Returns the evidence that a run's report is checked against.
pub(super) fn evidence_of(run: &Run, evidence: Option<&AttemptEvidence>) -> Evidence {
    let files: Option<Vec<ReportedFile>> = evidence
        .and_then(|evidence| evidence.files.as_ref())
        .map(|files| files.iter().map(seen_file).collect());
    let over = matches!(run.state, RunState::Stopped { .. } | RunState::Finished(_));
    Evidence {
        exit: run.exit.filter(|_| over),
        stopped: matches!(run.state, RunState::Stopped { .. }),
        files,
        acceptance: evidence
            .and_then(|evidence| evidence.acceptance.as_ref())
            .map(acceptance_result),
        open_requests: u64::try_from(run.pending).unwrap_or(0),
        active_ms: run.active_ms,
    }
}

pub(super) fn acceptance_result(seen: &CommandEvidence) -> AcceptanceResult {
    match seen {
        CommandEvidence {
            not_known: Some(why),
            ..
        } => AcceptanceResult::NotKnown(why.clone()),
        CommandEvidence {
            stopped: Some(why), ..
        } => AcceptanceResult::Stopped(why.clone()),
        CommandEvidence {
            exit_code: Some(code),
            ..
        } => AcceptanceResult::Ended(Exit::Code(*code)),
        CommandEvidence {
            signal: Some(signal),
            ..
        } => AcceptanceResult::Ended(Exit::Signal(*signal)),
        CommandEvidence { .. } => AcceptanceResult::NotKnown("its end was not reported".to_owned()),
    }
}

fn seen_file(file: &FileEvidence) -> ReportedFile {
    let FileEvidence {
        path,
        seen,
        bytes,
        sha256,
        problem,
    } = file.clone();
    let seen = match seen.as_str() {
        "file" => FileState::File { bytes, sha256 },
        "directory" => FileState::Directory,
        "missing" => FileState::Missing,
        "outside" => FileState::Outside,
        _ => FileState::Unreadable(problem.unwrap_or(seen)),
    };
    ReportedFile { path, seen }
}
