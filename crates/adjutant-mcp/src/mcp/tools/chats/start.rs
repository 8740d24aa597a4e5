//! Starting a chat.

use crate::mcp::caller::McpCaller;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::StartChat;
use serde::Deserialize;
use serde_json::json;

/// The arguments of `start_chat`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct StartChatArgs {
    title: String,
    #[serde(default)]
    participants: Vec<String>,
    template: Option<String>,
    branch_from: Option<String>,
    private: Option<bool>,
    #[expect(
        dead_code,
        reason = "the original protocol passes it; the channel says who calls"
    )]
    agent_name: Option<String>,
}

pub(in crate::mcp) async fn start_chat(
    session: &McpSession,
    _caller: &McpCaller,
    args: StartChatArgs,
) -> ToolResult {
    let start = StartChat {
        title: args.title,
        participants: args.participants,
        template: args.template,
        branch_from: args.branch_from,
        private: args.private.unwrap_or(false),
        instructions: None,
    };
    let chat = session.client().call(&start).await?;
    let message = format!("started chat {} {}", chat.chat_id, quoted(&chat.title, 200));
    let names: Vec<&str> = chat
        .participants
        .iter()
        .map(|participant| participant.name.as_str())
        .collect();
    let shown = Shown::new(json!({
        "chat_id": chat.chat_id,
        "chatId": chat.chat_id,
        "title": chat.title,
        "participants": names,
        "message": message,
    }))
    .line(format!(
        "{message}; participants: {}",
        line(&names.join(", "), 1_000)
    ));
    reply(shown.next(format!("send_chat_message chat_id={}", chat.chat_id)))
}
