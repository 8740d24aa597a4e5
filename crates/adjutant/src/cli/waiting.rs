//! `wait`: long polls with a cursor, and what the end means for the exit code.

use super::args::{Until, WaitArgs};
use super::context::{Context, now};
use super::exit::{Exit, words};
use super::look;
use super::out::{Ended, Stop};
use super::state;
use super::style::Style;
use crate::text;
use crate::view::{AcceptanceView, ConfirmNotified, ErrorView, NotifiedRun, RequestView, RunView, Wait, WaitUntil, Waited};
use std::time::{Duration, Instant};

/// How long one wait stays at the hub before it is renewed, in milliseconds.
const WAIT_MS: u64 = 30_000;
/// Most columns of a run's last words on the line of its end, and what else stands there.
const LAST_COLUMNS_MAX: usize = 120;
const ENDING_GAPS: usize = 5;
/// Most characters of why a run stopped, and of what it needs; `adj show` has all of it.
const STOP_CHARS_MAX: usize = 2_000;

/// Waits for runs.
pub async fn wait(args: &WaitArgs, cx: &Context) -> Ended {
    let until = match args.until {
        Until::Attention => WaitUntil::Attention,
        Until::Any => WaitUntil::Any,
        Until::All => WaitUntil::All,
    };
    let waited = wait_for(args.runs.clone(), until, args.timeout, cx).await?;
    report(&waited, cx)?;
    // Only what was written out counts as told; killed before, the next wait reports it again.
    confirm(&waited.confirmation(!args.runs.is_empty()), cx).await?;
    verdict(&waited, until, !args.runs.is_empty(), cx)
}

/// Confirms to the hub that the person was notified. Where that fails, they are notified again.
pub async fn confirm(told: &ConfirmNotified, cx: &Context) -> Result<(), Stop> {
    if told.is_empty() {
        return Ok(());
    }
    match cx.hub.call(told).await {
        Ok(_) => Ok(()),
        Err(error) => cx.out.say(&format!("warning: the next wait reports this again: {}", text::line(&error.message))),
    }
}

/// The same for one run that was shown, where that is over.
pub async fn confirm_run(run: &RunView, cx: &Context) -> Result<(), Stop> {
    if !state::is_over(run) {
        return Ok(());
    }
    confirm(&ConfirmNotified { runs: vec![NotifiedRun::from(run)], until: None }, cx).await
}

