//! The end of a run: its line, its exit code, and the confirmation that the person was notified.

use super::context::{Context, now};
use super::exit::{Exit, cli_codes};
use super::out::{CommandResult, Failure};
use super::style::Style;
use super::{next_step, run_state};
use crate::present::{asked_for, list_in_one_line, not_kept};
use crate::text;
use crate::view::{
    ConfirmNotified, ErrorView, NotifiedRun, ReadResult, RequestView, RunView, Word,
};
use adjutant_core::{RequestKind, RunStateKind, shorten};

/// Widest final output on the line of a run's end, and the columns between its parts.
const LAST_COLUMNS_MAX: usize = 120;

const ENDING_GAPS: usize = 5;

/// Maximum number of characters of the reason for a stop and of what the run needs; `adj show` has
/// all.
const STOP_CHARS_MAX: usize = 2_000;

/// Confirms to the hub that the person was notified. If that fails, they are notified again.
pub(super) async fn confirm_notified(
    notified: &ConfirmNotified,
    cx: &Context,
) -> Result<(), Failure> {
    if notified.is_empty() {
        return Ok(());
    }
    match cx.hub.call(notified).await {
        Ok(_) => Ok(()),
        Err(error) => cx.out.print_message(&format!(
            "warning: the next adj wait will report this again: {}",
            text::line(&error.message)
        )),
    }
}

/// Confirms that the person has seen the end of a run, if it is over.
pub(crate) async fn confirm_run_notified(run: &RunView, cx: &Context) -> Result<(), Failure> {
    if !run.is_over() {
        return Ok(());
    }
    confirm_notified(
        &ConfirmNotified {
            runs: vec![NotifiedRun::from(run)],
            until: None,
        },
        cx,
    )
    .await
}

/// Prints the whole result of a run on stdout, and nothing else there.
pub(crate) async fn print_result(run: &str, cx: &Context) -> Result<(), Failure> {
    let found = cx
        .hub
        .call(&ReadResult {
            run: run.to_owned(),
        })
        .await?;
    let text: String = found
        .result
        .lines()
        .map(|line| format!("{}\n", text::block(line)))
        .collect();
    cx.out.print_data(&text)?;
    if found.is_cut {
        let name = text::line(&found.run_name);
        cx.out.print_message(&format!(
            "note: this is the end of a longer message; the log has all of it: adj logs {name}"
        ))?;
    }
    Ok(())
}

/// Returns the name and the state of a run.
pub(crate) fn state_line(run: &RunView, cx: &Context) -> String {
    let label = run_state::label(run, now());
    format!(
        "{}  {}",
        cx.out
            .paint
            .apply(Style::Strong, &text::line(&run.identity.name)),
        cx.out.paint.apply(label.style, &text::line(&label.text))
    )
}

/// Prints the note about an ended run on standard error.
pub(crate) fn print_note(run: &RunView, cx: &Context) -> Result<(), Failure> {
    match run
        .condition
        .note
        .as_deref()
        .filter(|_| !cx.out.json && run.condition.state == RunStateKind::Finished)
    {
        Some(note) => cx.out.print_message(&format!(
            "note: {}: {}",
            text::line(&run.identity.name),
            text::line(note)
        )),
        None => Ok(()),
    }
}

/// Warns on standard error if the snapshots of a run do not have all its files.
pub(crate) fn warn_not_kept(run: &RunView, cx: &Context) -> Result<(), Failure> {
    match run
        .changes
        .snapshot_problem
        .as_deref()
        .filter(|_| !cx.out.json)
    {
        Some(why) => cx.out.print_message(&format!(
            "warning: {}: {}",
            text::line(&run.identity.name),
            text::line(&not_kept(why))
        )),
        None => Ok(()),
    }
}

/// Describes how a run ended in one line, with its summary or final output. A stop adds its reason
/// and what it needs.
pub(super) fn end_line(run: &RunView, cx: &Context) -> String {
    let label = run_state::label(run, now());
    let head = state_line(run, cx);
    if let Some(attention) = run
        .condition
        .attention
        .as_ref()
        .filter(|attention| attention.is_stop())
    {
        let shortened = |text: &str| shorten::to_chars(text, STOP_CHARS_MAX).into_owned();
        let needs = attention
            .needs
            .as_ref()
            .map(|needs| cx.out.indent("  ", &format!("needs: {}", shortened(needs))));
        let shown = format!(
            "{head}\n{}{}",
            cx.out.indent("  ", &shortened(&attention.details)),
            needs.unwrap_or_default()
        );
        return shown.trim_end().to_owned();
    }
    let unmet = run.unmet_acceptance();
    let known = run
        .condition
        .reason
        .as_deref()
        .filter(|_| run.condition.cause.is_some())
        .map(cause_message);
    let name = text::line(&run.identity.name);
    let reconstructed = run.results.reconstructed.then(|| {
        let last = run
            .results
            .last_message
            .as_deref()
            .unwrap_or_default()
            .trim()
            .lines()
            .last()
            .unwrap_or_default();
        format!("{last} (reconstructed result: adj show --result {name})")
            .trim_start()
            .to_owned()
    });
    let result = reconstructed.as_deref().or(run.results.result.as_deref());
    let listed = run.results.summary.as_deref().and_then(list_in_one_line);
    let said = listed.as_deref().or(run.results.summary.as_deref());
    let last_words = unmet
        .as_deref()
        .or(known)
        .or(run.stderr_reason())
        .or(said)
        .or(result)
        .unwrap_or_default();
    let last = text::line(last_words.trim().lines().last().unwrap_or_default());
    let room = cx.out.columns.map_or(LAST_COLUMNS_MAX, |columns| {
        columns
            .saturating_sub(
                text::width(&run.identity.name) + text::width(&label.text) + ENDING_GAPS,
            )
            .min(LAST_COLUMNS_MAX)
    });
    if last.is_empty() || room == 0 {
        head
    } else {
        format!("{head} – {}", text::cut(&last, room))
    }
}

