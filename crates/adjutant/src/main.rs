//! The entry point. Adjutant's own processes are dispatched before the command line's grammar is built, which they
//! do not need.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|arg| arg.to_str()) {
        // One line for each hidden process:
        Some("__guard") => adjutant::guard::main(&args[2..]),
        Some("__supervise") => adjutant::program::supervisor(&args[2..]),
        #[cfg(target_os = "linux")]
        Some("__fence") => adjutant::process::fence::entry::main(&args[2..]),
        #[cfg(target_os = "linux")]
        Some("__landlock") => adjutant::process::fence::landlock::main(&args[2..]),
        Some("__init") => adjutant::process::init::main(&args[2..]),
        Some("__detach") => adjutant::process::start::detach(&args[2..]),
        Some("__hub") => adjutant::program::hub(&args[2..]),
        Some("__echo") => adjutant::echo::main(&args[2..]),
        Some("__echo-scrubbed") => adjutant::echo::scrubbed_main(&args[2..]),
        Some("mcp") => adjutant::mcp::main(&args[2..]),
        _ => adjutant::cli::main(args),
    }
}
