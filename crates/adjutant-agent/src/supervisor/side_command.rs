//! Runs a command other than the agent: the setup command before it, the acceptance command after it. It is contained, stopped
//! and swept like the agent. The end of its output is kept.

use super::stop::Stop;
use super::worker::{self, ProcessesState};
use crate::link::{CommandEvidence, Order, Orders};
use crate::process::containment::StartError;
use crate::process::{Spawn, StdioTarget};
use adjutant_core::{Exit, StopReason};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long output may stay open after the command has ended.
const DRAIN_MAX: Duration = Duration::from_millis(200);
const READ_BYTES: usize = 16 * 1024;

/// A command and its limits.
#[derive(Debug)]
pub struct SideCommand {
    /// An absolute path.
    pub program: PathBuf,
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub limit: Duration,
    /// How much of the end of both streams together is kept.
    pub output_bytes_max: usize,
    /// A budget that is used up does not stop it.
    pub outlasts_budget: bool,
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its exit. `None`: it was stopped.
    pub exit: Option<Exit>,
    /// Why it was stopped.
    pub stopped: Option<StopCause>,
    pub output: Vec<u8>,
    pub took: Duration,
}

/// Why a command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The run is to stop.
    ByOrder,
    TimeUp,
}

impl StopCause {
    /// Returns the words of the evidence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ByOrder => "the run was to stop",
            Self::TimeUp => "its time was used up",
        }
    }
}

impl CommandOutput {
    /// Returns it as it is stated to the hub.
    #[must_use]
    pub fn evidence(self) -> CommandEvidence {
        let (exit_code, signal) = match self.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let from = self
            .output
            .iter()
            .position(|byte| byte & 0xc0 != 0x80)
            .unwrap_or(0);
        CommandEvidence {
            exit_code,
            signal,
            stopped: self.stopped.map(|why| why.text().to_owned()),
            not_known: None,
            output: String::from_utf8_lossy(&self.output[from..]).into_owned(),
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Finds a program. A path is relative to `cwd`. A name is searched in the absolute directories of `path` that are not
/// below `cwd`, so that a file of the agent does not replace a tool of the system.
#[must_use]
pub fn find(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let dirs = path
        .split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(Path::new);
    let below = |dir: &Path| cwd != Path::new("/") && dir.starts_with(cwd);
    dirs.filter(|dir| !below(dir))
        .map(|dir| dir.join(program))
        .find(|candidate| is_program(candidate))
}

/// Runs a command of an attempt to its end. Stops it at its time limit, or when `orders` request a stop of the
/// run.
///
/// # Errors
/// The command could not be started, and no process is left.
pub async fn run(
    order: &Order,
    command: SideCommand,
    mut orders: Option<&mut watch::Receiver<Orders>>,
) -> Result<CommandOutput, StartError> {
    let (out, out_theirs) = worker::pipe_pair()?;
    let (err, err_theirs) = worker::pipe_pair()?;
    let spawn = Spawn {
        program: &command.program,
        argv: command.argv,
        env: command.env,
        cwd: &command.cwd,
        stdin: StdioTarget::Null,
        stdout: StdioTarget::Fd(out_theirs.as_fd()),
        stderr: StdioTarget::Fd(err_theirs.as_fd()),
        inherit: Vec::new(),
        umask: Some(worker::UMASK),
    };
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    let mut worker = worker::contain(order, spawn, &mut tasks)?;
    drop((out_theirs, err_theirs));
    let mut streams = [
        Some(pipe::Receiver::from_owned_fd(out).map_err(StartError::Worker)?),
        Some(pipe::Receiver::from_owned_fd(err).map_err(StartError::Worker)?),
    ];
    let mut kept = OutputBuffer {
        bytes: Vec::new(),
        bytes_max: command.output_bytes_max,
    };
    let (mut stop, mut stopped) = (Stop::Not, None);
    let grace = Duration::from_millis(u64::try_from(order.grace_ms).unwrap_or(0));
    let over = began + command.limit;
    loop {
        let [out, err] = &streams;
        let is_for_it =
            |reason: &String| !(command.outlasts_budget && reason == StopReason::Budget.word());
        let wanted = orders.as_mut().is_some_and(|orders| {
            orders
                .borrow_and_update()
                .stop
                .as_ref()
                .is_some_and(is_for_it)
        });
        let why = if wanted {
            Some(StopCause::ByOrder)
        } else {
            (Instant::now() >= over).then_some(StopCause::TimeUp)
        };
        if let (Some(why), Stop::Not) = (why, stop) {
            stopped = Some(why);
            stop = Stop::begin(&worker, None, grace, Instant::now());
        }
        tokio::select! {
            biased;
            Ok(()) = worker.seen.changed() => {
                let ProcessesState { exit, none_left } = *worker.seen.borrow_and_update();
                if none_left || (exit.is_some() && stop == Stop::Not) {
                    break;
                }
            }
            () = super::stop::until(stop.due()) => match stop.next(&worker) {
                Some(next) => stop = next,
                None => break,
            },
            () = tokio::time::sleep_until(over.into()), if stop == Stop::Not => {}
            () = wait_for_orders(orders.as_deref_mut()) => {}
            () = readable(out.as_ref()) => kept.read(&mut streams, 0),
            () = readable(err.as_ref()) => kept.read(&mut streams, 1),
        }
    }
    let exit = worker.seen.borrow().exit.filter(|_| stopped.is_none());
    let took = began.elapsed();
    drain(&mut streams, &mut kept).await;
    worker.sweep().await;
    drain(&mut streams, &mut kept).await;
    worker.stop_reaping();
    Ok(CommandOutput {
        exit,
        stopped,
        output: kept.bytes,
        took,
    })
}

async fn wait_for_orders(orders: Option<&mut watch::Receiver<Orders>>) {
    if let Some(orders) = orders
        && orders.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Reads until both streams have ended, for [`DRAIN_MAX`] at most.
async fn drain(streams: &mut [Option<pipe::Receiver>; 2], kept: &mut OutputBuffer) {
    let over = tokio::time::Instant::now() + DRAIN_MAX;
    while streams.iter().any(Option::is_some) {
        let [out, err] = &*streams;
        tokio::select! {
            () = readable(out.as_ref()) => kept.read(streams, 0),
            () = readable(err.as_ref()) => kept.read(streams, 1),
            () = tokio::time::sleep_until(over) => return,
        }
    }
}

struct OutputBuffer {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl OutputBuffer {
    fn read(&mut self, streams: &mut [Option<pipe::Receiver>; 2], which: usize) {
        let Some(pipe) = &streams[which] else { return };
        let mut buffer = [0; READ_BYTES];
        match pipe.try_read(&mut buffer) {
            Ok(0) => streams[which] = None,
            Ok(read) => self.take(&buffer[..read]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => {
                tracing::info!(%error, "a command's output cannot be read");
                streams[which] = None;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
    }
}

async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        // The next read returns this error again.
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "a stream cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
