//! The agents' answers to a message, and summaries of a chat.

use super::entries::{ChatEntryView, ReceiptView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reads the agents' answers to a message, optionally waiting until all have answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadAnswers {
    pub chat_id: i64,
    /// The message's number in the chat.
    pub seq: i64,
    /// Reads only the answer of this turn, from [`Answers::turn`]. `seq` is then 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    /// Also reads the replies of the runs to which the message was sent. A wait for them ends when
    /// a message arrives for the caller, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replies: bool,
    #[serde(default)]
    pub wait_ms: u64,
}

/// Cancels the runs that are answering a message. Only the sender of the message may.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelAnswers {
    pub chat_id: i64,
    pub seq: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answers {
    /// Answers and failures, oldest first.
    pub answers: Vec<ChatEntryView>,
    /// Agents that have not answered yet.
    #[serde(default)]
    pub waiting: Vec<String>,
    /// For a summary: pass as [`ReadAnswers::turn`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i64>,
    /// With [`ReadAnswers::replies`]: the receipts of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
    /// With [`ReadAnswers::replies`]: messages are queued for the calling run, which end its wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_messages: bool,
}

/// Asks the configured agent, or another, to summarise a chat. The summary becomes an entry.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SummariseChat {
    pub chat_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The working directory of the agent's run, absolute.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}