/// Returns the agent's own message from the reason of a known cause.
fn cause_message(reason: &str) -> &str {
    let first = reason.lines().next().unwrap_or_default();
    first.split_once(": ").map_or(first, |(_, message)| message)
}

/// Ends a command because a stopped run has to be resumed.
pub(crate) fn end_needing_resume(run: &RunView, cx: &Context) -> CommandResult {
    let why = run_state::need_text(run)
        .or_else(|| run.condition.reason.clone())
        .unwrap_or_default();
    let state = if run.is_held() { "held" } else { "stopped" };
    let message = format!(
        "{} is {state}: {}",
        text::line(&run.identity.name),
        text::line(&why)
    );
    end_with_code(
        cli_codes::NEEDS_INPUT,
        message,
        next_step::resume_command(run),
        cx,
    )
}

/// Ends a command because a run asks something.
pub(crate) fn end_needing_input(open: &RequestView, cx: &Context) -> CommandResult {
    let number = text::line(&open.number);
    let mut message = format!("{} asks {number}", text::line(&open.run_name));
    if open.kind != RequestKind::Question {
        message.push_str(&format!(
            " ({}: {})",
            text::line(open.kind.as_str()),
            text::line(&asked_for(open).line())
        ));
    }
    end_with_code(
        cli_codes::NEEDS_INPUT,
        message,
        next_step::answer_command(open),
        cx,
    )
}

/// Ends a command that followed a run with the run's result.
pub(crate) fn end_with_run(run: &RunView, cx: &Context) -> CommandResult {
    match run_state::exit_of(run) {
        Exit::Done => Ok(Exit::Done),
        Exit::NeedsInput => match run.requests.pending.first().filter(|_| !run.is_over()) {
            Some(open) => end_needing_input(open, cx),
            None => end_needing_resume(run, cx),
        },
        _ => end_failed(run, cx),
    }
}

/// Ends a command because a run did not succeed.
pub(crate) fn end_failed(run: &RunView, cx: &Context) -> CommandResult {
    let exit = run_state::exit_of(run);
    let code = if exit == Exit::NotStarted {
        cli_codes::NOT_STARTED
    } else {
        cli_codes::RUN_FAILED
    };
    let unmet = run
        .unmet_acceptance()
        .map(|problem| format!("not accepted: {problem}"));
    let why = unmet
        .as_deref()
        .or(run.condition.reason.as_deref())
        .unwrap_or_else(|| {
            run.condition
                .outcome
                .as_ref()
                .map_or(run.condition.state.as_str(), Word::as_str)
        });
    let name = text::line(&run.identity.name);
    let next = if unmet.is_some() || exit == Exit::NotStarted {
        // The cause is not in the agent's output.
        format!("adj show {name}   or   adj retry {name}")
    } else {
        format!("adj logs {name}   or   adj retry {name}")
    };
    if !cx.out.json {
        // The end line has the first line of a known cause; the other lines say what to do.
        let rest = run
            .condition
            .reason
            .as_deref()
            .filter(|_| run.condition.cause.is_some())
            .and_then(|reason| reason.split_once('\n'))
            .map(|(_, rest)| rest);
        if let Some(more) = rest.or((exit == Exit::NotStarted).then_some(why)) {
            cx.out.print_message(cx.out.indent("  ", more).trim_end())?;
        }
    }
    end_with_code(code, format!("{name}: {}", text::line(why)), next, cx)
}

/// Ends a command with a code that is not an error: people see the next command, scripts a JSON
/// line.
pub(crate) fn end_with_code(
    code: &str,
    message: String,
    next: String,
    cx: &Context,
) -> CommandResult {
    if cx.out.json {
        return Err(Failure::Error(ErrorView {
            code: code.to_owned(),
            message,
            hint: Some(next),
        }));
    }
    if code == cli_codes::TIMED_OUT {
        cx.out.print_message(&message)?;
    }
    cx.out.suggest(&next)?;
    Ok(Exit::of(code))
}
