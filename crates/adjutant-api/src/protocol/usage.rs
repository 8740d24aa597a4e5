//! The usage of an attempt's model.

use serde::{Deserialize, Serialize};

/// The usage of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageText {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// The tokens are those of all attempts in this session.
    #[serde(default)]
    pub of_session: bool,
    /// The cost is that of all attempts in this session.
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

/// The usage of one model that the gate counted: totals of the attempt, which never decrease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// The model that the requests name. Empty: none.
    #[serde(default)]
    pub model: String,
    #[serde(default)]
    pub requests: u64,
    /// Without tokens read from the cache or written to it.
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
