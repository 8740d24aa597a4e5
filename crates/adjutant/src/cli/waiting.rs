//! `wait`: long polls with a cursor, and what the end means for the exit code.

use super::args::{Until, WaitArgs};
use super::context::{Context, now};
use super::exit::{Exit, words};
use super::look;
use super::out::{Ended, Stop};
use super::state;
use super::style::Style;
use crate::text;
use crate::view::{AcceptanceView, ErrorView, RequestView, RunView, Wait, WaitUntil, Waited};
use std::time::{Duration, Instant};

/// How long one wait stays at the hub before it is renewed, in milliseconds.
const WAIT_MS: u64 = 30_000;
/// Most columns of a run's last words on the line of its end, and what else stands there.
const LAST_COLUMNS_MAX: usize = 120;
const ENDING_GAPS: usize = 5;

/// Waits for runs.
pub async fn wait(args: &WaitArgs, cx: &Context) -> Ended {
    let until = match args.until {
        Until::Attention => WaitUntil::Attention,
        Until::Any => WaitUntil::Any,
        Until::All => WaitUntil::All,
    };
    let waited = wait_for(args.runs.clone(), until, args.timeout, cx).await?;
    report(&waited, until, cx)
}

/// Waits until something of what is wanted has happened, or the time is over.
pub async fn wait_for(runs: Vec<String>, until: WaitUntil, limit: Option<Duration>, cx: &Context) -> Result<Waited, Stop> {
    let began = Instant::now();
    // Without names, ends count from here on; each renewal looks back to here, so none is missed.
    let mut after = if runs.is_empty() { Some(cx.hub.call(&Wait::default()).await?.cursor) } else { None };
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let wait_ms = left.map_or(WAIT_MS, |left| u64::try_from(left.as_millis()).unwrap_or(WAIT_MS).min(WAIT_MS));
        let waited = cx.hub.call(&Wait { runs: runs.clone(), until, after, wait_ms }).await?;
        let over = left.is_some_and(|left| left <= Duration::from_millis(WAIT_MS));
        if waited.outcome != "timeout" || over {
            return Ok(waited);
        }
        if until == WaitUntil::Attention {
            // Nothing has happened by then.
            after = Some(waited.cursor);
        }
    }
}

/// Says that a run has gone silent, and what can be done about it.
pub fn say_silent(run: &RunView, cx: &Context) -> Result<(), Stop> {
    let name = text::line(&run.name);
    cx.out.say(&format!("{name}  {}", text::line(&state::look(run, now()).text)))?;
    cx.out.next(&format!("adj logs {name}   or   adj send {name} \"…\"   or   adj cancel {name}"))
}

/// Prints what a wait found, and ends accordingly.
fn report(waited: &Waited, until: WaitUntil, cx: &Context) -> Ended {
    if cx.out.json {
        cx.out.data(waited)?;
    } else {
        for run in &waited.ended {
            cx.out.line(&ending(run, cx))?;
        }
        for run in waited.working.iter().filter(|run| run.silent_since.is_some()) {
            say_silent(run, cx)?;
        }
        if waited.ended_more > 0 {
            cx.out.say(&format!("… {} more have ended: adj ps -a", waited.ended_more))?;
        }
        for request in &waited.needs {
            cx.out.text(&look::question(request, cx)?)?;
        }
        if waited.outcome == "idle" && waited.ended.is_empty() && waited.needs.is_empty() {
            cx.out.say("nothing to wait for")?;
        }
    }
    let failed = waited.ended.iter().find(|run| state::exit_of(run) != Exit::Done).or(waited.failed.as_deref());
    let reached = match until {
        WaitUntil::Attention => false,
        WaitUntil::Any => !waited.ended.is_empty(),
        WaitUntil::All => waited.working.is_empty(),
    };
    // Nothing goes on until somebody answers, so the hub ended the wait early.
    if let Some(open) = waited.needs.first().filter(|_| waited.outcome != "timeout" && !reached) {
        return needs_input(open, cx);
    }
    if waited.outcome == "timeout" {
        let working = waited.working.len();
        return ended(
            words::TIMED_OUT,
            format!("the time is over; {} still at work", text::count(working as u64, "run is", "runs are")),
            "adj wait".to_owned(),
            cx,
        );
    }
    let Some(run) = failed else { return Ok(Exit::Done) };
    // A parked run goes on by itself once it is answered.
    match waited.needs.iter().find(|open| run.state == "stopped" && open.run_id == run.run_id) {
        Some(open) => needs_input(open, cx),
        None => failure(run, cx),
    }
}

