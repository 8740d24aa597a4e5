//! Messages delivered with the results of tools.

use crate::mcp::session::McpSession;
use crate::mcp::show::{self, Shown};
use crate::view::{GetRun, MessageView};
use serde_json::{Value, json};

/// Adds the parent's unread messages to the result of a tool whose own call delivers none.
pub(in crate::mcp) async fn with_unread(session: &McpSession, shown: Shown) -> Shown {
    match session.client().call(&GetRun::default()).await {
        Ok(own) => with_messages(shown, &own.requests.messages),
        // They are delivered with the next call.
        Err(error) => {
            tracing::warn!(%error, "messages cannot be read");
            shown
        }
    }
}

/// Adds the parent's unread messages to the result of the worker's call.
pub(in crate::mcp) fn with_messages(shown: Shown, messages: &[MessageView]) -> Shown {
    if messages.is_empty() {
        return shown;
    }
    let data: Vec<Value> = messages
        .iter()
        .map(|message| json!({"message_id": message.message_id, "from": message.from, "sent_at": message.sent_at, "text": message.text}))
        .collect();
    shown
        .with("messages", data)
        .lines(messages.iter().map(show::message_line))
}
