//! What is known about the activity and usage of a run's agent.

use crate::view::Word;
use adjutant_core::Cause;
use serde::{Deserialize, Serialize};

/// Signals that were ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredView {
    pub count: u64,
    /// Why the last signal was ignored.
    pub last: String,
}

/// A sub-agent that a run's CLI started by itself. Unknown fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubagentView {
    /// The kind of agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The sub-agent's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The CLI's own word for the state, such as `running` or `completed`. Absent if the run ended first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Tokens used so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl SubagentView {
    /// Returns whether the sub-agent was running when its state was last seen.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state.as_deref() == Some(adjutant_core::subagent::RUNNING)
    }
}

/// The fence of a run: which files the kernel lets it write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceView {
    /// `workspace` or `best-effort`.
    pub asked: String,
    /// The enforcement that a test from inside found when the newest attempt started: `mount_namespace` or `none`.
    /// Absent before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
    /// Why no fence is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The directories that the run can write to, in addition to its own temporary files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// How many denied writes its output reports. A hint: the words are those of the agent and its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_writes: Option<u64>,
    /// The last line that reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_write: Option<String>,
}

impl std::fmt::Display for FenceView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, enforced, why, writable, denied_writes, denied_write } = self;
        match (enforced.as_deref(), why) {
            (None, _) => write!(f, "{asked} asked for"),
            (Some("none"), why) => write!(f, "{asked} asked for, none enforced: {}", why.as_deref().unwrap_or("the reason is not known")),
            (Some(by), _) => write!(f, "{asked}, enforced by {by}; it can write {}", writable.join(", ")),
        }?;
        match (denied_writes, denied_write) {
            (Some(times), Some(line)) => write!(f, "; its output reports denied writes ({times}), the last: {line}"),
            _ => Ok(()),
        }
    }
}

/// A failing model call that a run's CLI retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryingView {
    /// Why the calls fail, in the same words as `cause` of a failed run.
    pub cause: Word<Cause>,
    /// When the first try failed.
    pub since: String,
    /// The number of failed tries, updated once a minute.
    pub tries: u32,
    /// The CLI's own message, in one line.
    pub words: String,
}

/// Tokens and cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageView {
    pub input_tokens: u64,
    /// Tokens read from a cache. Depending on the vendor, `input_tokens` includes them.
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// Only the last model call of each attempt is counted. Set only in replies about a single run.
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
