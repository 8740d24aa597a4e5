//! Other names of tools, and the original protocol's spellings.

use crate::mcp::session::Role;

/// Tools that a role can always call but that are listed only under `--compat`. A worker's other
/// tools already return what this one shows.
pub(crate) const UNLISTED: [(Role, &str); 1] = [(Role::Worker, "check_subagent_status")];

/// Aliases of tools: always accepted, listed under `--compat`.
pub const ALIASES: [(&str, &str); 12] = [
    ("check_status", "check_subagent_status"),
    ("check_message_status", "check_answer"),
    ("get_logs", "get_subagent_logs"),
    ("update_status", "update_subagent_status"),
    ("start-chat", "start_chat"),
    ("list-chats", "list_chats"),
    ("show-chat", "show_chat"),
    ("send-message", "send_chat_message"),
    ("ask_gemini", "send_chat_message"),
    ("ask-gemini", "send_chat_message"),
    // Earlier names, which some clients now use for their own tools.
    ("list_agents", "list_coding_agents"),
    ("send_message", "send_chat_message"),
];

/// Arguments that the original protocol spells differently for one tool, by the tool's listed name.
pub(in crate::mcp) const SPELLED_APART: [(&str, &[(&str, &str)]); 4] = [
    ("check_answer", &[("message_id", "message_id")]),
    ("get_pending_questions", &[("run_id", "run_id")]),
    ("ask_gemini", &[("message", "prompt")]),
    ("ask-gemini", &[("message", "prompt")]),
];

/// Arguments that the original protocol requires, by the tool's listed name. Calls without them are
/// accepted.
pub(in crate::mcp) const ORIGINALLY_REQUIRED: [(&str, &[&str]); 6] = [
    ("ask_parent", &["question"]),
    ("check_message_status", &["run_id", "message_id"]),
    ("check_status", &["run_id"]),
    ("send-message", &["chat_id", "agent_name", "message"]),
    ("ask_gemini", &["message"]),
    ("ask-gemini", &["message"]),
];

/// `run_subagent_<agent>` starts a run of that agent.
pub(crate) const RUN_PREFIX: &str = "run_subagent_";