/// Waits until something of what is wanted has happened, or the time is over.
pub async fn wait_for(runs: Vec<String>, until: WaitUntil, limit: Option<Duration>, cx: &Context) -> Result<Waited, Stop> {
    let began = Instant::now();
    // Without names, the ends of clients' runs count from here on; each renewal looks back to here.
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

/// Says that a run is silent, retrying, overdue or rate limited, and what can be done about it.
pub fn say_noticed(run: &RunView, cx: &Context) -> Result<(), Stop> {
    let name = text::line(&run.name);
    cx.out.say(&format!("{name}  {}", text::line(&state::look(run, now()).text)))?;
    match run.resumes_at {
        Some(_) => cx.out.next(&format!("adj resume {name}   or   adj cancel {name}")),
        None => cx.out.next(&format!("adj logs {name}   or   adj send {name} \"…\"   or   adj cancel {name}")),
    }
}

/// Tells whether something unusual is to be said about a run that is under way.
pub fn is_noticed(run: &RunView) -> bool {
    run.silent_since.is_some() || run.retrying.is_some() || run.overdue_since.is_some() || run.resumes_at.is_some()
}

/// Prints what a wait found.
fn report(waited: &Waited, cx: &Context) -> Result<(), Stop> {
    if cx.out.json {
        return cx.out.data(waited);
    }
    for run in &waited.ended {
        cx.out.line(&ending(run, cx))?;
    }
    if waited.ended_more > 0 {
        cx.out.say(&format!("… {} more have ended: adj ps -a", waited.ended_more))?;
    }
    for run in &waited.stopped {
        cx.out.line(&ending(run, cx))?;
    }
    if waited.stopped_more > 0 {
        cx.out.say(&format!("… {} more are stopped: adj inbox", waited.stopped_more))?;
    }
    for run in waited.working.iter().filter(|run| is_noticed(run)) {
        say_noticed(run, cx)?;
    }
    for request in &waited.needs {
        cx.out.text(&look::question(request, cx)?)?;
    }
    if waited.outcome == "idle" && waited.ended.is_empty() {
        cx.out.say("nothing to wait for")?;
    }
    Ok(())
}

/// Ends a wait with what it comes to.
fn verdict(waited: &Waited, until: WaitUntil, is_named: bool, cx: &Context) -> Ended {
    if waited.outcome == "timeout" {
        return timed_out(waited, cx);
    }
    let reached = match until {
        WaitUntil::Attention => false,
        WaitUntil::Any => !waited.ended.is_empty(),
        WaitUntil::All => waited.working.is_empty(),
    };
    // Nothing goes on until somebody acts, so the hub ended the wait early.
    if let Some(open) = waited.needs.first().filter(|_| !reached) {
        return needs_input(open, cx);
    }
    // Without names, a stop that was told before does not end a wait by itself.
    let is_new = |run: &&RunView| is_named || run.attention.as_ref().is_some_and(|attention| attention.is_new);
    if let Some(run) = waited.stopped.iter().find(is_new).filter(|_| !reached) {
        return needs_resume(run, cx);
    }
    let has_failed = |run: &&RunView| !matches!(state::exit_of(run), Exit::Done | Exit::NeedsInput);
    if let Some(run) = waited.ended.iter().find(has_failed).or(waited.failed.as_deref()) {
        return failure(run, cx);
    }
    let is_paused = |run: &&RunView| run.state == "stopped";
    match waited.stopped.first().or(waited.ended.iter().find(is_paused)).filter(|_| until != WaitUntil::Attention || waited.working.is_empty()) {
        Some(run) => needs_resume(run, cx),
        None => Ok(Exit::Done),
    }
}

fn timed_out(waited: &Waited, cx: &Context) -> Ended {
    let asks = waited.working.iter().filter(|run| run.status == "waiting_parent_reply" || run.state == "stopped" && run.pending_total > 0).count();
    let (working, waiting) = (waited.working.len() - asks, asks as u64 + waited.stopped.len() as u64 + waited.stopped_more);
    let next = match waiting {
        0 => "adj wait",
        _ if cx.out.interactive => "adj next",
        _ => "adj inbox",
    };
    let waiting = if waiting == 0 { String::new() } else { format!(", {waiting} waiting for you") };
    ended(words::TIMED_OUT, format!("timed out: {working} working{waiting}"), next.to_owned(), cx)
}

/// One line on how a run ended, with its summary or last words; on a stop with what it says and needs.
pub fn ending(run: &RunView, cx: &Context) -> String {
    let look = state::look(run, now());
    let head = format!("{}  {}", cx.out.paint.apply(Style::Strong, &text::line(&run.name)), cx.out.paint.apply(look.style, &text::line(&look.text)));
    if let Some(attention) = run.attention.as_ref().filter(|attention| attention.is_stop()) {
        let shortened = |text: &str| text.chars().take(STOP_CHARS_MAX).collect::<String>();
        let needs = attention.needs.as_ref().map(|needs| cx.out.indented("  ", &format!("needs: {}", shortened(needs))));
        let said = format!("{head}\n{}{}", cx.out.indented("  ", &shortened(&attention.details)), needs.unwrap_or_default());
        return said.trim_end().to_owned();
    }
    let unmet = run.acceptance.as_ref().filter(|_| run.outcome.as_deref() == Some("succeeded")).and_then(AcceptanceView::problem);
    let known = run.reason.as_deref().filter(|_| run.cause.is_some()).map(cause_message);
    let said = unmet.as_deref().or(known).or(run.summary.as_deref()).or(run.result.as_deref()).unwrap_or_default();
    let last = text::line(said.trim().lines().last().unwrap_or_default());
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

/// Ends a wait because a stopped run goes on only when somebody resumes it.
pub fn needs_resume(run: &RunView, cx: &Context) -> Ended {
    let why = run.attention.as_ref().map(state::attention_text).or_else(|| run.reason.clone()).unwrap_or_default();
    let message = format!("{} is stopped: {}", text::line(&run.name), text::line(&why));
    ended(words::NEEDS_INPUT, message, super::decide::way_on(run), cx)
}

/// Ends a wait because a run asks something.
pub fn needs_input(open: &RequestView, cx: &Context) -> Ended {
    let number = text::line(&open.number);
    ended(words::NEEDS_INPUT, format!("{} asks {number}", text::line(&open.run_name)), super::decide::way(open), cx)
}

/// Ends a command that followed a run with what the run comes to.
pub fn end(run: &RunView, cx: &Context) -> Ended {
    match state::exit_of(run) {
        Exit::Done => Ok(Exit::Done),
        Exit::NeedsInput => match run.pending.first().filter(|_| !state::is_over(run)) {
            Some(open) => needs_input(open, cx),
            None => needs_resume(run, cx),
        },
        _ => failure(run, cx),
    }
}

/// Ends a wait because a run did not succeed.
pub fn failure(run: &RunView, cx: &Context) -> Ended {
    let exit = state::exit_of(run);
    let code = if exit == Exit::NotStarted { words::NOT_STARTED } else { words::RUN_FAILED };
    let unmet = run.acceptance.as_ref().filter(|_| run.outcome.as_deref() == Some("succeeded")).and_then(AcceptanceView::problem);
    let unmet = unmet.map(|problem| format!("not accepted: {problem}"));
    let why = unmet.as_deref().or(run.reason.as_deref()).or(run.outcome.as_deref()).unwrap_or(&run.state);
    let name = text::line(&run.name);
    let next = if unmet.is_some() || exit == Exit::NotStarted {
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
