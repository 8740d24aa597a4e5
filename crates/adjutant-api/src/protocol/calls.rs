//! The calls of a supervisor to the hub.

use super::fact::Fact;
use super::usage::ModelUsage;
use crate::view::MessageView;
use serde::{Deserialize, Serialize};

/// `POST /link/budget`: reports the usage so far, and asks whether a request may begin. May be
/// repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskBudget {
    #[serde(default)]
    pub used: Vec<ModelUsage>,
    /// A request is about to begin.
    #[serde(default)]
    pub begins: bool,
    /// Its number, if it is one of `requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_no: Option<u64>,
    /// The requests that have not ended, also those that wait for this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<GateRequest>,
    /// All requests with a lower number have been made.
    #[serde(default)]
    pub next_no: u64,
}

/// A request to a model through a gate, by its number within the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRequest {
    pub no: u64,
    /// The tokens that it may use, as estimated before it begins.
    pub tokens: u64,
    pub has_begun: bool,
}

/// What an attempt may still use. An absent amount has no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    pub may_begin: bool,
    /// No request may begin before one of those under way ends: ask again.
    #[serde(default)]
    pub waits: bool,
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
    /// In a reply to the person: the names of live runs whose supervisors have not reported to this
    /// hub yet, encoded by `encode_name`.
    pub const NO_REPORT: &str = "adj-no-report";
    /// The attempt of a calling supervisor, `<run-id>/<attempt>`. Requires `Authorization: Bearer
    /// <token>`.
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
    /// What the supervisor knew when it sent the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

/// What a supervisor has recorded or sent, so that a new hub knows whether it has all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The number of its last fact.
    pub facts: u64,
    /// The keys of its open calls that add to a list of the hub: requests, reports, posts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
}

/// `POST /link/closing`: asks which evidence to collect, after the agent has ended and all earlier
/// facts are stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GetClosing {
    /// The agent exited before a stop of it began.
    #[serde(default)]
    pub by_itself: bool,
}

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

/// The hub's current orders for an attempt. They are a state, not events, so nothing is lost if
/// either end restarts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Changes with every other field.
    pub version: i64,
    /// Stop the attempt, with this reason (`cancelled`, `paused`, …).
    pub stop: Option<String>,
    /// A blocking request is open, so active time is not counted.
    pub waiting: bool,
    /// The run has reported its result, and has made no statement since: the position of the
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<i64>,
    /// Undelivered messages, oldest first.
    pub messages: Vec<MessageView>,
}
