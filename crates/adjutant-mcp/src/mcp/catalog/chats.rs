//! The tools of chats.

use super::params::{CHAT_ID, KEY, LABEL, WAIT};
use super::row::{Effect, ToolRow, handler};
use crate::mcp::args::{Kind, Param};
use crate::mcp::tools::chats;
use adjutant_core::Action;

pub(in crate::mcp) const START_CHAT: ToolRow = ToolRow {
    name: "start_chat",
    title: "Start a chat",
    about: "Opens a lasting conversation that others can join. An agent among the participants answers every message.",
    params: &[
        Param::new("title", Kind::Text).required(),
        Param::new("participants", Kind::Texts)
            .about("Agents, runs, person, parent")
            .worker_about(""),
        Param::new("template", Kind::Text)
            .about("review, debugging, planning")
            .compat_only(),
        Param::new("branch_from", Kind::Text)
            .about("Chat or message: 3, 3.17")
            .compat_only(),
        Param::new("private", Kind::Bool).compat_only(),
        LABEL,
    ],
    actions: &[Action::StartChat],
    effect: Effect::Adds,
    core: false,
    output: &[
        ("chat_id", "integer", true),
        ("chatId", "integer", true),
        ("message", "string", true),
        ("next", "string", true),
    ],
    handler: handler!(chats::start_chat, chats::StartChatArgs),
};

pub(in crate::mcp) const LIST_CHATS: ToolRow = ToolRow {
    name: "list_chats",
    title: "List chats",
    about: "Use to find chats, unread messages, runs of your team; query searches all.",
    params: &[
        Param::new("query", Kind::Text),
        Param::new("status", Kind::Word(&["active", "archived", "all"])).worker_compat_only(),
        Param::new("limit", Kind::Count).compat_only(),
        Param::new("wait_s", Kind::Count).compat_only(),
        Param::new("board", Kind::Text)
            .compat_only()
            .about("Reads the boards of this run, or of all"),
        LABEL,
    ],
    actions: &[Action::ListChats],
    effect: Effect::Reads,
    core: false,
    output: &[
        ("chats", "array", false),
        ("team", "array", false),
        ("hits", "array", false),
        ("entries", "array", false),
        ("next", "string", true),
    ],
    handler: handler!(chats::list_chats, chats::ListChatsArgs),
};

pub(in crate::mcp) const SHOW_CHAT: ToolRow = ToolRow {
    name: "show_chat",
    title: "Read a chat",
    about: "Use to read a chat's newest messages, or those after one; wait_s waits for new ones.",
    params: &[
        CHAT_ID.required(),
        Param::new("after", Kind::Text),
        Param::new("limit", Kind::Count).compat_only(),
        WAIT,
        LABEL,
    ],
    actions: &[Action::ReadChat],
    effect: Effect::WritesOnce,
    core: false,
    output: &[
        ("chat_id", "integer", true),
        ("messages", "array", true),
        ("cursor", "integer", true),
        ("next", "string", true),
    ],
    handler: handler!(chats::show_chat, chats::ShowChatArgs),
};

pub(in crate::mcp) const SEND_MESSAGE: ToolRow = ToolRow {
    name: "send_chat_message",
    title: "Send a message",
    about: "Use to write to a chat, or to one agent, run, person or the parent; @name mentions one. Returns the agents' answers.",
    params: &[
        CHAT_ID,
        Param::new("to", Kind::Texts)
            .about("Recipients; or board: entries by key")
            .worker_about("Names; board: entries by key; ledger: paths you will change"),
        Param::new("message", Kind::Text).also(&["prompt"]),
        Param::new("reply_to", Kind::Text).compat_only(),
        Param::new("edit_of", Kind::Text)
            .compat_only()
            .about("Number of your message"),
        Param::new("pin", Kind::Bool).compat_only(),
        Param::new("key", Kind::Text),
        Param::new("expect", Kind::Count).about("Its version"),
        Param::new("archive", Kind::Bool)
            .compat_only()
            .about("Archive or restore the chat; parents only"),
        WAIT,
        KEY.compat_only(),
        LABEL,
        Param::new("include_history", Kind::Bool)
            .original("includeHistory")
            .compat_only()
            .about("Always true"),
        Param::new("model", Kind::Text)
            .compat_only()
            .about("Refused: set in the agent's configuration"),
    ],
    actions: &[Action::Say],
    effect: Effect::Adds,
    core: false,
    output: &[
        ("chat_id", "integer", true),
        ("message_id", "string", true),
        ("seq", "integer", true),
        ("status", "string", true),
        ("response", "string", false),
        ("next", "string", true),
    ],
    handler: handler!(chats::send_message, chats::SendChatMessageArgs),
};

// A worker's tools are the same with shorter descriptions.
pub(in crate::mcp) const START_CHAT_OF_WORKER: ToolRow = ToolRow {
    about: "Opens a lasting conversation. An agent among the participants answers every message.",
    ..START_CHAT
};

pub(in crate::mcp) const LIST_CHATS_OF_WORKER: ToolRow = ToolRow {
    about: "Finds chats, unread messages, and the runs of your team; query searches messages.",
    ..LIST_CHATS
};

pub(in crate::mcp) const SHOW_CHAT_OF_WORKER: ToolRow = ToolRow {
    about: "Reads a chat's newest messages, or those after one; wait_s waits for new ones.",
    ..SHOW_CHAT
};

pub(in crate::mcp) const SEND_MESSAGE_OF_WORKER: ToolRow = ToolRow {
    about: "Writes to a chat, or to one agent, run, person or your parent; returns the agents' answers.",
    ..SEND_MESSAGE
};
