//! A run: as a line, as structured content, or in full.

use super::limits::{FILES_MAX, QUESTIONS_MAX, RESULT_CHARS, RESULT_CHARS_ALONE, cut_end, first};
use super::report::acceptance_brief;
use super::report::{acceptance_line, report_lines};
use super::request::{request_full, request_line};
use crate::mcp::text::{cut, line, quoted};
use crate::present::{checkpoint_parts, not_kept, report_claims, resources_line, tree_line};
use crate::text::count;
use crate::view::{AttentionView, ChoiceView, RunView, SubagentView, WorkspaceView};
use adjutant_core::pool::QueueReason;
use adjutant_core::{RequestStateKind, RunStateKind};
use serde_json::{Map, Value, json};

/// Maximum number of runs that are named as conflicting with one.
const CONFLICTS_MAX: usize = 5;
/// Maximum number of characters of each part of a checkpoint in a list.
const CHECKPOINT_CHARS: usize = 600;

/// Maximum number of characters of a run's note.
const NOTE_CHARS: usize = 300;

/// Formats a run as one line.
#[must_use]
pub fn run_line(run: &RunView) -> String {
    let mut out = format!(
        "{} ({}) {}",
        line(&run.name, 60),
        line(&run.agent, 60),
        line(run.status.as_str(), 40)
    );
    if let Some(code) = run
        .exit_code
        .filter(|code| *code != 0 && run.state != RunStateKind::Queued)
    {
        out.push_str(&format!(", exit code {code}"));
    }
    match (run.queue_place, run.queue_ahead_min) {
        (Some(place), _) => out.push_str(&format!(", place {place} in the queue")),
        (None, Some(ahead)) => {
            out.push_str(&format!(", at least {ahead} runs before it in the queue"))
        }
        (None, None) => {}
    }
    if let Some(queue) = run
        .queue
        .as_ref()
        .filter(|queue| queue.waiting_for != QueueReason::Turn)
    {
        out.push_str(&format!(", waits: {}", line(&queue.why, 200)));
    }
    if let Some(percent) = run.percent.filter(|_| run.outcome.is_none()) {
        out.push_str(&format!(", {percent} %"));
    }
    if let Some(progress) = run.progress.as_deref().filter(|_| run.outcome.is_none()) {
        out.push_str(&format!(", progress {}", quoted(progress, 120)));
    }
    if let Some(eta) = run.eta.as_deref().filter(|_| run.outcome.is_none()) {
        out.push_str(&format!(", ETA {}", quoted(eta, 60)));
    }
    if let Some(reported) = &run.reported {
        out.push_str(&format!(", {} (not ended yet)", line(&reported.line(), 60)));
    }
    if let Some(number) = working_subagents(run) {
        out.push_str(&format!(
            ", {} working",
            count(number, "sub-agent", "sub-agents")
        ));
    }
    if let Some(since) = &run.overdue_since {
        out.push_str(&format!(
            ", overdue (works longer than was estimated) since {}",
            line(since, 40)
        ));
    }
    for budget in run
        .budgets
        .iter()
        .filter(|budget| budget.nearly_used && run.outcome.is_none())
    {
        out.push_str(&format!(
            ", BUDGET NEARLY USED: {}",
            line(&budget.to_string(), 200)
        ));
    }
    if let Some(why) = &run.snapshot_problem {
        out.push_str(&format!(", WARNING: {}", line(&not_kept(why), 300)));
    }
    if let Some(undo) = &run.undo_interrupted {
        out.push_str(&format!(
            ", AN UNDO OF IT WAS INTERRUPTED, so its files may be of two snapshots: {} completes it",
            line(&undo.complete_with, 120)
        ));
    }
    if let (Some(times), Some(denied)) = run.fence.as_ref().map_or((None, None), |fence| {
        (fence.denied_writes, fence.denied_write.as_deref())
    }) {
        let writes = count(times, "DENIED WRITE", "DENIED WRITES");
        out.push_str(&format!(
            ", {writes} (outside what its fence allows) in its output, the last: {}",
            quoted(denied, 200)
        ));
    }
    for conflict in run.conflicts.iter().take(CONFLICTS_MAX) {
        let files: Vec<&str> = conflict
            .files
            .iter()
            .take(FILES_MAX)
            .map(|file| file.path.as_str())
            .collect();
        out.push_str(&format!(
            ", CONFLICTS with {} in {}",
            line(&conflict.run_name, 60),
            quoted(&files.join(", "), 300)
        ));
    }
    for overlap in run.overlaps.iter().take(CONFLICTS_MAX) {
        let items: Vec<&str> = overlap
            .items
            .iter()
            .take(FILES_MAX)
            .map(|item| item.own.as_str())
            .collect();
        out.push_str(&format!(
            ", ANNOUNCED THE SAME as {}: {}",
            line(&overlap.run_name, 60),
            quoted(&items.join(", "), 300)
        ));
    }
    if !run.unannounced_files.is_empty() {
        let files: Vec<&str> = run
            .unannounced_files
            .iter()
            .take(FILES_MAX)
            .map(String::as_str)
            .collect();
        out.push_str(&format!(
            ", CHANGED FILES THAT IT HAS NOT ANNOUNCED: {}",
            quoted(&files.join(", "), 300)
        ));
    }
    if !run.merge_order.is_empty() {
        out.push_str(&format!(
            ", merge in the order {}",
            line(&run.merge_order.join(", "), 600)
        ));
    }
    match run.acceptance.as_ref().map(|acceptance| acceptance.passed) {
        Some(Some(false)) => out.push_str(", NOT ACCEPTED: its acceptance command failed"),
        Some(None) => out.push_str(", NOT CHECKED: its acceptance command could not be run"),
        Some(Some(true)) => out.push_str(", accepted"),
        None => {}
    }
    if let Some(reason) = &run.reason {
        out.push_str(&format!(": {}", line(reason, 300)));
    }
    out
}

