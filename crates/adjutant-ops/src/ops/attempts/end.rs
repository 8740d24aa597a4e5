//! The end of an attempt: what its outcome means for usage limits, usage and the checkpoint of its
//! run.

use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::fallback::{fall_back, move_from_limited};
use crate::ops::attempts::unreadable::unreadable_end;
use crate::ops::budgets::{UsageEnd, note_unstated};
use crate::ops::terms::Terms;
use crate::protocol::VerdictText;
use crate::store::{Run, StoreError, Tx, attempt_row, run_input, times_limited};
use crate::view::RunView;
use adjutant_core::checkpoint::{self, RunSnapshot};
use adjutant_core::report::Claim;
use adjutant_core::{
    AttemptEnd, Cause, Exit, Outcome, RunEvent, RunId, RunState, SteadyTime, StopReason, Time,
    Verdict, run,
};

/// How an attempt's agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentEnd {
    pub(super) exit: Exit,
    /// Before a stop of it began.
    pub(super) by_itself: bool,
    /// The outcome that its stream states. `None`: the exit status decides.
    pub(super) verdict: Option<VerdictText>,
    /// The last line of its standard error, if it failed without saying why.
    pub(super) error_line: String,
    /// It was to use Adjutant's tools and has never connected to them.
    pub(super) lacks_tools: bool,
}

/// The outcome that an agent's stream states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StatedOutcome {
    verdict: Option<Verdict>,
    /// What went wrong, for people.
    message: String,
    /// When its vendor accepts requests again.
    resumable_at: Option<Time>,
}

impl StatedOutcome {
    fn of(stated: Option<VerdictText>) -> Self {
        let Some(VerdictText {
            cause,
            message,
            again_at_ms,
        }) = stated
        else {
            return Self::default();
        };
        let verdict = match cause {
            Some(cause) => Verdict::Failed(Cause::from_word(&cause).unwrap_or(Cause::Agent)),
            None => Verdict::Succeeded,
        };
        Self {
            verdict: Some(verdict),
            message,
            resumable_at: again_at_ms.map(Time),
        }
    }
}

/// Whether and when a run resumes after a temporary failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct AutoResume {
    again_at: Option<SteadyTime>,
    waits_for_caller: bool,
    /// How often the run has resumed so far.
    times: u32,
}

impl AutoResume {
    /// Describes why a run does not resume by itself. Empty: it resumes, or it was never to.
    fn note(self) -> String {
        let Self {
            again_at,
            waits_for_caller,
            times,
        } = self;
        if waits_for_caller {
            "\nit does not resume by itself (auto_resume = false)".to_owned()
        } else if again_at.is_none() && times > 0 {
            format!(
                "\nit resumed {times} times after rate limits and overloads, the maximum (rate_limits in the configuration)"
            )
        } else {
            String::new()
        }
    }
}

/// Records the consequences of an attempt's outcome, and returns the event that ends the attempt.
/// `run` is the run before the end. `None`: the run has returned to the queue with its next agent.
pub(super) fn prepare_end(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    agent: AgentEnd,
    terms: &Terms,
) -> Result<Option<AttemptEnd>, StoreError> {
    let AgentEnd {
        exit,
        by_itself,
        verdict,
        error_line,
        lacks_tools,
    } = agent;
    let stated = StatedOutcome::of(verdict);
    let verdict = stated.verdict;
    update_usage_limit(tx, id, run, &stated)?;
    if moves_to_next_agent(tx, id, run, verdict, terms)? {
        return Ok(None);
    }
    if let Some(end) = usage_end(run.state, verdict, exit, by_itself) {
        note_unstated(tx, run, end, terms)?;
    }
    let auto_resume = auto_resume_of(tx, run, &stated, terms)?;
    let detail = detail_of(&stated.message, auto_resume, &error_line);
    if !detail.is_empty() && !matches!(run.state, RunState::Stopping(_)) {
        tx.set_detail(run.id, detail.trim_start())?;
    }
    let unreadable = unreadable_end(tx, run)?;
    let end = AttemptEnd {
        exit,
        again_at: auto_resume.again_at,
        waits_for_caller: auto_resume.waits_for_caller,
        verdict,
        failure_reported: run.claim == Some(Claim::Failed),
        blocking_request_open: run.is_waiting(),
        checkpoint_left: run.checkpoint_attempt == Some(id.n),
        unreadable: unreadable.as_ref().map(|(end, _)| *end),
        can_resume: true,
        by_itself,
    };
    crate::ops::resources::note_peak(tx, run)?;
    let event = RunEvent::Ended(end);
    let next = run::apply(run.state, event, tx.steady(), terms.retention).ok();
    if let Some((_, problem)) = unreadable.filter(|_| is_stopped_for_block(next)) {
        tx.set_detail(run.id, &problem)?;
    }
    if lacks_tools && next == Some(RunState::Finished(Outcome::Succeeded)) {
        note_missing_tools(tx, run)?;
    }
    keep_state(tx, id, run, next, detail.trim_start())?;
    Ok(Some(end))
}

