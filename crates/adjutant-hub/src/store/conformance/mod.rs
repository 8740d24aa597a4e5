//! Conformance tests of the store. Each uses a fresh store and none looks at tables. They run on SQLite, and again on
//! PostgreSQL (see [`postgres`]).

mod budgets;
mod calls;
mod cuts;
mod deferred;
mod files;
pub(crate) mod fixture;
mod grants;
pub(crate) mod postgres;
mod queue;
mod queue_counts;
mod requests;
mod runs;
mod searches;
#[expect(dead_code, reason = "the tests of the hub use the rest")]
mod server;
mod set_back;
