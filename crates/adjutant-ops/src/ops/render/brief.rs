//! The parts of a run's view that need only its row.

use crate::clock::{self, rfc3339};
use crate::config::Home;
use crate::logs::kept::AttemptLogs;
use crate::logs::log_paths;
use crate::protocol::SubagentsText;
use crate::store::{FenceState, RetryingSince, Run, Usage};
use crate::view::{
    CheckpointView, FenceView, IgnoredView, ReportedView, RetryingView, RunActivityView,
    RunChangesView, RunConditionView, RunCostView, RunIdentityView, RunPlaceView, RunProcessesView,
    RunRequestsView, RunResultView, RunTermsView, RunTimesView, RunView, SubagentView, UsageView,
};
use adjutant_core::report::{Claim, ReportStatus};
use adjutant_core::result::end_reason;
use adjutant_core::signal::Checkpoint;
use adjutant_core::{Exit, Failure, Outcome, RunState, Time, run, subagent};

/// Returns the parts of a run's view that need only its row. The others are empty.
pub(in crate::ops) fn brief(home: &Home, run: &Run) -> RunView {
    RunView {
        identity: identity(run),
        condition: condition(run),
        times: times(run),
        terms: RunTermsView {
            pool: run.pool.clone(),
            priority: run.rank.priority().map(Into::into),
            ..RunTermsView::default()
        },
        place: place(home, run),
        activity: activity(run),
        results: result(run),
        changes: RunChangesView {
            snapshot_problem: run.snapshot_problem.clone(),
            ..RunChangesView::default()
        },
        requests: RunRequestsView {
            pending_total: u64::try_from(run.pending).unwrap_or(0),
            ..RunRequestsView::default()
        },
        processes: processes(run),
        cost: RunCostView {
            usage: usage(run),
            ..RunCostView::default()
        },
        cursor: run.last_seq.0,
        ..RunView::default()
    }
}

fn time(time: Option<Time>) -> Option<String> {
    time.map(rfc3339)
}

fn identity(run: &Run) -> RunIdentityView {
    RunIdentityView {
        run_id: run.id.to_string(),
        name: run.name.clone(),
        agent: run.agent.clone(),
        agent_why: run.agent_why.clone(),
        task: run.task.clone(),
        owner: run.owner.to_string(),
        parent: run.parent.map(|id| id.to_string()),
        root: run.root.to_string(),
        retry_of: run.retry_of.map(|id| id.to_string()),
        attempt: run.attempt.0,
        session: run.session.clone(),
        ..RunIdentityView::default()
    }
}

fn times(run: &Run) -> RunTimesView {
    RunTimesView {
        created_at: rfc3339(run.created_at),
        started_at: time(run.started_at),
        ended_at: time(run.ended_at),
        updated_at: rfc3339(run.updated_at),
        active_ms: u64::try_from(run.active_ms_at(clock::steady())).unwrap_or(0),
        estimate_ms: run.estimate_ms.and_then(|ms| u64::try_from(ms).ok()),
    }
}

fn condition(run: &Run) -> RunConditionView {
    let outcome = match run.state {
        RunState::Finished(outcome) => Some(outcome.kind().into()),
        _ => None,
    };
    let cause = match run.state {
        RunState::Finished(Outcome::Failed(Failure::Agent(cause))) => Some(cause.into()),
        _ => None,
    };
    let resumes_at = match run.state {
        RunState::Stopped { reason, until } if reason.waits_for_model() => {
            Some(rfc3339(clock::expected_wall_time(until)))
        }
        _ => None,
    };
    RunConditionView {
        status: run::status(run.state, run.open_requests(), run.claim).into(),
        state: run.state.kind().into(),
        outcome,
        reason: reason(run),
        cause,
        end_reason: end_reason(run.state, run.claim).map(Into::into),
        exit_code: run.exit.map(exit_code),
        attention: super::attention::attention(run),
        choices: super::report::choice_views(run),
        resumes_by_itself: super::attention::resumes_by_itself(run),
        resumes_at,
        reported: reported(run),
        silent_since: time(run.silent_since()),
        retrying: run.is_retrying().map(retrying),
        overdue_since: time(run.overdue_since()),
        note: run.note.clone(),
        annotation: run.annotation.clone(),
    }
}

