//! `adj ps`: the list of runs.

use super::show::{conflict_line, overlap_line};
use crate::cli::args::PsArgs;
use crate::cli::context::{Context, now};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::cli::{next_step, run_state};
use crate::text;
use crate::view::{FenceView, ListAttention, ListRuns, RunView};

/// Runs listed by default.
const RUNS_SHOWN_MAX: u32 = 200;

/// Widest state in the list; `show` has the rest.
const STATE_COLUMNS_MAX: usize = 24;

/// Lists runs, those that need the person first.
pub async fn ps(args: &PsArgs, cx: &Context) -> CommandResult {
    let mut list = cx.hub.call(&ListRuns { all: args.all, limit: Some(args.limit.unwrap_or(RUNS_SHOWN_MAX)) }).await?;
    let now = now();
    list.runs.sort_by_key(|run| run_state::label(run, now).rank);
    if cx.out.json {
        cx.out.print_json_list(&list.runs, list.more, list.clock.as_slice())?;
        return Ok(Exit::Done);
    }
    if args.quiet {
        for run in &list.runs {
            cx.out.print_line(&text::line(&run.name))?;
        }
        return Ok(Exit::Done);
    }
    if list.runs.is_empty() {
        cx.out.print_message(if args.all { "no runs yet" } else { "no live runs" })?;
        if !print_attention(cx).await? {
            cx.out.suggest(if args.all { "adj run -a AGENT \"PROMPT\"" } else { "adj ps -a   or   adj run -a AGENT \"PROMPT\"" })?;
        }
        return Ok(Exit::Done);
    }
    if let Some(warning) = &list.clock {
        cx.out.print_message(&cx.out.paint_err.apply(Style::Attention, &format!("! {warning} (adj doctor)")))?;
    }
    let rows: Vec<Vec<Cell>> = tree(&list.runs).into_iter().map(|(depth, run)| row(run, depth, cx)).collect();
    let since = if cx.out.terminal { "AGE" } else { "CREATED" };
    let columns = [
        Column::always("RUN"),
        Column::optional("AGENT", 2),
        Column::always("STATE"),
        Column::optional("PROGRESS", 3),
        Column::optional(since, 1),
        Column::optional("TASK", 0),
    ];
    cx.out.print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.more > 0 {
        cx.out.print_message(&format!(
            "… {} more: adj ps{} -n {}",
            list.more,
            if args.all { " -a" } else { "" },
            list.more + list.runs.len() as u64
        ))?;
    }
    let denied = |run: &RunView| {
        let line = run.fence.as_ref().filter(|_| run.outcome.is_none()).and_then(FenceView::denied_line)?;
        Some(text::line(&format!("! {}: {line}", run.name)))
    };
    for line in conflict_lines(&list.runs).into_iter().chain(list.runs.iter().filter_map(denied)) {
        cx.out.print_message(&cx.out.paint_err.apply(Style::Attention, &line))?;
    }
    print_attention(cx).await?;
    Ok(Exit::Done)
}

/// Describes the conflicts and overlaps between the listed runs, each pair once, and the proposed order of merging.
fn conflict_lines(runs: &[RunView]) -> Vec<String> {
    let mut lines = Vec::new();
    let is_listed = |id: &str| runs.iter().position(|run| run.run_id == id);
    for (at, run) in runs.iter().enumerate() {
        let new = run.conflicts.iter().filter(|conflict| is_listed(&conflict.run_id).is_none_or(|other| other > at));
        lines.extend(new.map(|conflict| text::line(&format!("! conflict: {} {}", run.name, conflict_line(conflict)))));
        let new = run.overlaps.iter().filter(|overlap| is_listed(&overlap.run_id).is_none_or(|other| other > at));
        lines.extend(new.map(|overlap| text::line(&format!("! announced the same: {} {}", run.name, overlap_line(overlap)))));
    }
    let orders: std::collections::BTreeSet<String> =
        runs.iter().filter(|run| !run.merge_order.is_empty()).map(|run| text::line(&run.merge_order.join(", "))).collect();
    lines.extend(orders.into_iter().map(|order| format!("  merge in this order: {order}")));
    lines
}

/// Prints how many things need the person and the command for the first. Returns whether there are any.
async fn print_attention(cx: &Context) -> Result<bool, Failure> {
    let list = cx.hub.call(&ListAttention::default()).await?;
    let Some(command) = next_step::first_command(&list) else { return Ok(false) };
    let command = if cx.out.interactive { "adj next".to_owned() } else { command };
    cx.out.print_message(&cx.out.paint_err.apply(Style::Attention, &format!("Needs you: {} → {command}", list.total())))?;
    Ok(true)
}

/// Orders runs as a tree, children below their parents, and returns the depth of each.
fn tree(runs: &[RunView]) -> Vec<(usize, &RunView)> {
    fn add<'a>(runs: &'a [RunView], run: &'a RunView, depth: usize, out: &mut Vec<(usize, &'a RunView)>) {
        out.push((depth, run));
        for child in runs.iter().filter(|child| child.parent.as_deref() == Some(run.run_id.as_str())) {
            add(runs, child, depth + 1, out);
        }
    }
    let is_listed = |id: &String| runs.iter().any(|run| run.run_id == *id);
    let mut out = Vec::with_capacity(runs.len());
    for run in runs.iter().filter(|run| !run.parent.as_ref().is_some_and(is_listed)) {
        add(runs, run, 0, &mut out);
    }
    out
}

fn row(run: &RunView, depth: usize, cx: &Context) -> Vec<Cell> {
    let label = run_state::label(run, now());
    let time = run.ended_at.as_deref().filter(|_| cx.out.terminal).unwrap_or(&run.created_at);
    vec![
        painted(&if depth == 0 { run.name.clone() } else { format!("{}└ {}", "  ".repeat(depth - 1), run.name) }, Style::Strong),
        plain(&run.agent),
        painted(&text::cut(&text::line(&label.text), STATE_COLUMNS_MAX), label.style),
        plain(&progress_cell(run.percent.filter(|_| !run_state::is_over(run)), cx.out.terminal)),
        plain(&cx.time(time)),
        plain(&run.attention.as_ref().map_or_else(|| run.task.clone(), |attention| text::line(&run_state::attention_text(attention)))),
    ]
}

fn progress_cell(percent: Option<u8>, bar: bool) -> String {
    match percent.map(|p| p.min(100)) {
        None => "–".to_owned(),
        Some(percent) if bar => {
            let full = usize::from(percent) * 8 / 100;
            format!("{}{} {percent}%", "█".repeat(full), "░".repeat(8 - full))
        }
        Some(percent) => format!("{percent}%"),
    }
}
