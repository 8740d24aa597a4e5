//! Looking: `ps`, `show`, `events`.

use super::args::{EventsArgs, PsArgs};
use super::context::{Context, now};
use super::exit::Exit;
use super::out::{Ended, Stop};
use super::style::Style;
use super::table::{Cell, Column, painted, plain, render};
use super::{decide, state};
use crate::text;
use crate::view::{
    AcceptanceView, CheckpointView, ClarificationView, DelegationView, EventView, GetRun, ListAttention, ListRuns, ReadEvents, ReportView,
    RequestView, RunView, SubagentView, Wait,
};
use std::fmt::Write as _;

/// Most runs that are listed when nothing else is said.
const RUNS_SHOWN_MAX: u32 = 200;
/// Before everything that others wrote.
const INDENT: &str = "  ";
const INDENT_TWICE: &str = "    ";
/// Where the values of a run's fields begin.
const LABEL_COLUMNS: usize = 13;
/// Columns of a question whose answer is told.
const ASKED_COLUMNS_MAX: usize = 100;
/// Columns of a run's state in a list; `show` says the rest.
const STATE_COLUMNS_MAX: usize = 24;
/// How long one look for more events waits at the hub.
const EVENTS_WAIT_MS: u64 = 30_000;

/// Lists runs, those that need the user first.
pub async fn ps(args: &PsArgs, cx: &Context) -> Ended {
    let mut list = cx.hub.call(&ListRuns { all: args.all, limit: Some(args.limit.unwrap_or(RUNS_SHOWN_MAX)) }).await?;
    let now = now();
    list.runs.sort_by_key(|run| state::look(run, now).rank);
    if cx.out.json {
        cx.out.list(&list.runs, list.more, list.clock.as_slice())?;
        return Ok(Exit::Done);
    }
    if args.quiet {
        for run in &list.runs {
            cx.out.line(&text::line(&run.name))?;
        }
        return Ok(Exit::Done);
    }
    if list.runs.is_empty() {
        cx.out.say(if args.all { "no runs yet" } else { "no live runs" })?;
        if !say_attention(cx).await? {
            cx.out.next(if args.all { "adj run -a AGENT \"PROMPT\"" } else { "adj ps -a   or   adj run -a AGENT \"PROMPT\"" })?;
        }
        return Ok(Exit::Done);
    }
    if let Some(warning) = &list.clock {
        cx.out.say(&cx.out.paint_err.apply(Style::Attention, &format!("! {warning} (adj doctor)")))?;
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
    cx.out.text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.more > 0 {
        cx.out.say(&format!("… {} more: adj ps{} -n {}", list.more, if args.all { " -a" } else { "" }, list.more + list.runs.len() as u64))?;
    }
    say_attention(cx).await?;
    Ok(Exit::Done)
}

/// Says how much needs the person, and how the first of it is dealt with. Returns whether anything does.
async fn say_attention(cx: &Context) -> Result<bool, Stop> {
    let list = cx.hub.call(&ListAttention::default()).await?;
    let Some(way) = decide::way_of_first(&list) else { return Ok(false) };
    let way = if cx.out.interactive { "adj next".to_owned() } else { way };
    cx.out.say(&cx.out.paint_err.apply(Style::Attention, &format!("Needs you: {} → {way}", list.total())))?;
    Ok(true)
}

/// Puts what a run has delegated below it, where both are listed; returns how deep each stands.
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
    let look = state::look(run, now());
    let time = run.ended_at.as_deref().filter(|_| cx.out.terminal).unwrap_or(&run.created_at);
    vec![
        painted(&if depth == 0 { run.name.clone() } else { format!("{}└ {}", "  ".repeat(depth - 1), run.name) }, Style::Strong),
        plain(&run.agent),
        painted(&text::cut(&text::line(&look.text), STATE_COLUMNS_MAX), look.style),
        plain(&progress(run.percent.filter(|_| !state::is_over(run)), cx.out.terminal)),
        plain(&cx.time(time)),
        plain(&run.attention.as_ref().map_or_else(|| run.task.clone(), |attention| text::line(&state::attention_text(attention)))),
    ]
}

fn progress(percent: Option<u8>, bar: bool) -> String {
    match percent.map(|p| p.min(100)) {
        None => "–".to_owned(),
        Some(percent) if bar => {
            let full = usize::from(percent) * 8 / 100;
            format!("{}{} {percent}%", "█".repeat(full), "░".repeat(8 - full))
        }
        Some(percent) => format!("{percent}%"),
    }
}

