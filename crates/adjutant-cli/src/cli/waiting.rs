//! Long polls for runs, and notices about live runs.

use super::context::{Context, now};
use super::out::Failure;
use super::run_state;
use crate::text;
use crate::view::{
    ErrorView, FenceView, ReadEvents, RunView, Wait, WaitOutcome, WaitUntil, Waited,
};
use std::time::{Duration, Instant};

/// How long one call waits at the hub before it is repeated, in milliseconds.
const WAIT_MS: u64 = 30_000;

/// Waits until the condition is met or the time limit is reached. `since`: the position of the wait
/// that this one continues.
pub(crate) async fn wait_for_runs(
    runs: Vec<String>,
    until: WaitUntil,
    since: Option<i64>,
    limit: Option<Duration>,
    cx: &Context,
) -> Result<Waited, Failure> {
    let began = Instant::now();
    // Without names, ends of clients' runs count from here on, for each repeated call too.
    let mut after = match since {
        None if runs.is_empty() => Some(cx.hub.call(&Wait::default()).await?.cursor),
        since => since,
    };
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let wait_ms = left.map_or(WAIT_MS, |left| {
            u64::try_from(left.as_millis())
                .unwrap_or(WAIT_MS)
                .min(WAIT_MS)
        });
        let waited = cx
            .hub
            .call(&Wait {
                runs: runs.clone(),
                until,
                after,
                new_reports: false,
                wait_ms,
            })
            .await?;
        let over = left.is_some_and(|left| left <= Duration::from_millis(WAIT_MS));
        if waited.outcome != WaitOutcome::Timeout || over {
            return Ok(waited);
        }
        if until == WaitUntil::Attention {
            // Nothing happened up to this point.
            after = Some(waited.cursor);
        }
    }
}

/// Waits for the next event, and returns the position after it.
pub(super) async fn next_change(mut after: i64, cx: &Context) -> Result<i64, ErrorView> {
    loop {
        let page = cx
            .hub
            .call(&ReadEvents {
                after,
                run: None,
                limit: None,
                wait_ms: WAIT_MS,
            })
            .await?;
        after = page.cursor;
        if !page.events.is_empty() || page.reset {
            return Ok(after);
        }
    }
}

/// Prints that a run has reported, is silent, retrying, overdue, rate limited, near the end of its
/// budget or has denied writes, and what to do.
pub(crate) fn print_condition(run: &RunView, cx: &Context) -> Result<(), Failure> {
    let name = text::line(&run.identity.name);
    cx.out.print_message(&format!(
        "{name}  {}",
        text::line(&run_state::label(run, now()).text)
    ))?;
    if let Some(denied) = run
        .processes
        .fence
        .as_ref()
        .and_then(FenceView::denied_line)
    {
        cx.out
            .print_message(&format!("{name}  {}", text::line(&denied)))?;
    }
    for budget in run.cost.budgets.iter().filter(|budget| budget.nearly_used) {
        cx.out.print_message(&format!(
            "{name}  budget: {}",
            text::line(&budget.to_string())
        ))?;
    }
    match run.condition.resumes_at {
        Some(_) => cx
            .out
            .suggest(&format!("adj resume {name}   or   adj cancel {name}")),
        None => cx.out.suggest(&format!(
            "adj logs {name}   or   adj send {name} \"…\"   or   adj cancel {name}"
        )),
    }
}

/// Returns whether a live run has reported, or has a condition.
pub(super) fn has_condition(run: &RunView) -> bool {
    run.condition.reported.is_some() || run.has_condition()
}
