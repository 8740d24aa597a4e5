//! What a run's agent does and uses, as far as that is known.

use crate::view::Word;
use adjutant_core::Cause;
use serde::{Deserialize, Serialize};

/// Signals that did not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredView {
    pub count: u64,
    /// Why the last one did not.
    pub last: String,
}

/// A sub-agent that a run's CLI has started by itself. What is not known is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentView {
    /// What kind of agent it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The CLI's word for it: `running`, `completed`, … Absent where the run ended before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Tokens that it has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl SubagentView {
    /// Tells whether it works, by the last that was seen.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.as_deref() == Some(adjutant_core::subagent::RUNNING)
    }
}

/// A call to its model that a run's CLI retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryingView {
    /// Why the calls fail, as in `cause` of a run that failed.
    pub cause: Word<Cause>,
    /// When the first try failed.
    pub since: String,
    /// Failed tries, counted again once a minute.
    pub tries: u32,
    /// The CLI's own words: one line.
    pub words: String,
}

/// What was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageView {
    pub input_tokens: u64,
    /// Read from a cache, beside or within those.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// The tokens are only those of the last model call of each attempt. Stated where one run is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_last_call: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl std::fmt::Display for UsageView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { input_tokens, cached_tokens, output_tokens, of_last_call, cost_usd } = self;
        let scope = if *of_last_call { " (last model call only)" } else { "" };
        write!(f, "{input_tokens} tokens in, {cached_tokens} cached, {output_tokens} out{scope}")?;
        cost_usd.map_or(Ok(()), |cost| write!(f, ", {cost:.4} USD"))
    }
}
