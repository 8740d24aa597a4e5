//! `adj show`: everything about one run.

use super::diff::named;
use crate::cli::age::{seconds_since, short};
use crate::cli::args::ShowArgs;
use crate::cli::context::{Context, now};
use crate::cli::details::{
    INDENT, acceptance_block, checkpoint_block, indented, person, relative_time, report_block, request_block, request_outcome,
};
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::{next_step, run_end, run_state};
use crate::present::{asked_for, resources_line, tree_line};
use crate::text;
use crate::view::{
    AfterView, CommandView, FenceView, GetRun, InterruptedUndoView, NotCopiedView, OverlapView, PortsView, ReadResult, RunConflictView,
    RunOverlapView, RunView, SnapshotView, SubagentView, Word, WorkspaceView,
};
use adjutant_core::RunStateKind;
use adjutant_core::pool::{AfterEnd, AfterState};
use adjutant_core::result::EndReason;
use std::fmt::Write as _;

/// The column where the values of a run's fields begin.
const LABEL_COLUMNS: usize = 15;

/// Widest question in the list of answered ones.
const ASKED_COLUMNS_MAX: usize = 100;

/// The number of characters of a commit id that are shown.
const COMMIT_CHARS: usize = 12;

/// Maximum number of commits that are shown, the newest.
const COMMITS_SHOWN_MAX: usize = 8;

/// Maximum number of snapshots that are shown, the newest.
const SNAPSHOTS_SHOWN_MAX: usize = 8;

/// Shows everything about one run.
pub async fn show(args: &ShowArgs, cx: &Context) -> CommandResult {
    if args.result {
        return show_result(&args.run, cx).await;
    }
    let run = cx.hub.call(&GetRun { run: args.run.clone(), snapshots: true, newest: false }).await?;
    if cx.out.json {
        cx.out.print_json(&run)?;
        return Ok(Exit::Done);
    }
    cx.out.print_text(&run_text(&run, cx)?)?;
    if cx.out.terminal {
        // The person has now seen the run's state.
        run_end::confirm_run_notified(&run, cx).await?;
    }
    let name = text::line(&run.name);
    match run.pending.first() {
        Some(request) => cx.out.suggest(&next_step::answer_command(request))?,
        None if run.queue.as_ref().is_some_and(|queue| queue.next_step.is_some()) => {
            cx.out.suggest(&text::line(run.queue.as_ref().and_then(|queue| queue.next_step.as_deref()).unwrap_or_default()))?
        }
        None if run.state == RunStateKind::Stopped => cx.out.suggest(&next_step::resume_command(&run))?,
        None if run.state == RunStateKind::Finished && run.changed_files.as_ref().is_some_and(|files| !files.is_empty()) => {
            cx.out.suggest(&format!("adj diff {name}   or   adj logs {name}"))?
        }
        None if run.state == RunStateKind::Finished => cx.out.suggest(&format!("adj logs {name}   or   adj retry {name}"))?,
        None => cx.out.suggest(&format!("adj logs -f {name}"))?,
    }
    Ok(Exit::Done)
}

/// Prints the whole result of a run and nothing else.
async fn show_result(run: &str, cx: &Context) -> CommandResult {
    let found = cx.hub.call(&ReadResult { run: run.to_owned() }).await?;
    if cx.out.json {
        cx.out.print_json(&found)?;
        return Ok(Exit::Done);
    }
    let text: String = found.result.lines().map(|line| format!("{}\n", text::block(line))).collect();
    cx.out.print_text(&text)?;
    if found.is_cut {
        let name = text::line(&found.run_name);
        cx.out.print_message(&format!("note: this is the end of a longer message; the log has all of it: adj logs {name}"))?;
    }
    Ok(Exit::Done)
}

/// Describes the pool of a run, with its place while it is queued.
fn pool_line(run: &RunView) -> String {
    let priority = run.priority.as_ref().map(|priority| format!(", {priority}")).unwrap_or_default();
    let place = run.queue_place.map(|place| format!(", place {place} in its queue")).unwrap_or_default();
    format!("{}{priority}{place}", run.pool)
}