/// Shows everything about one run.
pub async fn show(run: &str, cx: &Context) -> Ended {
    let run = cx.hub.call(&GetRun { run: run.to_owned() }).await?;
    if cx.out.json {
        cx.out.data(&run)?;
        return Ok(Exit::Done);
    }
    cx.out.text(&details(&run, cx)?)?;
    if cx.out.terminal {
        // The person reads it.
        super::waiting::confirm_run(&run, cx).await?;
    }
    let name = text::line(&run.name);
    match run.pending.first() {
        Some(request) => cx.out.next(&decide::way(request))?,
        None if run.state == "stopped" => cx.out.next(&decide::way_on(&run))?,
        None if run.state == "finished" => cx.out.next(&format!("adj logs {name}   or   adj retry {name}"))?,
        None => cx.out.next(&format!("adj logs -f {name}"))?,
    }
    Ok(Exit::Done)
}

fn details(run: &RunView, cx: &Context) -> Result<String, std::fmt::Error> {
    let paint = cx.out.paint;
    let look = state::look(run, now());
    let mut out = String::new();
    writeln!(out, "{}  {}", paint.apply(Style::Strong, &text::line(&run.name)), paint.apply(look.style, &text::line(&look.text)))?;
    let columns = cx.out.columns.map_or(usize::MAX, |columns| columns.saturating_sub(LABEL_COLUMNS));
    let mut field = |label: &str, value: Option<&str>| match value {
        Some(value) if !value.is_empty() => {
            let value = text::wrap(&text::line(value), columns).join(&format!("\n{:<LABEL_COLUMNS$}", ""));
            writeln!(out, "{INDENT}{} {value}", paint.apply(Style::Dim, &format!("{label:<10}")))
        }
        _ => Ok(()),
    };
    let when = |time: &Option<String>| time.as_deref().map(|t| if cx.out.terminal { format!("{} ago", cx.time(t)) } else { t.to_owned() });
    field("id", Some(&run.run_id))?;
    field("status", Some(&run.status))?;
    field("reason", run.reason.as_deref())?;
    field("note", run.note.as_deref())?;
    field("task", Some(&run.task))?;
    field("agent", Some(&format!("{}, attempt {}", run.agent, run.attempt)))?;
    field("directory", Some(&run.cwd))?;
    let not_enforced = if run.permissions_not_enforced { " (nothing enforces it: the agent is a plain program)" } else { "" };
    field("may", run.permissions.as_ref().map(|profile| format!("{profile}{not_enforced}")).as_deref())?;
    field("shared by", Some(&run.shares_directory_with.join(", ")))?;
    field("owner", Some(&run.owner))?;
    field("child of", run.parent_name.as_deref().or(run.parent.as_deref()))?;
    field("children", Some(&run.children.join(", ")))?;
    for subagent in &run.subagents {
        field("sub-agent", Some(&subagent_line(subagent)))?;
    }
    if run.subagents_more > 0 {
        field("sub-agents", Some(&format!("{} more", run.subagents_more)))?;
    }
    field("retry of", run.retry_of.as_deref())?;
    field("created", when(&Some(run.created_at.clone())).as_deref())?;
    field("started", when(&run.started_at).as_deref())?;
    field("ended", when(&run.ended_at).as_deref())?;
    let whose = if run.acceptance.is_some() { " (the agent's)" } else { "" };
    field("exit code", run.exit_code.map(|code| format!("{code}{whose}")).as_deref())?;
    field(
        "progress",
        Some(&[run.percent.map(|p| format!("{p}%")).unwrap_or_default(), run.progress.clone().unwrap_or_default()].join(" ")).map(|p| p.trim()),
    )?;
    field("eta", run.eta.as_deref())?;
    field("overdue", when(&run.overdue_since).map(|since| format!("works longer than was estimated, since {since}")).as_deref())?;
    field("criteria", run.criteria.as_deref())?;
    field("summary", run.summary.as_deref().filter(|_| run.report.is_none()))?;
    let more = if run.changed_files_more { ", …" } else { "" };
    let whose = match (run.changed_before_too, run.changed_beside.as_slice()) {
        (true, _) => " (all that is not committed; what was changed before it started is not known)".to_owned(),
        (false, []) => String::new(),
        (false, others) => format!(" (while it ran; {} worked here too)", others.join(", ")),
    };
    let changed = run.changed_files.as_ref().filter(|files| !files.is_empty());
    field("changed", changed.map(|files| format!("{}{more}{whose}", files.join(", "))).as_deref())?;
    field("remark", run.annotation.as_deref())?;
    field(
        "ignored",
        run.ignored_signals
            .as_ref()
            .map(|it| format!("{} without effect; the last: {}", text::count(it.count, "signal", "signals"), it.last))
            .as_deref(),
    )?;
    field("usage", run.usage.as_ref().map(ToString::to_string).as_deref())?;
    field("session", run.session.as_deref())?;
    field("held by", run.containment.as_deref())?;
    field(
        "swept",
        run.swept.filter(|n| *n > 0).map(|n| text::count(n.into(), "process that was left behind", "processes that were left behind")).as_deref(),
    )?;
    field("output", run.output_left_open.then_some("a descendant kept it open after the end and was cut off"))?;
    for (n, path) in run.log_paths.iter().enumerate() {
        field(if n == 0 { "log" } else { "" }, Some(path))?;
    }
    if let Some(checkpoint) = &run.checkpoint {
        out.push_str(&left_behind(checkpoint, cx)?);
    }
    for choice in &run.choices {
        writeln!(out, "{INDENT}adj resume {} --choice {:<9} {}", text::line(&run.name), text::line(&choice.choice), text::line(&choice.about))?;
    }
    if let Some(report) = &run.report {
        out.push_str(&reported(report, cx)?);
    }
    if let Some(acceptance) = &run.acceptance {
        out.push_str(&accepted(acceptance, cx)?);
    }
    for request in &run.pending {
        out.push_str(&question(request, cx)?);
    }
    if !run.settled.is_empty() {
        let more = if run.settled_more { format!(" (earlier ones: adj inbox -a {})", text::line(&run.name)) } else { String::new() };
        writeln!(out, "{}", paint.apply(Style::Dim, &format!("decided{more}")))?;
        for request in &run.settled {
            let (number, asked) = (text::line(&request.number), text::cut(&text::line(&request.question), ASKED_COLUMNS_MAX));
            out.push_str(&indented(&format!("{number} {asked} → {}", settled(request)), cx));
        }
    }
    if !run.signals.is_empty() {
        writeln!(out, "{}", paint.apply(Style::Dim, &format!("signals (all events: adj events {})", text::line(&run.name))))?;
        for event in &run.signals {
            let (signal, source) = (event.signal.as_deref().unwrap_or("signal"), event.source.as_deref().unwrap_or("block"));
            let line = format!("{} {signal} by {source}, {}: {}", ago(&event.at, cx), event.kind, event.text);
            out.push_str(&indented(&text::cut(&text::line(&line), ASKED_COLUMNS_MAX), cx));
        }
    }
    if let Some(result) = run.result.as_deref().filter(|r| !r.trim().is_empty()) {
        writeln!(out, "{}", paint.apply(Style::Dim, "last words"))?;
        out.push_str(&indented(result, cx));
    }
    Ok(out)
}

