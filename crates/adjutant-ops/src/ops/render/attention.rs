//! Why a run needs attention.

use crate::store::{Connection, Run, StoreError};
use crate::view::{AfterView, AttentionKind, AttentionView};
use adjutant_core::attention::{BadEnd, Need, RunPhase, Shortfall};
use adjutant_core::pool::AfterState;
use adjutant_core::report::{Claim, ReportStatus};
use adjutant_core::{Outcome, RunState, StopReason};

/// Returns why a run needs attention, in its own words if it stated any.
pub(in crate::ops) fn attention(run: &Run) -> Option<AttentionView> {
    let is_new = !run.is_owner_notified;
    let need = run.need()?;
    Some(match need {
        Need::Resume(reason) => {
            // A checkpoint of an earlier attempt does not explain this stop.
            let left = run
                .checkpoint
                .as_ref()
                .filter(|left| run.checkpoint_attempt == Some(run.attempt) && left.explains_stop());
            let stated = left
                .map(|checkpoint| checkpoint.details.trim())
                .filter(|details| !details.is_empty());
            let details = stated
                .or(run.detail.as_deref().map(str::trim))
                .unwrap_or_else(|| stop_text(reason));
            let needs = left
                .and_then(|checkpoint| checkpoint.requirements.clone())
                .filter(|needs| !needs.trim().is_empty());
            let needs = needs.or_else(|| {
                (reason == StopReason::UnreadableBlock)
                    .then(|| "its output read (logs), then resume or cancel".to_owned())
            });
            AttentionView {
                kind: AttentionKind::Stopped.into(),
                why: need.into(),
                details: details.to_owned(),
                needs,
                is_new,
            }
        }
        // The view of the whole run names what has failed.
        Need::Release => {
            let details = "a run that it starts after did not succeed".to_owned();
            AttentionView {
                kind: AttentionKind::Stopped.into(),
                why: need.into(),
                details,
                needs: None,
                is_new,
            }
        }
        Need::EndOrWait => {
            let claim = run
                .claim
                .map_or(ReportStatus::Success, Claim::status)
                .word()
                .replace('_', " ");
            let details = format!(
                "it reports {claim}, and its process has been silent since, but has not ended"
            );
            let needs = Some("to be cancelled, if it does not end by itself".to_owned());
            AttentionView {
                kind: AttentionKind::Alive.into(),
                why: need.into(),
                details,
                needs,
                is_new: false,
            }
        }
        Need::Notice(end) => {
            let details = run
                .detail
                .as_deref()
                .map_or_else(|| end_text(run, end), |detail| detail.trim().to_owned());
            AttentionView {
                kind: AttentionKind::Ended.into(),
                why: need.into(),
                details,
                needs: None,
                is_new,
            }
        }
    })
}

/// Like [`attention`], and names the runs because of which the run is held.
pub(in crate::ops) fn attention_with_causes(
    connection: &Connection,
    run: &Run,
) -> Result<Option<AttentionView>, StoreError> {
    let mut view = attention(run);
    if let Some(view) = &mut view
        && run.is_held()
    {
        name_causes(view, run, &super::queue::after(connection, run)?);
    }
    Ok(view)
}

/// Names the runs because of which a run is held.
pub(super) fn name_causes(view: &mut AttentionView, run: &Run, after: &[AfterView]) {
    let failed: Vec<&str> = after
        .iter()
        .filter(|after| after.state == AfterState::Failed)
        .map(|after| after.name.as_str())
        .collect();
    view.details = format!("{} did not succeed", failed.join(", "));
    view.needs = failed
        .first()
        .map(|failed| format!("retry {failed}, or resume {} without it", run.name));
}

fn stop_text(reason: StopReason) -> &'static str {
    match reason {
        StopReason::ResourceLimit => "the time limit is used up",
        StopReason::Budget => "its budget is used up; raising it resumes the run",
        StopReason::MemoryLimit => {
            "its processes used more memory than the agent may (memory in the configuration)"
        }
        StopReason::SupervisorLost => {
            "its supervisor was lost; the agent's last actions are unknown"
        }
        StopReason::HostLost => {
            "its runner was cut off for too long; the agent's last actions are unknown"
        }
        StopReason::UnreadableBlock => "it printed a block that cannot be read",
        StopReason::Error => "its agent ended with an error",
        StopReason::Blocker
        | StopReason::Cancelled
        | StopReason::Parked
        | StopReason::Paused
        | StopReason::RateLimited
        | StopReason::Overloaded
        | StopReason::MemoryPressure => "it cannot continue",
    }
}

fn end_text(run: &Run, end: BadEnd) -> String {
    match (end, run.state) {
        (BadEnd::Failed, RunState::Finished(Outcome::Failed(failure))) => failure.to_string(),
        (BadEnd::Failed, _) => "it failed".to_owned(),
        (BadEnd::NotStarted, _) => "its agent could not be started".to_owned(),
        (BadEnd::Lost, _) => "its outcome is unknown".to_owned(),
        (BadEnd::Short(Shortfall::NotAccepted), _) => "its acceptance command failed".to_owned(),
        (BadEnd::Short(Shortfall::NotChecked), _) => {
            "its acceptance command could not be run".to_owned()
        }
        (BadEnd::Short(Shortfall::Contradicted), _) => {
            "its report contradicts the evidence".to_owned()
        }
    }
}

/// Returns whether a stopped run resumes by itself.
pub(in crate::ops) fn resumes_by_itself(run: &Run) -> bool {
    matches!(run.state, RunState::Stopped { .. }) && run.phase() == RunPhase::Underway
}
