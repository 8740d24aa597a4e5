//! What a run says about its own work: stopping, progress, its report; and what was seen of it.

use super::answers::bounded;
use super::{Caller, OpError, Ops, pick, render};
use crate::link::{Saw, SawAcceptance, SawFile};
use crate::store::{Connection, Run, StoreError, Tx, report_of};
use crate::view::{AcceptanceView, ChoiceView, DeliverableView, FindingView, ReportView, RunView, SetStatus, StopWork};
use adjutant_core::attention::shortfall;
use adjutant_core::checkpoint::{Checkpoint, choices};
use adjutant_core::report::{self, Accepted, Claim, Evidence, Report, Seen, SeenFile};
use adjutant_core::run::Retention;
use adjutant_core::signal::{SignalKind, Source, StopCause};
use adjutant_core::{Action, Denied, Exit, Outcome, Principal, RunEvent, RunId, RunState, StopReason, limits};

/// Most deliverables of one report.
const DELIVERABLES_MAX: usize = 1_000;

impl Ops {
    /// Takes a run's word that it stops, with what it leaves behind. Its attempt is then stopped.
    ///
    /// # Errors
    /// Only a run does that, about itself; it has finished; or a field is unusable.
    pub async fn stop_work(&self, caller: Caller, call: StopWork) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Report)?;
        let cause = StopCause::from_word(&call.stop_reason).ok_or_else(|| Denied::invalid("stop_reason", "use blocker, error or completion"))?;
        if call.details.trim().is_empty() {
            return Err(Denied::invalid("details", "is empty: say what keeps you from going on").into());
        }
        let StopWork {
            run,
            stop_reason: _,
            details,
            blocker_type,
            completed_work,
            blocked_work,
            state_snapshot,
            resume_requirements,
            error_recovery,
        } = call;
        for (field, text) in [
            ("details", Some(&details)),
            ("blocker_type", blocker_type.as_ref()),
            ("completed_work", completed_work.as_ref()),
            ("blocked_work", blocked_work.as_ref()),
            ("state_snapshot", state_snapshot.as_ref()),
            ("resume_requirements", resume_requirements.as_ref()),
            ("error_recovery", error_recovery.as_ref()),
        ] {
            bounded(field, text.map_or("", String::as_str), limits::TEXT_BYTES_MAX)?;
        }
        let checkpoint = Checkpoint {
            blocker_type,
            details,
            completed_work,
            blocked_work,
            state: state_snapshot,
            requirements: resume_requirements,
            recovery: error_recovery,
            ..Checkpoint::default()
        };
        let (home, retention) = (self.home.clone(), self.retention());
        self.write(caller, move |tx, who| {
            let run = pick::run(tx.connection(), who, Action::Report, &run)?;
            if let RunState::Finished(outcome) = run.state {
                return Err(Denied::RunFinished(outcome).into());
            }
            let run = tx.as_signal(Some(SignalKind::Stop), Source::Tool, |tx| stop(tx, &run, cause, checkpoint, retention))?;
            render::run(tx.connection(), &home, &run)
        })
        .await
    }

    /// Takes a run's word about itself, or a parent's remark about a run.
    ///
    /// # Errors
    /// Unknown, foreign, an unknown word, or (by the run itself) finished.
    pub async fn set_status(&self, caller: Caller, call: SetStatus) -> Result<RunView, OpError> {
        let action = if matches!(caller.who, Principal::Run(_)) { Action::Report } else { Action::Annotate };
        Self::check(&caller.who, action)?;
        let claim = match call.status.as_str() {
            "running" => None,
            word => Some(
                Claim::from_word(word)
                    .ok_or_else(|| Denied::invalid("status", "use running, success, completed, partial_success, failed or error"))?,
            ),
        };
        for (field, text) in [
            ("summary", &call.summary),
            ("eta", &call.eta),
            ("metrics_achieved", &call.metrics_achieved),
            ("issues_encountered", &call.issues_encountered),
            ("recommendations", &call.recommendations),
            ("total_duration", &call.total_duration),
        ] {
            bounded(field, text.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
        }
        if call.deliverables.len() > DELIVERABLES_MAX || call.deliverables.iter().any(|one| one.len() > limits::OPTION_BYTES_MAX) {
            return Err(Denied::invalid("deliverables", format!("at most {DELIVERABLES_MAX} of at most {} bytes", limits::OPTION_BYTES_MAX)).into());
        }
        if call.percent.is_some_and(|percent| percent > 100) {
            return Err(Denied::invalid("percent", "use 0 to 100").into());
        }
        let home = self.home.clone();
        let Caller { who, key } = caller.clone();
        let mut view = self
            .write(caller, move |tx, who| {
                let run = pick::run(tx.connection(), who, action, &call.run)?;
                let run = take_status(tx, who, &run, claim, &call)?;
                render::run(tx.connection(), &home, &run)
            })
            .await?;
        if let (Principal::Run(_), Ok(id)) = (&who, RunId::parse(&view.run_id)) {
            let run = self.store.read(|connection| pick::run(connection, &who, Action::See, &id.to_string()))?;
            view.messages = self.hand_messages(run.id, key.as_ref()).await?;
        }
        Ok(view)
    }
}

