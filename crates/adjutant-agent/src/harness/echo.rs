//! Launches the built-in scripted agent: this binary, driven like any other program. With
//! `prompt_via = stream` it reads JSON lines while it runs.

use super::dialogue::Dialogue;
use super::plain::prompt_input;
use super::{Input, Launch, StartRefusal};
use crate::process::start::SELF_EXE;
use crate::protocol::Order;
use adjutant_core::Permissions;
use std::ffi::OsString;
use std::path::PathBuf;

/// The flag that makes the agent read JSON lines.
const STREAM: &str = "--stream";

/// The flag that makes the agent refuse to write files.
const READ_ONLY: &str = "--read-only";

/// Prepares the scripted agent. An order may name another Adjutant binary to run it.
pub(super) fn launch(order: &Order) -> Result<Launch, StartRefusal> {
    let program = order
        .argv
        .first()
        .map_or_else(|| PathBuf::from(SELF_EXE), PathBuf::from);
    let mut argv = vec![OsString::from("adj")];
    argv.extend(order.argv.iter().skip(1).map(OsString::from));
    if argv.len() == 1 {
        argv.push(OsString::from("__echo"));
    }
    if order.prompt_via == "stream" && !argv.iter().any(|arg| arg == STREAM) {
        argv.push(OsString::from(STREAM));
    }
    if order.permissions == Permissions::Read.word() {
        argv.push(OsString::from(READ_ONLY));
    }
    let input = prompt_input(order, &mut argv)?;
    let dialogue = matches!(input, Input::Open(_)).then_some(Dialogue::Lines);
    Ok(Launch {
        dialogue,
        ..Launch::new(program, argv, input)
    })
}
