//! Stops, progress and completion reports of runs.

use crate::config::Home;
use crate::ops::checks::check_size;
use crate::ops::requests::deliver_queued_messages;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{Run, Store, StoreError, Tx};
use crate::view::{ReportedStatus, RunView, SetStatus, StopWork};
use adjutant_core::checkpoint::Checkpoint;
use adjutant_core::report::{Claim, Report};
use adjutant_core::run::Retention;
use adjutant_core::signal::{SignalKind, Source, StopCause};
use adjutant_core::{Action, Denied, Principal, RunEvent, RunId, RunState, StopReason, limits};
use std::sync::Arc;

/// Maximum number of deliverables of one report.
const DELIVERABLES_MAX: usize = 1_000;

/// What runs report of themselves.
#[derive(Debug, Clone)]
pub struct ReportCalls {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl ReportCalls {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Records that a run stops itself, with its checkpoint. Its attempt is then stopped.
    ///
    /// # Errors
    /// The caller is not the run itself, the run has finished, or a field is unusable.
    pub async fn stop_work(&self, caller: Caller, call: StopWork) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Report)?;
        let cause = call
            .stop_reason
            .spoken()
            .ok_or_else(|| Denied::invalid("stop_reason", "use blocker, error or completion"))?;
        if call.details.trim().is_empty() {
            return Err(Denied::invalid("details", "is empty: say what blocks you").into());
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
            check_size(
                field,
                text.map_or("", String::as_str),
                limits::TEXT_BYTES_MAX,
            )?;
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
        let (home, retention) = (self.home.clone(), self.settings.retention());
        caller
            .write(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, Action::Report, &run)?;
                if let RunState::Finished(outcome) = run.state {
                    return Err(Denied::RunFinished {
                        run: run.name.clone(),
                        outcome,
                    }
                    .into());
                }
                let run = tx.as_signal(Some(SignalKind::Stop), Source::Tool, |tx| {
                    stop(tx, &run, cause, checkpoint, retention)
                })?;
                render::run(tx.connection(), &home, &run)
            })
            .await
    }

    /// Records a run's status report, or a parent's annotation.
    ///
    /// # Errors
    /// Unknown or foreign run, unknown status, or the reporting run has finished.
    pub async fn set_status(&self, caller: Caller, call: SetStatus) -> Result<RunView, OpError> {
        let action = if matches!(caller.who, Principal::Run(_)) {
            Action::Report
        } else {
            Action::Annotate
        };
        lookup::check(&caller.who, action)?;
        let claim = match call.status.spoken() {
            Some(ReportedStatus::Running) => None,
            _ => Some(Claim::spoken(call.status.as_str()).ok_or_else(|| {
                Denied::invalid(
                    "status",
                    "use running, success, completed, partial_success, failed or error",
                )
            })?),
        };
        for (field, text) in [
            ("summary", &call.summary),
            ("eta", &call.eta),
            ("metrics_achieved", &call.metrics_achieved),
            ("issues_encountered", &call.issues_encountered),
            ("recommendations", &call.recommendations),
            ("total_duration", &call.total_duration),
        ] {
            check_size(field, text.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
        }
        if call.deliverables.len() > DELIVERABLES_MAX
            || call
                .deliverables
                .iter()
                .any(|one| one.len() > limits::OPTION_BYTES_MAX)
        {
            return Err(Denied::invalid(
                "deliverables",
                format!(
                    "at most {DELIVERABLES_MAX} of at most {} bytes",
                    limits::OPTION_BYTES_MAX
                ),
            )
            .into());
        }
        if call.percent.is_some_and(|percent| percent > 100) {
            return Err(Denied::invalid("percent", "use 0 to 100").into());
        }
        let home = self.home.clone();
        let Caller { who, key } = caller.clone();
        let mut view = caller
            .write(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, action, &call.run)?;
                let run = record_status(tx, who, &run, claim, &call)?;
                render::run(tx.connection(), &home, &run)
            })
            .await?;
        if let (Principal::Run(_), Ok(id)) = (&who, RunId::parse(&view.identity.run_id)) {
            let run = self
                .store
                .read(|connection| lookup::run(connection, &who, Action::See, &id.to_string()))?;
            view.requests.messages =
                deliver_queued_messages(&self.store, run.id, key.as_ref()).await?;
        }
        Ok(view)
    }
}

/// Stores a run's checkpoint, and stops its attempt unless the work is complete.
pub(super) fn stop(
    tx: &mut Tx<'_>,
    run: &Run,
    cause: StopCause,
    checkpoint: Checkpoint,
    retention: Retention,
) -> Result<Run, StoreError> {
    let by = Principal::Run(run.id).to_string();
    tx.set_checkpoint(run, &checkpoint, &by)?;
    let run = tx.run(run.id)?;
    let reason = match cause {
        // Like a report: its end is expected, and it ends waits for attention.
        StopCause::Completion => {
            tx.set_reported(run.id, run.last_seq)?;
            return tx.run(run.id);
        }
        StopCause::Blocker => StopReason::Blocker,
        StopCause::Error => StopReason::Error,
    };
    tx.advance(
        &run,
        RunEvent::StopAsked(reason),
        retention,
        &by,
        &checkpoint.details,
    )
}

fn record_status(
    tx: &mut Tx<'_>,
    who: &Principal,
    run: &Run,
    claim: Option<Claim>,
    call: &SetStatus,
) -> Result<Run, StoreError> {
    if !matches!(who, Principal::Run(_)) {
        let text = match &call.summary {
            Some(summary) => format!("{}: {summary}", call.status),
            None => call.status.to_string(),
        };
        return tx.annotate(run, who, &text);
    }
    if let RunState::Finished(outcome) = run.state {
        return Err(Denied::RunFinished {
            run: run.name.clone(),
            outcome,
        }
        .into());
    }
    let Some(claim) = claim else {
        return tx.as_signal(Some(SignalKind::Progress), Source::Tool, |tx| {
            tx.progress(
                run,
                call.percent,
                call.summary.as_deref(),
                call.eta.as_deref(),
            )
        });
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
    tx.as_signal(Some(SignalKind::Completion), Source::Tool, |tx| {
        tx.report(run, claim, &report)
    })
}
