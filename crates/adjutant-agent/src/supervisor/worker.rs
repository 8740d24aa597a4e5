//! The agent's process and its descendants: starts the agent once, reaps and sweeps.

use super::logfile::LogFile;
use super::output::Pump;
use super::own_log::OwnLog;
use crate::harness::{Input, Launch};
use crate::link::{FenceText, Order};
use crate::process::containment::{ContainedWorker, Namespace, StartError};
use crate::process::fence::MOUNT_NAMESPACE;
use crate::process::status::Message;
use crate::process::tree::{self, Reaped};
use crate::process::{Pid, Signal, Spawn, StdioTarget};
use adjutant_core::Exit;
use adjutant_stream::reader::Reader;
use adjutant_stream::text_retries::TextRetries;
use futures::FutureExt;
use rustix::fs::Mode;
use rustix::process::{WaitOptions, WaitStatus};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The agent's umask, independent of Adjutant.
pub const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);
/// Maximum duration of a sweep, if processes hang in the kernel.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// The interval at which a sweep repeats, in case it missed a new process.
const SWEEP_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of queued lines for the agent.
const LINES_MAX: usize = 1024;

/// The state of the processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessesState {
    /// How the agent itself ended.
    pub exit: Option<Exit>,
    /// No process is left.
    pub none_left: bool,
}

/// A line for the agent's standard input, and the message that it carries, if any.
#[derive(Debug)]
pub struct Line {
    pub bytes: Vec<u8>,
    pub message_id: Option<String>,
}

/// A started agent.
#[derive(Debug)]
pub struct Worker {
    pub pid: Pid,
    pub containment: &'static str,
    /// The requested fence, and whether it is enforced.
    pub fence: Option<FenceText>,
    pub seen: watch::Receiver<ProcessesState>,
    /// Accepts lines for the agent, if its input stays open.
    pub lines: Option<mpsc::Sender<Line>>,
    /// The agent is ended by INT instead of TERM.
    interrupt: bool,
    lifeline: Option<Lifeline>,
    reaper: AbortHandle,
}

/// The handles that end a PID namespace.
#[derive(Debug)]
struct Lifeline {
    init: Pid,
    init_pidfd: OwnedFd,
    end: OwnedFd,
}

/// Starts the agent. `delivered` receives the id of each message that was written to its standard input.
///
/// # Errors
/// The agent could not be started, and no process is left.
pub fn start(
    order: &Order,
    launch: &Launch,
    log: LogFile,
    lines_of: Option<(Reader, LogFile)>,
    delivered: mpsc::UnboundedSender<String>,
    tasks: &mut JoinSet<()>,
) -> Result<(Worker, Pump), StartError> {
    let (out, out_theirs) = pipe_pair()?;
    let (err, err_theirs) = pipe_pair()?;
    let stdin = match &launch.input {
        Input::Nothing => None,
        Input::Whole(_) | Input::Open(_) => Some(pipe_pair()?),
    };
    let mut env = environment(order);
    env.extend(
        launch
            .env
            .iter()
            .filter(|(name, _)| !order.env.contains_key(name))
            .map(|(name, value)| (name.into(), value.into())),
    );
    env.retain(|(name, _)| {
        launch
            .env_override
            .iter()
            .all(|(above, _)| above.as_str() != name)
    });
    env.extend(
        launch
            .env_override
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    // Before the agent starts, which would create an ordinary file.
    let own_log = launch
        .own_log
        .as_ref()
        .map(|source| OwnLog::open(source, order.session.as_deref()))
        .transpose()
        .map_err(StartError::Worker)?
        .flatten();
    let spawn = Spawn {
        program: &launch.program,
        argv: launch.argv.clone(),
        env,
        cwd: Path::new(&order.cwd),
        stdin: stdin.as_ref().map_or(StdioTarget::Null, |(theirs, _)| {
            StdioTarget::Fd(theirs.as_fd())
        }),
        stdout: StdioTarget::Fd(out_theirs.as_fd()),
        stderr: StdioTarget::Fd(err_theirs.as_fd()),
        inherit: Vec::new(),
        umask: Some(UMASK),
    };
    let mut worker = contain(order, spawn, tasks)?;
    drop((out_theirs, err_theirs));
    let mut pump =
        Pump::new(out, err, log, lines_of, order.answer_bytes_max).map_err(StartError::Worker)?;
    if let Some(log) = own_log {
        pump.watch_own_log(log);
    }
    if worker
        .fence
        .as_ref()
        .is_some_and(|fence| fence.enforced == MOUNT_NAMESPACE)
    {
        pump.watch_denied_writes();
    }
    pump.watch_text_retries(
        order
            .preset
            .as_ref()
            .and_then(|preset| TextRetries::new(&preset.text, &preset.stream)),
    );
    let lines = stdin.map(|(theirs, ours)| {
        drop(theirs);
        ours
    });
    let lines = match lines {
        Some(ours) => {
            write_input(ours, &launch.input, delivered, tasks).map_err(StartError::Worker)?
        }
        None => None,
    };
    worker.lines = lines;
    worker.interrupt = launch.interrupt;
    Ok((worker, pump))
}

/// Returns the environment of the attempt's processes.
pub fn environment(order: &Order) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = order
        .env
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    env.retain(|(name, _)| name != tree::MARKER && name != "ADJ_WORKER" && name != "ADJ_HOME");
    let access =
        crate::link::AttemptDir::new(&order.home, &order.run_id, order.attempt).worker_access();
    env.push((
        tree::MARKER.into(),
        format!("{}/{}", order.run_id, order.attempt).into(),
    ));
    if order.has_tools {
        env.push(("ADJ_WORKER".into(), access.into_os_string()));
    }
    // So an `adj` in the agent's shell uses this home, where it is identified as the run.
    env.push(("ADJ_HOME".into(), order.home.clone().into_os_string()));
    env
}