/// Formats as one line why a run needs attention, in the run's own words.
#[must_use]
pub fn attention_line(run: &RunView) -> Option<String> {
    let AttentionView {
        kind,
        why,
        details,
        needs,
        is_new: _,
    } = run.attention.as_ref()?;
    let mut out = format!(
        "{} ({}) {}, {}: {}",
        line(&run.name, 60),
        line(&run.agent, 60),
        line(kind.as_str(), 20),
        line(why.as_str(), 40),
        quoted(details, 600)
    );
    if let Some(needs) = needs {
        out.push_str(&format!(", needs {}", quoted(needs, 600)));
    }
    if !run.choices.is_empty() {
        let words: Vec<String> = run
            .choices
            .iter()
            .map(|choice| line(choice.choice.as_str(), 20))
            .collect();
        out.push_str(&format!(", choices {}", words.join("|")));
    }
    Some(out)
}

/// Formats a run's result as part of a line.
#[must_use]
pub fn outcome_of(run: &RunView, chars_max: usize) -> String {
    match (&run.summary, &run.result) {
        (Some(summary), _) => format!(
            "{}, summary {}",
            format_report(run),
            quoted(summary, chars_max)
        ),
        (None, Some(result)) if !result.is_empty() => {
            let rest = if is_longer(run, chars_max) {
                format!(
                    ", all of it: get_subagent_logs run_id={}",
                    line(&run.name, 60)
                )
            } else {
                String::new()
            };
            format!(
                ", {} {}{rest}",
                result_label(run),
                quoted(result, chars_max)
            )
        }
        _ => String::new(),
    }
}

/// Returns whether a run's result is longer than the shown part.
fn is_longer(run: &RunView, chars_max: usize) -> bool {
    run.result_bytes.is_some()
        || run
            .result
            .as_ref()
            .is_some_and(|result| result.chars().nth(chars_max).is_some())
}

