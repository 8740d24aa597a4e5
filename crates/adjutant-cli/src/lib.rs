//! The command line, the echo agent, and the program, which gives the hub and the supervisor their
//! MCP server. The modules of the other crates have the same paths here.
//!
//! It may use every other crate but git and store, which the hub has. It decides nothing about a run: commands are calls of the hub, and
//! present what it replies.

#![forbid(unsafe_code)]

pub mod cli;
pub mod echo;
pub mod program;

pub(crate) use adjutant_agent::{guard, harness, runner, supervisor};
pub(crate) use adjutant_api::{present, preset, protocol, text, view};
#[cfg(debug_assertions)]
pub(crate) use adjutant_home::failpoint;
pub(crate) use adjutant_home::{attempt_processes, clock, config, integrations, process};
pub(crate) use adjutant_hub::hub;
pub(crate) use adjutant_mcp::mcp;
pub(crate) use adjutant_net::{hub_client, remote};
pub(crate) use adjutant_ops::ops;

use config::whole_env;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program: the command line, or one of Adjutant's own processes. These are dispatched
/// before the command line's grammar is built, which they do not need.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|arg| arg.to_str()) {
        // One line for each hidden process:
        Some("__guard") => guard::main(&args[2..]),
        Some("__supervise") => program::supervisor(&args[2..]),
        #[cfg(target_os = "linux")]
        Some("__fence") => process::fence::entry::main(&args[2..], whole_env()),
        #[cfg(target_os = "linux")]
        Some("__landlock") => process::fence::landlock::main(&args[2..]),
        Some("__init") => process::init::main(&args[2..], whole_env()),
        Some("__detach") => process::start::detach(&args[2..], whole_env()),
        Some("__hub") => program::hub(&args[2..]),
        Some("__echo") => echo::main(&args[2..]),
        Some("__echo-scrubbed") => echo::scrubbed_main(&args[2..]),
        Some("mcp") => mcp::main(&args[2..]),
        _ => cli::main(args),
    }
}
