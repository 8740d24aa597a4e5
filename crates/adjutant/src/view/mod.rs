//! The one JSON contract: what every interface takes and gives, on the hub's socket, over HTTP, as
//! MCP's `structuredContent` and as the CLI's `--json`.
//!
//! Each use case is one [`Call`]: `POST /api/v1/<NAME>` with the call as body, its reply or an
//! [`ErrorView`] back. Fields are snake_case, times RFC 3339 UTC, durations carry their unit.
//! Additive changes only.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A use case with its arguments.
pub trait Call: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its path below `/api/v1/`.
    const NAME: &'static str;
    /// Whether it changes anything, be it only for a run: such a call takes an idempotency key (header
    /// `adj-key`).
    const WRITES: bool;
    /// What comes back.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
}

macro_rules! call {
    ($call:ident = $name:literal, writes $writes:literal -> $reply:ty) => {
        impl Call for $call {
            const NAME: &'static str = $name;
            const WRITES: bool = $writes;
            type Reply = $reply;
        }
    };
}

mod agents;
mod attention;
mod changes;
mod chats;
mod hub;
mod metadata;
mod requests;
mod runs;
mod search;
mod waits;
mod word;

pub use agents::*;
pub use attention::*;
pub use changes::*;
pub use chats::*;
pub use hub::*;
pub use metadata::*;
pub use requests::*;
pub use runs::*;
pub use search::*;
pub use waits::*;
pub use word::Word;

/// Every failure, on every interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorView {
    /// A stable word, see [`codes`].
    pub code: String,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The stable words for failures: one table for exit codes, HTTP statuses and MCP.
pub mod codes {
    /// Unknown, malformed or foreign.
    pub const NOT_FOUND: &str = "not_found";
    pub const AMBIGUOUS: &str = "ambiguous";
    pub const NOT_ALLOWED: &str = "not_allowed";
    /// The caller lives under a supervisor and has to go there.
    pub const USE_SUPERVISOR: &str = "use_supervisor";
    pub const INVALID: &str = "invalid";
    /// The state has moved on: answered, expired, withdrawn, finished.
    pub const CONFLICT: &str = "conflict";
    pub const ALREADY_ANSWERED: &str = "already_answered";
    /// That cannot be said to a request of this kind.
    pub const UNFITTING: &str = "unfitting";
    /// An approval was used before it was taken back.
    pub const USED: &str = "used";
    pub const EXPIRED: &str = "expired";
    pub const WITHDRAWN: &str = "withdrawn";
    pub const RUN_FINISHED: &str = "run_finished";
    pub const KEY_REUSED: &str = "key_reused";
    pub const LIMIT: &str = "limit";
    pub const AGENT_NOT_FOUND: &str = "agent_not_found";
    pub const AGENT_NOT_EXECUTABLE: &str = "agent_not_executable";
    /// The agent cannot be held to that profile of permissions.
    pub const UNSUPPORTED_PROFILE: &str = "unsupported_profile";
    /// The hub cannot be reached or started.
    pub const UNREACHABLE: &str = "unreachable";
    /// This hub has closed its store: the next one takes the call. Our clients repeat it there.
    pub const CLOSING: &str = "closing";
    /// The home's disk is full; nothing was changed.
    pub const STORAGE_FULL: &str = "storage_full";
    /// The store failed; the outcome of the call is unknown until it is repeated with its key.
    pub const STORAGE: &str = "storage";
    /// Nobody answered within the patience of this wait.
    pub const STALLED: &str = "stalled";
    pub const INTERNAL: &str = "internal";
}
