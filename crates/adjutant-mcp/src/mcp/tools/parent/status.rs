//! Showing runs, and annotating one.

use super::confirmation::run_confirmation;
use super::next_step::{WAIT_AGAIN, reply_hint, resume_hint};
use crate::mcp::caller::McpCaller;
use crate::mcp::cursor::RESET;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::{self, RESULT_CHARS, RESULT_CHARS_LISTED, Shown};
use crate::mcp::text::{barred, quoted};
use crate::text::count;
use crate::view::{
    GetRun, ListAttention, ListRequests, ListRuns, METADATA_MESSAGES_MAX, ReadEvents,
    ReportedStatus, RunView, SetStatus, Word,
};
use adjutant_core::shorten;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of runs that a list shows.
const RUNS_MAX: u32 = 20;

/// Maximum number of events shown with a run.
const EVENTS_MAX: u32 = 50;

/// Maximum number of characters of a task in a list.
const TASK_CHARS: usize = 80;

/// The arguments of `check_subagent_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct CheckSubagentStatusArgs {
    run_id: Option<String>,
    history: Option<bool>,
    events_after: Option<i64>,
}

pub(in crate::mcp) async fn check_subagent_status(
    session: &McpSession,
    caller: &McpCaller,
    args: CheckSubagentStatusArgs,
) -> ToolResult {
    let Some(run) = args.run_id else {
        return list_runs(session).await;
    };
    // With what is read from its repository; the list of snapshots would be long.
    let mut run = session
        .client()
        .call(&GetRun {
            run,
            snapshots: true,
            ..GetRun::default()
        })
        .await?;
    run.changes.snapshots.clear();
    session.note_shown(caller.connection, None, run_confirmation(&run));
    let mut shown = run_shown(&run);
    if session.compat() {
        shown = with_metadata(session, shown, &run).await?;
    }
    if args.history == Some(true) || args.events_after.is_some() {
        shown = with_history(session, shown, &run, args.events_after.unwrap_or(0)).await?;
    }
    let next = if !run.requests.pending.is_empty() {
        reply_hint(&run.requests.pending)
    } else if run.condition.outcome.is_some() {
        "get_subagent_logs shows what it did; steer_subagent action=retry runs it again".to_owned()
    } else if run.needs_resume() {
        resume_hint(&run)
    } else {
        format!("{WAIT_AGAIN} (do not poll)")
    };
    reply(shown.next(next))
}

/// Shows a run with its open questions.
pub(in crate::mcp) fn run_shown(run: &RunView) -> Shown {
    Shown::new(show::run_full(run))
        .lines(show::run_lines(run))
        .lines(show::request_lines(run))
}

/// Adds the events of a run after a position, oldest first.
async fn with_history(
    session: &McpSession,
    shown: Shown,
    run: &RunView,
    after: i64,
) -> Result<Shown, ToolRefusal> {
    let read = ReadEvents {
        after,
        run: Some(run.identity.run_id.clone()),
        limit: Some(EVENTS_MAX),
        wait_ms: 0,
    };
    let page = session.client().call(&read).await?;
    let lines: String = page
        .events
        .iter()
        .map(|event| show::event_line(event) + "\n")
        .collect();
    let has_more = page.events.len() >= EVENTS_MAX as usize;
    let more = if has_more {
        format!("; more with events_after={}", page.cursor)
    } else {
        String::new()
    };
    let shown = if page.reset {
        shown.with("reset", true).line(RESET)
    } else {
        shown
    };
    Ok(shown
        .with(
            "events",
            page.events
                .iter()
                .map(show::event_brief)
                .collect::<Vec<_>>(),
        )
        .with("events_next", page.cursor)
        .line(format!("{} events{more}:", page.events.len()))
        .quotation(barred(&lines)))
}

