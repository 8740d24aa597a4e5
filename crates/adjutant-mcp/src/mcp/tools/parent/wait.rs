//! Waiting for runs.

use super::next_step::WAIT_AGAIN;
use super::next_step::reply_hint;
use super::next_step::resume_hint;
use crate::mcp::caller::{Caller, wait_ms};
use crate::mcp::cursor::{Cursor, RESET};
use crate::mcp::elicit::{self, ElicitOutcome};
use crate::mcp::reply::{Reply, ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, RESULT_CHARS, Shown};
use crate::mcp::text::line;
use crate::present::tree_line;
use crate::text::count;
use crate::view::{RunView, StartTask, Wait, WaitOutcome, WaitUntil, Waited};
use adjutant_core::RunStateKind;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Instant;

/// Maximum number of items of each kind that the result of a wait shows in detail.
pub(in crate::mcp) const WAITED_MAX: usize = 7;

/// Maximum number of trees of several runs for which a wait reports statistics.
const TREES_MAX: usize = 3;

/// How long a Task stays readable.
pub(super) const TASK_TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// The arguments of `wait_for_subagents`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct WaitForSubagentsArgs {
    #[serde(default)]
    run_ids: Vec<String>,
    until: Option<WaitUntil>,
    cursor: Option<String>,
    wait_s: Option<u64>,
}

pub(in crate::mcp) async fn wait_for_subagents(
    session: &Session,
    caller: &Caller,
    args: WaitForSubagentsArgs,
) -> ToolResult {
    let WaitForSubagentsArgs {
        run_ids,
        until,
        cursor,
        wait_s: asked,
    } = args;
    let from = Cursor::read(cursor.as_deref(), "cursor")?;
    if let Some(from) = from {
        session.confirm_cursor(from.position).await;
    }
    elicit::take_input(session, caller).await?;
    let mut wait = Wait {
        runs: run_ids,
        until: until.unwrap_or(WaitUntil::Attention),
        after: from.map(|from| from.position),
        new_reports: true,
        wait_ms: 0,
    };
    // A caller that gives a time expects a reply by then, so it gets no Task, which waits indefinitely.
    if caller.accepts_tasks && asked.is_none() {
        let now = session.client().call(&wait).await?;
        if let ElicitOutcome::Required(required) =
            elicit::ask_person(session, caller, &now.needs, None).await?
        {
            return Ok(Reply::Input(required));
        }
        if now.outcome != WaitOutcome::Timeout {
            session.note_shown(
                caller.connection,
                Some(now.cursor),
                now.confirmation(!wait.runs.is_empty()),
            );
            return reply(waited(&now, from));
        }
        if wait.runs.is_empty() {
            wait.after = wait.after.or(Some(now.cursor));
        }
        let declined = session.declined_of(&now.needs);
        let task = session
            .client()
            .call(&StartTask {
                wait,
                ttl_ms: TASK_TTL_MS,
                declined,
            })
            .await?;
        return Ok(Reply::Task(Box::new(task)));
    }
    let until = Instant::now() + caller.bounded(asked, caller.cap);
    let doing = if wait.runs.is_empty() {
        "waiting for all live runs".to_owned()
    } else {
        format!(
            "waiting for {}",
            count(wait.runs.len() as u64, "run", "runs")
        )
    };
    let found = loop {
        wait.wait_ms = wait_ms(until.saturating_duration_since(Instant::now()));
        let found = caller
            .wait_with_progress(&doing, session.client().call(&wait))
            .await??;
        match elicit::ask_person(session, caller, &found.needs, None).await? {
            ElicitOutcome::Nothing => break found,
            ElicitOutcome::Required(required) => return Ok(Reply::Input(required)),
            // The run continues with the person's answer.
            ElicitOutcome::Closed => {}
        }
    };
    session.note_shown(
        caller.connection,
        Some(found.cursor),
        found.confirmation(!wait.runs.is_empty()),
    );
    reply(waited(&found, from))
}

