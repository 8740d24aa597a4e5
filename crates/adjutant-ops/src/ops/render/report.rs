//! A run's report with the evidence for it.

use crate::ops::evidence::{acceptance_result, evidence_of, parse_evidence};
use crate::protocol::{AttemptEvidence, CommandEvidence};
use crate::store::{Connection, Run, StoreError, report_of};
use crate::view::{ChoiceView, CommandView, DeliverableView, FindingView, ReportView, RunView};
use adjutant_core::checkpoint::choices;
use adjutant_core::report::{self, FileState, Report, ReportedFile};
use adjutant_core::run::RunStatus;
use adjutant_core::{Outcome, RunState};

/// The original protocol's word for a run whose agent succeeded and whose acceptance command did
/// not.
const NOT_ACCEPTED: RunStatus = RunStatus::Error;

/// Adds the report, the evidence and the resulting verdicts to a run's view.
pub(super) fn add_report(
    connection: &Connection,
    run: &Run,
    accept: &[String],
    view: &mut RunView,
) -> Result<(), StoreError> {
    let (report, evidence) = report_of(connection, run.id)?;
    let evidence = parse_evidence(evidence, run.id)?;
    view.results.acceptance = evidence
        .as_ref()
        .and_then(|evidence| evidence.acceptance.as_ref())
        .map(|seen| command_view(seen, accept));
    view.changes.changed_files = evidence
        .as_ref()
        .and_then(|evidence| evidence.changed.clone());
    view.changes.changed_files_more = evidence
        .as_ref()
        .is_some_and(|evidence| evidence.changed_cut);
    view.changes.changed_before_too = evidence
        .as_ref()
        .is_some_and(|evidence| evidence.changed.is_some() && !evidence.changed_since_start);
    view.changes.commits = evidence
        .as_ref()
        .map(|evidence| evidence.commits.clone())
        .unwrap_or_default();
    view.results.report = report.map(|report| report_view(report, run, evidence.as_ref()));
    if run.state == RunState::Finished(Outcome::Succeeded) && !view.has_succeeded() {
        // The agent claims success, but the acceptance command failed.
        view.condition.status = NOT_ACCEPTED.into();
    }
    Ok(())
}

/// Returns the choices for a run that was stopped by an error or a limit.
pub(in crate::ops) fn choice_views(run: &Run) -> Vec<ChoiceView> {
    let all = choices(run.state, run.checkpoint.as_ref());
    all.iter()
        .map(|choice| ChoiceView {
            choice: (*choice).into(),
            about: choice.about().to_owned(),
        })
        .collect()
}

pub(super) fn command_view(seen: &CommandEvidence, command: &[String]) -> CommandView {
    let CommandEvidence {
        exit_code,
        signal,
        stopped,
        not_known,
        output,
        took_ms,
    } = seen.clone();
    CommandView {
        command: command.to_vec(),
        passed: acceptance_result(seen).passed(),
        exit_code: exit_code.or(signal.map(|signal| 128 + signal)),
        reason: stopped.or(not_known),
        output,
        took_ms,
    }
}

fn report_view(claimed: Report, run: &Run, evidence: Option<&AttemptEvidence>) -> ReportView {
    let evidence = evidence_of(run, evidence);
    let findings = report::check(&claimed, &evidence);
    let Report {
        status,
        summary,
        deliverables,
        metrics,
        issues,
        recommendations,
        duration,
    } = claimed;
    ReportView {
        status: status.into(),
        verdict: report::overall(&findings).into(),
        summary,
        deliverables,
        metrics_achieved: metrics,
        issues_encountered: issues,
        recommendations,
        total_duration: duration,
        files: evidence.files.iter().flatten().map(deliverable).collect(),
        open_requests: evidence.open_requests,
        checked: findings
            .into_iter()
            .map(|finding| FindingView {
                field: finding.field.to_owned(),
                verdict: finding.verdict.into(),
                reason: finding.reason,
            })
            .collect(),
    }
}

fn deliverable(file: &ReportedFile) -> DeliverableView {
    let mut view = DeliverableView {
        path: file.path.clone(),
        ..DeliverableView::default()
    };
    let (verdict, seen) = match &file.seen {
        FileState::File { bytes, sha256 } => {
            view.bytes = Some(*bytes);
            view.sha256.clone_from(sha256);
            (
                report::Verdict::Verified,
                if sha256.is_some() {
                    "it is there"
                } else {
                    "exists, too large to hash"
                }
                .to_owned(),
            )
        }
        FileState::Directory => (report::Verdict::Verified, "a directory".to_owned()),
        FileState::Missing => (report::Verdict::Contradicted, "not there".to_owned()),
        FileState::Outside => (
            report::Verdict::Unverified,
            "outside the run's directory, not checked".to_owned(),
        ),
        FileState::Unreadable(problem) => (report::Verdict::Unverified, problem.clone()),
    };
    view.verdict = verdict.into();
    view.reason = seen;
    view
}