/// Its report, unless it has made a statement since.
fn reported(run: &Run) -> Option<ReportedView> {
    run.standing_report().map(|report| ReportedView {
        at: rfc3339(report.at),
        status: run
            .claim
            .map_or(ReportStatus::Success, Claim::status)
            .into(),
        is_new: !report.is_owner_notified,
    })
}

fn reason(run: &Run) -> Option<String> {
    // The detail of an earlier stop says nothing about a run that is queued again.
    let is_queued_again = run.state == RunState::Queued && run.started_at.is_some();
    with_detail(reason_of_state(run), run.detail.as_deref(), is_queued_again)
}

fn with_detail(
    reason: Option<String>,
    detail: Option<&str>,
    is_queued_again: bool,
) -> Option<String> {
    match (reason, detail) {
        (None, Some(_)) if is_queued_again => None,
        (Some(reason), Some(detail)) => Some(format!("{reason}: {detail}")),
        (reason, detail) => reason.or_else(|| detail.map(ToOwned::to_owned)),
    }
}

fn reason_of_state(run: &Run) -> Option<String> {
    match run.state {
        RunState::Stopped { reason, until } if reason.waits_for_model() => Some(format!(
            "{}, resumes at {}",
            reason.word(),
            rfc3339(clock::expected_wall_time(until))
        )),
        RunState::Stopping(reason) | RunState::Stopped { reason, .. } => {
            Some(reason.word().to_owned())
        }
        RunState::Finished(Outcome::Failed(failure)) => Some(failure.to_string()),
        RunState::Finished(
            Outcome::SpawnFailed | Outcome::Cancelled | Outcome::Lost | Outcome::Succeeded,
        )
        | RunState::Queued
        | RunState::Starting
        | RunState::Running => match (run.is_retrying(), run.silent_since()) {
            (Some(retrying), _) => Some(reason_of_retrying(retrying)),
            (None, Some(since)) => {
                let alive = if run.standing_report().is_some() {
                    "still alive after its report: "
                } else {
                    ""
                };
                Some(format!(
                    "{alive}no output and no call since {}",
                    rfc3339(since)
                ))
            }
            (None, None) => None,
        },
    }
}

fn reason_of_retrying(retrying: &RetryingSince) -> String {
    let RetryingSince {
        cause,
        since,
        tries,
        words,
    } = retrying;
    let tries = if *tries == 1 {
        "1 failed try".to_owned()
    } else {
        format!("{tries} failed tries")
    };
    format!(
        "retrying ({}, {tries} since {}): {words}",
        cause.word(),
        rfc3339(*since)
    )
}

/// Returns the exit code as a shell shows it.
fn exit_code(exit: Exit) -> i32 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128 + signal,
    }
}

fn activity(run: &Run) -> RunActivityView {
    let subagents = run
        .subagents
        .as_deref()
        .map_or_else(SubagentsText::default, |kept| {
            serde_json::from_slice(kept.as_bytes()).unwrap_or_else(|error| {
                tracing::error!(run = %run.id, %error, "the stored sub-agents cannot be read");
                SubagentsText::default()
            })
        });
    let ignored_signals = run.ignored_why.clone().map(|last| IgnoredView {
        count: u64::try_from(run.ignored).unwrap_or(0),
        last,
    });
    RunActivityView {
        percent: run.percent,
        progress: run.progress.clone(),
        eta: run.eta.clone(),
        subagents: subagents
            .all
            .into_iter()
            .map(|one| subagent(one, run.state.is_live()))
            .collect(),
        subagents_more: subagents.more,
        checkpoint: run.checkpoint.as_ref().map(checkpoint),
        signals: Vec::new(),
        ignored_signals,
    }
}

fn result(run: &Run) -> RunResultView {
    RunResultView {
        summary: run.summary.clone(),
        result: run.reconstructed.clone().or_else(|| run.result.clone()),
        result_bytes: run
            .result_bytes
            .filter(|bytes| *bytes > run.result.as_ref().map_or(0, String::len) as u64),
        reconstructed: run.reconstructed.is_some(),
        result_gap: run.result_gap.map(Into::into),
        last_message: run.result.clone().filter(|_| run.reconstructed.is_some()),
        ..RunResultView::default()
    }
}

/// How its processes were contained, and what they use.
fn processes(run: &Run) -> RunProcessesView {
    RunProcessesView {
        containment: run.containment.clone(),
        fence: run.fence.clone().map(fence),
        swept: run.swept,
        output_left_open: run.output_left_open,
        resources: crate::ops::resources::resources_of(run),
    }
}

