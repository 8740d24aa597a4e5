//! Pools: how many of their runs may be live, and what waits.

use super::Word;
use adjutant_core::Isolation;
use adjutant_core::pool::{AfterEnd, AfterState, QueueReason};
use adjutant_core::units::duration;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Lists the pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListPools {}

/// Changes a pool until it is changed again, also across restarts of the hub. Only for the person.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangePool {
    pub pool: String,
    /// The new number of slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// Whether the number of slots follows the configuration again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slots_as_configured: bool,
    /// Whether no further run of the pool starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolList {
    pub pools: Vec<PoolView>,
    /// The overall limit, and the runs that are live in all pools.
    pub live_runs_max: u64,
    pub live_runs: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolView {
    pub name: String,
    /// How many of its runs may be live at a time. 0: the configuration does not have this pool.
    pub slots: u64,
    /// The configured number, if another one is in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_configured: Option<u64>,
    pub live: u64,
    /// Live runs that have released their slot: to a child that they wait for, or while they wait
    /// for an answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lent: u64,
    pub queued: u64,
    pub paused: bool,
    /// The configuration no longer has this pool; its queued runs wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// What its queued runs wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<PoolWaitingView>,
    /// The agents for runs that name the pool but no agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Word<Isolation>>,
    /// Whether a run keeps its slot while it waits for an answer.
    pub keep_slot: bool,
    /// Whether a run moves to the next agent if its own one cannot work.
    pub fallback: bool,
    /// The budget of each run that is dispatched to it and sets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Who changed the pool last, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<String>,
    /// The runners that the hub launches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchView>,
}

/// The launched runners of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaunchView {
    /// How many there may be at a time.
    pub max: u64,
    pub launched: u64,
    /// Those that have not joined yet.
    pub starting: u64,
    /// Why the last launch was of no use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The pause until the next launch, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_in_s: Option<u64>,
}

impl LaunchView {
    /// Describes the state in one line.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            max,
            launched,
            starting,
            problem,
            next_in_s,
        } = self;
        match (problem, next_in_s) {
            _ if *starting == 1 => "1 runner is being launched".to_owned(),
            _ if *starting > 1 => format!("{starting} runners are being launched"),
            (Some(problem), Some(next)) => {
                format!(
                    "the last launch failed ({problem}), the next one is in {}",
                    duration::of(Duration::from_secs(*next))
                )
            }
            _ if launched >= max => {
                format!("there are {launched} launched runners, the maximum (launch_max)")
            }
            _ => "a runner is launched when it is needed".to_owned(),
        }
    }
}

/// Queued runs of a pool that wait for the same thing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolWaitingView {
    #[serde(rename = "for")]
    pub reason: Word<QueueReason>,
    pub runs: u64,
}

/// Why a queued run has not started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueView {
    pub waiting_for: Word<QueueReason>,
    /// The same as text for people.
    pub why: String,
    /// What to do, if waiting is not enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// When it is likely to start. Absent: too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_about: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A run that another one starts after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AfterView {
    pub run_id: String,
    pub name: String,
    /// The end that it waits for.
    pub on: Word<AfterEnd>,
    pub state: Word<AfterState>,
}