/// Shows the result of a wait that began at a cursor: the first few items in detail, the others by name.
#[must_use]
pub(in crate::mcp) fn waited(waited: &Waited, from: Option<Cursor>) -> Shown {
    let Waited {
        outcome,
        needs,
        stopped,
        stopped_more,
        ended,
        ended_more,
        failed: _,
        working: underway,
        cursor: _,
        reset,
    } = waited;
    // Runs that wait for an answer are shown with `needs`.
    let asks = |run: &RunView| {
        needs
            .iter()
            .any(|request| request.blocking && request.run_id == run.run_id)
    };
    let working: &Vec<RunView> = &underway.iter().filter(|run| !asks(run)).cloned().collect();
    let cursor = Cursor::after(from, waited.cursor, *outcome == WaitOutcome::Timeout).to_string();
    let (needs_shown, stopped_shown, ended_shown, working_shown) =
        (first(needs), first(stopped), first(ended), first(working));
    let names = |runs: &[RunView]| {
        runs.iter()
            .skip(WAITED_MAX)
            .map(|run| run.name.clone())
            .collect::<Vec<_>>()
    };
    let numbers: Vec<String> = needs
        .iter()
        .skip(WAITED_MAX)
        .map(|request| request.number.clone())
        .collect();
    let brief = |runs: &[RunView]| {
        runs.iter()
            .map(|run| show::run_brief(run, RESULT_CHARS))
            .collect::<Vec<_>>()
    };
    let all = [
        (
            "needs",
            needs_shown.iter().map(show::request_brief).collect(),
        ),
        ("stopped", brief(stopped_shown)),
        ("ended", brief(ended_shown)),
        ("working", brief(working_shown)),
    ];
    let mut shown = Shown::new(json!({"outcome": outcome}));
    for (name, runs) in all {
        if !runs.is_empty() {
            shown = shown.with(name, runs);
        }
    }
    shown = shown.with("cursor", cursor.as_str());
    if *reset {
        shown = shown.with("reset", true).line(RESET);
    }
    shown = add_names(
        shown.lines(needs_shown.iter().map(show::request_line)),
        "needs_more",
        "more questions",
        numbers,
    );
    shown = add_names(
        shown.lines(stopped_shown.iter().filter_map(show::attention_line)),
        "stopped_more",
        "more are stopped",
        names(stopped),
    );
    if *stopped_more > 0 {
        shown = shown.line(format!(
            "… and {stopped_more} others are stopped: get_pending_questions lists them"
        ));
    }
    let ended_lines = ended_shown.iter().map(|run| {
        format!(
            "{}{}{}",
            show::run_line(run),
            took(run),
            show::outcome_of(run, RESULT_CHARS)
        )
    });
    shown = add_names(
        shown.lines(ended_lines),
        "ended_more",
        "more have ended",
        names(ended),
    );
    shown = shown.lines(trees(ended));
    if *ended_more > 0 {
        shown = shown.line(format!(
            "… and {ended_more} others have ended: check_subagent_status lists them"
        ));
    }
    if !working.is_empty() {
        let some: Vec<String> = working_shown.iter().map(show::run_line).collect();
        shown = shown.line(format!(
            "{} still working: {}",
            working.len(),
            some.join("; ")
        ));
    }
    shown = add_names(shown, "working_more", "more are working", names(working));
    let again = format!("{WAIT_AGAIN} cursor={cursor}");
    let is_new = |run: &&RunView| {
        run.attention
            .as_ref()
            .is_some_and(|attention| attention.is_new)
    };
    // New events take precedence over a stop that the client already knows.
    let to_resume = stopped.iter().find(is_new).or(stopped
        .first()
        .filter(|_| ended.is_empty() && underway.is_empty()));
    let is_alive = |run: &RunView| run.reported.is_some() && run.silent_since.is_some();
    let paused = ended_shown
        .iter()
        .find(|run| run.state == RunStateKind::Stopped);
    let next = match (outcome.known(), to_resume.or(paused)) {
        _ if !needs.is_empty() => format!("{}, then {again}", reply_hint(needs)),
        (_, Some(run)) => format!("{}; then {again}", resume_hint(run)),
        (Some(WaitOutcome::Idle), _) if ended.is_empty() => {
            shown = shown.line("there is no live run to wait for");
            "run_subagent starts a run; check_subagent_status lists earlier ones".to_owned()
        }
        (Some(WaitOutcome::Timeout), _) => {
            shown = shown.line("nothing to report yet");
            again
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| run.retrying.is_some()) => {
            format!(
                "its model fails: wait on, or cancel the run (steer_subagent) and use another agent; {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| !run.overlaps.is_empty()) => {
            format!(
                "have one of the runs that announced the same change something else (steer_subagent), unless they agree; {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| !run.conflicts.is_empty()) => {
            format!(
                "have one of the runs in conflict change something else (steer_subagent), or merge in that order; {again}"
            )
        }
        _ if ended.is_empty()
            && working_shown.iter().any(|run| {
                run.fence
                    .as_ref()
                    .is_some_and(|fence| fence.denied_writes.is_some())
            }) =>
        {
            format!(
                "tell the run to keep to its workspace (steer_subagent), or cancel it and have the user allow the directory; {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(is_alive) => {
            format!(
                "it has reported, but lives on: use its report (check_subagent_status), wait, or cancel it (steer_subagent); {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| run.silent_since.is_some()) => {
            format!(
                "check whether it hangs (get_subagent_logs); steer_subagent sends it a message or cancels it; {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| run.overdue_since.is_some()) => {
            format!(
                "check the progress of the overdue run (check_subagent_status, get_subagent_logs); {again}"
            )
        }
        _ if ended.is_empty() && working_shown.iter().any(|run| run.reported.is_some()) => {
            format!("check_subagent_status shows its report; to wait for its end: {again}")
        }
        _ if underway.is_empty() => {
            let rest = stopped
                .first()
                .map_or_else(|| "nothing is left to wait for".to_owned(), resume_hint);
            format!("check the results (check_subagent_status, get_subagent_logs); {rest}")
        }
        _ => format!("check what ended; for the others {again}"),
    };
    shown.next(next)
}

/// Shows the result of a wait for one run, with the fields that `run_subagent` promises too: a Task may be the reply to
/// either tool.
#[must_use]
pub(in crate::mcp) fn waited_for_one(found: &Waited, given: &str) -> Shown {
    let mut runs = found
        .ended
        .iter()
        .chain(&found.stopped)
        .chain(&found.working);
    let run = runs.find(|run| run.run_id == given || run.name == given);
    let request = found
        .needs
        .iter()
        .find(|request| request.run_id == given || request.run_name == given);
    let (run_id, name, status) = match (run, request) {
        (Some(run), _) => (&run.run_id, &run.name, run.status.as_str()),
        (None, Some(request)) => (&request.run_id, &request.run_name, "waiting"),
        (None, None) => return waited(found, None),
    };
    waited(found, None)
        .with("run_id", line(run_id, 60))
        .with("name", line(name, 60))
        .with("status", line(status, 40))
}

/// Formats what a run without children took.
fn took(run: &RunView) -> String {
    run.tree
        .as_ref()
        .filter(|tree| tree.runs == 1)
        .map(|tree| format!(", {}", tree_line(tree)))
        .unwrap_or_default()
}

/// Formats what each tree of several runs took whose last run has ended.
fn trees(ended: &[RunView]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let of_several = ended.iter().filter_map(|run| {
        run.tree
            .as_ref()
            .filter(|tree| tree.runs > 1)
            .map(|tree| (run, tree))
    });
    let name = |run: &RunView| {
        if run.run_id == run.root {
            line(&run.name, 60)
        } else {
            format!("the tree of {}", line(&run.name, 60))
        }
    };
    let lines = of_several
        .filter(|(run, _)| seen.insert(run.root.clone()))
        .map(|(run, tree)| format!("{}: {}", name(run), tree_line(tree)));
    lines.take(TREES_MAX).collect()
}

pub(in crate::mcp) fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(WAITED_MAX)]
}

/// Adds the names of items that are not shown in detail.
fn add_names(shown: Shown, field: &str, what: &str, names: Vec<String>) -> Shown {
    if names.is_empty() {
        return shown;
    }
    let more = format!(
        "… {} {what}: {}",
        names.len(),
        line(&names.join(", "), 2_000)
    );
    shown.line(more).with(field, names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::RequestView;
    use crate::view::{AttentionKind, AttentionView};
    use adjutant_core::StopReason;
    use adjutant_core::attention::Need;

    #[test]
    fn wait_for_many_runs_shows_few_and_names_all() {
        let run = |n: usize| RunView {
            name: format!("run-{n}"),
            agent: "echo".into(),
            result: Some("r".repeat(9_000)),
            ..RunView::default()
        };
        let request = |n: usize| RequestView {
            number: format!("Q{n}"),
            question: "q".repeat(5_000),
            ..RequestView::default()
        };
        let many = Waited {
            outcome: WaitOutcome::Event.into(),
            needs: (0..40).map(request).collect(),
            ended: (0..40).map(run).collect(),
            working: (0..40).map(run).collect(),
            cursor: 9,
            ..Waited::default()
        };
        let result = waited(&many, None).into_result();
        let text = result.content[0].as_text().expect("text").text.clone();
        assert!(
            text.lines().count() <= 25 && text.ends_with("then wait_for_subagents cursor=9"),
            "{text}"
        );
        let data = result.structured_content.expect("data");
        for n in 0..40 {
            let name = format!("run-{n}");
            assert!(
                text.contains(&name)
                    && data.to_string().contains(&name)
                    && text.contains(&format!("Q{n}")),
                "{name}"
            );
        }
        assert!(
            data.to_string().len() < 48 * 1024,
            "{} bytes",
            data.to_string().len()
        );
        assert_eq!(data["ended_more"].as_array().map(Vec::len), Some(33));
    }

    #[test]
    fn stopped_run_is_shown_with_how_to_resume() {
        let attention = AttentionView {
            kind: AttentionKind::Stopped.into(),
            why: Need::Resume(StopReason::Blocker).into(),
            details: "node_modules is missing".into(),
            needs: Some("npm install".into()),
            is_new: true,
        };
        let run = RunView {
            name: "otter".into(),
            state: RunStateKind::Stopped.into(),
            attention: Some(attention),
            result: Some("[/STOP_WORK]".into()),
            ..RunView::default()
        };
        let known_stop = RunView {
            attention: run.attention.clone().map(|known| AttentionView {
                is_new: false,
                ..known
            }),
            ..run.clone()
        };
        let stopped = Waited {
            outcome: WaitOutcome::Event.into(),
            stopped: vec![run],
            cursor: 5,
            ..Waited::default()
        };
        let text = waited(&stopped, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("action=resume run_id=otter") && text.ends_with("cursor=5"),
            "{text}"
        );
        assert!(
            text.contains("node_modules is missing")
                && text.contains("npm install")
                && !text.contains("STOP_WORK"),
            "{text}"
        );
        // Beside a new end, the known stop is not forgotten.
        let ended = RunView {
            name: "badger".into(),
            state: RunStateKind::Finished.into(),
            ..RunView::default()
        };
        let both = Waited {
            outcome: WaitOutcome::Event.into(),
            stopped: vec![known_stop],
            ended: vec![ended],
            ..Waited::default()
        };
        let text = waited(&both, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("next: check the results") && text.contains("action=resume run_id=otter"),
            "{text}"
        );
    }

    #[test]
    fn wait_without_runs_is_reported() {
        let idle = Waited {
            outcome: WaitOutcome::Idle.into(),
            ..Waited::default()
        };
        let text = waited(&idle, None).into_result().content[0]
            .as_text()
            .expect("text")
            .text
            .clone();
        assert!(
            text.contains("no live run") && text.contains("next: run_subagent"),
            "{text}"
        );
    }
}