/// Starts a process that is contained with its descendants, and reaps them.
///
/// # Errors
/// The process could not be started, and none is left.
pub fn contain(
    order: &Order,
    spawn: Spawn<'_>,
    tasks: &mut JoinSet<()>,
) -> Result<Worker, StartError> {
    let children = signal(SignalKind::child()).map_err(StartError::Worker)?;
    let (contained, fence) = super::fence::start(order, spawn)?;
    raise_oom_score(contained.worker());
    let (pid, containment) = (contained.worker(), contained.word());
    let (sender, seen) = watch::channel(ProcessesState::default());
    let (reaper, lifeline) = match contained {
        ContainedWorker::Subreaper(child) => (
            tasks.spawn(
                reap_all(
                    children,
                    ReaperTargets {
                        agent: Some(child.pid),
                        init: None,
                        status: None,
                    },
                    sender,
                )
                .boxed(),
            ),
            None,
        ),
        ContainedWorker::Namespace(Namespace {
            init,
            lifeline,
            status,
            ..
        }) => {
            let status = pipe::Receiver::from_owned_fd(status).map_err(StartError::Worker)?;
            let reaper = tasks.spawn(
                reap_all(
                    children,
                    ReaperTargets {
                        agent: None,
                        init: Some(init.pid),
                        status: Some(status),
                    },
                    sender,
                )
                .boxed(),
            );
            (
                reaper,
                Some(Lifeline {
                    init: init.pid,
                    init_pidfd: init.pidfd,
                    end: lifeline,
                }),
            )
        }
    };
    Ok(Worker {
        pid,
        containment,
        fence,
        seen,
        lines: None,
        interrupt: false,
        lifeline,
        reaper,
    })
}

impl Worker {
    /// Sends the signal that ends the agent: INT to the agent, or TERM to all processes.
    pub fn ask_to_end(&self) {
        if !self.interrupt {
            self.terminate();
        } else if let Err(error) = rustix::process::kill_process(self.pid, Signal::INT) {
            tracing::debug!(%error, "the agent has ended");
        }
    }

    /// Ends the agent's input.
    pub fn close_input(&mut self) {
        self.lines = None;
    }

    /// Sends TERM to the agent and its descendants.
    fn terminate(&self) {
        tree::terminate(rustix::process::getpid());
    }

    /// Kills until no process of the attempt is left. Returns how many were killed in addition to the agent.
    pub async fn sweep(&mut self) -> u32 {
        let own = rustix::process::getpid();
        let init = self.lifeline.as_ref().map(|lifeline| lifeline.init);
        let mut killed = HashSet::new();
        let began = Instant::now();
        while !self.seen.borrow_and_update().none_left {
            killed.extend(tree::kill(own));
            // A namespace's init exits after all other processes in it.
            self.end_namespace();
            if began.elapsed() > SWEEP_MAX {
                tracing::error!(processes = ?tree::descendants(own), "killed processes do not exit");
                break;
            }
            // A timeout is not a failure; the sweep repeats.
            if let Ok(Err(error)) = tokio::time::timeout(SWEEP_AGAIN, self.seen.changed()).await {
                tracing::error!(%error, "the task that reaps has ended");
                break;
            }
        }
        let count = killed
            .iter()
            .filter(|pid| **pid != self.pid && Some(**pid) != init)
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Stops reaping, so that another process can be contained. No process of this one is left.
    pub fn stop_reaping(&self) {
        self.reaper.abort();
    }

    fn end_namespace(&mut self) {
        if let Some(Lifeline {
            init_pidfd, end, ..
        }) = self.lifeline.take()
        {
            drop(end);
            if let Err(error) = rustix::process::pidfd_send_signal(&init_pidfd, Signal::KILL) {
                tracing::debug!(%error, "init has ended");
            }
        }
    }
}

pub fn pipe_pair() -> Result<(OwnedFd, OwnedFd), StartError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| StartError::Worker(error.into()))
}

