//! The rules of Adjutant: ids, states, transitions, refusals.
//!
//! This crate decides and never acts: it does no I/O, reads no clock, uses no random numbers and
//! knows no wire format. A decision takes values (including `now`) and returns values and effects.

#![forbid(unsafe_code)]

pub mod address;
pub mod agent;
pub mod attention;
pub mod balance;
pub mod budget;
pub mod cascade;
pub mod chat;
pub mod checkpoint;
pub mod condition;
pub mod confirmed;
pub mod conflict;
pub mod decision;
pub mod denied;
pub mod escalation;
pub mod estimate;
pub mod event;
pub mod fence;
pub mod fingerprint;
mod hex;
pub mod id;
pub mod identity;
pub mod launch;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod merge;
pub mod name;
pub mod peer;
pub mod policy;
pub mod pool;
pub mod port;
pub mod pressure;
pub mod principal;
pub mod quote;
pub mod rate_limit;
pub mod report;
pub mod request;
pub mod resources;
pub mod result;
pub mod resume;
pub mod run;
pub mod shorten;
pub mod signal;
pub mod snapshot;
pub mod stats;
pub mod steady;
pub mod subagent;
pub mod time;
pub mod token;
pub mod tree;
pub mod units;
pub mod webhook;
pub mod words;
pub mod workspace;

pub use agent::{AgentName, AgentSpec, HarnessKind, Permissions, PromptVia};
pub use budget::{Budget, BudgetKind};
pub use decision::{Changes, Decision, DecisionKind, chosen};
pub use denied::Denied;
pub use event::EventKind;
pub use fence::Fence;
pub use fingerprint::Fingerprint;
pub use hex::hex;
pub use id::{AttemptNo, EventSeq, IdError, RequestId, RequestNo, RunId};
pub use name::RunName;
pub use peer::PeerName;
pub use pool::PoolName;
pub use port::PortRange;
pub use principal::{Action, ClientName, Principal, Relation};
pub use request::{
    Answer, AnsweredBy, RequestEvent, RequestKind, RequestState, RequestStateKind, Rule, Subject,
};
pub use run::{
    AttemptEnd, Cause, Exit, Failure, Outcome, OutcomeKind, RunEvent, RunState, RunStateKind,
    StopReason, Verdict,
};
pub use steady::{Moment, SteadyTime};
pub use time::Time;
pub use workspace::{Isolation, WorkspaceSpec, WorkspaceState};
