//! `adj wait`: waits for runs and ends with the exit code that their state means.

use crate::cli::alert::{Alert, asked, ended};
use crate::cli::args::{Until, WaitArgs};
use crate::cli::context::Context;
use crate::cli::exit::{Exit, cli_codes};
use crate::cli::out::{CommandResult, Failure};
use crate::cli::run_end::{
    confirm_notified, end_failed, end_line, end_needing_input, end_needing_resume, end_with_code,
    print_note, warn_not_kept,
};
use crate::cli::run_state::start_text;
use crate::cli::wait_line::with_wait_line;
use crate::cli::waiting::{has_condition, print_condition, wait_for_runs};
use crate::cli::{details, next_step, run_state};
use crate::present::{RunNeed, run_need};
use crate::text;
use crate::view::{GetRun, ListAttention, ListRuns, RunView, WaitOutcome, WaitUntil, Waited};
use adjutant_core::pool::QueueReason;
use adjutant_core::run::RunStatus;
use adjutant_core::{OutcomeKind, RunStateKind};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Maximum number of runs at which a wait looks before it begins.
const RUNS_SEEN_MAX: u32 = 200;

/// Waits for runs.
pub(crate) async fn wait(args: &WaitArgs, cx: &Context) -> CommandResult {
    let until = match args.until {
        Until::Attention => WaitUntil::Attention,
        Until::Any => WaitUntil::Any,
        Until::All => WaitUntil::All,
    };
    let (standing, is_all) = queued_for_a_person(&args.runs, cx).await?;
    for run in &standing {
        cx.out.print_message(&start_text(run))?;
    }
    let mentioned = mention_policy_change(None, cx).await?;
    let limit = if is_all {
        Some(Duration::ZERO)
    } else {
        args.timeout
    };
    let mut alert = Alert::on_stderr(cx);
    let waiting = with_wait_line(
        &args.runs,
        cx,
        wait_past_warnings(&args.runs, until, limit, cx),
    );
    let waited = alert.during("adj wait", waiting).await?;
    if let Some(first) = standing
        .first()
        .filter(|_| is_all && waited.outcome == WaitOutcome::Timeout)
    {
        return end_with_code(
            cli_codes::NEEDS_INPUT,
            start_text(first),
            next_step::queue_step(first).unwrap_or_default(),
            cx,
        );
    }
    report(&waited, cx)?;
    // A run may have changed the policies meanwhile.
    mention_policy_change(mentioned, cx).await?;
    if let Some(notification) = notification(&waited) {
        alert.notify(&notification);
    }
    // Confirm only after printing: if this process is killed before, the next wait reports it
    // again.
    confirm_notified(&waited.confirmation(!args.runs.is_empty()), cx).await?;
    verdict(&waited, until, !args.runs.is_empty(), cx)
}

/// Mentions a change of the policies that waits for the person, unless it was mentioned before: it
/// ends no wait, but until it is trusted it answers no request. Returns what was mentioned.
async fn mention_policy_change(
    before: Option<String>,
    cx: &Context,
) -> Result<Option<String>, Failure> {
    let waiting = cx
        .hub
        .call(&ListAttention {
            limit: Some(1),
            ..ListAttention::default()
        })
        .await?
        .policy_change
        .map(|change| change.summary());
    if let Some(summary) = waiting.as_ref().filter(|_| waiting != before) {
        cx.out.print_message(&text::line(summary))?;
        cx.out.suggest("adj policy")?;
    }
    Ok(waiting)
}

/// Waits for runs. That not all their files are kept is printed when they end, and ends no wait. A
/// report is printed at once, and the wait goes on, because a command that follows needs the end of
/// the run.
async fn wait_past_warnings(
    runs: &[String],
    until: WaitUntil,
    limit: Option<Duration>,
    cx: &Context,
) -> Result<Waited, Failure> {
    let began = Instant::now();
    let mut printed = BTreeSet::new();
    let mut is_first = |run: &RunView| {
        printed.insert((
            run.identity.run_id.clone(),
            run.condition.reported.clone().map(|reported| reported.at),
        ))
    };
    let mut since = None;
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let waited = wait_for_runs(runs.to_vec(), until, since, left, cx).await?;
        since = Some(waited.cursor);
        if waited.has_only_reports() {
            for run in waited
                .working
                .iter()
                .filter(|run| run.condition.reported.is_some() && is_first(run))
            {
                print_condition(run, cx)?;
            }
            continue;
        }
        let has_result = !waited.needs.is_empty()
            || !waited.stopped.is_empty()
            || !waited.ended.is_empty()
            || waited.failed.is_some();
        let is_warning =
            |run: &RunView| run.changes.snapshot_problem.is_some() && !has_condition(run);
        if has_result
            || waited.outcome != WaitOutcome::Event
            || !waited.working.iter().any(is_warning)
            || waited.working.iter().any(has_condition)
        {
            return Ok(waited);
        }
    }
}

/// Returns the runs that start only once a person changes their pool, and whether nothing else can
/// happen meanwhile.
async fn queued_for_a_person(
    named: &[String],
    cx: &Context,
) -> Result<(Vec<RunView>, bool), Failure> {
    let mut runs = Vec::new();
    if named.is_empty() {
        runs = cx
            .hub
            .call(&ListRuns {
                all: false,
                limit: Some(RUNS_SEEN_MAX),
                before: None,
            })
            .await?
            .runs;
    }
    for run in named.iter().take(RUNS_SEEN_MAX as usize) {
        runs.push(
            cx.hub
                .call(&GetRun {
                    run: run.clone(),
                    ..GetRun::default()
                })
                .await?,
        );
    }
    let is_standing = |run: &RunView| {
        let reason = run
            .in_queue
            .queue
            .as_ref()
            .and_then(|queue| queue.waiting_for.known());
        matches!(
            reason,
            Some(QueueReason::PoolPaused | QueueReason::PoolRemoved | QueueReason::NoRunner)
        )
    };
    let (standing, others): (Vec<RunView>, Vec<RunView>) = runs.into_iter().partition(is_standing);
    let is_still = |run: &RunView| {
        run.condition.state == RunStateKind::Finished || run_state::exit_of(run) == Exit::NeedsInput
    };
    let is_all = !standing.is_empty() && others.iter().all(is_still);
    Ok((standing, is_all))
}

