//! The program `adj`. Everything is in the crate `adjutant-cli`, which the end-to-end tests of this
//! package do not name: after an edit there, they are linked again, but hardly compiled.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant_cli::main()
}
