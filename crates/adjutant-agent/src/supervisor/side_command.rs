//! Runs a command other than the agent: the setup command before it, the acceptance command after
//! it. It is contained, stopped and swept like the agent. The end of its output is kept.

use super::stop::Stop;
use super::worker::{self, ProcessesState, Worker};
use crate::process::containment::StartError;
use crate::process::{Spawn, StdioTarget};
use crate::protocol::{CommandEvidence, Order, Orders};
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
pub(crate) struct SideCommand {
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
pub(crate) struct CommandOutput {
    /// Its exit. `None`: it was stopped.
    pub exit: Option<Exit>,
    /// Why it was stopped.
    pub stopped: Option<StopCause>,
    pub output: Vec<u8>,
    pub took: Duration,
}

/// Why a command was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopCause {
    /// The run is to stop.
    ByOrder,
    TimeUp,
}

impl StopCause {
    /// Returns the words of the evidence.
    #[must_use]
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::ByOrder => "the run was to stop",
            Self::TimeUp => "its time was used up",
        }
    }
}

impl CommandOutput {
    /// Returns it as it is stated to the hub.
    #[must_use]
    pub(super) fn evidence(self) -> CommandEvidence {
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

/// Finds a program. A path is relative to `cwd`. A name is searched in the absolute directories of
/// `path` that are not below `cwd`, so that a file of the agent does not replace a tool of the
/// system.
#[must_use]
pub(super) fn find(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
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

/// Runs a command of an attempt to its end. Stops it at its time limit, or when `orders` request a
/// stop of the run.
///
/// # Errors
/// The command could not be started, and no process is left.
pub(super) async fn run(
    order: &Order,
    command: SideCommand,
    orders: Option<&mut watch::Receiver<Orders>>,
) -> Result<CommandOutput, StartError> {
    let mut tasks = JoinSet::new();
    let mut running = RunningCommand::start(order, command, &mut tasks)?;
    let stopped = running.until_end(orders).await;
    let exit = running.worker.seen.borrow().exit;
    let took = running.began.elapsed();
    running.drain().await;
    running.worker.sweep().await;
    running.drain().await;
    running.worker.stop_reaping();
    Ok(CommandOutput {
        exit: exit.filter(|_| stopped.is_none()),
        stopped,
        output: running.kept.bytes,
        took,
    })
}

/// A command that was started.
struct RunningCommand {
    worker: Worker,
    streams: [Option<pipe::Receiver>; 2],
    kept: OutputBuffer,
    began: Instant,
    limit: Duration,
    /// How long its processes may take to end after TERM.
    grace: Duration,
    outlasts_budget: bool,
}

impl RunningCommand {
    fn start(
        order: &Order,
        command: SideCommand,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, StartError> {
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
        let worker = worker::contain(order, spawn, tasks)?;
        drop((out_theirs, err_theirs));
        let streams = [
            Some(pipe::Receiver::from_owned_fd(out).map_err(StartError::Worker)?),
            Some(pipe::Receiver::from_owned_fd(err).map_err(StartError::Worker)?),
        ];
        Ok(Self {
            worker,
            streams,
            kept: OutputBuffer {
                bytes: Vec::new(),
                bytes_max: command.output_bytes_max,
            },
            began,
            limit: command.limit,
            grace: Duration::from_millis(u64::try_from(order.grace_ms).unwrap_or(0)),
            outlasts_budget: command.outlasts_budget,
        })
    }

    /// Reads its output until it has ended or was stopped. Returns why it was stopped.
    async fn until_end(
        &mut self,
        mut orders: Option<&mut watch::Receiver<Orders>>,
    ) -> Option<StopCause> {
        let (mut stop, mut stopped) = (Stop::Not, None);
        let over = self.began + self.limit;
        loop {
            let ordered = orders
                .as_mut()
                .and_then(|orders| orders.borrow_and_update().stop.clone());
            let is_over = Instant::now() >= over;
            let why = stop_cause(ordered.as_deref(), is_over, self.outlasts_budget);
            if let (Some(why), Stop::Not) = (why, stop) {
                stopped = Some(why);
                stop = Stop::begin(&self.worker, None, self.grace, Instant::now());
            }
            let [out, err] = &self.streams;
            tokio::select! {
                biased;
                Ok(()) = self.worker.seen.changed() => {
                    let ProcessesState { exit, none_left } = *self.worker.seen.borrow_and_update();
                    if none_left || (exit.is_some() && stop == Stop::Not) {
                        return stopped;
                    }
                }
                () = super::stop::until(stop.due()) => match stop.next(&self.worker) {
                    Some(next) => stop = next,
                    None => return stopped,
                },
                () = tokio::time::sleep_until(over.into()), if stop == Stop::Not => {}
                () = wait_for_orders(orders.as_deref_mut()) => {}
                () = readable(out.as_ref()) => self.kept.read(&mut self.streams, 0),
                () = readable(err.as_ref()) => self.kept.read(&mut self.streams, 1),
            }
        }
    }

    /// Reads until both streams have ended, for [`DRAIN_MAX`] at most.
    async fn drain(&mut self) {
        let over = tokio::time::Instant::now() + DRAIN_MAX;
        while self.streams.iter().any(Option::is_some) {
            let [out, err] = &self.streams;
            tokio::select! {
                () = readable(out.as_ref()) => self.kept.read(&mut self.streams, 0),
                () = readable(err.as_ref()) => self.kept.read(&mut self.streams, 1),
                () = tokio::time::sleep_until(over) => return,
            }
        }
    }
}

/// Returns why a command has to be stopped. `ordered` is why its run is to stop.
fn stop_cause(ordered: Option<&str>, is_over: bool, outlasts_budget: bool) -> Option<StopCause> {
    let stops_it = |reason: &str| !(outlasts_budget && reason == StopReason::Budget.word());
    if ordered.is_some_and(stops_it) {
        Some(StopCause::ByOrder)
    } else {
        is_over.then_some(StopCause::TimeUp)
    }
}

async fn wait_for_orders(orders: Option<&mut watch::Receiver<Orders>>) {
    if let Some(orders) = orders
        && orders.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_precedes_the_limit_and_a_budget_may_not_count() {
        let (cancel, budget) = (
            Some(StopReason::Cancelled.word()),
            Some(StopReason::Budget.word()),
        );
        assert_eq!(stop_cause(None, false, true), None);
        assert_eq!(stop_cause(None, true, true), Some(StopCause::TimeUp));
        assert_eq!(stop_cause(cancel, true, true), Some(StopCause::ByOrder));
        assert_eq!(stop_cause(budget, false, false), Some(StopCause::ByOrder));
        assert_eq!(stop_cause(budget, false, true), None);
        assert_eq!(stop_cause(budget, true, true), Some(StopCause::TimeUp));
    }
}