/// Keeps what a run leaves behind, and has its attempt stopped unless it is done by itself.
pub(super) fn stop(tx: &mut Tx<'_>, run: &Run, cause: StopCause, checkpoint: Checkpoint, retention: Retention) -> Result<Run, StoreError> {
    let by = Principal::Run(run.id).to_string();
    tx.set_checkpoint(run, &checkpoint, &by)?;
    let run = tx.run(run.id)?;
    let reason = match cause {
        StopCause::Completion => return Ok(run),
        StopCause::Blocker => StopReason::Blocker,
        StopCause::Error => StopReason::Error,
    };
    tx.advance(&run, RunEvent::StopAsked(reason), retention, &by, &checkpoint.details)
}

fn take_status(tx: &mut Tx<'_>, who: &Principal, run: &Run, claim: Option<Claim>, call: &SetStatus) -> Result<Run, StoreError> {
    if !matches!(who, Principal::Run(_)) {
        let text = match &call.summary {
            Some(summary) => format!("{}: {summary}", call.status),
            None => call.status.clone(),
        };
        return tx.annotate(run, who, &text);
    }
    if let RunState::Finished(outcome) = run.state {
        return Err(Denied::RunFinished(outcome).into());
    }
    let Some(claim) = claim else {
        return tx
            .as_signal(Some(SignalKind::Progress), Source::Tool, |tx| tx.progress(run, call.percent, call.summary.as_deref(), call.eta.as_deref()));
    };
    let report = Report {
        status: claim.status(),
        summary: call.summary.clone().unwrap_or_default(),
        deliverables: call.deliverables.clone(),
        metrics: call.metrics_achieved.clone(),
        issues: call.issues_encountered.clone(),
        recommendations: call.recommendations.clone(),
        duration: call.total_duration.clone(),
    };
    tx.as_signal(Some(SignalKind::Completion), Source::Tool, |tx| tx.report(run, claim, &report))
}

/// Reads what was seen of a run's work, where somebody has looked.
pub(super) fn saw_of(text: Option<String>, run: RunId) -> Result<Option<Saw>, StoreError> {
    text.map(|text| serde_json::from_str(&text).map_err(|error| StoreError::Corrupt(format!("what was seen of run {run}: {error}")))).transpose()
}

/// Reads what a run left behind, with where it was at work and what it changed there.
pub(super) fn checkpoint(connection: &Connection, run: &Run) -> Result<Option<Checkpoint>, StoreError> {
    let Some(mut checkpoint) = run.checkpoint.clone() else { return Ok(None) };
    let (_, saw) = report_of(connection, run.id)?;
    checkpoint.working_directory.get_or_insert_with(|| run.cwd.clone());
    checkpoint.changed_files = saw_of(saw, run.id)?.and_then(|saw| saw.changed).unwrap_or_default();
    Ok(Some(checkpoint))
}

/// Records how a run that has succeeded fell short of what its dispatcher wanted.
pub(super) fn note_shortfall(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    if run.state != RunState::Finished(Outcome::Succeeded) {
        return Ok(());
    }
    let (report, saw) = report_of(tx.connection(), run.id)?;
    let saw = saw_of(saw, run.id)?;
    let accepted = saw.as_ref().and_then(|saw| saw.acceptance.as_ref()).map(accepted);
    let verdict = report.map(|report| report::overall(&report::check(&report, &evidence(run, saw.as_ref()))));
    match shortfall(accepted.as_ref(), verdict) {
        Some(shortfall) => tx.set_shortfall(run.id, shortfall),
        None => Ok(()),
    }
}

/// What can be chosen for a run that an error or a limit stopped.
pub(super) fn choice_views(run: &Run) -> Vec<ChoiceView> {
    let all = choices(run.state, run.checkpoint.as_ref());
    all.iter().map(|choice| ChoiceView { choice: choice.word().to_owned(), about: choice.about().to_owned() }).collect()
}

/// The original protocol's word for a run whose agent succeeded and whose acceptance command did not.
const NOT_ACCEPTED: &str = "error";

