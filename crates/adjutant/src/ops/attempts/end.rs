//! The end of an attempt: what its outcome means for usage limits, usage and the checkpoint of its run.

use crate::link::VerdictText;
use crate::ops::Terms;
use crate::ops::attempts::AttemptId;
use crate::ops::attempts::fallback::{fall_back, move_from_limited};
use crate::ops::budgets::{UsageEnd, note_unstated};
use crate::store::{Run, StoreError, Tx, attempt_row, run_input, times_limited};
use adjutant_core::checkpoint::{self, RunSnapshot};
use adjutant_core::report::Claim;
use adjutant_core::{AttemptEnd, Cause, Exit, RunEvent, RunId, RunState, StopReason, Time, Verdict, run};

/// Records the consequences of an attempt's outcome, and returns the event that ends the attempt. `run` is the run before
/// the end. `None`: the run has returned to the queue with its next agent.
pub(super) fn prepare_end(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    exit: Exit,
    outcome: Option<VerdictText>,
    terms: &Terms,
) -> Result<Option<AttemptEnd>, StoreError> {
    let resumable_at = outcome.as_ref().and_then(|outcome| outcome.again_at_ms).map(Time);
    let mut detail = outcome.as_ref().map_or_else(String::new, |outcome| outcome.message.clone());
    let verdict = outcome.map(|outcome| match outcome.cause {
        Some(cause) => Verdict::Failed(Cause::from_word(&cause).unwrap_or(Cause::Agent)),
        None => Verdict::Succeeded,
    });
    update_usage_limit(tx, id, run, verdict, resumable_at)?;
    if let Some(Verdict::Failed(cause)) = verdict.filter(|_| !run.is_waiting())
        && cause.is_of_agent()
        && fall_back(tx, &tx.run(run.id)?, id, &cause.to_string(), terms.retention)?
    {
        return Ok(None);
    }
    // An agent whose model could not be used has used nothing.
    if !matches!(verdict, Some(Verdict::Failed(cause)) if cause.is_of_agent() || cause.passes()) {
        let is_done = verdict == Some(Verdict::Succeeded) || verdict.is_none() && exit == Exit::Code(0);
        let is_stopped = matches!(run.state, RunState::Stopping(reason) if reason != StopReason::Budget);
        note_unstated(tx, run, if is_done && !is_stopped { UsageEnd::Attempt } else { UsageEnd::Stopped }, terms)?;
    }
    let (mut again_at, mut waits_for_caller) = (None, false);
    if matches!(verdict, Some(Verdict::Failed(cause)) if cause.passes()) {
        waits_for_caller = !run_input(tx.connection(), run.id)?.agent.auto_resume;
        let times = times_limited(tx.connection(), run.id)?;
        again_at = terms.rate_limits.resumes_at(resumable_at, times, tx.now()).map(|at| tx.steady_at(at));
        if waits_for_caller {
            detail.push_str("\nit does not resume by itself (auto_resume = false)");
        } else if again_at.is_none() && times > 0 {
            detail.push_str(&format!("\nit resumed {times} times after rate limits, the maximum (rate_limits in the configuration)"));
        }
    }
    if !detail.is_empty() && !matches!(run.state, RunState::Stopping(_)) {
        tx.set_detail(run.id, detail.trim_start())?;
    }
    let end = AttemptEnd {
        exit,
        again_at,
        waits_for_caller,
        verdict,
        failure_reported: run.claim == Some(Claim::Failed),
        blocking_request_open: run.is_waiting(),
        checkpoint_left: run.checkpoint_attempt == Some(id.n),
        can_resume: true,
    };
    crate::ops::resources::note_peak(tx, run)?;
    keep_state(tx, id, run, end, terms)?;
    Ok(Some(end))
}

/// Records the usage limit that an attempt met, or clears the one of an agent that has worked since.
fn update_usage_limit(tx: &mut Tx<'_>, id: AttemptId, run: &Run, verdict: Option<Verdict>, until: Option<Time>) -> Result<(), StoreError> {
    match verdict {
        Some(Verdict::Failed(Cause::RateLimited)) => {
            let Some(until) = until else { return Ok(()) };
            tx.set_usage_limit(&run.agent, tx.steady_at(until))?;
            move_from_limited(tx, &run.agent)
        }
        Some(Verdict::Succeeded) => {
            let since = attempt_row(tx.connection(), run.id, id.n)?.map_or(Time(0), |row| row.claimed_at);
            tx.clear_usage_limit(&run.agent, since)
        }
        Some(Verdict::Failed(_)) | None => Ok(()),
    }
}

/// Creates the checkpoint of a run that stops at a limit without saving one, and clears the reason of a stop that came too late.
fn keep_state(tx: &mut Tx<'_>, id: AttemptId, run: &Run, end: AttemptEnd, terms: &Terms) -> Result<(), StoreError> {
    let is_at_limit = matches!(
        run.state,
        RunState::Stopping(StopReason::ResourceLimit | StopReason::MemoryLimit | StopReason::MemoryPressure | StopReason::Budget)
    );
    let finishes = run::apply(run.state, RunEvent::Ended(end), tx.steady(), terms.retention).is_ok_and(RunState::is_finished);
    if is_at_limit && !finishes && run.checkpoint_attempt != Some(id.n) {
        create_checkpoint(tx, run.id)?;
    }
    if finishes && run.state == RunState::Stopping(StopReason::Budget) {
        // The run has finished its work, so the reason of the stop no longer applies.
        tx.clear_detail(run.id)?;
    }
    Ok(())
}

/// Creates a checkpoint for a run that used up its time or budget without saving one.
fn create_checkpoint(tx: &mut Tx<'_>, id: RunId) -> Result<(), StoreError> {
    let run = tx.run(id)?;
    let known = RunSnapshot {
        name: &run.name,
        active_ms: run.active_ms,
        percent: run.percent,
        progress: run.progress.as_deref(),
        summary: run.summary.as_deref(),
        last_words: run.result.as_deref(),
        stopped_by: if let RunState::Stopping(reason) = run.state { Some(reason) } else { None },
        measured: run.detail.as_deref().filter(|_| run.state == RunState::Stopping(StopReason::MemoryLimit)),
    };
    tx.set_checkpoint(&run, &checkpoint::checkpoint_at_time_limit(&known), "hub")
}