/// Moves a run whose agent could not work to its next agent, if there is one. Returns whether it
/// was moved. A run that waits for an answer stays.
fn moves_to_next_agent(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    verdict: Option<Verdict>,
    terms: &Terms,
) -> Result<bool, StoreError> {
    match verdict {
        Some(Verdict::Failed(cause)) if cause.is_of_agent() && !run.is_waiting() => {
            let run = tx.run(run.id)?;
            fall_back(tx, &run, id, &cause.to_string(), terms.retention)
        }
        _ => Ok(false),
    }
}

/// Returns the end for which the usage of an attempt counts as unknown if its agent has not stated
/// it. `None`: the model could not be used, so the agent has used nothing. `state`: before the end.
fn usage_end(
    state: RunState,
    verdict: Option<Verdict>,
    exit: Exit,
    by_itself: bool,
) -> Option<UsageEnd> {
    let is_done = match verdict {
        Some(Verdict::Failed(cause)) if cause.is_of_agent() || cause.passes() => return None,
        Some(verdict) => verdict == Verdict::Succeeded,
        None => exit == Exit::Code(0),
    };
    let is_stopped =
        !by_itself && matches!(state, RunState::Stopping(reason) if reason != StopReason::Budget);
    Some(if is_done && !is_stopped {
        UsageEnd::Attempt
    } else {
        UsageEnd::Stopped
    })
}

/// Returns whether a run resumes after the failure of its agent, and when.
fn auto_resume_of(
    tx: &Tx<'_>,
    run: &Run,
    stated: &StatedOutcome,
    terms: &Terms,
) -> Result<AutoResume, StoreError> {
    if !matches!(stated.verdict, Some(Verdict::Failed(cause)) if cause.passes()) {
        return Ok(AutoResume::default());
    }
    let waits_for_caller = !run_input(tx.connection(), run.id)?.agent.auto_resume;
    let times = times_limited(tx.connection(), run.id)?;
    let again_at = terms
        .rate_limits
        .resumes_at(stated.resumable_at, times, tx.happened_at())
        .map(|at| tx.steady_at(at));
    Ok(AutoResume {
        again_at,
        waits_for_caller,
        times,
    })
}

/// Describes the end of an attempt. Empty: there is nothing to say.
fn detail_of(message: &str, auto_resume: AutoResume, error_line: &str) -> String {
    let detail = format!("{message}{}", auto_resume.note());
    if detail.is_empty() && !error_line.is_empty() {
        format!("{}{error_line}", RunView::STDERR)
    } else {
        detail
    }
}

/// Returns whether a run stops because of a block that cannot be read.
fn is_stopped_for_block(next: Option<RunState>) -> bool {
    matches!(
        next,
        Some(RunState::Stopped {
            reason: StopReason::UnreadableBlock,
            ..
        })
    )
}

/// Notes that the agent of a run that succeeds had none of Adjutant's tools. A failed run states
/// its own reason.
fn note_missing_tools(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let agent = &run.agent;
    let missing = format!(
        "its agent never connected to Adjutant's tools, so it could not ask or report with them; see adj agents test {agent}"
    );
    tx.add_note(run, &missing)
}

