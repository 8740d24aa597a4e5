//! Conformance tests of the store. Each uses a fresh store and none looks at tables. They run on SQLite, and again on
//! PostgreSQL (see [`postgres`]).

mod budgets;
mod calls;
mod cuts;
mod deferred;
mod files;
mod fixture;
mod grants;
mod postgres;
mod queue;
mod requests;
mod runs;
#[expect(dead_code, reason = "the tests of the hub use the rest")]
mod server;
