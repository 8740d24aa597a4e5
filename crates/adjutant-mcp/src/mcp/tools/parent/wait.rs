//! Waiting for runs.

use super::waited::waited;
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::cursor::Cursor;
use crate::mcp::elicit::{self, ElicitOutcome};
use crate::mcp::reply::{ToolReply, ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::text::count;
use crate::view::{StartTask, Wait, WaitOutcome, WaitUntil, Waited};
use serde::Deserialize;
use std::time::Instant;

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
    session: &McpSession,
    caller: &McpCaller,
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
    let wait = Wait {
        runs: run_ids,
        until: until.unwrap_or(WaitUntil::Attention),
        after: from.map(|from| from.position),
        new_reports: true,
        wait_ms: 0,
    };
    // A caller that gives a time expects a reply by then, so it gets no Task, which waits
    // indefinitely.
    if caller.accepts_tasks && asked.is_none() {
        wait_as_task(session, caller, wait, from).await
    } else {
        let until = Instant::now() + caller.bounded(asked, caller.cap);
        wait_until(session, caller, wait, from, until).await
    }
}

/// Returns what has happened already, or a Task that waits.
async fn wait_as_task(
    session: &McpSession,
    caller: &McpCaller,
    mut wait: Wait,
    from: Option<Cursor>,
) -> ToolResult {
    let now = session.client().call(&wait).await?;
    if let ElicitOutcome::Required(required) =
        elicit::ask_person(session, caller, &now.needs, None).await?
    {
        return Ok(ToolReply::Input(required));
    }
    if now.outcome != WaitOutcome::Timeout {
        return show_found(session, caller, &wait, &now, from);
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
    Ok(ToolReply::Task(Box::new(task)))
}

/// Waits within the call, and asks the client's person meanwhile.
async fn wait_until(
    session: &McpSession,
    caller: &McpCaller,
    mut wait: Wait,
    from: Option<Cursor>,
    until: Instant,
) -> ToolResult {
    let doing = if wait.runs.is_empty() {
        "waiting for all live runs".to_owned()
    } else {
        format!(
            "waiting for {}",
            count(wait.runs.len() as u64, "run", "runs")
        )
    };
    loop {
        wait.wait_ms = wait_ms(until.saturating_duration_since(Instant::now()));
        let found = caller
            .wait_with_progress(&doing, session.client().call(&wait))
            .await??;
        match elicit::ask_person(session, caller, &found.needs, None).await? {
            ElicitOutcome::Nothing => return show_found(session, caller, &wait, &found, from),
            ElicitOutcome::Required(required) => return Ok(ToolReply::Input(required)),
            // The run continues with the person's answer.
            ElicitOutcome::Closed => {}
        }
    }
}

/// Shows the result of a wait, and notes that the client has it.
fn show_found(
    session: &McpSession,
    caller: &McpCaller,
    wait: &Wait,
    found: &Waited,
    from: Option<Cursor>,
) -> ToolResult {
    session.note_shown(
        caller.connection,
        Some(found.cursor),
        found.confirmation(!wait.runs.is_empty()),
    );
    reply(waited(found, from))
}
