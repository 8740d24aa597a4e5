//! Adjutant delegates tasks to CLI coding agents of any vendor, supervises them, and carries questions and answers.
//! `ARCHITECTURE.md` describes the modules.

pub mod cli;
pub mod client;
pub mod clients;
pub mod clock;
pub mod config;
pub mod echo;
pub mod failpoint;
pub mod files;
pub mod gate;
pub mod git;
pub mod guard;
pub mod harness;
pub mod hub;
pub mod leftovers;
pub mod link;
pub mod logs;
pub mod mcp;
pub mod ops;
pub mod peer;
pub mod ports;
pub mod present;
pub mod preset;
pub mod process;
pub mod remote;
pub mod runner;
pub mod signal;
pub mod sock;
pub mod spool;
pub mod store;
pub mod supervisor;
pub mod text;
pub mod tls;
pub mod trace;
pub mod view;
pub mod webhook;