/// Adds to a run's view what it reported, what was seen, and what the one makes of the other.
pub(super) fn add_report(connection: &Connection, run: &Run, view: &mut RunView) -> Result<(), StoreError> {
    let (criteria, accept) = crate::store::measure_of(connection, run.id)?;
    let (report, saw) = report_of(connection, run.id)?;
    let saw = saw_of(saw, run.id)?;
    view.criteria = criteria;
    view.acceptance = saw.as_ref().and_then(|saw| saw.acceptance.as_ref()).map(|seen| acceptance_view(seen, &accept));
    view.changed_files = saw.as_ref().and_then(|saw| saw.changed.clone());
    view.changed_files_more = saw.as_ref().is_some_and(|saw| saw.changed_cut);
    view.changed_before_too = saw.as_ref().is_some_and(|saw| saw.changed.is_some() && !saw.changed_since_start);
    view.report = report.map(|report| report_view(report, run, saw.as_ref()));
    if run.state == RunState::Finished(Outcome::Succeeded) && !view.has_succeeded() {
        // The agent claims success, and the dispatcher's own measure says otherwise.
        NOT_ACCEPTED.clone_into(&mut view.status);
    }
    Ok(())
}

fn acceptance_view(seen: &SawAcceptance, accept: &[String]) -> AcceptanceView {
    let SawAcceptance { exit_code, signal, stopped, not_known, output, took_ms } = seen.clone();
    AcceptanceView {
        command: accept.to_vec(),
        passed: accepted(seen).passed(),
        exit_code: exit_code.or(signal.map(|signal| 128 + signal)),
        reason: stopped.or(not_known),
        output,
        took_ms,
    }
}

fn accepted(seen: &SawAcceptance) -> Accepted {
    match seen {
        SawAcceptance { not_known: Some(why), .. } => Accepted::NotKnown(why.clone()),
        SawAcceptance { stopped: Some(why), .. } => Accepted::Stopped(why.clone()),
        SawAcceptance { exit_code: Some(code), .. } => Accepted::Ended(Exit::Code(*code)),
        SawAcceptance { signal: Some(signal), .. } => Accepted::Ended(Exit::Signal(*signal)),
        SawAcceptance { .. } => Accepted::NotKnown("nobody has said how it ended".to_owned()),
    }
}

fn seen_file(file: &SawFile) -> SeenFile {
    let SawFile { path, seen, bytes, sha256, problem } = file.clone();
    let seen = match seen.as_str() {
        "file" => Seen::File { bytes, sha256 },
        "directory" => Seen::Directory,
        "missing" => Seen::Missing,
        "outside" => Seen::Outside,
        _ => Seen::Unreadable(problem.unwrap_or(seen)),
    };
    SeenFile { path, seen }
}

/// What a run's report is held against.
fn evidence(run: &Run, saw: Option<&Saw>) -> Evidence {
    let files: Option<Vec<SeenFile>> = saw.and_then(|saw| saw.files.as_ref()).map(|files| files.iter().map(seen_file).collect());
    let over = matches!(run.state, RunState::Stopped { .. } | RunState::Finished(_));
    Evidence {
        exit: run.exit.filter(|_| over),
        stopped: matches!(run.state, RunState::Stopped { .. }),
        files,
        acceptance: saw.and_then(|saw| saw.acceptance.as_ref()).map(accepted),
        open_requests: u64::try_from(run.pending).unwrap_or(0),
        active_ms: run.active_ms,
    }
}

fn report_view(claimed: Report, run: &Run, saw: Option<&Saw>) -> ReportView {
    let evidence = evidence(run, saw);
    let findings = report::check(&claimed, &evidence);
    let Report { status, summary, deliverables, metrics, issues, recommendations, duration } = claimed;
    ReportView {
        status: status.word().to_owned(),
        verdict: report::overall(&findings).word().to_owned(),
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
            .map(|finding| FindingView { field: finding.field.to_owned(), verdict: finding.verdict.word().to_owned(), reason: finding.reason })
            .collect(),
    }
}

fn deliverable(file: &SeenFile) -> DeliverableView {
    let mut view = DeliverableView { path: file.path.clone(), ..DeliverableView::default() };
    let (verdict, seen) = match &file.seen {
        Seen::File { bytes, sha256 } => {
            view.bytes = Some(*bytes);
            view.sha256.clone_from(sha256);
            (report::Verdict::Verified, if sha256.is_some() { "it is there" } else { "it is there, too large to be hashed" }.to_owned())
        }
        Seen::Directory => (report::Verdict::Verified, "a directory".to_owned()),
        Seen::Missing => (report::Verdict::Contradicted, "not there".to_owned()),
        Seen::Outside => (report::Verdict::Unverified, "outside of the run's directory: not looked at".to_owned()),
        Seen::Unreadable(problem) => (report::Verdict::Unverified, problem.clone()),
    };
    view.verdict = verdict.word().to_owned();
    view.reason = seen;
    view
}
