//! The chat tools, for parents and workers.

mod labels;
mod list;
mod render;
mod send;
mod show;
mod start;

pub(in crate::mcp) use list::{ListChatsArgs, list_chats};
pub(in crate::mcp) use render::{chat_line, mention_brief, mention_line};
pub(in crate::mcp) use send::{SendChatMessageArgs, send_message};
pub(in crate::mcp) use show::{ShowChatArgs, page_shown, show_chat};
pub(in crate::mcp) use start::{StartChatArgs, start_chat};
