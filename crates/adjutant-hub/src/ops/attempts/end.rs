//! The end of an attempt: what its outcome means for usage limits, usage and the checkpoint of its run.

use crate::link::VerdictText;
use crate::ops::Terms;
use crate::ops::attempts::AttemptId;
use crate::ops::attempts::fallback::{fall_back, move_from_limited};
use crate::ops::attempts::unreadable::unreadable_end;
use crate::ops::budgets::{UsageEnd, note_unstated};
use crate::store::{Run, StoreError, Tx, attempt_row, run_input, times_limited};
use crate::view::RunView;
use adjutant_core::checkpoint::{self, RunSnapshot};
use adjutant_core::report::Claim;
use adjutant_core::{
    AttemptEnd, Cause, Exit, Outcome, RunEvent, RunId, RunState, StopReason, Time, Verdict, run,
};

/// How an attempt's agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentEnd {
    pub(super) exit: Exit,
    /// Before a stop of it began.
    pub(super) by_itself: bool,
    /// The last line of its standard error, if it failed without saying why.
    pub(super) error_line: String,
    /// It was to use Adjutant's tools and has never connected to them.
    pub(super) lacks_tools: bool,
}

/// Records the consequences of an attempt's outcome, and returns the event that ends the attempt. `run` is the run before
/// the end. `None`: the run has returned to the queue with its next agent.
pub(super) fn prepare_end(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    agent: AgentEnd,
    outcome: Option<VerdictText>,
    terms: &Terms,
) -> Result<Option<AttemptEnd>, StoreError> {
    let AgentEnd {
        exit,
        by_itself,
        error_line,
        lacks_tools,
    } = agent;
    let resumable_at = outcome
        .as_ref()
        .and_then(|outcome| outcome.again_at_ms)
        .map(Time);
    let mut detail = outcome
        .as_ref()
        .map_or_else(String::new, |outcome| outcome.message.clone());
    let verdict = outcome.map(|outcome| match outcome.cause {
        Some(cause) => Verdict::Failed(Cause::from_word(&cause).unwrap_or(Cause::Agent)),
        None => Verdict::Succeeded,
    });
    update_usage_limit(tx, id, run, verdict, resumable_at)?;
    if let Some(Verdict::Failed(cause)) = verdict.filter(|_| !run.is_waiting())
        && cause.is_of_agent()
        && fall_back(
            tx,
            &tx.run(run.id)?,
            id,
            &cause.to_string(),
            terms.retention,
        )?
    {
        return Ok(None);
    }
    // An agent whose model could not be used has used nothing.
    if !matches!(verdict, Some(Verdict::Failed(cause)) if cause.is_of_agent() || cause.passes()) {
        let is_done =
            verdict == Some(Verdict::Succeeded) || verdict.is_none() && exit == Exit::Code(0);
        let is_stopped = !by_itself
            && matches!(run.state, RunState::Stopping(reason) if reason != StopReason::Budget);
        note_unstated(
            tx,
            run,
            if is_done && !is_stopped {
                UsageEnd::Attempt
            } else {
                UsageEnd::Stopped
            },
            terms,
        )?;
    }
    let (mut again_at, mut waits_for_caller) = (None, false);
    if matches!(verdict, Some(Verdict::Failed(cause)) if cause.passes()) {
        waits_for_caller = !run_input(tx.connection(), run.id)?.agent.auto_resume;
        let times = times_limited(tx.connection(), run.id)?;
        again_at = terms
            .rate_limits
            .resumes_at(resumable_at, times, tx.happened_at())
            .map(|at| tx.steady_at(at));
        if waits_for_caller {
            detail.push_str("\nit does not resume by itself (auto_resume = false)");
        } else if again_at.is_none() && times > 0 {
            detail.push_str(&format!("\nit resumed {times} times after rate limits and overloads, the maximum (rate_limits in the configuration)"));
        }
    }
    if detail.is_empty() && !error_line.is_empty() {
        detail = format!("{}{error_line}", RunView::STDERR);
    }
    if !detail.is_empty() && !matches!(run.state, RunState::Stopping(_)) {
        tx.set_detail(run.id, detail.trim_start())?;
    }
    let unreadable = unreadable_end(tx, run)?;
    let end = AttemptEnd {
        exit,
        again_at,
        waits_for_caller,
        verdict,
        failure_reported: run.claim == Some(Claim::Failed),
        blocking_request_open: run.is_waiting(),
        checkpoint_left: run.checkpoint_attempt == Some(id.n),
        unreadable: unreadable.as_ref().map(|(end, _)| *end),
        can_resume: true,
        by_itself,
    };
    crate::ops::resources::note_peak(tx, run)?;
    let next = run::apply(
        run.state,
        RunEvent::Ended(end),
        tx.steady(),
        terms.retention,
    )
    .ok();
    if let (
        Some((_, problem)),
        Some(RunState::Stopped {
            reason: StopReason::UnreadableBlock,
            ..
        }),
    ) = (&unreadable, next)
    {
        tx.set_detail(run.id, problem)?;
    }
    if lacks_tools && next == Some(RunState::Finished(Outcome::Succeeded)) {
        note_missing_tools(tx, run)?;
    }
    keep_state(tx, id, run, next, detail.trim_start())?;
    Ok(Some(end))
}

