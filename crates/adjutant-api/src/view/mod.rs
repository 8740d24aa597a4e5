//! The JSON contract: the input and output of every interface, on the hub's socket, over HTTP, as
//! MCP's `structuredContent` and as the CLI's `--json`.
//!
//! Each use case is one [`Call`]: `POST /api/v1/<NAME>` takes the call as its body and returns the
//! reply or an [`ErrorView`]. Field names are snake_case, times are RFC 3339 in UTC, and durations
//! have their unit in the name. Changes only add to the contract.

use adjutant_core::shorten;
use adjutant_core::token::CallEffect;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A type with a schema. Only the test that generates the description of the API needs the schemas.
#[cfg(test)]
pub trait Described: schemars::JsonSchema {}
#[cfg(test)]
impl<T: schemars::JsonSchema> Described for T {}
#[cfg(not(test))]
pub trait Described {}
#[cfg(not(test))]
impl<T> Described for T {}

/// A use case with its arguments. `calls.rs` has the table of them.
pub trait Call: Described + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The call's path below `/api/v1/`.
    const NAME: &'static str;
    /// How it is served to tokens.
    const EFFECT: CallEffect;
    /// Whether the call can change state, even if only for some callers. Such a call takes an
    /// idempotency key (header `adj-key`).
    const WRITES: bool;
    /// The argument that must be true for a call that otherwise has an effect, although it reads.
    const READS_WITH: Option<&'static str> = None;
    /// The type of the reply.
    type Reply: Described + Serialize + DeserializeOwned + Send + 'static;
}

mod agents;
mod attention;
mod budgets;
mod calls;
mod changes;
mod chats;
mod fields;
mod hub;
mod merges;
mod metadata;
pub mod openapi;
mod operation;
mod peers;
mod policies;
mod pools;
mod requests;
mod runs;
mod search;
mod stats;
mod tokens;
mod waits;
mod word;

pub use agents::*;
pub use attention::*;
pub use budgets::*;
pub use calls::CALLS;
pub use changes::*;
pub use chats::*;
pub use fields::field_names;
pub use hub::*;
pub use merges::*;
pub use metadata::*;
pub use operation::*;
pub use peers::*;
pub use policies::*;
pub use pools::*;
pub use requests::*;
pub use runs::*;
pub use search::*;
pub use stats::*;
pub use tokens::*;
pub use waits::*;
pub use word::Word;

/// An error, the same on every interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct ErrorView {
    /// A stable word from [`codes`].
    pub code: String,
    pub message: String,
    /// How to resolve the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How many bytes of a long description of a problem with JSON are kept at its beginning and at its
/// end, which says what was expected.
const JSON_PROBLEM_BEGIN_BYTES: usize = 200;
const JSON_PROBLEM_END_BYTES: usize = 200;

/// Describes why JSON cannot be used. serde repeats a value of a wrong type whole, which can be
/// megabytes of what the caller sent.
#[must_use]
pub fn json_problem(error: &serde_json::Error) -> String {
    let problem = error.to_string();
    if problem.len() <= JSON_PROBLEM_BEGIN_BYTES + JSON_PROBLEM_END_BYTES {
        return problem;
    }
    format!(
        "{} … {}",
        shorten::head(&problem, JSON_PROBLEM_BEGIN_BYTES),
        shorten::tail(&problem, JSON_PROBLEM_END_BYTES)
    )
}

/// The stable error codes. Exit codes, HTTP statuses and MCP errors derive from them.
pub mod codes {
    /// The object does not exist, its id is malformed, or it is not visible to the caller.
    pub const NOT_FOUND: &str = "not_found";
    pub const AMBIGUOUS: &str = "ambiguous";
    pub const NOT_ALLOWED: &str = "not_allowed";
    /// The caller runs under a supervisor and must call it instead of the hub.
    pub const USE_SUPERVISOR: &str = "use_supervisor";
    pub const INVALID: &str = "invalid";
    /// The object's state no longer allows the call.
    pub const CONFLICT: &str = "conflict";
    pub const ALREADY_ANSWERED: &str = "already_answered";
    /// The answer does not fit the kind of request.
    pub const UNFITTING: &str = "unfitting";
    /// The approval was used before it could be revoked.
    pub const USED: &str = "used";
    pub const EXPIRED: &str = "expired";
    pub const WITHDRAWN: &str = "withdrawn";
    pub const RUN_FINISHED: &str = "run_finished";
    pub const KEY_REUSED: &str = "key_reused";
    pub const LIMIT: &str = "limit";
    pub const AGENT_NOT_FOUND: &str = "agent_not_found";
    pub const AGENT_NOT_EXECUTABLE: &str = "agent_not_executable";
    /// The agent does not support the permission profile.
    pub const UNSUPPORTED_PROFILE: &str = "unsupported_profile";
    /// The requested fence cannot be enforced.
    pub const NO_FENCE: &str = "no_fence";
    /// The setup command of a workspace failed or took too long.
    pub const SETUP_FAILED: &str = "setup_failed";
    /// The hub cannot be reached or started, or a runner that has a log cannot be reached.
    pub const UNREACHABLE: &str = "unreachable";
    /// The hub has closed its store. Adjutant's clients repeat the call with the next hub.
    pub const CLOSING: &str = "closing";
    /// The home's disk is full; nothing was changed.
    pub const STORAGE_FULL: &str = "storage_full";
    /// The store failed. The outcome of the call is unknown; repeat it with the same key.
    pub const STORAGE: &str = "storage";
    /// No answer arrived within the reply timeout.
    pub const STALLED: &str = "stalled";
    pub const INTERNAL: &str = "internal";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_problem_repeats_little_of_a_long_value() {
        let problem = |json: &str| {
            json_problem(&serde_json::from_str::<u64>(json).expect_err("it is a text"))
        };
        let long = problem(&format!("{:?}", "ä".repeat(1_000_000)));
        assert!(
            long.starts_with("invalid type: string \"ää") && long.len() < 500,
            "{long}"
        );
        assert!(
            long.ends_with("expected u64 at line 1 column 2000002"),
            "{long}"
        );
        assert_eq!(
            problem("\"x\""),
            "invalid type: string \"x\", expected u64 at line 1 column 3"
        );
    }
}