fn result_label(run: &RunView) -> &'static str {
    if run.reconstructed {
        "reconstructed result"
    } else {
        "result"
    }
}

/// Formats a report's status and verdict as part of a line.
fn format_report(run: &RunView) -> String {
    run.report
        .as_ref()
        .map(|report| {
            format!(
                ", reports {} ({})",
                line(report.status.as_str(), 40),
                line(report.verdict.as_str(), 40)
            )
        })
        .unwrap_or_default()
}

/// Returns a run as structured content of a list: the facts of its line and its id, with at most `result_chars`
/// characters of its result.
#[must_use]
pub fn run_brief(run: &RunView, result_chars: usize) -> Value {
    let mut brief = Map::new();
    brief.insert("run_id".into(), json!(run.run_id));
    brief.insert("name".into(), json!(run.name));
    brief.insert("agent".into(), json!(run.agent));
    brief.insert("status".into(), json!(run.status));
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            brief.insert(name.to_owned(), value);
        }
    };
    add(
        "workspace",
        run.workspace
            .as_ref()
            .map(|workspace| json!(workspace.path)),
    );
    add(
        "open_questions",
        (run.pending_total > 0).then(|| json!(run.pending_total)),
    );
    add(
        "reason",
        run.reason.as_ref().map(|reason| json!(cut(reason, 300))),
    );
    add(
        "note",
        run.note.as_ref().map(|note| json!(cut(note, NOTE_CHARS))),
    );
    add("attention", run.attention.as_ref().map(attention_brief));
    add(
        "exit_code",
        run.exit_code.filter(|code| *code != 0).map(Value::from),
    );
    add(
        "summary",
        run.summary
            .as_ref()
            .map(|summary| json!(cut(summary, result_chars))),
    );
    // The result is shown only if there is neither a summary nor a stop, which explain the run better.
    let says_it_all =
        run.summary.is_some() || run.attention.as_ref().is_some_and(AttentionView::is_stop);
    add(
        "result",
        run.result
            .as_ref()
            .filter(|_| !says_it_all)
            .map(|result| json!(cut(result, result_chars))),
    );
    add(
        "announced",
        run.announced.as_ref().map(|announced| json!(announced)),
    );
    add(
        "overlaps",
        (!run.overlaps.is_empty())
            .then(|| json!(run.overlaps[..run.overlaps.len().min(CONFLICTS_MAX)])),
    );
    add(
        "unannounced_files",
        (!run.unannounced_files.is_empty()).then(|| json!(run.unannounced_files)),
    );
    add(
        "conflicts",
        (!run.conflicts.is_empty())
            .then(|| json!(run.conflicts[..run.conflicts.len().min(CONFLICTS_MAX)])),
    );
    add(
        "merge_order",
        (!run.merge_order.is_empty()).then(|| json!(run.merge_order)),
    );
    add("reconstructed", run.reconstructed.then(|| json!(true)));
    add(
        "end_reason",
        run.end_reason.as_ref().map(|reason| json!(reason)),
    );
    add(
        "report",
        run.report
            .as_ref()
            .map(|report| json!({"status": report.status, "verdict": report.verdict})),
    );
    add("acceptance", run.acceptance.as_ref().map(acceptance_brief));
    let left = run
        .checkpoint
        .as_ref()
        .filter(|_| run.state == RunStateKind::Stopped);
    add(
        "checkpoint",
        left.map(|left| {
            checkpoint_parts(left)
                .into_iter()
                .map(|part| {
                    (
                        part.name.to_owned(),
                        json!(cut(part.text, CHECKPOINT_CHARS)),
                    )
                })
                .collect()
        }),
    );
    add(
        "choices",
        (!run.choices.is_empty()).then(|| {
            run.choices
                .iter()
                .map(|choice| choice.choice.as_str())
                .collect()
        }),
    );
    add(
        "eta",
        run.eta
            .as_ref()
            .filter(|_| run.outcome.is_none())
            .map(|eta| json!(cut(eta, 60))),
    );
    add(
        "overdue_since",
        run.overdue_since.as_deref().map(Value::from),
    );
    add(
        "budgets",
        (!run.budgets.is_empty()).then(|| {
            run.budgets
                .iter()
                .map(|budget| json!(cut(&budget.to_string(), 200)))
                .collect()
        }),
    );
    add(
        "percent",
        run.percent
            .filter(|_| run.outcome.is_none())
            .map(Value::from),
    );
    add(
        "progress",
        run.progress
            .as_ref()
            .filter(|_| run.outcome.is_none())
            .map(|progress| json!(cut(progress, 120))),
    );
    add("queue_place", run.queue_place.map(Value::from));
    add("queue_ahead_min", run.queue_ahead_min.map(Value::from));
    add(
        "waits_for",
        run.queue.as_ref().map(|queue| json!(cut(&queue.why, 200))),
    );
    add("subagents_at_work", working_subagents(run).map(Value::from));
    Value::Object(brief)
}

