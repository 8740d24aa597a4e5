//! `adj ps`: the list of runs.

mod watch;

use crate::cli::args::{PsArgs, PsColumn};
use crate::cli::context::{Context, now};
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, Out};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::cli::{age, next_step, run_state};
use crate::present::{conflict_line, overlap_line};
use crate::text;
use crate::view::{AttentionList, FenceView, ListAttention, ListRuns, RunList, RunView};
use adjutant_core::units::{duration, money};
use std::collections::{HashMap, HashSet};

/// Runs listed by default.
const RUNS_SHOWN_MAX: u32 = 200;

/// The columns by default. The cost is left out if none is known.
const COLUMNS: [PsColumn; 7] = [
    PsColumn::Name,
    PsColumn::Agent,
    PsColumn::State,
    PsColumn::Progress,
    PsColumn::Cost,
    PsColumn::Age,
    PsColumn::Task,
];

/// Reasons why runs need the person that are printed below the list.
const REASONS_MAX: usize = 10;

/// Widest state in the list; `show` has the rest.
const STATE_COLUMNS_MAX: usize = 24;

/// Lists runs, those that need the person first.
pub(crate) async fn ps(args: &PsArgs, cx: &Context) -> CommandResult {
    if args.watch {
        return watch::watch(args, cx).await;
    }
    read(args, cx).await?.print(cx)?;
    Ok(Exit::Done)
}

/// The runs at one time, and what needs the person.
struct Listing<'a> {
    args: &'a PsArgs,
    list: RunList,
    attention: AttentionList,
}

async fn read<'a>(args: &'a PsArgs, cx: &Context) -> Result<Listing<'a>, Failure> {
    let mut list = cx
        .hub
        .call(&ListRuns {
            all: args.all,
            limit: Some(args.limit.unwrap_or(RUNS_SHOWN_MAX)),
            before: None,
        })
        .await?;
    let now = now();
    let attention = cx.hub.call(&ListAttention::default()).await?;
    // A run that needs the person is listed in any state.
    let listed: HashSet<&str> = list
        .runs
        .iter()
        .map(|run| run.identity.run_id.as_str())
        .collect();
    let others: Vec<RunView> = attention
        .runs
        .iter()
        .filter(|run| !listed.contains(run.identity.run_id.as_str()))
        .cloned()
        .collect();
    list.more = list.more.saturating_sub(
        others
            .iter()
            .filter(|run| args.all || run.condition.outcome.is_none())
            .count() as u64,
    );
    list.runs.extend(others);
    list.runs.sort_by_cached_key(|run| {
        (
            run_state::label(run, now).place,
            run.in_queue.queue_ahead_min,
            run.in_queue.queue_place,
        )
    });
    Ok(Listing {
        args,
        list,
        attention,
    })
}

