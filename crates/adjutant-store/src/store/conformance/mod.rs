//! Conformance tests of the store. Each uses a fresh store and none looks at tables. They run on
//! SQLite, and again on PostgreSQL (see [`postgres`]).

mod budgets;
mod calls;
mod cascades;

mod cuts;
mod deferred;
mod files;
mod grants;
mod postgres;
mod queue;
mod queue_counts;
mod requests;
mod runs;
mod searches;
mod set_back;
mod version_files;
mod versions;