/// Returns the number of running sub-agents of the run's CLI, if any.
fn working_subagents(run: &RunView) -> Option<u64> {
    let number = run.subagents.iter().filter(|one| one.is_running()).count() as u64;
    (number > 0).then_some(number)
}

fn attention_brief(attention: &AttentionView) -> Value {
    let AttentionView {
        kind,
        why,
        details,
        needs,
        is_new,
    } = attention;
    let mut brief =
        json!({"kind": kind, "why": why, "details": cut(details, 600), "is_new": is_new});
    if let Some(needs) = needs {
        brief["needs"] = json!(cut(needs, 600));
    }
    brief
}

/// Returns everything about a run as structured content.
#[must_use]
pub fn run_full(run: &RunView) -> Value {
    let mut data = json!(run);
    if let Some(attention) = &run.attention {
        data["attention"] = attention_brief(attention);
    }
    data["pending"] = run
        .pending
        .iter()
        .take(QUESTIONS_MAX)
        .map(request_full)
        .collect();
    if let Some(checkpoint) = &run.checkpoint {
        data["checkpoint"] = checkpoint_parts(checkpoint)
            .into_iter()
            .map(|part| (part.name.to_owned(), json!(cut(part.text, RESULT_CHARS))))
            .collect();
        data["checkpoint"]["changed_files"] = json!(first(&checkpoint.changed_files));
    }
    if let Some(files) = &run.changed_files {
        data["changed_files"] = json!(first(files));
    }
    if let (Some(report), Some(data)) = (&run.report, data.get_mut("report")) {
        for part in report_claims(report) {
            data[part.name] = json!(cut(part.text, RESULT_CHARS));
        }
        data["deliverables"] = report
            .deliverables
            .iter()
            .take(FILES_MAX)
            .map(|text| cut(text, 200))
            .collect();
    }
    if let Some(acceptance) = &run.acceptance {
        data["acceptance"]["output"] = json!(cut_end(&acceptance.output, RESULT_CHARS));
    }
    // Shown separately, and only to the run.
    if let Some(data) = data.as_object_mut() {
        data.remove("messages");
        // Another tool shows them.
        data.remove("settled");
        data.remove("settled_more");
        data.remove("signals");
    }
    if let Some(result) = &run.result {
        data["result"] = json!(cut(result, RESULT_CHARS_ALONE));
    }
    if let Some(message) = &run.last_message {
        data["last_message"] = json!(cut(message, RESULT_CHARS));
    }
    if !run.commits.is_empty() {
        data["commits"] = json!(first(&run.commits));
    }
    data
}

/// Maximum number of sub-agents that are named.
const SUBAGENTS_MAX: usize = 5;