/// Adds the run's metadata under the original protocol's names.
async fn with_metadata(
    session: &McpSession,
    shown: Shown,
    run: &RunView,
) -> Result<Shown, ToolRefusal> {
    let Value::Object(metadata) = metadata(session, run).await? else {
        return Ok(shown);
    };
    Ok(metadata
        .into_iter()
        .fold(shown, |shown, (name, value)| shown.with(&name, value)))
}

pub(in crate::mcp) async fn metadata(
    session: &McpSession,
    run: &RunView,
) -> Result<Value, ToolRefusal> {
    let all = ListRequests {
        run: Some(run.identity.run_id.clone()),
        all: true,
        limit: Some(METADATA_MESSAGES_MAX),
    };
    let list = session.client().call(&all).await?;
    Ok(crate::view::metadata(run, &list.requests))
}

/// Returns a run as structured content of a list.
fn list_item(run: &RunView) -> Value {
    let mut data = show::run_brief(run, RESULT_CHARS_LISTED);
    data["task"] = json!(shorten::counted(&run.identity.task, TASK_CHARS));
    data
}

async fn list_runs(session: &McpSession) -> ToolResult {
    let list = session
        .client()
        .call(&ListRuns {
            all: true,
            limit: Some(RUNS_MAX),
            before: None,
        })
        .await?;
    let mut shown =
        Shown::new(json!({"runs": list.runs.iter().map(list_item).collect::<Vec<_>>()}));
    shown = shown.lines(list.runs.iter().map(|run| {
        let asks = if run.requests.pending_total == 0 {
            String::new()
        } else {
            format!(
                ", {}",
                count(
                    run.requests.pending_total,
                    "open question",
                    "open questions"
                )
            )
        };
        format!(
            "{}{asks}, task {}",
            show::run_line(run),
            quoted(&run.identity.task, 80)
        )
    }));
    if list.more > 0 {
        let at_least = if list.more_at_least { "at least " } else { "" };
        shown = shown.with("more", list.more).line(format!(
            "… {at_least}{}",
            count(list.more, "older run", "older runs")
        ));
    }
    if list.runs.is_empty() {
        return reply(
            shown
                .line("no runs yet")
                .next("list_coding_agents, then run_subagent"),
        );
    }
    let attention = session
        .client()
        .call(&ListAttention {
            limit: Some(1),
            ..ListAttention::default()
        })
        .await?;
    let live = list
        .runs
        .iter()
        .any(|run| run.condition.outcome.is_none() && !run.needs_resume());
    reply(
        shown.next(match (attention.requests.first(), attention.runs.first()) {
            (Some(_), _) => "get_pending_questions, then reply_subagent".to_owned(),
            (None, Some(run)) if run.needs_resume() => resume_hint(run),
            (None, None) if !live => {
                "check_subagent_status run_id=… for the details of one".to_owned()
            }
            (None, _) => format!("{WAIT_AGAIN} (do not poll)"),
        }),
    )
}

/// The arguments of `update_subagent_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct UpdateSubagentStatusArgs {
    run_id: String,
    status: Word<ReportedStatus>,
    summary: Option<String>,
}

pub(in crate::mcp) async fn update_subagent_status(
    session: &McpSession,
    _caller: &McpCaller,
    args: UpdateSubagentStatusArgs,
) -> ToolResult {
    let set = SetStatus {
        run: args.run_id,
        status: args.status,
        summary: args.summary,
        ..SetStatus::default()
    };
    let run = session.client().call(&set).await?;
    let mut shown = Shown::new(show::run_brief(&run, RESULT_CHARS_LISTED));
    if let Some(annotation) = &run.condition.annotation {
        shown = shown
            .with("annotation", shorten::counted(annotation, RESULT_CHARS))
            .line(format!("noted: {}", quoted(annotation, RESULT_CHARS)));
    }
    if session.compat() {
        shown = with_metadata(session, shown, &run).await?;
    }
    let next = if run.condition.outcome.is_some() {
        "nothing more to do for this run"
    } else {
        WAIT_AGAIN
    };
    reply(shown.line(show::run_line(&run)).next(next))
}
