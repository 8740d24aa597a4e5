//! How one kind of CLI is driven: how it is started, fed and asked to stop. One file a driver; the
//! vendors' drivers belong here.

mod echo;
mod plain;

use crate::link::Order;
use crate::view::{MessageView, codes};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What is to be started, and what it reads.
#[derive(Debug)]
pub struct Launch {
    /// Absolute.
    pub program: PathBuf,
    /// The program's name and its arguments.
    pub argv: Vec<OsString>,
    pub input: Input,
}

/// What the agent finds on its standard input.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Its end.
    Nothing,
    /// These bytes, then its end.
    Whole(Vec<u8>),
    /// These bytes, then one JSON object a line for as long as it lives.
    Open(Vec<u8>),
}

/// Why an agent cannot be started, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One of [`codes`].
    pub code: &'static str,
    pub message: String,
}

/// Prepares an order's agent.
///
/// # Errors
/// It cannot be started as ordered.
pub fn launch(order: &Order) -> Result<Launch, Refusal> {
    match fs::metadata(&order.cwd) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(bad_directory(order, "is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(bad_directory(order, "does not exist")),
        Err(error) => return Err(bad_directory(order, &format!("cannot be used: {error}"))),
    }
    match order.harness.as_str() {
        "echo" => echo::launch(order),
        "plain" => plain::launch(order),
        other => Err(Refusal { code: codes::INVALID, message: format!("no harness {other:?}: this version drives \"plain\" and \"echo\"") }),
    }
}

/// Says why starting the prepared agent failed.
#[must_use]
pub fn explain(order: &Order, launch: &Launch, error: &io::Error) -> Refusal {
    let program = launch.program.display();
    let agent = &order.agent;
    let (code, message) = match error.kind() {
        io::ErrorKind::NotFound if !order.cwd.is_dir() => return bad_directory(order, "does not exist"),
        io::ErrorKind::NotFound if launch.program.exists() => (
            codes::AGENT_NOT_EXECUTABLE,
            format!("{program} (agent {agent}) names an interpreter that does not exist: correct its first line or install the interpreter"),
        ),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            (codes::AGENT_NOT_FOUND, format!("{program} (agent {agent}) does not exist: install it, or correct the agent's `command`"))
        }
        io::ErrorKind::PermissionDenied => {
            (codes::AGENT_NOT_EXECUTABLE, format!("{program} (agent {agent}) may not be executed: make it executable with chmod +x"))
        }
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => (
            codes::AGENT_NOT_EXECUTABLE,
            format!("{program} (agent {agent}) is no program for this machine: a script needs a first line such as #!/bin/sh"),
        ),
        _ if error.raw_os_error() == Some(libc::E2BIG) => (
            codes::INVALID,
            format!("the arguments and environment for {program} are too long: give the prompt on standard input (prompt = \"stdin\")"),
        ),
        io::ErrorKind::InvalidInput => (codes::INVALID, format!("the command, prompt or environment for {program} contains a NUL character")),
        _ => (codes::INTERNAL, format!("{program} (agent {agent}) could not be started: {error}")),
    };
    Refusal { code, message }
}

fn bad_directory(order: &Order, problem: &str) -> Refusal {
    Refusal { code: codes::INVALID, message: format!("the working directory {} {problem}: create it or name another one", order.cwd.display()) }
}

/// The line that gives a running agent a message.
#[must_use]
pub fn message_line(message: &MessageView) -> Vec<u8> {
    line(&json!({ "type": "message", "from": message.from, "text": message.text }))
}

/// The line that asks a running agent to stop by itself.
#[must_use]
pub fn cancel_line() -> Vec<u8> {
    line(&json!({ "type": "cancel" }))
}

fn prompt_line(prompt: &str) -> Vec<u8> {
    line(&json!({ "type": "prompt", "text": prompt }))
}

/// One line: JSON escapes every newline within.
fn line(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
