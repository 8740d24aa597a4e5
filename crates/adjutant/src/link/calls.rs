//! The calls of a supervisor to the hub.

use super::fact::Fact;
use super::usage::ModelUsage;
use crate::view::MessageView;
use serde::{Deserialize, Serialize};

/// `POST /link/budget`: states what was used so far, and asks whether a request may begin. Repeating it is harmless.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskBudget {
    #[serde(default)]
    pub used: Vec<ModelUsage>,
    /// A request is about to begin.
    #[serde(default)]
    pub begins: bool,
}

/// What an attempt may still use. An absent amount has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    pub may_begin: bool,
    /// Why not, in one line for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms_left: Option<u64>,
    /// Its budget is hard: an agent whose usage cannot be known is stopped.
    #[serde(default)]
    pub is_hard: bool,
}

/// Header names of the socket protocol.
pub mod headers {
    /// An idempotency key: the same call with the same key has one effect and one reply.
    pub const KEY: &str = "adj-key";
    /// The client name that a parent's connection acts under. Absent: the person.
    pub const CLIENT: &str = "adj-client";
    /// The caller's version.
    pub const VERSION: &str = "adj-version";
    /// Of a reply to the person: what is wrong with the configuration, as `encode_name` writes it.
    pub const CONFIG_PROBLEM: &str = "adj-config-problem";
    /// `<run-id>/<attempt>`: who the supervisor speaks for. With `Authorization: Bearer <token>`.
    pub const ATTEMPT: &str = "adj-attempt";
}

/// `POST /link/facts`: facts from the supervisor, in order. Repeating some is harmless.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PostFacts {
    pub facts: Vec<Fact>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FactsTaken {
    /// Everything up to this number is in the store.
    pub cursor: u64,
}

/// `POST /link/orders`: waits for the next change of what the hub wants from the attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetOrders {
    /// The `version` of the orders that are known already; 0 at first.
    pub known: i64,
    pub wait_ms: u64,
}

/// `POST /link/closing`: the agent has ended, and all facts up to that are taken. What is to be looked
/// at?
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GetClosing {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Closing {
    /// The paths that the run's report names.
    #[serde(default)]
    pub files: Option<Vec<String>>,
    /// The run's end counts, so its acceptance command is to be run.
    #[serde(default)]
    pub accept: bool,
    /// What git calls changed is wanted.
    #[serde(default)]
    pub changed: bool,
}

/// What the hub wants from the attempt now: a level, not an edge, so that nothing is lost when
/// either end is restarted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Changes whenever anything below does.
    pub version: i64,
    /// The attempt is to be stopped, with this reason (`cancelled`, `paused`, …).
    pub stop: Option<String>,
    /// A blocking request is open: the active-time clock stands still.
    pub waiting: bool,
    /// Messages that were not delivered yet, oldest first.
    pub messages: Vec<MessageView>,
}
