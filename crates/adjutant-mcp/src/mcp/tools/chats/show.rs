//! Reading a chat.

use super::labels::{label_of, note_page};
use super::render::{chat_brief, chat_line, entry_brief, entry_text, share};
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::cursor::{Cursor, RESET};
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::line;
use crate::view::{ChatPage, ShowChat, unread_text};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

const ENTRIES_DEFAULT: u32 = 20;

const ENTRIES_MAX: u32 = 100;

/// Maximum number of characters of an entry that was edited or pinned since the last page.
const CHANGED_CHARS_MAX: usize = 4_000;

/// The arguments of `show_chat`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ShowChatArgs {
    chat_id: i64,
    after: Option<String>,
    limit: Option<u64>,
    wait_s: Option<u64>,
    agent_name: Option<String>,
}

pub(in crate::mcp) async fn show_chat(
    session: &McpSession,
    caller: &McpCaller,
    args: ShowChatArgs,
) -> ToolResult {
    let wait = caller.bounded(args.wait_s, Duration::ZERO);
    let label = label_of(session, args.agent_name.as_deref());
    // In the original protocol a chat is shown whole.
    let limit_default = if session.compat() {
        ENTRIES_MAX
    } else {
        ENTRIES_DEFAULT
    };
    let limit = args.limit.map_or(limit_default, |limit| {
        u32::try_from(limit)
            .unwrap_or(u32::MAX)
            .clamp(1, ENTRIES_MAX)
    });
    let chat = args.chat_id;
    let after = Cursor::read(args.after.as_deref(), "after")?;
    let changes = session
        .changes_shown(chat)
        .filter(|_| after.is_some() || !wait.is_zero());
    // A label waits for an entry that it has not read itself.
    let unread_from = label
        .as_ref()
        .filter(|_| !wait.is_zero())
        .map(|label| session.labels().read_to(label, chat));
    let show = ShowChat {
        chat_id: chat,
        after: after.map(|after| after.position).or(unread_from),
        changes,
        limit: Some(limit),
        wait_ms: wait_ms(wait),
        peek: false,
    };
    let mut page = caller
        .wait_with_progress(
            "waiting for messages in the chat",
            session.client().call(&show),
        )
        .await??;
    if let Some(label) = &label {
        note_page(session, label, &mut page).await?;
    }
    session.note_changes(chat, page.changes);
    let mut shown = page_shown(&page);
    if page.reset {
        shown = shown.with("reset", true).line(RESET);
    }
    let is_empty = page.messages.is_empty() && page.changed.is_empty();
    if is_empty {
        shown = shown.line("nothing new");
    }
    let has_timed_out = is_empty && args.wait_s.is_some();
    let first = page.messages.first().map_or(0, |entry| entry.seq);
    let id = page.chat.chat_id;
    if page.unread_before > 0 {
        shown = shown.line(format!(
            "{} earlier ones are unread: after={} shows them",
            unread_text(page.unread_before),
            page.read_to
        ));
    }
    reply(shown.next(match page.more {
        0 if first > 1 && after.is_none() => format!("send_chat_message chat_id={id}; after=0 shows it from the beginning"),
        0 => {
            format!(
                "send_chat_message chat_id={id}, or show_chat after={} wait_s=… waits for new messages",
                Cursor::after(after, page.cursor, has_timed_out)
            )
        }
        more => format!("show_chat chat_id={id} after={} for {more} more", page.cursor),
    }))
}

/// Shows a page of a chat.
pub(in crate::mcp) fn page_shown(page: &ChatPage) -> Shown {
    let chars_max = share(&page.messages);
    let participants: Vec<Value> = page
        .chat
        .participants
        .iter()
        .map(|participant| json!({"name": participant.name, "who": participant.who, "messages": participant.messages, "presence": participant.presence}))
        .collect();
    let mut data = chat_brief(&page.chat);
    data["chatId"] = json!(page.chat.chat_id);
    data["participants"] = json!(participants);
    data["branches"] = json!(page.chat.branches);
    data["messages"] = page
        .messages
        .iter()
        .map(|entry| entry_brief(entry, chars_max))
        .collect();
    if !page.changed.is_empty() {
        data["changed"] = page
            .changed
            .iter()
            .map(|entry| entry_brief(entry, CHANGED_CHARS_MAX))
            .collect();
    }
    data["cursor"] = json!(page.cursor);
    data["more"] = json!(page.more);
    data["unread_before"] = json!(page.unread_before);
    let present: Vec<String> = page
        .chat
        .participants
        .iter()
        .map(|participant| match participant.presence.as_str() {
            "" => line(&participant.name, 100),
            presence => format!("{} ({})", line(&participant.name, 100), line(presence, 20)),
        })
        .collect();
    let mut shown = Shown::new(data)
        .line(format!(
            "{}; with {}",
            chat_line(&page.chat),
            line(&present.join(", "), 1_000)
        ))
        .quotation(
            page.changed
                .iter()
                .map(|entry| format!("changed: {}", entry_text(entry, CHANGED_CHARS_MAX)))
                .chain(
                    page.messages
                        .iter()
                        .map(|entry| entry_text(entry, chars_max)),
                )
                .collect(),
        );
    if !page.chat.branches.is_empty() {
        let branches: Vec<String> = page.chat.branches.iter().map(ToString::to_string).collect();
        shown = shown.line(format!(
            "chats that branch off here: {}",
            branches.join(", ")
        ));
    }
    if chars_max != usize::MAX {
        shown = shown.line("long messages are cut: after=<its number - 1> limit=1 shows one whole");
    }
    shown
}
