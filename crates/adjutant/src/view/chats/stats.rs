//! Statistics of chats.

use crate::view::Call;
use serde::{Deserialize, Serialize};

/// Returns statistics of one chat, or of all chats.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetChatStats {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
}
call!(GetChatStats = "chat-stats", writes false -> ChatStats);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatStats {
    pub chats: i64,
    pub entries: i64,
    pub messages: i64,
    pub participants: i64,
    /// Time from a chat's start to its newest entry; the mean if there are several chats.
    pub duration_s: i64,
    pub messages_per_chat: f64,
    /// Counts among the newest 10,000 turns of agents.
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p50: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p95: Option<i64>,
    /// Calls about chats since the hub started, how many of them failed through no fault of the caller, and how
    /// many were refused.
    pub calls: u64,
    pub calls_failed: u64,
    pub calls_refused: u64,
    /// Seconds since the hub started.
    pub up_s: u64,
}
