//! Arguments that several tools share.

use crate::mcp::args::{Kind, Param};

pub(in crate::mcp) const RUN: Param = Param::new("run_id", Kind::Text)
    .original("runId")
    .also(&["subagent_id"]);

pub(in crate::mcp) const OWN_RUN: Param = Param::new("run_id", Kind::Text)
    .original("runId")
    .also(&["subagent_id"])
    .compat_only();

pub(in crate::mcp) const MESSAGE_ID: Param =
    Param::new("message_id", Kind::Text).original("messageId");

pub(in crate::mcp) const WAIT: Param = Param::new("wait_s", Kind::Count);

pub(in crate::mcp) const KEY: Param = Param::new("idempotency_key", Kind::Text);

pub(in crate::mcp) const STATUS: Param = Param::new(
    "status",
    Kind::Word(&["running", "success", "partial_success", "failed"]),
)
.compat_words(&["completed", "error"])
.required();

/// A parent's verdict on a run.
pub(in crate::mcp) const VERDICT: Param = Param::new(
    "status",
    Kind::Word(&["success", "partial_success", "failed"]),
)
.compat_words(&["running", "completed", "error"])
.required();

pub(in crate::mcp) const LABEL: Param = Param::new("agent_name", Kind::Text)
    .original("agentName")
    .compat_only();

pub(in crate::mcp) const CHAT_ID: Param = Param::new("chat_id", Kind::Integer).original("chatId");