/// Writes what a stopped run left behind.
pub fn left_behind(checkpoint: &CheckpointView, cx: &Context) -> Result<String, std::fmt::Error> {
    let CheckpointView {
        made_by,
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state_snapshot,
        resume_requirements,
        error_recovery,
        working_directory,
        changed_files,
    } = checkpoint;
    let changed = changed_files.join(", ");
    let mut out = String::new();
    let head = if made_by == "adjutant" { "left behind (put together from what it said last)" } else { "left behind" };
    writeln!(out, "{}", cx.out.paint.apply(Style::Dim, head))?;
    for (label, value) in [
        ("blocker", blocker_type.as_deref()),
        ("details", Some(details.as_str())),
        ("completed", completed_work.as_deref()),
        ("blocked", blocked_work.as_deref()),
        ("state", state_snapshot.as_deref()),
        ("needs", resume_requirements.as_deref()),
        ("recovery", error_recovery.as_deref()),
        ("directory", working_directory.as_deref()),
        ("changed", Some(changed.as_str())),
    ] {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            out.push_str(&indented(&format!("{label}: {value}"), cx));
        }
    }
    Ok(out)
}

/// Writes a report: each field with what became of it.
fn reported(report: &ReportView, cx: &Context) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{}", cx.out.paint.apply(Style::Dim, &format!("report: {}, {}", text::line(&report.status), text::line(&report.verdict))))?;
    let deliverables = report.deliverables.join("\n");
    let claims = [
        ("summary", Some(report.summary.as_str())),
        ("deliverables", Some(deliverables.as_str())),
        ("metrics_achieved", report.metrics_achieved.as_deref()),
        ("issues_encountered", report.issues_encountered.as_deref()),
        ("recommendations", report.recommendations.as_deref()),
        ("total_duration", report.total_duration.as_deref()),
    ];
    for finding in &report.checked {
        let claim = claims.iter().find(|(field, _)| *field == finding.field).and_then(|(_, claim)| *claim).unwrap_or_default();
        let mark = match finding.verdict.as_str() {
            "verified" => cx.out.paint.apply(Style::Good, "✓"),
            "contradicted" => cx.out.paint.apply(Style::Bad, "✗"),
            _ => cx.out.paint.apply(Style::Dim, "?"),
        };
        let found = format!("{} {}: {}", text::line(&finding.field), text::line(&finding.verdict), text::line(&finding.reason));
        out.push_str(&cx.out.folded(&format!("{INDENT}  {found}"), &format!("{INDENT}{mark} {found}")));
        out.push_str(&cx.out.indented(INDENT_TWICE, claim));
    }
    for file in &report.files {
        let size = file.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
        let hash = file.sha256.as_deref().map(|hash| format!(", sha256 {}", text::line(hash))).unwrap_or_default();
        let line = format!("{INDENT}file {}: {}{size}{hash}", text::line(&file.path), text::line(&file.reason));
        out.push_str(&cx.out.folded(&line, &line));
    }
    Ok(out)
}