/// Where it works, and where its output is.
fn place(home: &Home, run: &Run) -> RunPlaceView {
    let logs = log_paths(&home.dir, &run.id.to_string(), run.attempt.0);
    // The hub can lack the log of a run on a runner, or have a part. Before an attempt starts,
    // there is none.
    let is_expected = matches!(run.state, RunState::Queued | RunState::Starting);
    let newest = AttemptLogs {
        home: home.dir.clone(),
        run_id: run.id.to_string(),
        attempt: run.attempt.0,
    };
    let is_part = newest
        .record()
        .is_ok_and(|record| record.is_some_and(|record| !record.is_complete));
    let log_path = logs
        .last()
        .filter(|path| is_expected || path.exists() && !is_part)
        .cloned();
    let log_paths = logs
        .iter()
        .filter(|path| logs.last() != Some(path) || log_path.is_some())
        .map(|path| path.display().to_string())
        .collect();
    let log_path = log_path
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    RunPlaceView {
        cwd: run.cwd.clone(),
        log_path,
        log_paths,
        ..RunPlaceView::default()
    }
}

fn fence(state: FenceState) -> FenceView {
    let FenceState {
        asked,
        workspace: _,
        enforced,
        gaps,
        why,
        writable,
        denied,
    } = state;
    let (denied_writes, denied_write) = denied.map(|denied| (denied.times, denied.line)).unzip();
    FenceView {
        asked,
        enforced,
        not_enforced: gaps,
        why,
        writable,
        denied_writes,
        denied_write,
    }
}

/// The state of a sub-agent that was running when the run ended is unknown.
fn subagent(seen: SubagentView, is_live: bool) -> SubagentView {
    let state = seen
        .state
        .filter(|state| is_live || state != subagent::RUNNING);
    SubagentView { state, ..seen }
}

fn retrying(since: &RetryingSince) -> RetryingView {
    let RetryingSince {
        cause,
        since,
        tries,
        words,
    } = since.clone();
    RetryingView {
        cause: cause.into(),
        since: rfc3339(since),
        tries,
        words,
    }
}

fn usage(run: &Run) -> Option<UsageView> {
    let Usage {
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        of_session: _,
        cost_of_session: _,
        cached_in_input: _,
    } = run.usage?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "nobody spends so much that a cent is lost"
    )]
    let cost_usd = cost_micros.map(|micros| micros as f64 / 1_000_000.0);
    let (cost_by_prices, unpriced_tokens) = (run.is_priced, run.unpriced_tokens.unsigned_abs());
    Some(UsageView {
        input_tokens,
        cached_tokens,
        output_tokens,
        of_last_call: false,
        cost_usd,
        cost_by_prices,
        unpriced_tokens,
    })
}

pub(super) fn checkpoint(from: &Checkpoint) -> CheckpointView {
    let Checkpoint {
        made_by,
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state,
        requirements,
        recovery,
        working_directory,
        changed_files,
    } = from.clone();
    CheckpointView {
        made_by: made_by.into(),
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state_snapshot: state,
        resume_requirements: requirements,
        error_recovery: recovery,
        working_directory,
        changed_files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Cause;

    #[test]
    fn detail_of_an_earlier_stop_is_not_shown_once_the_run_is_queued_again() {
        let reason = || Some("paused".to_owned());
        assert_eq!(with_detail(None, Some("disk full"), true), None);
        assert_eq!(
            with_detail(None, Some("disk full"), false).as_deref(),
            Some("disk full")
        );
        assert_eq!(
            with_detail(reason(), Some("by you"), true).as_deref(),
            Some("paused: by you")
        );
        assert_eq!(with_detail(reason(), None, false), reason());
    }

    #[test]
    fn retries_are_counted_in_words() {
        let of = |tries| {
            reason_of_retrying(&RetryingSince {
                cause: Cause::Network,
                since: Time(0),
                tries,
                words: "no route".to_owned(),
            })
        };
        assert!(of(1).contains("1 failed try since 1970-01-01"));
        assert!(of(2).contains("2 failed tries since") && of(2).ends_with("): no route"));
    }

    #[test]
    fn exit_by_a_signal_has_the_code_that_a_shell_shows() {
        assert_eq!(exit_code(Exit::Code(2)), 2);
        assert_eq!(exit_code(Exit::Signal(15)), 143);
    }
}
