//! What an attempt uses of its model.

use serde::{Deserialize, Serialize};

/// What an attempt used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageText {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The tokens are those of all attempts in this session together.
    #[serde(default)]
    pub of_session: bool,
    /// The cost is.
    #[serde(default)]
    pub cost_of_session: bool,
    /// `input_tokens` includes `cached_tokens`.
    #[serde(default)]
    pub cached_in_input: bool,
}

/// A rolling window of an agent's quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaWindowText {
    #[serde(default)]
    pub minutes: u32,
    #[serde(default)]
    pub used_percent: u8,
    /// In milliseconds since the epoch.
    #[serde(default)]
    pub resets_at_ms: i64,
}

/// What an attempt has used of one model, as the gate counted it: totals of the attempt, which never become smaller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// As the requests name it. Empty: they name none.
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub requests: u64,
    /// Without those that were read from the cache or written to it.
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub cached_tokens: u64,
    #[serde(default)]
    pub cache_write_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    /// Requests whose responses did not state their usage.
    #[serde(default)]
    pub unknown_requests: u64,
}
