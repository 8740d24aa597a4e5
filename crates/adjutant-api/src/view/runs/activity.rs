//! What is known about the activity and usage of a run's agent.

use crate::view::Word;
use adjutant_core::Cause;
use adjutant_core::report::ReportStatus;
use adjutant_core::resources::ResourceUse;
use adjutant_core::units::money;
use serde::{Deserialize, Serialize};

/// Signals that were ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IgnoredView {
    pub count: u64,
    /// Why the last signal was ignored.
    pub last: String,
}

/// A report of a run whose process has not ended yet. The outcome is decided at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReportedView {
    pub at: String,
    /// The result that the run claims.
    pub status: Word<ReportStatus>,
    /// The owner has not been notified of it yet.
    #[serde(default)]
    pub is_new: bool,
}

impl ReportedView {
    /// Formats the claim: `reports success`.
    #[must_use]
    pub fn line(&self) -> String {
        format!("reports {}", self.status.as_str().replace('_', " "))
    }
}

/// A sub-agent that a run's CLI started by itself. Unknown fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SubagentView {
    /// The kind of agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The sub-agent's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The CLI's own word for the state, such as `running` or `completed`. Absent if the run ended
    /// first.
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

/// The machine resources that the processes of a run use. Peaks, CPU time and bytes written are
/// those of all attempts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResourcesView {
    /// Live processes at the newest measurement, and the most of all.
    pub processes: u32,
    pub processes_peak: u32,
    /// Memory at the newest measurement, and the most of all.
    pub memory_bytes: u64,
    pub memory_peak_bytes: u64,
    /// CPU time so far.
    pub cpu_ms: u64,
    /// CPU use between the last two measurements, in percent of one core.
    pub cpu_percent: u32,
    /// Bytes written to disk. Absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Output of the agent between the last two measurements, in bytes per second.
    pub output_bytes_per_s: u64,
}

impl From<ResourceUse> for ResourcesView {
    fn from(of: ResourceUse) -> Self {
        let ResourceUse {
            processes,
            processes_peak,
            memory_bytes,
            memory_peak_bytes,
            cpu_ms,
            cpu_percent,
            written_bytes,
            output_bytes_per_s,
        } = of;
        Self {
            processes,
            processes_peak,
            memory_bytes,
            memory_peak_bytes,
            cpu_ms,
            cpu_percent,
            written_bytes,
            output_bytes_per_s,
        }
    }
}

impl From<ResourcesView> for ResourceUse {
    fn from(of: ResourcesView) -> Self {
        let ResourcesView {
            processes,
            processes_peak,
            memory_bytes,
            memory_peak_bytes,
            cpu_ms,
            cpu_percent,
            written_bytes,
            output_bytes_per_s,
        } = of;
        Self {
            processes,
            processes_peak,
            memory_bytes,
            memory_peak_bytes,
            cpu_ms,
            cpu_percent,
            written_bytes,
            output_bytes_per_s,
        }
    }
}

/// The word of a fence by mounts.
const MOUNT_NAMESPACE: &str = "mount_namespace";

/// The fence of a run: which files the kernel lets it write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FenceView {
    /// `workspace` or `best-effort`.
    pub asked: String,
    /// The enforcement that a test from inside found when the newest attempt started:
    /// `mount_namespace`, `landlock` (a lesser one) or `none`. Absent before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforced: Option<String>,
    /// What a weaker fence does not enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// Why no fence or a lesser one is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The directories that the run can write to, in addition to its own temporary files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// How many denied writes its output reports. A hint: the words are those of the agent and its
    /// tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_writes: Option<u64>,
    /// The last line that reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_write: Option<String>,
}

impl std::fmt::Display for FenceView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            asked,
            enforced,
            not_enforced,
            why,
            writable,
            denied_writes: _,
            denied_write: _,
        } = self;
        match (enforced.as_deref(), why) {
            (None, _) => write!(f, "{asked} (not started yet)"),
            (Some("none"), why) => write!(
                f,
                "NONE, although {asked} was requested: {}",
                why.as_deref().unwrap_or("the reason is not known")
            ),
            (Some(by), _) => {
                let by = if by == MOUNT_NAMESPACE {
                    "a mount namespace"
                } else {
                    by
                };
                write!(
                    f,
                    "{asked}, enforced by {by}: can write only {} and its own temporary files",
                    writable.join(", ")
                )
            }
        }?;
        if not_enforced.is_empty() {
            Ok(())
        } else {
            write!(f, "; NOT enforced: {}", not_enforced.join("; "))
        }
    }
}

impl FenceView {
    /// Describes the denied writes that the run's output reports. The last line is apart.
    #[must_use]
    pub fn denied(&self) -> Option<(String, &str)> {
        let times = self.denied_writes?;
        let writes = if times == 1 { "write" } else { "writes" };
        let reports =
            format!("its output reports {times} {writes} that the fence denied, the last:");
        Some((reports, self.denied_write.as_deref()?))
    }

    /// Like [`FenceView::denied`], in one line.
    #[must_use]
    pub fn denied_line(&self) -> Option<String> {
        self.denied()
            .map(|(reports, line)| format!("{reports} {line}"))
    }
}

/// A failing model call that a run's CLI retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The cost, or a part of it, was computed from configured prices.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_by_prices: bool,
    /// Tokens whose cost is not known: the CLI states none, and its model has no price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_tokens: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl std::fmt::Display for UsageView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            input_tokens,
            cached_tokens,
            output_tokens,
            of_last_call,
            cost_usd,
            cost_by_prices,
            unpriced_tokens,
        } = self;
        let scope = if *of_last_call {
            " (last model call only)"
        } else {
            ""
        };
        write!(
            f,
            "{input_tokens} tokens in, {cached_tokens} cached, {output_tokens} out{scope}"
        )?;
        if let Some(cost) = cost_usd {
            write!(
                f,
                ", {}{}",
                money::of(*cost),
                if *cost_by_prices {
                    " (by configured prices)"
                } else {
                    ""
                }
            )?;
        }
        match unpriced_tokens {
            0 => Ok(()),
            tokens if cost_usd.is_some() => write!(f, ", the cost of {tokens} tokens is unknown"),
            _ => write!(f, ", cost unknown"),
        }
    }
}
