//! Starting a chat.

use crate::mcp::args::Args;
use crate::mcp::caller::Caller;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::StartChat;
use serde_json::json;

pub(in crate::mcp) async fn start_chat(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let start = StartChat {
        title: args.word("title"),
        participants: args.texts("participants"),
        template: args.owned("template"),
        branch_from: args.owned("branch_from"),
        private: args.truth("private").unwrap_or(false),
        instructions: None,
    };
    let chat = session.client().call(&start).await?;
    let message = format!("started chat {} {}", chat.chat_id, quoted(&chat.title, 200));
    let names: Vec<&str> = chat.participants.iter().map(|participant| participant.name.as_str()).collect();
    let shown = Shown::new(json!({
        "chat_id": chat.chat_id,
        "chatId": chat.chat_id,
        "title": chat.title,
        "participants": names,
        "message": message,
    }))
    .line(format!("{message}; participants: {}", line(&names.join(", "), 1_000)));
    reply(shown.next(format!("send_chat_message chat_id={}", chat.chat_id)))
}
