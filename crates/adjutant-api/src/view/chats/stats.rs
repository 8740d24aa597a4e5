//! Statistics of chats.

use serde::{Deserialize, Serialize};

/// Returns statistics of one chat, or of all chats.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetChatStats {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
}

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
    /// Calls about chats since the hub started, how many of them failed through no fault of the
    /// caller, and how many were refused.
    pub calls: u64,
    pub calls_failed: u64,
    pub calls_refused: u64,
    /// Times of the newest 1,000 of these calls at the hub, in microseconds. Calls that wait for
    /// something are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_us_p50: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_us_p95: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_us_max: Option<u64>,
    /// The resident memory of the hub's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub_memory_bytes: Option<u64>,
    /// The participants that posted most, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_participant: Vec<ParticipantStats>,
    /// Seconds since the hub started.
    pub up_s: u64,
}

/// What one participant has contributed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ParticipantStats {
    /// `person`, `client:<name>`, `run:<id>`, `agent:<name>` or `hub`.
    pub who: String,
    pub name: String,
    pub messages: i64,
    /// The turns of an agent, by their outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<TurnStats>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TurnStats {
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_p50: Option<i64>,
}
