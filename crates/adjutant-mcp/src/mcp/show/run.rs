//! A run: as a line, as structured content, or in full.

use super::fields::filled;
use super::limits::{FILES_MAX, QUESTIONS_MAX, RESULT_CHARS, RESULT_CHARS_ALONE, first};
use super::report::{acceptance_brief, acceptance_line, report_lines};
use super::request::{request_full, request_line};
use crate::mcp::text::{line, quoted};
use crate::present::{
    Fact, Rank, Reader, checkpoint_parts, choice_words, report_claims, run_facts,
};
use crate::text::count;
use crate::view::{AttentionView, CheckpointView, ChoiceView, RunView};
use adjutant_core::{RequestStateKind, RunStateKind, shorten};
use serde_json::{Value, json};

/// Maximum number of runs that are named as conflicting with one.
const CONFLICTS_MAX: usize = 5;
/// Maximum number of characters of each part of a checkpoint in a list.
const CHECKPOINT_CHARS: usize = 600;

/// How much is shown of the facts with one label.
#[derive(Clone, Copy)]
struct Limits {
    /// Maximum number of facts.
    facts: usize,
    /// Maximum number of characters of a fact in Adjutant's words.
    words: usize,
    /// Maximum number of characters of what others wrote, in all facts.
    said: usize,
}

/// In the line of a run, of which lists have many.
const OF_SUMMARY: Limits = Limits {
    facts: 5,
    words: 200,
    said: 120,
};
const OF_WARNING: Limits = Limits {
    facts: CONFLICTS_MAX,
    words: 300,
    said: 1_000,
};
/// Beside the line of one run: all sub-agents that a run keeps, and how many there are beyond them.
const OF_DETAIL: Limits = Limits {
    facts: 25,
    words: 1_000,
    said: RESULT_CHARS,
};
/// Maximum number of characters of a run's note.
const NOTE_CHARS: usize = 300;

/// A model reads the facts of a run.
struct Model;

impl Reader for Model {
    fn log_command(&self, run: &RunView) -> String {
        format!("get_subagent_logs run_id={}", run.identity.name)
    }
}

/// Formats facts with the same label.
fn values(facts: &[Fact<'_>], of: Limits) -> String {
    let said_max = of.said / facts.len().clamp(1, of.facts);
    let value =
        |fact: &Fact<'_>| fact.line(|text| line(text, of.words), |said| quoted(said, said_max));
    let mut shown: Vec<String> = facts.iter().take(of.facts).map(value).collect();
    if facts.len() > of.facts {
        shown.push(format!("… {} more", facts.len() - of.facts));
    }
    shown.join("; ")
}

/// Formats a run as one line, with its warnings.
#[must_use]
pub(crate) fn run_line(run: &RunView) -> String {
    let mut out = format!(
        "{} ({}) {}",
        line(&run.identity.name, 60),
        line(&run.identity.agent, 60),
        line(run.condition.status.as_str(), 40)
    );
    if let Some(reported) = &run.condition.reported {
        out.push_str(&format!(", {} (not ended yet)", line(&reported.line(), 60)));
    }
    if run.working_subagents() > 0 {
        let working = count(run.working_subagents(), "sub-agent", "sub-agents");
        out.push_str(&format!(", {working} working"));
    }
    let sections = run_facts(run, &Model);
    for facts in sections.iter().flat_map(|facts| of_one_label(facts)) {
        match (facts[0].rank, facts[0].label) {
            (Rank::Warning, label) => {
                let label = match label {
                    "budget" => "BUDGET NEARLY USED".to_owned(),
                    label => label.to_uppercase(),
                };
                out.push_str(&format!(", {label}: {}", values(facts, OF_WARNING)));
            }
            (Rank::Summary, label) => {
                out.push_str(&format!(", {label} {}", values(facts, OF_SUMMARY)));
            }
            (Rank::Heading | Rank::Detail | Rank::Internal, _) => {}
        }
    }
    match run
        .results
        .acceptance
        .as_ref()
        .map(|acceptance| acceptance.passed)
    {
        Some(Some(false)) => out.push_str(", NOT ACCEPTED: its acceptance command failed"),
        Some(None) => out.push_str(", NOT CHECKED: its acceptance command could not be run"),
        Some(Some(true)) => out.push_str(", accepted"),
        None => {}
    }
    if let Some(reason) = &run.condition.reason {
        out.push_str(&format!(": {}", line(reason, 300)));
    }
    out
}

/// Divides the facts of a section into those with the same label and rank.
fn of_one_label<'a, 'b>(section: &'b [Fact<'a>]) -> impl Iterator<Item = &'b [Fact<'a>]> {
    section.chunk_by(|a, b| (a.label, a.rank) == (b.label, b.rank))
}