/// Describes a sub-agent in the CLI's own words.
fn subagent_words(subagent: &SubagentView) -> String {
    let SubagentView {
        kind,
        about,
        state,
        tokens,
    } = subagent;
    let name = about.as_deref().or(kind.as_deref()).unwrap_or("unnamed");
    let tokens = tokens
        .map(|tokens| format!(", {}", count(tokens, "token", "tokens")))
        .unwrap_or_default();
    let state = state
        .as_deref()
        .map(|state| format!(" {}", line(state, 40)))
        .unwrap_or_default();
    format!("{}{state}{tokens}", quoted(name, 80))
}

/// Formats everything about a run as lines, except its questions.
#[must_use]
pub fn run_lines(run: &RunView) -> Vec<String> {
    let mut lines = vec![format!(
        "{}; run_id {}, attempt {}",
        run_line(run),
        line(&run.run_id, 60),
        run.attempt
    )];
    lines.push(format!(
        "task {} in {}",
        quoted(&run.task, 200),
        quoted(&run.cwd, 300)
    ));
    if let Some(workspace) = &run.workspace {
        let WorkspaceView {
            isolation,
            base,
            branch,
            behind,
            ..
        } = workspace;
        let branch = branch
            .as_ref()
            .map_or_else(|| "its branch".to_owned(), |branch| line(branch, 100));
        let behind = behind.filter(|count| *count > 0).map(|commits| {
            format!(
                ", {} behind {branch} now",
                count(commits, "commit", "commits")
            )
        });
        lines.push(format!(
            "{} from commit {}{}",
            line(isolation.as_str(), 40),
            line(base, 64),
            behind.unwrap_or_default()
        ));
    }
    let times = [
        ("created", Some(&run.created_at)),
        ("started", run.started_at.as_ref()),
        ("ended", run.ended_at.as_ref()),
    ];
    let times: Vec<String> = times
        .iter()
        .filter_map(|(what, at)| at.map(|at| format!("{what} {}", line(at, 40))))
        .collect();
    lines.push(times.join(", "));
    if let Some(outcome) = &run.outcome {
        let code = run
            .exit_code
            .map(|code| format!(", exit code {code}"))
            .unwrap_or_default();
        lines.push(format!("outcome {}{code}", line(outcome.as_str(), 40)));
    }
    lines.extend(
        run.note
            .as_ref()
            .map(|note| format!("note: {}", line(note, NOTE_CHARS))),
    );
    if let Some(parent) = &run.parent_name {
        lines.push(format!("delegated by {}", line(parent, 60)));
    }
    if !run.children.is_empty() {
        lines.push(format!(
            "has delegated to {}",
            line(&run.children.join(", "), 600)
        ));
    }
    if !run.subagents.is_empty() {
        let subagents = run
            .subagents
            .iter()
            .take(SUBAGENTS_MAX)
            .map(subagent_words)
            .collect::<Vec<_>>()
            .join("; ");
        lines.push(format!("its own sub-agents: {subagents}"));
    }
    if let Some(retry_of) = &run.retry_of {
        lines.push(format!("retry of {}", line(retry_of, 60)));
    }
    if let Some(usage) = &run.usage {
        lines.push(format!("usage {usage}"));
    }
    if let Some(tree) = &run.tree {
        lines.push(tree_line(tree));
    }
    if let Some(resources) = &run.resources {
        lines.push(format!("resources {}", resources_line(resources)));
    }
    if let Some(ignored) = &run.ignored_signals {
        lines.push(format!(
            "ignored {} without effect; the last: {}",
            count(ignored.count, "signal", "signals"),
            quoted(&ignored.last, 300)
        ));
    }
    lines.extend(attention_line(run));
    if let Some(annotation) = &run.annotation {
        lines.push(format!("annotation {}", quoted(annotation, 600)));
    }
    if let Some(summary) = run.summary.as_ref().filter(|_| run.report.is_none()) {
        lines.push(format!("summary {}", quoted(summary, RESULT_CHARS_ALONE)));
    }
    if let Some(result) = run.result.as_ref().filter(|result| !result.is_empty()) {
        lines.push(format!(
            "{} {}",
            result_label(run),
            quoted(result, RESULT_CHARS_ALONE)
        ));
        if is_longer(run, RESULT_CHARS_ALONE) {
            lines.push(format!(
                "the whole result is in the log: get_subagent_logs run_id={}",
                line(&run.name, 60)
            ));
        }
    }
    if let Some(report) = &run.report {
        lines.extend(report_lines(report));
    }
    if let Some(acceptance) = &run.acceptance {
        lines.push(acceptance_line(acceptance));
    }
    if let Some(criteria) = &run.criteria {
        lines.push(format!("criteria {}", quoted(criteria, RESULT_CHARS)));
    }
    if let Some(files) = run.changed_files.as_ref().filter(|files| !files.is_empty()) {
        let beside = if run.changed_beside.is_empty() {
            String::new()
        } else {
            format!(
                ", also touched while {} worked there",
                line(&run.changed_beside.join(", "), 300)
            )
        };
        let more = if files.len() > FILES_MAX || run.changed_files_more {
            ", and more"
        } else {
            ""
        };
        lines.push(format!(
            "changed files {}{more}{beside}",
            quoted(&first(files).join(", "), RESULT_CHARS)
        ));
    }
    if !run.commits.is_empty() {
        lines.push(format!(
            "commits {}",
            quoted(&first(&run.commits).join(", "), RESULT_CHARS)
        ));
    }
    if let Some(checkpoint) = &run.checkpoint {
        let parts = checkpoint_parts(checkpoint)
            .into_iter()
            .map(|part| format!("{} {}", part.name, quoted(part.text, RESULT_CHARS)));
        lines.push(format!(
            "it left behind: {}",
            parts.collect::<Vec<_>>().join(", ")
        ));
    }
    if !run.choices.is_empty() {
        lines.push(choices_line(&run.choices));
    }
    if !run.shares_directory_with.is_empty() {
        let more = if run.shares_directory_more {
            " and more"
        } else {
            ""
        };
        lines.push(format!(
            "shares its directory with {}{more}",
            line(&run.shares_directory_with.join(", "), 300)
        ));
    }
    if let Some(swept) = run.swept.filter(|swept| *swept > 0) {
        lines.push(format!(
            "{} ended",
            count(
                swept.into(),
                "process it had left behind was",
                "processes it had left behind were"
            )
        ));
    }
    if run.output_left_open {
        lines.push("a process it had left behind kept its output open and was cut off".to_owned());
    }
    if let Some(runner) = &run.log_runner {
        lines.push(format!(
            "its log is on the runner {}: get_subagent_logs reads it",
            line(runner, 100)
        ));
    }
    if !run.log_paths.is_empty() {
        lines.push(format!("log {}", line(&run.log_paths.join(", "), 4_096)));
    }
    lines
}

/// Formats the choices for a run that an error or a limit stopped.
#[must_use]
pub fn choices_line(choices: &[ChoiceView]) -> String {
    let all: Vec<String> = choices
        .iter()
        .map(|choice| {
            format!(
                "{} ({})",
                line(choice.choice.as_str(), 20),
                line(&choice.about, 100)
            )
        })
        .collect();
    format!("resume takes a choice: {}", all.join(", "))
}

/// Formats the open requests of a run as lines, up to a limit.
#[must_use]
pub fn request_lines(run: &RunView) -> Vec<String> {
    let mut lines: Vec<String> = run
        .pending
        .iter()
        .filter(|request| request.status == RequestStateKind::Pending)
        .take(QUESTIONS_MAX)
        .map(request_line)
        .collect();
    let more = usize::try_from(run.pending_total)
        .unwrap_or(usize::MAX)
        .saturating_sub(lines.len());
    if more > 0 {
        lines.push(format!(
            "… {} more: get_pending_questions",
            count(more as u64, "question", "questions")
        ));
    }
    lines
}
