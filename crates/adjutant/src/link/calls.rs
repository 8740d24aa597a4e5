//! The calls of a supervisor to the hub.

use super::fact::Fact;
use super::usage::ModelUsage;
use crate::view::MessageView;
use serde::{Deserialize, Serialize};

/// `POST /link/budget`: reports the usage so far, and asks whether a request may begin. May be repeated.
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
    /// Why no request may begin, in one line for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros_left: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms_left: Option<u64>,
    /// The budget is hard: an agent whose usage is unknown is stopped.
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
    /// In a reply to the person: the problem of the configuration, encoded by `encode_name`.
    pub const CONFIG_PROBLEM: &str = "adj-config-problem";
    /// The attempt of a calling supervisor, `<run-id>/<attempt>`. Requires `Authorization: Bearer <token>`.
    pub const ATTEMPT: &str = "adj-attempt";
}

/// `POST /link/facts`: delivers facts of the supervisor, in order. Facts may be repeated.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PostFacts {
    pub facts: Vec<Fact>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FactsStored {
    /// The number of the last stored fact.
    pub cursor: u64,
}

/// `POST /link/orders`: waits until the orders for the attempt change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GetOrders {
    /// The `version` of the known orders; 0 in the first call.
    pub known: i64,
    pub wait_ms: u64,
}

/// `POST /link/closing`: asks which evidence to collect, after the agent has ended and all earlier facts are stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GetClosing {}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Closing {
    /// The paths that the run's report names.
    #[serde(default)]
    pub files: Option<Vec<String>>,
    /// Run the acceptance command, because the run has ended by itself.
    #[serde(default)]
    pub accept: bool,
    /// Collect the changed files that git reports.
    #[serde(default)]
    pub changed: bool,
}

/// The hub's current orders for an attempt. They are a state, not events, so nothing is lost if either end restarts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Changes with every other field.
    pub version: i64,
    /// Stop the attempt, with this reason (`cancelled`, `paused`, …).
    pub stop: Option<String>,
    /// A blocking request is open, so active time is not counted.
    pub waiting: bool,
    /// Undelivered messages, oldest first.
    pub messages: Vec<MessageView>,
}
