//! Launches any program: the prompt on standard input or as the last argument, plain text as
//! output.

use super::dialogue::Dialogue;
use super::{Input, Launch, StartRefusal};
use crate::protocol::Order;
use crate::view::codes;
use std::ffi::OsString;
use std::path::PathBuf;

/// Longest prompt in one argument, in bytes. The kernel's limit is 128 KiB including the
/// terminator.
pub(super) const PROMPT_ARG_BYTES_MAX: usize = 120 * 1024;

/// Prepares the launch of a plain program.
pub(super) fn launch(order: &Order) -> Result<Launch, StartRefusal> {
    let program = program(order)?;
    let mut argv: Vec<OsString> = order.argv.iter().map(OsString::from).collect();
    let input = prompt_input(order, &mut argv)?;
    let dialogue = matches!(input, Input::Open(_)).then_some(Dialogue::Lines);
    Ok(Launch {
        dialogue,
        ..Launch::new(program, argv, input)
    })
}

/// Returns the program that an order names.
pub(super) fn program(order: &Order) -> Result<PathBuf, StartRefusal> {
    let Some(program) = order.argv.first().map(PathBuf::from) else {
        return Err(StartRefusal {
            code: codes::AGENT_NOT_FOUND,
            message: format!("agent {} has no `command`", order.agent),
        });
    };
    if !program.is_absolute() {
        let message = format!(
            "{} (agent {}) was not found on PATH: install it, or give its absolute path in `command`",
            program.display(),
            order.agent
        );
        return Err(StartRefusal {
            code: codes::AGENT_NOT_FOUND,
            message,
        });
    }
    Ok(program)
}

/// Puts the prompt into the input or the arguments, as the order requires.
pub(crate) fn prompt_input(order: &Order, argv: &mut Vec<OsString>) -> Result<Input, StartRefusal> {
    let invalid = |message| {
        Err(StartRefusal {
            code: codes::INVALID,
            message,
        })
    };
    match order.prompt_via.as_str() {
        "stdin" => Ok(Input::Whole(order.prompt.clone().into_bytes())),
        "arg" if order.prompt.len() > PROMPT_ARG_BYTES_MAX => invalid(format!(
            "the prompt has {} bytes, and at most {PROMPT_ARG_BYTES_MAX} fit into an argument: set prompt = \"stdin\" for agent {}, or shorten it",
            order.prompt.len(),
            order.agent
        )),
        "arg" if order.prompt.contains('\0') => invalid(
            "the prompt contains a NUL character, which cannot be in an argument".to_owned(),
        ),
        "arg" => {
            argv.push(OsString::from(&order.prompt));
            Ok(Input::Nothing)
        }
        "stream" => Ok(Input::Open(Dialogue::Lines.opening(&order.prompt))),
        other => invalid(format!(
            "unknown way {other:?} to pass a prompt: use \"stdin\" or \"arg\""
        )),
    }
}
