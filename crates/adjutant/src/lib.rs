//! Adjutant delegates tasks to CLI coding agents of any vendor, supervises them, and carries questions and answers.
//! `ARCHITECTURE.md` describes the crates and their modules. The modules of the other crates have the same paths here.

pub mod cli;
pub mod client;
pub mod clients;
pub mod clock;
pub mod config;
pub mod connection_tasks;
pub mod echo;
pub mod failpoint;
pub mod files;
pub mod gate;
pub mod git;
pub mod guard;
pub mod harness;
pub mod hub;
pub mod leftovers;
pub mod logs;
pub mod mcp;
pub mod named_locks;
pub mod objects;
pub mod ops;
pub mod peer;
pub mod ports;
pub mod process;
pub mod remote;
pub mod runner;
pub mod sock;
pub mod spool;
pub mod store;
pub mod supervisor;
pub mod tcp;
pub mod tls;
pub mod trace;
pub mod user_files;
pub mod versions;
pub mod webhook;

pub use adjutant_api::{link, present, preset, text, view};
pub use adjutant_stream::signal;