/// Writes what came of the acceptance command.
fn accepted(acceptance: &AcceptanceView, cx: &Context) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let head = match acceptance.problem() {
        Some(problem) => format!("acceptance: failed: {}", text::line(&problem)),
        None => format!("acceptance: {}: passed", text::line(&acceptance.command.join(" "))),
    };
    out.push_str(&cx.out.folded(&head, &cx.out.paint.apply(Style::Dim, &head)));
    out.push_str(&indented(&acceptance.output, cx));
    Ok(out)
}

/// Says in a few words what became of a request: the answer or decision, and whose it is. Empty for an
/// open one.
pub fn settled(request: &RequestView) -> String {
    let by = |by: &str| if by == "default" { "by default, since nobody answered".to_owned() } else { format!("by {by}") };
    match (request.status.as_str(), &request.answer, &request.answered_by) {
        ("pending", ..) => String::new(),
        (_, Some(answer), Some(who)) if request.decision.is_none() => format!("{:?} {}", text::line(answer), by(who)),
        (_, Some(answer), Some(who)) => format!("{} {}", text::line(answer), by(who)),
        (status, ..) => status.to_owned(),
    }
}

/// Writes an open question with its options, for people.
pub fn question(request: &RequestView, cx: &Context) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let wants = match request.kind.as_str() {
        "approval" => "asks for approval",
        "delegation" => "wants to hand on a task",
        _ => "asks",
    };
    let of = request.group.as_ref().map(|group| format!(" ({} of {})", group.place, group.size)).unwrap_or_default();
    let own = request.question_id.as_ref().map_or_else(String::new, |id| format!(" (its {})", text::line(id)));
    let head = format!("{}{own}{of}: {} {wants}, {}", text::line(&request.number), text::line(&request.run_name), ago(&request.asked_at, cx));
    writeln!(out, "{}", cx.out.paint.apply(Style::Attention, &head))?;
    out.push_str(&indented(&request.question, cx));
    if let Some(risk) = &request.risk {
        out.push_str(&indented(&format!("risk: {risk}"), cx));
    }
    if let Some(delegation) = &request.delegation {
        out.push_str(&indented(&delegated(delegation), cx));
    }
    if let Some(preview) = &request.preview {
        writeln!(out, "{INDENT}{}", cx.out.paint.apply(Style::Dim, "preview"))?;
        out.push_str(&cx.out.indented(INDENT_TWICE, preview));
    }
    if let Some(context) = &request.context {
        out.push_str(&indented(&format!("why: {context}"), cx));
    }
    if let Some(ClarificationView { reason, blocked_at, can_resume_with, current_state }) = &request.clarification {
        let parts = [("reason", reason), ("blocked at", blocked_at), ("needs", can_resume_with), ("state", current_state)];
        for (label, part) in parts {
            if let Some(part) = part {
                out.push_str(&indented(&format!("{label}: {part}"), cx));
            }
        }
    }
    for (n, option) in request.options.iter().enumerate() {
        let default = if request.default.as_ref() == Some(option) { "   (when nobody answers)" } else { "" };
        let line = format!("{INDENT}{}) {}{default}", n + 1, text::line(option));
        out.push_str(&cx.out.folded(&line, &line));
    }
    if let Some(default) = request.default.as_ref().filter(|default| !request.options.contains(default)) {
        out.push_str(&indented(&format!("when nobody answers: {}", text::line(default)), cx));
    }
    Ok(out)
}

