//! What a user sees, against the real binary, in one test program.
#![allow(clippy::disallowed_methods, reason = "tests start processes and set environments")]

mod cli;
mod identity;
mod kills;
mod layering;
mod main_job;
mod mcp;
mod signals;
mod supervise;
mod support;
