//! `adj show`: everything about one run.

use crate::cli::args::ShowArgs;
use crate::cli::context::{Context, now};
use crate::cli::details::{
    INDENT, acceptance_block, checkpoint_block, indented, relative_time, report_block,
    request_block, request_outcome,
};
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::{next_step, run_end, run_state};
use crate::present::{Rank, asked_for, limit_text, run_facts};
use crate::text;
use crate::view::{GetRun, ReadResult, RunView, Word};
use std::fmt::Write as _;

/// The columns of a label, and the column where the values begin.
const LABEL_COLUMNS: usize = 12;
const VALUE_COLUMN: usize = 15;

/// Widest question in the list of answered ones.
const ASKED_COLUMNS_MAX: usize = 100;

/// Shows everything about one run.
pub(crate) async fn show(args: &ShowArgs, cx: &Context) -> CommandResult {
    if args.result {
        return show_result(&args.run, cx).await;
    }
    let run = cx
        .hub
        .call(&GetRun {
            run: args.run.clone(),
            snapshots: true,
            newest: false,
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&run)?;
        return Ok(Exit::Done);
    }
    cx.out.print_text(&run_text(&run, args.verbose, cx)?)?;
    if cx.out.terminal {
        // The person has now seen the run's state.
        run_end::confirm_run_notified(&run, cx).await?;
    }
    cx.out.suggest(&next_step::run_command(&run))?;
    Ok(Exit::Done)
}

/// Prints the whole result of a run and nothing else.
async fn show_result(run: &str, cx: &Context) -> CommandResult {
    if cx.out.json {
        cx.out.print_json(
            &cx.hub
                .call(&ReadResult {
                    run: run.to_owned(),
                })
                .await?,
        )?;
    } else {
        run_end::print_result(run, cx).await?;
    }
    Ok(Exit::Done)
}

/// Writes everything about a run: its heading, its fields, and blocks of longer texts.
fn run_text(run: &RunView, verbose: bool, cx: &Context) -> Result<String, std::fmt::Error> {
    let paint = cx.out.paint;
    let label = run_state::label(run, now());
    let state = limit_text(run).map_or(label.text, |limit| format!("■ stopped: {limit}"));
    let mut out = format!(
        "{}  {}\n",
        paint.apply(Style::Strong, &text::line(&run.identity.name)),
        paint.apply(label.style, &text::line(&state))
    );
    out.push_str(&run_fields(run, verbose, cx));
    if let Some(setup) = run
        .place
        .workspace
        .as_ref()
        .and_then(|workspace| workspace.setup.as_ref())
        .filter(|setup| setup.passed == Some(false))
    {
        writeln!(out, "{}", paint.apply(Style::Dim, "setup"))?;
        out.push_str(&indented(&setup.output, cx));
    }
    if let Some(checkpoint) = &run.activity.checkpoint {
        out.push_str(&checkpoint_block(checkpoint, cx)?);
    }
    for choice in &run.condition.choices {
        writeln!(
            out,
            "{INDENT}adj resume {} --choice {:<9} {}",
            text::line(&run.identity.name),
            text::line(choice.choice.as_str()),
            text::line(&choice.about)
        )?;
    }
    if let Some(report) = &run.results.report {
        out.push_str(&report_block(report, cx)?);
    }
    if let Some(acceptance) = &run.results.acceptance {
        out.push_str(&acceptance_block(acceptance, cx)?);
    }
    for message in &run.requests.messages {
        writeln!(
            out,
            "{}",
            paint.apply(
                Style::Dim,
                &format!(
                    "message from {}, {}",
                    text::line(&message.from),
                    relative_time(&message.sent_at, cx)
                )
            )
        )?;
        out.push_str(&indented(&message.text, cx));
    }
    for request in &run.requests.pending {
        out.push_str(&request_block(request, cx)?);
    }
    out.push_str(&settled_block(run, cx));
    out.push_str(&signals_block(run, cx));
    out.push_str(&result_block(run, cx));
    Ok(out)
}

/// Writes the facts of a run, one below the other, each label once.
fn run_fields(run: &RunView, verbose: bool, cx: &Context) -> String {
    let columns = cx.out.columns;
    let columns = columns.map_or(usize::MAX, |columns| columns.saturating_sub(VALUE_COLUMN));
    let mut out = String::new();
    let mut above = "";
    let facts = run_facts(run, cx);
    for fact in facts.iter().flatten() {
        if fact.rank == Rank::Internal && !verbose {
            continue;
        }
        let label = if fact.label == above { "" } else { fact.label };
        above = fact.label;
        let label = cx
            .out
            .paint
            .apply(Style::Dim, &format!("{label:<LABEL_COLUMNS$}"));
        let value = text::wrap(&fact.line(text::line, text::line), columns)
            .join(&format!("\n{:<VALUE_COLUMN$}", ""));
        out.push_str(&format!("{INDENT}{label} {value}\n"));
    }
    out
}

fn heading(text: &str, cx: &Context) -> String {
    format!("{}\n", cx.out.paint.apply(Style::Dim, text))
}

/// Writes the requests that were answered, expired or withdrawn, each in one line.
fn settled_block(run: &RunView, cx: &Context) -> String {
    if run.requests.settled.is_empty() {
        return String::new();
    }
    let more = if run.requests.settled_more {
        format!(
            " (earlier: adj inbox -a {})",
            text::line(&run.identity.name)
        )
    } else {
        String::new()
    };
    let mut out = heading(&format!("answered{more}"), cx);
    for request in &run.requests.settled {
        let asked = asked_for(request);
        let asked = if asked.parts.is_empty() {
            text::cut(&text::line(asked.text), ASKED_COLUMNS_MAX)
        } else {
            text::line(&asked.line())
        };
        let number = text::line(&request.number);
        out.push_str(&indented(
            &format!("{number} {asked} → {}", request_outcome(request)),
            cx,
        ));
    }
    out
}

/// Writes the signals of a run, each in one line.
fn signals_block(run: &RunView, cx: &Context) -> String {
    if run.activity.signals.is_empty() {
        return String::new();
    }
    let mut out = heading(
        &format!(
            "signals (all events: adj events {})",
            text::line(&run.identity.name)
        ),
        cx,
    );
    for event in &run.activity.signals {
        let (signal, source) = (
            event.signal.as_ref().map_or("signal", Word::as_str),
            event.source.as_ref().map_or("block", Word::as_str),
        );
        let line = format!(
            "{} {signal} by {source}, {}: {}",
            relative_time(&event.at, cx),
            event.kind,
            event.text
        );
        out.push_str(&indented(
            &text::cut(&text::line(&line), ASKED_COLUMNS_MAX),
            cx,
        ));
    }
    out
}

/// Writes the result of a run, or the end of a long one.
fn result_block(run: &RunView, cx: &Context) -> String {
    let Some(result) = run
        .results
        .result
        .as_deref()
        .filter(|result| !result.trim().is_empty())
    else {
        return String::new();
    };
    let name = text::line(&run.identity.name);
    let what = match (run.results.reconstructed, run.results.result_bytes) {
        (true, Some(bytes)) => format!(
            "result, reconstructed (last message: {bytes} bytes, adj --json show --result {name})"
        ),
        (true, None) => "result, reconstructed".to_owned(),
        (false, Some(bytes)) => {
            format!("final output: the end of {bytes} bytes (all of it: adj show --result {name})")
        }
        (false, None) if run.stderr_reason().is_some() => "final output (stdout)".to_owned(),
        (false, None) => "final output".to_owned(),
    };
    format!("{}{}", heading(&what, cx), indented(result, cx))
}