/// Returns what a wait has found, for a notification.
fn notification(waited: &Waited) -> Option<String> {
    let found = waited
        .needs
        .iter()
        .map(asked)
        .chain(waited.stopped.iter().map(ended))
        .chain(waited.ended.iter().map(ended));
    let found: Vec<String> = if waited.outcome == WaitOutcome::Timeout {
        Vec::new()
    } else {
        found.collect()
    };
    match found.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        [first, others @ ..] => Some(format!("{first}, and {} more", others.len())),
    }
}

/// Prints the result of a wait.
fn report(waited: &Waited, cx: &Context) -> Result<(), Failure> {
    if cx.out.json {
        return cx.out.print_json(waited);
    }
    for run in &waited.ended {
        cx.out.print_line(&end_line(run, cx))?;
    }
    for run in waited
        .ended
        .iter()
        .chain(&waited.stopped)
        .chain(&waited.working)
    {
        warn_not_kept(run, cx)?;
        print_note(run, cx)?;
    }
    if waited.ended_more > 0 {
        cx.out
            .print_message(&format!("… {} more ended: adj ps -a", waited.ended_more))?;
    }
    for run in &waited.stopped {
        cx.out.print_line(&end_line(run, cx))?;
    }
    if waited.stopped_more > 0 {
        cx.out.print_message(&format!(
            "… {} more stopped: adj inbox",
            waited.stopped_more
        ))?;
    }
    for run in waited.working.iter().filter(|run| has_condition(run)) {
        print_condition(run, cx)?;
    }
    for request in &waited.needs {
        cx.out.print_text(&details::request_block(request, cx)?)?;
    }
    if waited.outcome == WaitOutcome::Idle && waited.ended.is_empty() {
        cx.out.print_message("nothing to wait for")?;
    }
    Ok(())
}

/// Returns the exit code of a wait.
fn verdict(waited: &Waited, until: WaitUntil, is_named: bool, cx: &Context) -> CommandResult {
    if waited.outcome == WaitOutcome::Timeout {
        return timed_out(waited, cx);
    }
    let reached = match until {
        WaitUntil::Attention => false,
        WaitUntil::Any => !waited.ended.is_empty(),
        WaitUntil::All => waited.working.is_empty(),
    };
    // No run can continue until the person acts, so the hub ended the wait early.
    if let Some(open) = waited.needs.first().filter(|_| !reached) {
        return end_needing_input(open, cx);
    }
    // Without names, a stop that was reported before does not end the wait.
    let is_new = |run: &&RunView| {
        is_named
            || run
                .condition
                .attention
                .as_ref()
                .is_some_and(|attention| attention.is_new)
    };
    if let Some(run) = waited.stopped.iter().find(is_new).filter(|_| !reached) {
        return end_needing_resume(run, cx);
    }
    let is_alive = |run: &&RunView| matches!(run_need(run), RunNeed::EndOrWait);
    if let Some(run) = waited
        .working
        .iter()
        .find(is_alive)
        .filter(|_| !reached && waited.ended.is_empty())
    {
        let name = text::line(&run.identity.name);
        let what = format!("{name}: {}", run_state::need_text(run).unwrap_or_default());
        return end_with_code(
            cli_codes::NEEDS_INPUT,
            what,
            next_step::alive_command(run),
            cx,
        );
    }
    // Without names, a cancelled run has not failed: its end was requested.
    let is_cancelled = |run: &RunView| !is_named && run.has_outcome(OutcomeKind::Cancelled);
    let has_failed = |run: &&RunView| {
        !is_cancelled(run) && !matches!(run_state::exit_of(run), Exit::Done | Exit::NeedsInput)
    };
    if let Some(run) = waited
        .ended
        .iter()
        .find(has_failed)
        .or(waited.failed.as_deref())
    {
        return end_failed(run, cx);
    }
    let is_paused = |run: &&RunView| run.condition.state == RunStateKind::Stopped;
    match waited
        .stopped
        .first()
        .or(waited.ended.iter().find(is_paused))
        .filter(|_| until != WaitUntil::Attention || waited.working.is_empty())
    {
        Some(run) => end_needing_resume(run, cx),
        None => Ok(Exit::Done),
    }
}

fn timed_out(waited: &Waited, cx: &Context) -> CommandResult {
    let asks = waited
        .working
        .iter()
        .filter(|run| {
            run.condition.status == RunStatus::WaitingParentReply
                || run.condition.state == RunStateKind::Stopped && run.requests.pending_total > 0
        })
        .count();
    let (working, waiting) = (
        waited.working.len() - asks,
        asks as u64 + waited.stopped.len() as u64 + waited.stopped_more,
    );
    let next = match waiting {
        0 => "adj wait",
        _ if cx.out.interactive => "adj next",
        _ => "adj inbox",
    };
    let waiting = if waiting == 0 {
        String::new()
    } else {
        format!(", {waiting} waiting for you")
    };
    end_with_code(
        cli_codes::TIMED_OUT,
        format!("timed out: {working} working{waiting}"),
        next.to_owned(),
        cx,
    )
}