/// Notes that the agent of a run that succeeds had none of Adjutant's tools. A failed run states its own reason.
fn note_missing_tools(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let agent = &run.agent;
    let missing = format!(
        "its agent never connected to Adjutant's tools, so it could not ask or report with them; see adj agents test {agent}"
    );
    tx.add_note(run, &missing)
}

/// Records the usage limit that an attempt met, or clears the one of an agent that has worked since.
fn update_usage_limit(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    verdict: Option<Verdict>,
    until: Option<Time>,
) -> Result<(), StoreError> {
    match verdict {
        Some(Verdict::Failed(Cause::RateLimited)) => {
            let Some(until) = until else { return Ok(()) };
            tx.set_usage_limit(&run.agent, tx.steady_at(until))?;
            move_from_limited(tx, &run.agent)
        }
        Some(Verdict::Succeeded) => {
            let since =
                attempt_row(tx.connection(), run.id, id.n)?.map_or(Time(0), |row| row.claimed_at);
            tx.clear_usage_limit(&run.agent, since)
        }
        Some(Verdict::Failed(_)) | None => Ok(()),
    }
}

/// Creates the checkpoint of a run that another attempt can follow, if its attempt left none, and replaces the reason of a stop that
/// came too late by that of the end (`detail`). `next`: the state after the end.
fn keep_state(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    next: Option<RunState>,
    detail: &str,
) -> Result<(), StoreError> {
    let finishes = next.is_some_and(RunState::is_finished);
    if next.is_some() && !finishes && run.checkpoint_attempt != Some(id.n) {
        // A run that continues at once is notified of its block.
        let reason = if let Some(RunState::Stopped { reason, .. }) = next {
            reason
        } else {
            StopReason::UnreadableBlock
        };
        create_checkpoint(tx, run.id, reason, None)?;
    }
    if finishes
        && matches!(run.state, RunState::Stopping(reason) if reason != StopReason::Cancelled)
    {
        // The run has finished its work, so the reason of the stop no longer applies.
        match detail {
            "" => tx.clear_detail(run.id)?,
            detail => tx.set_detail(run.id, detail)?,
        }
    }
    Ok(())
}

/// Creates a checkpoint for a run whose attempt was interrupted without saving one. `last_output`: the end of its output, if it has
/// not reported it as its last message.
pub(super) fn create_checkpoint(
    tx: &mut Tx<'_>,
    id: RunId,
    reason: StopReason,
    last_output: Option<&str>,
) -> Result<(), StoreError> {
    let run = tx.run(id)?;
    create_checkpoint_of(tx, &run, reason, last_output)
}

/// The same for a run as it is stored now.
pub(super) fn create_checkpoint_of(
    tx: &mut Tx<'_>,
    run: &Run,
    reason: StopReason,
    last_output: Option<&str>,
) -> Result<(), StoreError> {
    let known = RunSnapshot {
        name: &run.name,
        active_ms: run.active_ms,
        percent: run.percent,
        progress: run.progress.as_deref(),
        summary: run.summary.as_deref(),
        last_words: last_output.or(run.result.as_deref()),
        stopped_by: Some(reason),
        measured: run
            .detail
            .as_deref()
            .filter(|_| reason == StopReason::MemoryLimit),
        earlier: run.checkpoint.as_ref(),
    };
    tx.set_checkpoint(run, &checkpoint::reconstruct(&known), "hub")
}
