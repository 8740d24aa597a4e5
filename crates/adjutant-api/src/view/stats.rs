//! Statistics of runs.

use super::Word;
use adjutant_core::stats::{AnswerSource, StatsBy};
use serde::{Deserialize, Serialize};

/// Returns statistics of the runs that the caller may see. The home keeps finished runs for
/// `finished_retention`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GetStats {
    /// Only runs that were dispatched within this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_s: Option<u64>,
    /// How they are grouped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Word<StatsBy>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatsView {
    /// The start of the requested time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the oldest run was dispatched that is still kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_since: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Word<StatsBy>>,
    pub total: StatsRowView,
    /// The groups, those with the most runs first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<StatsRowView>,
    /// The runs of further groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Box<StatsRowView>>,
}

/// Statistics of a group of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatsRowView {
    /// The agent, pool, directory or parent. Absent: all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub runs: u64,
    pub queued: u64,
    /// Started and not finished, the stopped ones included.
    pub unfinished: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub spawn_failed: u64,
    pub lost: u64,
    /// Runs whose task another run has done again.
    pub retried: u64,
    /// Runs that were merged, that succeeded with an acceptance command, and that were one of both.
    pub merged: u64,
    pub verified: u64,
    pub accepted: u64,
    /// Runs that wrote in a chat.
    pub used_chat: u64,
    /// From the dispatch of a run to its first start, without runs that started after others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<TimesView>,
    /// How long runs that asked waited for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<TimesView>,
    /// How long started runs worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<TimesView>,
    /// From a request to its answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<AnswersView>,
    /// Millionths of a US dollar, over the runs whose cost is known. Absent: no cost is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Started runs whose cost is unknown.
    pub cost_unknown_runs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    pub tokens_unknown_runs: u64,
}

/// How long something took. Quantiles are at most 1/32 too low.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimesView {
    pub count: u64,
    pub p50_ms: u64,
    pub p95_ms: u64,
}

/// How long answers took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnswersView {
    pub by: Word<AnswerSource>,
    #[serde(flatten)]
    pub times: TimesView,
}

/// The time and cost of an ended tree of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TreeStatsView {
    pub runs: u64,
    /// From its first start to its last end.
    pub elapsed_ms: u64,
    /// How long one agent would have worked on all of it in sequence: the active time of all runs.
    pub sequential_ms: u64,
    /// Millionths of a US dollar, over the runs whose cost is known. Absent: no cost is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    pub cost_unknown_runs: u64,
}