/// What a delegation says beside its task.
fn delegated(delegation: &DelegationView) -> String {
    let DelegationView { agent, cwd, independence, priority, reason, context_required, coordination, estimated_duration, changes: _, room } =
        delegation;
    let meaning = match independence.as_str() {
        "blocks_current_work" => "the run waits for it",
        "optional" => "when there is room",
        _ => "the run goes on meanwhile",
    };
    let mut text = format!("({meaning}; {priority})");
    let parts = [
        ("agent", agent),
        ("directory", cwd),
        ("reason", reason),
        ("context", context_required),
        ("coordination", coordination),
        ("takes", estimated_duration),
    ];
    for (label, part) in parts {
        if let Some(part) = part {
            text.push_str(&format!("\n{label}: {part}"));
        }
    }
    if let Some(room) = room {
        text.push_str(&format!("\nin use: {room}"));
    }
    text
}

fn ago(time: &str, cx: &Context) -> String {
    if cx.out.terminal { format!("{} ago", cx.time(time)) } else { time.to_owned() }
}

fn indented(block: &str, cx: &Context) -> String {
    cx.out.indented(INDENT, block)
}

/// Prints the event history.
pub async fn events(args: &EventsArgs, cx: &Context) -> Ended {
    let end = cx.hub.call(&Wait::default()).await?.cursor;
    let mut after = if args.run.is_some() { 0 } else { end.saturating_sub(i64::from(args.last)).max(0) };
    let mut shown: Vec<EventView> = Vec::new();
    loop {
        let page = cx.hub.call(&ReadEvents { after, run: args.run.clone(), limit: None, wait_ms: 0 }).await?;
        let done = page.events.is_empty() || page.cursor <= after;
        after = page.cursor.max(after);
        shown.extend(page.events);
        let surplus = shown.len().saturating_sub(args.last as usize);
        shown.drain(..surplus);
        if done {
            break;
        }
    }
    if cx.out.json && !args.follow {
        cx.out.list(&shown, 0, &[])?;
        return Ok(Exit::Done);
    }
    print_events(&shown, cx)?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    loop {
        let page = cx.hub.call(&ReadEvents { after, run: args.run.clone(), limit: None, wait_ms: EVENTS_WAIT_MS }).await?;
        after = page.cursor.max(after);
        print_events(&page.events, cx)?;
    }
}

fn print_events(events: &[EventView], cx: &Context) -> Result<(), Stop> {
    for event in events {
        if cx.out.json {
            cx.out.data(event)?;
            continue;
        }
        let at = if cx.out.terminal { event.at.get(11..19).unwrap_or(&event.at) } else { &event.at };
        let (at, name, kind) = (text::line(at), text::line(&event.run_name), text::line(&event.kind));
        let before = text::width(&at) + text::width(&name) + kind.len().max(17) + 3;
        let signal = match (&event.signal, &event.source) {
            (Some(signal), Some(source)) => format!(", {signal} by {source}"),
            (None, Some(source)) => format!(", by {source}"),
            _ => String::new(),
        };
        let what = text::line(&format!("{} ({}{signal})", event.text, event.by));
        let what = cx.out.columns.map_or(what.clone(), |columns| text::cut(&what, columns.saturating_sub(before)));
        let line = format!("{} {} {kind:<17} {what}", cx.out.paint.apply(Style::Dim, &at), cx.out.paint.apply(Style::Strong, &name));
        cx.out.line(&line)?;
    }
    Ok(())
}
/// Writes what is known of a sub-agent of the CLI's own.
fn subagent_line(subagent: &SubagentView) -> String {
    let SubagentView { kind, about, state, tokens } = subagent;
    let name = match (about, kind) {
        (Some(about), Some(kind)) => format!("{about} ({kind})"),
        (Some(name), None) | (None, Some(name)) => name.clone(),
        (None, None) => "unnamed".to_owned(),
    };
    let tokens = tokens.map(|tokens| format!("{tokens} tokens"));
    [Some(name), state.clone(), tokens].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