/// Formats as one line why a run needs attention, in the run's own words.
#[must_use]
pub(crate) fn attention_line(run: &RunView) -> Option<String> {
    let AttentionView {
        kind,
        why,
        details,
        needs,
        is_new: _,
    } = run.condition.attention.as_ref()?;
    let mut out = format!(
        "{} ({}) {}, {}: {}",
        line(&run.identity.name, 60),
        line(&run.identity.agent, 60),
        line(kind.as_str(), 20),
        line(why.as_str(), 40),
        quoted(details, 600)
    );
    if let Some(needs) = needs {
        out.push_str(&format!(", needs {}", quoted(needs, 600)));
    }
    if !run.condition.choices.is_empty() {
        out.push_str(&format!(", choices {}", choice_words(run)));
    }
    Some(out)
}

/// Formats a run's result as part of a line.
#[must_use]
pub(crate) fn outcome_of(run: &RunView, chars_max: usize) -> String {
    match (&run.results.summary, &run.results.result) {
        (Some(summary), _) => format!(
            "{}, summary {}",
            format_report(run),
            quoted(summary, chars_max)
        ),
        (None, Some(result)) if !result.is_empty() => {
            let rest = if is_longer(run, chars_max) {
                format!(
                    ", all of it: get_subagent_logs run_id={}",
                    line(&run.identity.name, 60)
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
    run.results.result_bytes.is_some()
        || run
            .results
            .result
            .as_ref()
            .is_some_and(|result| result.chars().nth(chars_max).is_some())
}

fn result_label(run: &RunView) -> &'static str {
    if run.results.reconstructed {
        "reconstructed result"
    } else {
        "result"
    }
}

/// Formats a report's status and verdict as part of a line.
fn format_report(run: &RunView) -> String {
    run.results
        .report
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

/// Returns a run as structured content of a list: the facts of its line and its id, with at most
/// `result_chars` characters of its result. Empty fields are absent.
#[must_use]
pub(crate) fn run_brief(run: &RunView, result_chars: usize) -> Value {
    let brief = [
        ("run_id", json!(run.identity.run_id)),
        ("name", json!(run.identity.name)),
        ("agent", json!(run.identity.agent)),
        ("status", json!(run.condition.status)),
        (
            "workspace",
            json!(run.place.workspace.as_ref().map(|of| &of.path)),
        ),
        ("open_questions", above_zero(run.requests.pending_total)),
        ("reason", brief_text(run.condition.reason.as_deref(), 300)),
        (
            "note",
            brief_text(run.condition.note.as_deref(), NOTE_CHARS),
        ),
        (
            "attention",
            json!(run.condition.attention.as_ref().map(attention_brief)),
        ),
    ];
    filled(
        brief
            .into_iter()
            .chain(outcome_fields(run, result_chars))
            .chain(change_fields(run))
            .chain(end_fields(run))
            .chain(progress_fields(run)),
    )
}

fn brief_text(text: Option<&str>, chars_max: usize) -> Value {
    json!(text.map(|text| shorten::counted(text, chars_max)))
}

fn above_zero(number: u64) -> Value {
    json!(Some(number).filter(|number| *number > 0))
}

/// Returns what a run has produced.
fn outcome_fields(run: &RunView, result_chars: usize) -> [(&'static str, Value); 3] {
    // The result is shown only if there is neither a summary nor a stop, which explain the run
    // better.
    let is_stop = run
        .condition
        .attention
        .as_ref()
        .is_some_and(AttentionView::is_stop);
    let result = match run.results.summary.is_some() || is_stop {
        true => Value::Null,
        false => brief_text(run.results.result.as_deref(), result_chars),
    };
    [
        (
            "exit_code",
            json!(run.condition.exit_code.filter(|code| *code != 0)),
        ),
        (
            "summary",
            brief_text(run.results.summary.as_deref(), result_chars),
        ),
        ("result", result),
    ]
}

/// Returns what a run has announced and changed, and how that collides with others.
fn change_fields(run: &RunView) -> [(&'static str, Value); 5] {
    [
        ("announced", json!(run.changes.announced)),
        (
            "overlaps",
            json!(run.changes.overlaps[..run.changes.overlaps.len().min(CONFLICTS_MAX)]),
        ),
        ("unannounced_files", json!(run.changes.unannounced_files)),
        (
            "conflicts",
            json!(run.changes.conflicts[..run.changes.conflicts.len().min(CONFLICTS_MAX)]),
        ),
        ("merge_order", json!(run.changes.merge_order)),
    ]
}

/// Returns how a run has ended or stopped, and how it can resume.
fn end_fields(run: &RunView) -> [(&'static str, Value); 6] {
    let report = run.results.report.as_ref();
    let report = report.map(|of| json!({"status": of.status, "verdict": of.verdict}));
    let is_stopped = run.condition.state == RunStateKind::Stopped;
    let left = run.activity.checkpoint.as_ref().filter(|_| is_stopped);
    let choices: Vec<&str> = run
        .condition
        .choices
        .iter()
        .map(|of| of.choice.as_str())
        .collect();
    [
        (
            "reconstructed",
            json!(run.results.reconstructed.then_some(true)),
        ),
        ("end_reason", json!(run.condition.end_reason)),
        ("report", json!(report)),
        (
            "acceptance",
            json!(run.results.acceptance.as_ref().map(acceptance_brief)),
        ),
        (
            "checkpoint",
            json!(left.map(|left| checkpoint_brief(left, CHECKPOINT_CHARS))),
        ),
        ("choices", json!(choices)),
    ]
}

/// Returns how far a run has come, and what it waits for.
fn progress_fields(run: &RunView) -> [(&'static str, Value); 9] {
    let live = |value: Value| match run.condition.outcome {
        None => value,
        Some(_) => Value::Null,
    };
    let budgets = run.cost.budgets.iter().map(ToString::to_string);
    let budgets: Vec<_> = budgets
        .map(|of| shorten::counted(&of, 200).into_owned())
        .collect();
    [
        ("eta", live(brief_text(run.activity.eta.as_deref(), 60))),
        ("overdue_since", json!(run.condition.overdue_since)),
        ("budgets", json!(budgets)),
        ("percent", live(json!(run.activity.percent))),
        (
            "progress",
            live(brief_text(run.activity.progress.as_deref(), 120)),
        ),
        ("queue_place", json!(run.in_queue.queue_place)),
        ("queue_ahead_min", json!(run.in_queue.queue_ahead_min)),
        (
            "waits_for",
            brief_text(
                run.in_queue.queue.as_ref().map(|queue| queue.why.as_str()),
                200,
            ),
        ),
        ("subagents_at_work", above_zero(run.working_subagents())),
    ]
}

/// Returns the parts of a checkpoint as structured content.
fn checkpoint_brief(checkpoint: &CheckpointView, chars_max: usize) -> Value {
    let parts = checkpoint_parts(checkpoint).into_iter();
    parts
        .map(|part| {
            (
                part.name.to_owned(),
                json!(shorten::counted(part.text, chars_max)),
            )
        })
        .collect()
}

fn attention_brief(attention: &AttentionView) -> Value {
    let AttentionView {
        kind,
        why,
        details,
        needs,
        is_new,
    } = attention;
    let needs = needs.as_deref();
    filled([
        ("kind", json!(kind)),
        ("why", json!(why)),
        ("details", json!(shorten::counted(details, 600))),
        ("is_new", json!(is_new)),
        (
            "needs",
            json!(needs.map(|needs| shorten::counted(needs, 600))),
        ),
    ])
}

/// Returns everything about a run as structured content.
#[must_use]
pub(crate) fn run_full(run: &RunView) -> Value {
    let mut data = json!(run);
    if let Some(attention) = &run.condition.attention {
        data["attention"] = attention_brief(attention);
    }
    data["pending"] = run
        .requests
        .pending
        .iter()
        .take(QUESTIONS_MAX)
        .map(request_full)
        .collect();
    if let Some(checkpoint) = &run.activity.checkpoint {
        data["checkpoint"] = checkpoint_brief(checkpoint, RESULT_CHARS);
        data["checkpoint"]["changed_files"] = json!(first(&checkpoint.changed_files));
    }
    if let Some(files) = &run.changes.changed_files {
        data["changed_files"] = json!(first(files));
    }
    if let (Some(report), Some(data)) = (&run.results.report, data.get_mut("report")) {
        for part in report_claims(report) {
            data[part.name] = json!(shorten::counted(part.text, RESULT_CHARS));
        }
        data["deliverables"] = report
            .deliverables
            .iter()
            .take(FILES_MAX)
            .map(|text| shorten::counted(text, 200))
            .collect();
    }
    if let Some(acceptance) = &run.results.acceptance {
        data["acceptance"]["output"] = json!(shorten::tail_chars(&acceptance.output, RESULT_CHARS));
    }
    // Shown separately, and only to the run.
    if let Some(data) = data.as_object_mut() {
        data.remove("messages");
        // Another tool shows them.
        data.remove("settled");
        data.remove("settled_more");
        data.remove("signals");
    }
    if let Some(result) = &run.results.result {
        data["result"] = json!(shorten::counted(result, RESULT_CHARS_ALONE));
    }
    if let Some(message) = &run.results.last_message {
        data["last_message"] = json!(shorten::counted(message, RESULT_CHARS));
    }
    if !run.changes.commits.is_empty() {
        data["commits"] = json!(first(&run.changes.commits));
    }
    data
}

/// Formats everything about a run as lines, except its questions.
#[must_use]
pub(crate) fn run_lines(run: &RunView) -> Vec<String> {
    let outcome = run.condition.outcome.as_ref();
    let outcome = outcome.map(|outcome| format!(", outcome {}", line(outcome.as_str(), 40)));
    let mut lines = vec![format!(
        "{}; attempt {}{}",
        run_line(run),
        run.identity.attempt,
        outcome.unwrap_or_default()
    )];
    for section in &run_facts(run, &Model) {
        let details = of_one_label(section).filter(|facts| facts[0].rank == Rank::Detail);
        let details: Vec<String> = details
            .map(|facts| {
                let said = match facts[0].label {
                    "summary" => RESULT_CHARS_ALONE,
                    _ => RESULT_CHARS,
                };
                let of = Limits { said, ..OF_DETAIL };
                format!("{} {}", facts[0].label, values(facts, of))
            })
            .collect();
        if !details.is_empty() {
            lines.push(details.join(", "));
        }
    }
    lines.extend(attention_line(run));
    if let Some(result) = run
        .results
        .result
        .as_ref()
        .filter(|result| !result.is_empty())
    {
        lines.push(format!(
            "{} {}",
            result_label(run),
            quoted(result, RESULT_CHARS_ALONE)
        ));
        if is_longer(run, RESULT_CHARS_ALONE) {
            lines.push(format!(
                "the whole result is in the log: get_subagent_logs run_id={}",
                line(&run.identity.name, 60)
            ));
        }
    }
    lines.extend(run.results.report.iter().flat_map(report_lines));
    lines.extend(run.results.acceptance.as_ref().map(acceptance_line));
    if let Some(checkpoint) = &run.activity.checkpoint {
        let parts = checkpoint_parts(checkpoint)
            .into_iter()
            .map(|part| format!("{} {}", part.name, quoted(part.text, RESULT_CHARS)));
        lines.push(format!(
            "it left behind: {}",
            parts.collect::<Vec<_>>().join(", ")
        ));
    }
    if !run.condition.choices.is_empty() {
        lines.push(choices_line(&run.condition.choices));
    }
    lines
}

/// Formats the choices for a run that an error or a limit stopped.
#[must_use]
pub(crate) fn choices_line(choices: &[ChoiceView]) -> String {
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
pub(crate) fn request_lines(run: &RunView) -> Vec<String> {
    let mut lines: Vec<String> = run
        .requests
        .pending
        .iter()
        .filter(|request| request.status == RequestStateKind::Pending)
        .take(QUESTIONS_MAX)
        .map(request_line)
        .collect();
    let more = usize::try_from(run.requests.pending_total)
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