/// One line on how a run ended, with its summary or last words.
pub fn ending(run: &RunView, cx: &Context) -> String {
    let look = state::look(run, now());
    let unmet = run.acceptance.as_ref().filter(|_| run.outcome.as_deref() == Some("succeeded")).and_then(AcceptanceView::problem);
    let known = run.reason.as_deref().filter(|_| run.cause.is_some()).map(cause_message);
    let said = unmet.as_deref().or(known).or(run.summary.as_deref()).or(run.result.as_deref()).unwrap_or_default();
    let last = text::line(said.trim().lines().last().unwrap_or_default());
    let head = format!("{}  {}", cx.out.paint.apply(Style::Strong, &text::line(&run.name)), cx.out.paint.apply(look.style, &text::line(&look.text)));
    let room = cx.out.columns.map_or(LAST_COLUMNS_MAX, |columns| {
        columns.saturating_sub(text::width(&run.name) + text::width(&look.text) + ENDING_GAPS).min(LAST_COLUMNS_MAX)
    });
    if last.is_empty() || room == 0 { head } else { format!("{head} – {}", text::cut(&last, room)) }
}

/// Splits what the agent said about a known cause from the statement of the cause and the hint around it.
fn cause_message(reason: &str) -> &str {
    let first = reason.lines().next().unwrap_or_default();
    first.split_once(": ").map_or(first, |(_, message)| message)
}

/// Ends a wait because a run asks something.
pub fn needs_input(open: &RequestView, cx: &Context) -> Ended {
    let number = text::line(&open.number);
    ended(words::NEEDS_INPUT, format!("{} asks {number}", text::line(&open.run_name)), super::decide::way(open), cx)
}

/// Ends a wait because a run did not succeed.
pub fn failure(run: &RunView, cx: &Context) -> Ended {
    let exit = state::exit_of(run);
    let code = if exit == Exit::NotStarted { words::NOT_STARTED } else { words::RUN_FAILED };
    let unmet = run.acceptance.as_ref().filter(|_| run.outcome.as_deref() == Some("succeeded")).and_then(AcceptanceView::problem);
    let unmet = unmet.map(|problem| format!("not accepted: {problem}"));
    let why = unmet.as_deref().or(run.reason.as_deref()).or(run.outcome.as_deref()).unwrap_or(&run.state);
    let name = text::line(&run.name);
    let next = if run.state == "stopped" {
        format!("adj show {name}   or   adj resume {name}")
    } else if unmet.is_some() || exit == Exit::NotStarted {
        // The agent's own output does not say it.
        format!("adj show {name}   or   adj retry {name}")
    } else {
        format!("adj logs {name}   or   adj retry {name}")
    };
    if !cx.out.json {
        // The first line of a known cause stands on the line of the end; what to do about it follows.
        let rest = run.reason.as_deref().filter(|_| run.cause.is_some()).and_then(|reason| reason.split_once('\n')).map(|(_, rest)| rest);
        if let Some(more) = rest.or((exit == Exit::NotStarted).then_some(why)) {
            cx.out.say(cx.out.indented("  ", more).trim_end())?;
        }
    }
    ended(code, format!("{name}: {}", text::line(why)), next, cx)
}

/// Ends with a code that is no error of ours: people see the next command, scripts one JSON line.
fn ended(code: &str, message: String, next: String, cx: &Context) -> Ended {
    if cx.out.json {
        return Err(Stop::Error(ErrorView { code: code.to_owned(), message, hint: Some(next) }));
    }
    if code == words::TIMED_OUT {
        cx.out.say(&message)?;
    }
    cx.out.next(&next)?;
    Ok(Exit::of(code))
}