impl Listing<'_> {
    fn print(&self, cx: &Context) -> Result<(), Failure> {
        if cx.out.json {
            return cx.out.print_json_list(
                &self.list.runs,
                self.list.more,
                self.list.clock.as_slice(),
            );
        }
        cx.out.print_text(&self.table(&cx.out))?;
        self.messages(&cx.out)
            .iter()
            .try_for_each(|message| cx.out.print_message(message))
    }

    /// Returns the table, or the names.
    fn table(&self, out: &Out) -> String {
        let runs = &self.list.runs;
        if self.args.quiet {
            return runs.iter().fold(String::new(), |names, run| {
                names + &text::line(&run.identity.name) + "\n"
            });
        }
        if runs.is_empty() {
            return String::new();
        }
        let is_cost_known = runs.iter().any(|run| cost(run).is_some());
        let (chosen, heads): (Vec<PsColumn>, Vec<Column>) = if self.args.columns.is_empty() {
            COLUMNS
                .into_iter()
                .filter(|column| *column != PsColumn::Cost || is_cost_known)
                .map(|column| (column, default_column(column, out)))
                .unzip()
        } else {
            // What is asked for is cut on a narrow terminal, not left out.
            self.args
                .columns
                .iter()
                .map(|column| (*column, Column::always(head(*column, out))))
                .unzip()
        };
        let row = |(depth, run)| {
            chosen
                .iter()
                .map(|column| cell(*column, run, depth, out))
                .collect()
        };
        let rows: Vec<Vec<Cell>> = tree(runs).into_iter().map(row).collect();
        render(&heads, &rows, out.columns, out.paint)
    }

    /// Returns the lines about the list, for stderr.
    fn messages(&self, out: &Out) -> Vec<String> {
        if self.args.quiet {
            return Vec::new();
        }
        let attend = |line: &str| out.paint_err.apply(Style::Attention, line);
        let needs = self.needs(out).map(|line| attend(&line));
        let runs = &self.list.runs;
        if runs.is_empty() {
            return self.messages_without_runs(needs, out);
        }
        let clock = self.list.clock.iter();
        let mut lines: Vec<String> = clock
            .map(|warning| attend(&format!("! {warning} (adj doctor)")))
            .collect();
        lines.extend(self.more());
        let reasons: Vec<String> = runs.iter().filter_map(attention_line).collect();
        lines.extend(reasons.iter().take(REASONS_MAX).map(|line| attend(line)));
        if reasons.len() > REASONS_MAX {
            lines.push(format!(
                "… the reasons of {} more: adj inbox",
                reasons.len() - REASONS_MAX
            ));
        }
        let remarks = conflict_lines(runs)
            .into_iter()
            .chain(runs.iter().filter_map(denied_line))
            .chain(runs.iter().filter_map(undo_line));
        lines.extend(remarks.map(|line| attend(&line)));
        lines.extend(needs);
        lines
    }

    /// Says what needs the person, and the command that shows it.
    fn needs(&self, out: &Out) -> Option<String> {
        let command = next_step::first_command(&self.attention)?;
        let command = if out.interactive {
            "adj next".to_owned()
        } else {
            command
        };
        let needs = next_step::needs_text(&self.attention);
        Some(format!("Needs you: {needs} → {command}"))
    }

    fn messages_without_runs(&self, needs: Option<String>, out: &Out) -> Vec<String> {
        let (empty, suggestion) = if self.args.all {
            ("no runs yet", "adj run -a AGENT \"PROMPT\"")
        } else {
            (
                "no live runs",
                "adj ps -a   or   adj run -a AGENT \"PROMPT\"",
            )
        };
        vec![
            empty.to_owned(),
            needs.unwrap_or_else(|| out.suggestion(suggestion)),
        ]
    }

    /// Says how many runs the list leaves out.
    fn more(&self) -> Option<String> {
        let list = &self.list;
        let all = if self.args.all { " -a" } else { "" };
        let at_least = if list.more_at_least { "at least " } else { "" };
        (list.more > 0).then(|| {
            format!(
                "… {at_least}{} more: adj ps{all} -n {}",
                list.more,
                list.more + list.runs.len() as u64
            )
        })
    }
}

/// Says why a run needs attention.
fn attention_line(run: &RunView) -> Option<String> {
    let why = run_state::attention_text(run.condition.attention.as_ref()?);
    Some(text::line(&format!("! {}: {why}", run.identity.name)))
}

/// Says what the fence of a live run has denied.
fn denied_line(run: &RunView) -> Option<String> {
    let fence = run
        .processes
        .fence
        .as_ref()
        .filter(|_| run.condition.outcome.is_none())?;
    let line = FenceView::denied_line(fence)?;
    Some(text::line(&format!("! {}: {line}", run.identity.name)))
}

/// Says that an undo was interrupted.
fn undo_line(run: &RunView) -> Option<String> {
    let undo = run.changes.undo_interrupted.as_ref()?;
    Some(text::line(&format!(
        "! {}: undo {}",
        run.identity.name,
        undo.line()
    )))
}

/// Describes the conflicts and overlaps between the listed runs, each pair once, and the proposed
/// order of merging.
fn conflict_lines(runs: &[RunView]) -> Vec<String> {
    let mut lines = Vec::new();
    let listed: HashMap<&str, usize> = runs
        .iter()
        .enumerate()
        .map(|(at, run)| (run.identity.run_id.as_str(), at))
        .collect();
    let is_listed = |id: &str| listed.get(id).copied();
    for (at, run) in runs.iter().enumerate() {
        let new = run
            .changes
            .conflicts
            .iter()
            .filter(|conflict| is_listed(&conflict.run_id).is_none_or(|other| other > at));
        lines.extend(new.map(|conflict| {
            text::line(&format!(
                "! conflict: {} {}",
                run.identity.name,
                conflict_line(conflict)
            ))
        }));
        let new = run
            .changes
            .overlaps
            .iter()
            .filter(|overlap| is_listed(&overlap.run_id).is_none_or(|other| other > at));
        lines.extend(new.map(|overlap| {
            text::line(&format!(
                "! announced the same: {} {}",
                run.identity.name,
                overlap_line(overlap)
            ))
        }));
    }
    let orders: std::collections::BTreeSet<String> = runs
        .iter()
        .filter(|run| !run.changes.merge_order.is_empty())
        .map(|run| text::line(&run.changes.merge_order.join(", ")))
        .collect();
    lines.extend(
        orders
            .into_iter()
            .map(|order| format!("  merge in this order: {order}")),
    );
    lines
}