/// Describes when a queued run is likely to start.
fn start_text(at: &str, cx: &Context) -> String {
    match seconds_since(at, now()).filter(|_| cx.out.terminal) {
        Some(seconds) => format!("in about {}", short(-seconds)),
        None => format!("about {at}"),
    }
}

fn after_text(after: &AfterView) -> String {
    let any = match after.on.known() {
        Some(AfterEnd::Any) => " (any end)",
        Some(AfterEnd::Ports) => " (its ports)",
        Some(AfterEnd::Success) | None => "",
    };
    match after.state.known() {
        Some(AfterState::Met) => format!("{}{any}: done", after.name),
        Some(AfterState::Failed) => format!("{}{any}: failed", after.name),
        Some(AfterState::Open) | None => format!("{}{any}", after.name),
    }
}

fn run_text(run: &RunView, cx: &Context) -> Result<String, std::fmt::Error> {
    let paint = cx.out.paint;
    let label = run_state::label(run, now());
    let mut out = String::new();
    writeln!(out, "{}  {}", paint.apply(Style::Strong, &text::line(&run.name)), paint.apply(label.style, &text::line(&label.text)))?;
    let columns = cx.out.columns.map_or(usize::MAX, |columns| columns.saturating_sub(LABEL_COLUMNS));
    let mut field = |label: &str, value: Option<&str>| match value {
        Some(value) if !value.is_empty() => {
            let value = text::wrap(&text::line(value), columns).join(&format!("\n{:<LABEL_COLUMNS$}", ""));
            writeln!(out, "{INDENT}{} {value}", paint.apply(Style::Dim, &format!("{label:<12}")))
        }
        _ => Ok(()),
    };
    let when = |time: &Option<String>| time.as_deref().map(|t| if cx.out.terminal { format!("{} ago", cx.time(t)) } else { t.to_owned() });
    field("id", Some(&run.run_id))?;
    field("status", Some(run.status.as_str()))?;
    field("reason", run.reason.as_deref())?;
    // The other reasons are in the lines above.
    // A paused run has not ended.
    let has_ended = run.state == RunStateKind::Finished;
    let is_telling = |reason: &EndReason| match reason {
        EndReason::Completed | EndReason::Error | EndReason::Cancelled => false,
        EndReason::Partial => has_ended,
        _ => true,
    };
    field("ended by", run.end_reason.as_ref().and_then(Word::known).filter(is_telling).map(EndReason::word))?;
    field("note", run.note.as_deref())?;
    field("task", Some(&run.task))?;
    field("agent", Some(&format!("{}, attempt {}", run.agent, run.attempt)))?;
    field("chosen", run.agent_why.as_deref())?;
    field("pool", Some(&pool_line(run)))?;
    field("after", Some(&run.after.iter().map(after_text).collect::<Vec<_>>().join(", ")))?;
    field("waits", run.queue.as_ref().map(|queue| queue.why.as_str()))?;
    field("starts", run.queue.as_ref().and_then(|queue| queue.starts_about.as_deref()).map(|at| start_text(at, cx)).as_deref())?;
    field("directory", Some(&run.cwd))?;
    field("workspace", run.workspace.as_ref().map(workspace_line).as_deref())?;
    if let Some(workspace) = &run.workspace {
        field("setup", workspace.setup.as_ref().map(setup_line).as_deref())?;
        field("copied", Some(&copied_line(workspace)))?;
        field("submodules", submodules_line(workspace).as_deref())?;
        for (n, (variable, dir)) in workspace.caches.iter().enumerate() {
            field(if n == 0 { "caches" } else { "" }, Some(&format!("{variable}={dir}")))?;
        }
    }
    field("ports", run.ports.map(|PortsView { base, count }| format!("{base} to {}", base.saturating_add(count).saturating_sub(1))).as_deref())?;
    let not_enforced = if run.permissions_not_enforced { " (not enforced: the agent is a plain program)" } else { "" };
    field("permissions", run.permissions.as_ref().map(|profile| format!("{profile}{not_enforced}")).as_deref())?;
    field("model", run.model.as_deref())?;
    field("arguments", Some(&arguments_line(&run.args)))?;
    field("variables", Some(&run.set_env.join(", ")))?;
    for why in &run.policies_not_in_effect {
        field("policies", Some(why))?;
    }
    field("also here", Some(&run.shares_directory_with.join(", ")))?;
    field("started by", Some(person(&run.owner)))?;
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
    let whose = if run.acceptance.is_some() { " (of the agent)" } else { "" };
    field("exit code", run.exit_code.map(|code| format!("{code}{whose}")).as_deref())?;
    field(
        "progress",
        Some(&[run.percent.map(|p| format!("{p}%")).unwrap_or_default(), run.progress.clone().unwrap_or_default()].join(" ")).map(|p| p.trim()),
    )?;
    field("eta", run.eta.as_deref())?;
    field("overdue", when(&run.overdue_since).map(|since| format!("longer than estimated, since {since}")).as_deref())?;
    field("criteria", run.criteria.as_deref())?;
    field("summary", run.summary.as_deref().filter(|_| run.report.is_none()))?;
    let more = if run.changed_files_more { ", …" } else { "" };
    let whose = match (run.changed_before_too, run.changed_beside.as_slice()) {
        (true, _) => " (all uncommitted files; changes from before the run are not known)".to_owned(),
        (false, []) => String::new(),
        (false, others) => format!(" (during the run; {} also worked in this directory)", others.join(", ")),
    };
    let changed = run.changed_files.as_ref().filter(|files| !files.is_empty());
    field("changed", changed.map(|files| format!("{}{more}{whose}", files.join(", "))).as_deref())?;
    for (n, conflict) in run.conflicts.iter().enumerate() {
        field(if n == 0 { "conflicts" } else { "" }, Some(&conflict_line(conflict)))?;
    }
    if let Some(announced) = &run.announced {
        let interfaces = announced.interfaces.iter().map(|name| format!("interface {name}"));
        let all: Vec<String> = announced.paths.iter().cloned().chain(interfaces).collect();
        field("announced", Some(&all.join(", ")))?;
    }
    for (n, overlap) in run.overlaps.iter().enumerate() {
        field(if n == 0 { "overlaps" } else { "" }, Some(&overlap_line(overlap)))?;
    }
    let beside = (!run.unannounced_files.is_empty()).then(|| run.unannounced_files.join(", "));
    field("unannounced", beside.map(|files| format!("changed, but not announced: {files}")).as_deref())?;
    field("merge order", Some(&run.merge_order.join(", ")))?;
    field("not kept", run.snapshot_problem.as_ref().map(|why| format!("a snapshot of its files failed: {why}")).as_deref())?;
    field("gone", run.gone.as_deref())?;
    field("undo", run.undo_interrupted.as_ref().map(InterruptedUndoView::line).as_deref())?;
    let first_shown = run.snapshots.len().saturating_sub(SNAPSHOTS_SHOWN_MAX);
    for (at, snapshot) in run.snapshots.iter().enumerate().skip(first_shown) {
        let earlier = if at == first_shown && at > 0 { format!(" (earlier: 1 to {at})") } else { String::new() };
        let label = if at == first_shown { "snapshots" } else { "" };
        field(label, Some(&format!("{}, {}{}{earlier}", named(snapshot), relative_time(&snapshot.at, cx), left_out(snapshot))))?;
    }
    field("copied files", committed_copies(run).as_deref())?;
    for (n, commit) in run.commits.iter().enumerate().take(COMMITS_SHOWN_MAX) {
        field(if n == 0 { "commits" } else { "" }, Some(commit))?;
    }
    if let Some(more) = run.commits.len().checked_sub(COMMITS_SHOWN_MAX).filter(|more| *more > 0) {
        field("", Some(&format!("… and {more} more")))?;
    }
    field("annotation", run.annotation.as_deref())?;
    field(
        "ignored",
        run.ignored_signals.as_ref().map(|it| format!("{} without effect; last: {}", text::count(it.count, "signal", "signals"), it.last)).as_deref(),
    )?;
    field("tree", run.tree.as_ref().map(tree_line).as_deref())?;
    field("resources", run.resources.as_ref().map(resources_line).as_deref())?;
    field("usage", run.usage.as_ref().map(ToString::to_string).as_deref())?;
    for (n, budget) in run.budgets.iter().enumerate() {
        let of = if budget.of == run.name { String::new() } else { format!(" (budget of {})", budget.of) };
        field(if n == 0 { "budget" } else { "" }, Some(&format!("{budget}{of}")))?;
    }
    field("session", run.session.as_deref())?;
    field("contained by", run.containment.as_deref())?;
    field("fence", run.fence.as_ref().map(ToString::to_string).as_deref())?;
    field("denied", run.fence.as_ref().and_then(FenceView::denied_line).as_deref())?;
    field("swept", run.swept.filter(|n| *n > 0).map(|n| text::count(n.into(), "leftover process ended", "leftover processes ended")).as_deref())?;
    field("output", run.output_left_open.then_some("truncated: a leftover process kept it open"))?;
    for (n, path) in run.log_paths.iter().enumerate() {
        field(if n == 0 { "log" } else { "" }, Some(path))?;
    }
    if let Some(setup) = run.workspace.as_ref().and_then(|workspace| workspace.setup.as_ref()).filter(|setup| setup.passed == Some(false)) {
        writeln!(out, "{}", paint.apply(Style::Dim, "setup"))?;
        out.push_str(&indented(&setup.output, cx));
    }
    if let Some(checkpoint) = &run.checkpoint {
        out.push_str(&checkpoint_block(checkpoint, cx)?);
    }
    for choice in &run.choices {
        writeln!(
            out,
            "{INDENT}adj resume {} --choice {:<9} {}",
            text::line(&run.name),
            text::line(choice.choice.as_str()),
            text::line(&choice.about)
        )?;
    }
    if let Some(report) = &run.report {
        out.push_str(&report_block(report, cx)?);
    }
    if let Some(acceptance) = &run.acceptance {
        out.push_str(&acceptance_block(acceptance, cx)?);
    }
    for message in &run.messages {
        writeln!(
            out,
            "{}",
            paint.apply(Style::Dim, &format!("message from {}, {}", text::line(&message.from), relative_time(&message.sent_at, cx)))
        )?;
        out.push_str(&indented(&message.text, cx));
    }
    for request in &run.pending {
        out.push_str(&request_block(request, cx)?);
    }
    if !run.settled.is_empty() {
        let more = if run.settled_more { format!(" (earlier: adj inbox -a {})", text::line(&run.name)) } else { String::new() };
        writeln!(out, "{}", paint.apply(Style::Dim, &format!("answered{more}")))?;
        for request in &run.settled {
            let asked = asked_for(request);
            let asked = if asked.parts.is_empty() { text::cut(&text::line(asked.text), ASKED_COLUMNS_MAX) } else { text::line(&asked.line()) };
            let number = text::line(&request.number);
            out.push_str(&indented(&format!("{number} {asked} → {}", request_outcome(request)), cx));
        }
    }
    if !run.signals.is_empty() {
        writeln!(out, "{}", paint.apply(Style::Dim, &format!("signals (all events: adj events {})", text::line(&run.name))))?;
        for event in &run.signals {
            let (signal, source) = (event.signal.as_ref().map_or("signal", Word::as_str), event.source.as_ref().map_or("block", Word::as_str));
            let line = format!("{} {signal} by {source}, {}: {}", relative_time(&event.at, cx), event.kind, event.text);
            out.push_str(&indented(&text::cut(&text::line(&line), ASKED_COLUMNS_MAX), cx));
        }
    }
    if let Some(result) = run.result.as_deref().filter(|r| !r.trim().is_empty()) {
        let name = text::line(&run.name);
        let what = match (run.reconstructed, run.result_bytes) {
            (true, Some(bytes)) => format!("result, reconstructed (last message: {bytes} bytes, adj --json show --result {name})"),
            (true, None) => "result, reconstructed".to_owned(),
            (false, Some(bytes)) => format!("final output: the end of {bytes} bytes (all of it: adj show --result {name})"),
            (false, None) => "final output".to_owned(),
        };
        writeln!(out, "{}", paint.apply(Style::Dim, &what))?;
        out.push_str(&indented(result, cx));
    }
    Ok(out)
}

