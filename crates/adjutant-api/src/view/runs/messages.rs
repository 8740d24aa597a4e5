//! Messages to a run.

use crate::view::Word;
use adjutant_core::words;
use serde::{Deserialize, Serialize};

/// Sends a message to a live run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SendToRun {
    pub run: String,
    pub text: String,
}

/// How a message reaches its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Queued,
    /// Sent to the running process.
    Live,
    /// Delivered with a tool call of the run.
    ToolResult,
    /// Delivered with the prompt of the run's next attempt.
    Prompt,
}

words!(Delivery { Queued = "queued", Live = "live", ToolResult = "tool_result", Prompt = "prompt" });

/// A message to a run, and how it was delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MessageView {
    pub message_id: String,
    pub run_id: String,
    pub run_name: String,
    pub from: String,
    pub text: String,
    pub sent_at: String,
    pub delivery: Word<Delivery>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
}
