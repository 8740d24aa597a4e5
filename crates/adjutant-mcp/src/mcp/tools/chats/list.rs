//! Listing and searching chats.

use super::labels::{label_of, mark_unread};
use super::render::{chat_brief, chat_line, shown_text};
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::{
    BoardEntryView, ChatFilter, ListChats, ReadBoard, Search, SearchHit, TeammateView, Word,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Default number of chats or matches in a result.
const CHATS_DEFAULT: u32 = 15;

/// Maximum number of siblings in the text of a list.
const TEAM_LINES_MAX: usize = 8;

/// Maximum number of characters of a board's entry.
const BOARD_CHARS_MAX: usize = 1_000;

/// Maximum number of characters of a sibling's task.
const TASK_CHARS_MAX: usize = 80;

/// The arguments of `list_chats`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ListChatsArgs {
    query: Option<String>,
    status: Option<Word<ChatFilter>>,
    limit: Option<u64>,
    wait_s: Option<u64>,
    board: Option<String>,
    agent_name: Option<String>,
}

pub(in crate::mcp) async fn list_chats(
    session: &McpSession,
    caller: &McpCaller,
    args: ListChatsArgs,
) -> ToolResult {
    if let Some(query) = args.query {
        return search(session, query, args.limit).await;
    }
    if let Some(run) = args.board {
        return board(session, run, args.limit).await;
    }
    let limit = args.limit.map_or(CHATS_DEFAULT, |limit| {
        u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, 100)
    });
    let wait = caller.bounded(args.wait_s, Duration::ZERO);
    let call = ListChats {
        status: args.status,
        limit: Some(limit),
        wait_ms: wait_ms(wait),
    };
    let mut list = caller
        .wait_with_progress("waiting for a message", session.client().call(&call))
        .await??;
    if let Some(label) = label_of(session, args.agent_name.as_deref()) {
        for chat in &mut list.chats {
            mark_unread(session, &label, chat).await?;
        }
    }
    let mut chats: Vec<Value> = list.chats.iter().map(chat_brief).collect();
    if session.compat() {
        for (brief, chat) in chats.iter_mut().zip(&list.chats) {
            (brief["chatId"], brief["createdAt"]) = (json!(chat.chat_id), json!(chat.started_at));
        }
    }
    let mut shown = Shown::new(json!({"chats": chats, "more": list.more}))
        .lines(list.chats.iter().map(chat_line))
        .lines(
            list.more
                .then(|| "… and older ones: pass a larger limit".to_owned()),
        )
        .lines(list.team.iter().take(TEAM_LINES_MAX).map(teammate_line));
    if !list.team.is_empty() {
        shown = shown.with(
            "team",
            list.team.iter().map(teammate_brief).collect::<Vec<_>>(),
        );
        if list.team_more || list.team.len() > TEAM_LINES_MAX {
            shown = shown.line("… and more runs of your team");
        }
    }
    let unread = list
        .chats
        .iter()
        .find(|chat| chat.mentioned)
        .or_else(|| list.chats.iter().find(|chat| chat.unread > 0));
    match (unread, list.chats.first()) {
        (Some(chat), _) => reply(shown.next(format!("show_chat chat_id={}", chat.chat_id))),
        (None, Some(_)) => reply(shown.next("show_chat or send_chat_message with a chat_id; list_chats wait_s=… waits for a message to you")),
        (None, None) if !list.team.is_empty() => {
            reply(shown.line("no chats yet").next("send_chat_message to=NAME; list_chats wait_s=… waits for a message to you"))
        }
        (None, None) => reply(shown.line("no chats yet").next("start_chat title=…")),
    }
}

/// Shows the boards of a run, or all that the caller sees, merged.
async fn board(session: &McpSession, run: String, limit: Option<u64>) -> ToolResult {
    let limit = limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let run = Some(run).filter(|run| !matches!(run.as_str(), "" | "all"));
    let board = session.client().call(&ReadBoard { run, limit }).await?;
    let entries: Vec<Value> = board.entries.iter().map(|entry| json!(entry)).collect();
    let mut shown = Shown::new(json!({"entries": entries, "more": board.more})).lines(
        board
            .more
            .then(|| "… and older entries: pass a larger limit".to_owned()),
    );
    shown = shown.lines(board.entries.iter().map(board_line));
    if board.entries.is_empty() {
        shown = shown.line("no entries yet");
    }
    reply(shown.next("send_chat_message to=board key=… expect=VERSION changes an entry"))
}

fn board_line(entry: &BoardEntryView) -> String {
    let key = entry.key.as_ref().map_or_else(String::new, |key| {
        format!(" key {} version {}", quoted(key, 200), entry.version)
    });
    let (id, name, board) = (
        line(&entry.message_id, 40),
        line(&entry.name, 100),
        quoted(&entry.board, 100),
    );
    format!(
        "{id} in {board}{key} by {name}: {}",
        quoted(&entry.value.to_string(), BOARD_CHARS_MAX)
    )
}

fn teammate_brief(run: &TeammateView) -> Value {
    let TeammateView {
        run_id,
        name,
        agent,
        status,
        task,
    } = run;
    json!({"run_id": run_id, "name": name, "agent": agent, "status": status, "task": shown_text(task, usize::MAX)})
}

fn teammate_line(run: &TeammateView) -> String {
    format!(
        "run {} ({}) {}: {}",
        line(&run.name, 60),
        line(&run.agent, 60),
        line(run.status.as_str(), 40),
        quoted(&run.task, TASK_CHARS_MAX)
    )
}

async fn search(session: &McpSession, query: String, limit: Option<u64>) -> ToolResult {
    let limit = limit.map_or(CHATS_DEFAULT, |limit| {
        u32::try_from(limit).unwrap_or(u32::MAX).clamp(1, 100)
    });
    let found = session
        .client()
        .call(&Search {
            query,
            limit: Some(limit),
            ..Search::default()
        })
        .await?;
    let mut shown = Shown::new(json!({"hits": found.hits, "incomplete": found.incomplete}))
        .lines(found.hits.iter().map(hit_line));
    if found.incomplete {
        shown = shown.line("the search stopped early: narrow it with more words");
    }
    let Some(first) = found.hits.first() else {
        return reply(
            shown
                .line("no matches (all words must appear)")
                .next("list_chats with fewer words"),
        );
    };
    reply(
        shown.next(
            match (
                first.chat_id,
                first
                    .message_id
                    .as_deref()
                    .and_then(|id| id.split_once('.')),
            ) {
                (Some(chat), Some((_, seq))) => {
                    let after = seq.parse::<i64>().unwrap_or(1).saturating_sub(3).max(0);
                    format!("show_chat chat_id={chat} after={after} shows the first in its place")
                }
                _ => format!(
                    "check_subagent_status run_id={} shows the first in its place",
                    line(&first.title, 100)
                ),
            },
        ),
    )
}

fn hit_line(hit: &SearchHit) -> String {
    let (name, at) = (line(&hit.name, 100), line(&hit.at, 40));
    let place = match &hit.message_id {
        Some(id) if hit.chat_id.is_some() => {
            format!("{} in {} by {name}", line(id, 40), quoted(&hit.title, 80))
        }
        Some(id) => format!("{} {} of {name}", line(hit.kind.as_str(), 40), line(id, 60)),
        None => format!("report of {name}"),
    };
    format!("{place} at {at}: {}", quoted(&hit.snippet, 400))
}
