//! Chats as one of several agents sees them that share a connection.

use crate::mcp::labels::{Label, LabelUnread};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::session::McpSession;
use crate::view::{ChatEntryView, ChatPage, ChatView, ShowChat};

/// Maximum number of unread entries that are counted.
const COUNTED_MAX: u32 = 200;

/// Returns the label of a call. Without `--compat`, the connection alone says who reads.
pub(super) fn label_of(session: &McpSession, agent_name: Option<&str>) -> Option<Label> {
    if session.compat() {
        Label::parse(agent_name)
    } else {
        None
    }
}

/// Marks a chat with what the label has not read.
pub(super) async fn mark_unread(
    session: &McpSession,
    label: &Label,
    chat: &mut ChatView,
) -> Result<(), ToolRefusal> {
    let unread = unread_of(session, label, chat).await?;
    (chat.unread, chat.mentioned) = (unread.entries, unread.is_mentioned);
    Ok(())
}

async fn unread_of(
    session: &McpSession,
    label: &Label,
    chat: &ChatView,
) -> Result<LabelUnread, ToolRefusal> {
    let read_to = session.labels().read_to(label, chat.chat_id);
    if chat.last_seq <= read_to {
        return Ok(LabelUnread::default());
    }
    let entries = entries_after(session, chat.chat_id, read_to).await?;
    Ok(session.labels().unread(label, chat.chat_id, &entries))
}

/// Reads the entries after one without moving the client's cursor.
async fn entries_after(
    session: &McpSession,
    chat_id: i64,
    after: i64,
) -> Result<Vec<ChatEntryView>, ToolRefusal> {
    let limit = Some(COUNTED_MAX);
    Ok(session
        .client()
        .call(&ShowChat {
            chat_id,
            after: Some(after),
            limit,
            peek: true,
            ..ShowChat::default()
        })
        .await?
        .messages)
}

/// Records that the label was shown a page, and marks its chat with what it has not read.
pub(super) async fn note_page(
    session: &McpSession,
    label: &Label,
    page: &mut ChatPage,
) -> Result<(), ToolRefusal> {
    let chat = page.chat.chat_id;
    let read_to = session.labels().read_to(label, chat);
    (page.unread_before, page.read_to) = (0, read_to);
    if let (Some(first), Some(last)) = (
        page.messages.first().map(|entry| entry.seq),
        page.messages.last().map(|entry| entry.seq),
    ) {
        if first > read_to + 1 {
            let mut before = entries_after(session, chat, read_to).await?;
            before.retain(|entry| entry.seq < first);
            page.unread_before = session.labels().unread(label, chat, &before).entries;
        }
        let begin = if page.unread_before == 0 {
            read_to + 1
        } else {
            first
        };
        session
            .labels()
            .note_read(label, chat, begin.min(first), last);
    }
    mark_unread(session, label, &mut page.chat).await
}