/// Records the usage limit that an attempt met, or clears the one of an agent that has worked
/// since.
fn update_usage_limit(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    stated: &StatedOutcome,
) -> Result<(), StoreError> {
    match stated.verdict {
        Some(Verdict::Failed(Cause::RateLimited)) => {
            let Some(until) = stated.resumable_at else {
                return Ok(());
            };
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

/// Creates the checkpoint of a run that another attempt can follow, if its attempt left none, and
/// replaces the reason of a stop that came too late by that of the end (`detail`). `next`: the
/// state after the end.
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

/// Creates a checkpoint for a run whose attempt was interrupted without saving one. `last_output`:
/// the end of its output, if it has not reported it as its last message.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SUCCEEDED: Option<Verdict> = Some(Verdict::Succeeded);

    fn failed(cause: Cause) -> Option<Verdict> {
        Some(Verdict::Failed(cause))
    }

    #[test]
    fn unknown_cause_is_a_failure_of_the_agent() {
        let stated = StatedOutcome::of(Some(VerdictText {
            cause: Some("of_a_newer_version".to_owned()),
            message: "no".to_owned(),
            again_at_ms: None,
        }));
        assert_eq!(stated.verdict, failed(Cause::Agent));
        assert_eq!(StatedOutcome::of(None), StatedOutcome::default());
    }

    #[test]
    fn agent_without_a_model_has_used_nothing() {
        let running = RunState::Running;
        for cause in [Cause::NotSignedIn, Cause::RateLimited, Cause::Overloaded] {
            let end = usage_end(running, failed(cause), Exit::Code(1), true);
            assert_eq!(end, None, "{cause:?}");
        }
        let end = usage_end(running, failed(Cause::Agent), Exit::Code(0), true);
        assert_eq!(end, Some(UsageEnd::Stopped));
    }

    #[test]
    fn exit_status_decides_without_a_verdict() {
        let running = RunState::Running;
        let end = |verdict, code| usage_end(running, verdict, Exit::Code(code), true);
        assert_eq!(end(None, 0), Some(UsageEnd::Attempt));
        assert_eq!(end(None, 1), Some(UsageEnd::Stopped));
        assert_eq!(end(SUCCEEDED, 1), Some(UsageEnd::Attempt));
    }

    #[test]
    fn stop_that_came_too_late_or_of_a_budget_is_no_stop() {
        let end = |reason, by_itself| {
            let state = RunState::Stopping(reason);
            usage_end(state, SUCCEEDED, Exit::Code(0), by_itself)
        };
        assert_eq!(end(StopReason::Paused, false), Some(UsageEnd::Stopped));
        assert_eq!(end(StopReason::Paused, true), Some(UsageEnd::Attempt));
        assert_eq!(end(StopReason::Budget, false), Some(UsageEnd::Attempt));
    }

    #[test]
    fn detail_says_why_a_run_does_not_resume() {
        let waits = AutoResume {
            waits_for_caller: true,
            times: 3,
            ..AutoResume::default()
        };
        let detail = detail_of("limit reached", waits, "");
        assert_eq!(
            detail,
            "limit reached\nit does not resume by itself (auto_resume = false)"
        );
        let exhausted = AutoResume {
            times: 3,
            ..AutoResume::default()
        };
        assert!(detail_of("", exhausted, "").starts_with("\nit resumed 3 times"));
        let resumes = AutoResume {
            again_at: Some(SteadyTime(9)),
            ..exhausted
        };
        assert_eq!(detail_of("limit reached", resumes, ""), "limit reached");
    }

    #[test]
    fn error_line_counts_only_without_a_message() {
        let none = AutoResume::default();
        assert_eq!(detail_of("said", none, "panicked"), "said");
        assert_eq!(
            detail_of("", none, "panicked"),
            format!("{}panicked", RunView::STDERR)
        );
        assert_eq!(detail_of("", none, ""), "");
    }
}