/// Describes an overlap with what another run has announced in one line.
pub fn overlap_line(overlap: &RunOverlapView) -> String {
    let item = |item: &OverlapView| if item.own == item.other { item.own.clone() } else { format!("{} ({})", item.own, item.other) };
    format!("with {}: {}", overlap.run_name, overlap.items.iter().map(item).collect::<Vec<_>>().join(", "))
}

/// Describes a conflict with another run in one line.
pub fn conflict_line(conflict: &RunConflictView) -> String {
    let files: Vec<String> = conflict.files.iter().map(|file| format!("{} ({})", file.path, file.kind)).collect();
    format!("with {}: {}", conflict.run_name, files.join(", "))
}

fn left_out(snapshot: &SnapshotView) -> String {
    if snapshot.left_out.is_empty() { String::new() } else { format!(", without {}", snapshot.left_out.join(", ")) }
}

/// Warns of copied files in the commits of a run.
fn committed_copies(run: &RunView) -> Option<String> {
    let files = (!run.committed_copies.is_empty()).then(|| run.committed_copies.join(", "))?;
    Some(format!("{files} in its commits, and can be secrets: merge its files only, with adj merge {} --squash", run.name))
}

/// Describes a run's workspace in one line.
fn workspace_line(workspace: &WorkspaceView) -> String {
    let WorkspaceView { isolation, state, path, repository, base, branch, changes, .. } = workspace;
    let with = if changes.is_some() { " with uncommitted changes" } else { "" };
    let at = branch.as_ref().map_or_else(|| "at".to_owned(), |branch| format!("branch {branch} at"));
    format!("{isolation} of {repository}, {at} {}{with}, {state}: {path}", base.get(..COMMIT_CHARS).unwrap_or(base))
}

