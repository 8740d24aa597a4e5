//! Prepares the launch of each kind of CLI, and drives a live one over its protocol ([`dialogue`]).
//! Differences among vendors are data (their presets); `adjutant_stream` reads the output.

pub mod acp;
mod claude;
mod codex;
mod config_home;
pub mod dialogue;
mod echo;
pub mod failure;
pub mod operation;
mod own_tools;
mod pi;
mod placeholders;
mod plain;
mod reset;
pub mod step;
mod vendor;

use crate::protocol::{AttemptDir, Order, WorkerAccess};
use crate::view::codes;
use adjutant_stream::reader::ReaderConfig;
pub use config_home::AttemptHome;
use dialogue::Dialogue;
pub use own_tools::{OwnTools, ServedTool};
use std::ffi::OsString;
use std::path::PathBuf;
use std::{fs, io};

/// A prepared process: what to start, and with which input, environment and files.
#[derive(Debug)]
pub struct Launch {
    /// An absolute path.
    pub program: PathBuf,
    /// The program's name and its arguments.
    pub argv: Vec<OsString>,
    pub input: Input,
    /// Added to the order's environment, which takes precedence.
    pub env: Vec<(String, String)>,
    /// Overrides the order's environment, to enforce the profile.
    pub env_override: Vec<(String, String)>,
    /// Files to write for the agent, readable by its user only.
    pub files: Vec<(PathBuf, String)>,
    /// A directory for temporary files, to be created.
    pub temporary: Option<PathBuf>,
    /// Where the CLI's own log is found.
    pub own_log: Option<LogSource>,
    /// A home of the attempt's own, to be created.
    pub attempt_home: Option<AttemptHome>,
    /// The protocol with the live agent.
    pub dialogue: Option<Dialogue>,
    /// How to read JSON lines on its standard output. `None`: plain text.
    pub stream: Option<ReaderConfig>,
    /// Stop it with INT first.
    pub interrupt: bool,
}

/// Where a CLI writes a log of its own.
#[derive(Debug)]
pub enum LogSource {
    /// Into a named pipe, to be created.
    Pipe(PathBuf),
    /// Into files below a directory, by names that may contain `*` and `{session}`.
    Files { base: PathBuf, pattern: String },
}

impl Launch {
    fn new(program: PathBuf, argv: Vec<OsString>, input: Input) -> Self {
        Self {
            program,
            argv,
            input,
            env: Vec::new(),
            env_override: Vec::new(),
            files: Vec::new(),
            temporary: None,
            own_log: None,
            attempt_home: None,
            dialogue: None,
            stream: None,
            interrupt: false,
        }
    }
}

/// The agent's standard input.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// End of file.
    Nothing,
    /// These bytes, then end of file.
    Whole(Vec<u8>),
    /// These bytes, then the output of the dialogue while the agent lives.
    Open(Vec<u8>),
}

/// Why an agent cannot be started, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRefusal {
    /// One of [`codes`].
    pub code: &'static str,
    pub message: String,
}

/// Where an agent finds its model, if it has a gate.
#[derive(Debug, Clone, Copy)]
pub struct GateAccess<'a> {
    pub url: &'a str,
    pub token: &'a str,
}

/// Prepares the launch of an order's agent, which is offered `own_tools` over MCP.
///
/// # Errors
/// The agent cannot be started as ordered.
pub fn launch(
    order: &Order,
    dir: &AttemptDir,
    access: &WorkerAccess,
    gate: Option<GateAccess<'_>>,
    own_tools: OwnTools,
) -> Result<Launch, StartRefusal> {
    match fs::metadata(&order.cwd) {
        Ok(meta) if meta.is_dir() => {
            if let Err(error) = check_directory(order) {
                return Err(bad_directory(order, &format!("cannot be entered: {error}")));
            }
        }
        Ok(_) => return Err(bad_directory(order, "is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(bad_directory(order, "does not exist"));
        }
        Err(error) => return Err(bad_directory(order, &format!("cannot be used: {error}"))),
    }
    match order.harness.as_str() {
        "echo" => echo::launch(order),
        "plain" => plain::launch(order),
        "vendor" => vendor::launch(order, dir, access, gate, own_tools),
        other => Err(StartRefusal {
            code: codes::INVALID,
            message: format!("this version has no harness {other:?}"),
        }),
    }
}

/// Explains why starting the prepared agent failed.
#[must_use]
pub fn explain(order: &Order, launch: &Launch, error: &io::Error) -> StartRefusal {
    let program = launch.program.display();
    let agent = &order.agent;
    let (code, message) = match error.kind() {
        io::ErrorKind::NotFound if !order.cwd.is_dir() => {
            return bad_directory(order, "does not exist");
        }
        io::ErrorKind::NotFound if launch.program.exists() => (
            codes::AGENT_NOT_EXECUTABLE,
            format!(
                "{program} (agent {agent}) names an interpreter that does not exist: correct its first line or install the interpreter"
            ),
        ),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => (
            codes::AGENT_NOT_FOUND,
            format!(
                "{program} (agent {agent}) does not exist: install it, or correct the agent's `command`"
            ),
        ),
        io::ErrorKind::PermissionDenied if check_directory(order).is_err() => {
            return bad_directory(order, "cannot be entered");
        }
        io::ErrorKind::PermissionDenied => (
            codes::AGENT_NOT_EXECUTABLE,
            format!(
                "{program} (agent {agent}) may not be executed: make it executable with chmod +x"
            ),
        ),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => (
            codes::AGENT_NOT_EXECUTABLE,
            format!(
                "{program} (agent {agent}) is not a program for this machine: a script needs a first line such as #!/bin/sh"
            ),
        ),
        _ if error.raw_os_error() == Some(libc::E2BIG) => (
            codes::INVALID,
            format!(
                "the arguments and environment for {program} are too long: give the prompt on standard input (prompt = \"stdin\")"
            ),
        ),
        io::ErrorKind::InvalidInput => (
            codes::INVALID,
            format!("the command, prompt or environment for {program} contains a NUL character"),
        ),
        _ => (
            codes::INTERNAL,
            format!("{program} (agent {agent}) could not be started: {error}"),
        ),
    };
    StartRefusal { code, message }
}

/// Checks that the working directory can be entered.
fn check_directory(order: &Order) -> io::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    Ok(accessat(
        CWD,
        &order.cwd,
        Access::EXEC_OK,
        AtFlags::EACCESS,
    )?)
}

fn bad_directory(order: &Order, problem: &str) -> StartRefusal {
    StartRefusal {
        code: codes::INVALID,
        message: format!(
            "the working directory {} {problem}: correct it or name another one",
            order.cwd.display()
        ),
    }
}
