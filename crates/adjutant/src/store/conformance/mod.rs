//! Conformance tests of the store. Each uses a fresh store and none looks at tables.

mod budgets;
mod calls;
mod files;
mod fixture;
mod grants;
mod queue;
mod requests;
mod runs;