/// Describes a workspace's setup command in one line.
fn setup_line(setup: &CommandView) -> String {
    let (seconds, tenths) = (setup.took_ms / 1000, setup.took_ms % 1000 / 100);
    setup.problem().unwrap_or_else(|| format!("{}: passed in {seconds}.{tenths} s", setup.command.join(" ")))
}

/// Names the submodules that are not there.
fn submodules_line(workspace: &WorkspaceView) -> Option<String> {
    let empty = &workspace.empty_submodules;
    (!empty.is_empty()).then(|| format!("empty: {}; have the setup command fetch them: git submodule update --init", empty.join(", ")))
}

/// Names the files that were copied into a workspace, and those that were not.
fn arguments_line(args: &[String]) -> String {
    let shown = |arg: &String| match arg.is_empty() || arg.contains(|c: char| c.is_whitespace() || "'\"".contains(c)) {
        true => format!("{arg:?}"),
        false => arg.clone(),
    };
    args.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn copied_line(workspace: &WorkspaceView) -> String {
    let not_copied: Vec<String> = workspace.not_copied.iter().map(|NotCopiedView { path, why }| format!("{path} ({why})")).collect();
    match (workspace.copied.is_empty(), not_copied.is_empty()) {
        (_, true) => workspace.copied.join(", "),
        (true, false) => format!("not {}", not_copied.join(", ")),
        (false, false) => format!("{}; not {}", workspace.copied.join(", "), not_copied.join(", ")),
    }
}

/// Describes a sub-agent of the CLI in one line.
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