/// Orders runs as a tree, children below their parents, and returns the depth of each.
fn tree(runs: &[RunView]) -> Vec<(usize, &RunView)> {
    type Children<'a> = HashMap<&'a str, Vec<&'a RunView>>;
    fn add<'a>(
        children: &Children<'a>,
        run: &'a RunView,
        depth: usize,
        out: &mut Vec<(usize, &'a RunView)>,
    ) {
        out.push((depth, run));
        for child in children
            .get(run.identity.run_id.as_str())
            .into_iter()
            .flatten()
        {
            add(children, child, depth + 1, out);
        }
    }
    let listed: HashSet<&str> = runs
        .iter()
        .map(|run| run.identity.run_id.as_str())
        .collect();
    let (mut children, mut roots) = (Children::new(), Vec::new());
    for run in runs {
        match run
            .identity
            .parent
            .as_deref()
            .filter(|parent| listed.contains(parent))
        {
            Some(parent) => children.entry(parent).or_default().push(run),
            None => roots.push(run),
        }
    }
    let mut out = Vec::with_capacity(runs.len());
    for run in roots {
        add(&children, run, 0, &mut out);
    }
    out
}

fn head(column: PsColumn, out: &Out) -> &'static str {
    match column {
        PsColumn::Name => "RUN",
        PsColumn::Id => "ID",
        PsColumn::Agent => "AGENT",
        PsColumn::Model => "MODEL",
        PsColumn::State => "STATE",
        PsColumn::Progress => "PROGRESS",
        PsColumn::Cost => "COST",
        PsColumn::Tokens => "TOKENS",
        PsColumn::Time => "TIME",
        PsColumn::Age if out.terminal => "AGE",
        PsColumn::Age => "CREATED",
        PsColumn::Attempt => "ATTEMPT",
        PsColumn::Pool => "POOL",
        PsColumn::Directory => "DIRECTORY",
        PsColumn::Task => "TASK",
    }
}

/// Returns a column of the default list: a narrow terminal drops those with the highest rank first.
fn default_column(column: PsColumn, out: &Out) -> Column {
    let head = head(column, out);
    match column {
        PsColumn::Agent => Column::optional(head, 2),
        PsColumn::Progress => Column::optional(head, 3),
        PsColumn::Cost => Column::optional(head, 4),
        PsColumn::Age => Column::optional(head, 1),
        PsColumn::Task => Column::optional(head, 0),
        _ => Column::always(head),
    }
}

fn cell(column: PsColumn, run: &RunView, depth: usize, out: &Out) -> Cell {
    let or_none = |text: Option<String>| plain(&text.unwrap_or_else(|| "–".to_owned()));
    match column {
        PsColumn::Name => painted(
            &if depth == 0 {
                run.identity.name.clone()
            } else {
                format!("{}└ {}", "  ".repeat(depth - 1), run.identity.name)
            },
            Style::Strong,
        ),
        PsColumn::Id => plain(&run.identity.run_id),
        PsColumn::Agent => plain(&run.identity.agent),
        PsColumn::Model => or_none(run.terms.model.clone()),
        PsColumn::State => {
            let label = run_state::label(run, now());
            painted(
                &text::cut(&text::line(&label.text), STATE_COLUMNS_MAX),
                label.style,
            )
        }
        PsColumn::Progress => plain(&progress_cell(
            run.activity.percent.filter(|_| !run.is_over()),
            out.terminal,
        )),
        PsColumn::Cost => or_none(cost(run)),
        PsColumn::Tokens => or_none(
            run.cost
                .usage
                .as_ref()
                .map(|usage| (usage.input_tokens + usage.output_tokens).to_string()),
        ),
        PsColumn::Time => plain(&duration::age(
            i64::try_from(run.times.active_ms / 1000).unwrap_or(i64::MAX),
        )),
        PsColumn::Age => plain(&age::shown(
            run.times
                .ended_at
                .as_deref()
                .filter(|_| out.terminal)
                .unwrap_or(&run.times.created_at),
            now(),
            out.terminal,
        )),
        PsColumn::Attempt => plain(&run.identity.attempt.to_string()),
        PsColumn::Pool => plain(&run.terms.pool),
        PsColumn::Directory => plain(&run.place.cwd),
        PsColumn::Task => plain(&run.identity.task),
    }
}

/// Returns what a run has cost, if that is known.
fn cost(run: &RunView) -> Option<String> {
    run.cost.usage.as_ref()?.cost_usd.map(money::of)
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