/// Lets the kernel kill the agent before its supervisor, guard and hub when memory runs out.
fn raise_oom_score(agent: Pid) {
    if let Err(error) = std::fs::write(
        format!("/proc/{}/oom_score_adj", agent.as_raw_nonzero()),
        "500",
    ) {
        tracing::debug!(%error, "the agent's OOM score cannot be raised");
    }
}

/// Writes the agent's input, and later lines if it stays open.
fn write_input(
    ours: OwnedFd,
    input: &Input,
    delivered: mpsc::UnboundedSender<String>,
    tasks: &mut JoinSet<()>,
) -> io::Result<Option<mpsc::Sender<Line>>> {
    let mut pipe = pipe::Sender::from_owned_fd(ours)?;
    let (bytes, stays_open) = match input {
        Input::Nothing => return Ok(None),
        Input::Whole(bytes) => (bytes.clone(), false),
        Input::Open(bytes) => (bytes.clone(), true),
    };
    let (sender, mut lines) = mpsc::channel::<Line>(LINES_MAX);
    tasks.spawn(async move {
        if let Err(error) = pipe.write_all(&bytes).await {
            tracing::info!(%error, "the agent did not read its whole prompt");
            return;
        }
        drop(bytes);
        while let Some(line) = lines.recv().await {
            if let Err(error) = pipe.write_all(&line.bytes).await {
                tracing::info!(%error, "the agent closed its input");
                return;
            }
            if let Some(message_id) = line.message_id
                && delivered.send(message_id).is_err()
            {
                return;
            }
        }
    });
    Ok(stays_open.then_some(sender))
}

/// The processes whose end the reaper records.
struct ReaperTargets {
    agent: Option<Pid>,
    init: Option<Pid>,
    status: Option<pipe::Receiver>,
}

/// Reaps all children of this process.
async fn reap_all(
    mut children: Signals,
    mut tracked: ReaperTargets,
    seen: watch::Sender<ProcessesState>,
) {
    loop {
        let mut now = *seen.borrow();
        loop {
            match tree::reap(WaitOptions::NOHANG) {
                Reaped::Child(pid, status) if Some(pid) == tracked.agent => {
                    now.exit = exit_of(status);
                    tracked.agent = None;
                }
                Reaped::Child(pid, _) if Some(pid) == tracked.init => {
                    read_last_status(&mut tracked, &mut now);
                    now.exit = now.exit.or(Some(Exit::Signal(libc::SIGKILL)));
                }
                Reaped::Child(..) => {}
                Reaped::NoneEnded => {
                    now.none_left = false;
                    break;
                }
                Reaped::NoneLeft => {
                    now.none_left = true;
                    break;
                }
            }
        }
        read_status(&mut tracked, &mut now);
        seen.send_if_modified(|before| std::mem::replace(before, now) != now);
        tokio::select! {
            more = children.recv() => if more.is_none() { return },
            () = status_readable(tracked.status.as_ref()) => {}
        }
    }
}

async fn status_readable(status: Option<&pipe::Receiver>) {
    match status {
        Some(status) => match status.readable().await {
            Ok(()) => {}
            Err(error) => tracing::error!(%error, "the messages of init cannot be awaited"),
        },
        None => std::future::pending().await,
    }
}

/// Reads the messages of init. They are short enough that a pipe writes each at once.
fn read_status(tracked: &mut ReaperTargets, now: &mut ProcessesState) {
    while let Some(status) = &tracked.status {
        let mut bytes = [0; Message::BYTES];
        match status.try_read(&mut bytes) {
            Ok(Message::BYTES) => {
                if let Some(Message::Ended(raw)) = Message::decode(bytes) {
                    now.exit = exit_of_raw(raw);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(_) => tracked.status = None,
            Err(error) => {
                tracing::warn!(%error, "the exit status cannot be received");
                tracked.status = None;
            }
        }
    }
}

/// Reads the messages that init wrote before it ended. They are in the pipe even if the runtime has not been notified.
fn read_last_status(tracked: &mut ReaperTargets, now: &mut ProcessesState) {
    let Some(status) = tracked.status.take() else {
        return;
    };
    let mut bytes = [0; Message::BYTES];
    while let Ok(Message::BYTES) = rustix::io::read(&status, &mut bytes) {
        if let Some(Message::Ended(raw)) = Message::decode(bytes) {
            now.exit = exit_of_raw(raw);
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    status
        .exit_status()
        .map(Exit::Code)
        .or_else(|| status.terminating_signal().map(Exit::Signal))
}

fn exit_of_raw(raw: i32) -> Option<Exit> {
    if libc::WIFEXITED(raw) {
        Some(Exit::Code(libc::WEXITSTATUS(raw)))
    } else if libc::WIFSIGNALED(raw) {
        Some(Exit::Signal(libc::WTERMSIG(raw)))
    } else {
        None
    }
}
