//! The agent's process and its descendants: starts the agent once, reaps and sweeps.

use super::log_writer::LogWriter;
use super::output::Pump;
use super::own_log::OwnLog;
use crate::harness::{Input, Launch};
use crate::process::containment::{ContainedWorker, Namespace, StartError};
use crate::process::fence::MOUNT_NAMESPACE;
use crate::process::status::Message;
use crate::process::tree::{self, Reaped};
use crate::process::{self, Pid, Signal, Spawn, StdioTarget, send_signal};
use crate::protocol::{FenceText, Order};
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
pub(crate) const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);
/// Maximum duration of a sweep, if processes hang in the kernel.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// The interval at which a sweep repeats, in case it missed a new process.
const SWEEP_AGAIN: Duration = Duration::from_millis(20);
/// Maximum number of queued lines for the agent.
const LINES_MAX: usize = 1024;

/// The state of the processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessesState {
    /// How the agent itself ended.
    pub exit: Option<Exit>,
    /// No process is left.
    pub none_left: bool,
}

/// A line for the agent's standard input, and the message that it carries, if any.
#[derive(Debug)]
pub(super) struct Line {
    pub bytes: Vec<u8>,
    pub message_id: Option<String>,
}

/// A started agent.
#[derive(Debug)]
pub(super) struct Worker {
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

/// Where the agent's output is written.
#[derive(Debug)]
pub(super) struct AgentLogs {
    pub log: LogWriter,
    /// The reader of its structured stream, and the file of the raw stream.
    pub lines_of: Option<(Reader, LogWriter)>,
}

/// Starts the agent. `delivered` receives the id of each message that was written to its standard
/// input.
///
/// # Errors
/// The agent could not be started, and no process is left.
pub(super) fn start(
    order: &Order,
    launch: &Launch,
    logs: AgentLogs,
    delivered: mpsc::UnboundedSender<String>,
    tasks: &mut JoinSet<()>,
) -> Result<(Worker, Pump), StartError> {
    let (out, out_theirs) = pipe_pair()?;
    let (err, err_theirs) = pipe_pair()?;
    let (stdin_theirs, stdin) = match &launch.input {
        Input::Nothing => None,
        Input::Whole(_) | Input::Open(_) => Some(pipe_pair()?),
    }
    .unzip();
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
        env: agent_environment(order, launch),
        cwd: Path::new(&order.cwd),
        stdin: stdin_theirs
            .as_ref()
            .map_or(StdioTarget::Null, |theirs| StdioTarget::Fd(theirs.as_fd())),
        stdout: StdioTarget::Fd(out_theirs.as_fd()),
        stderr: StdioTarget::Fd(err_theirs.as_fd()),
        inherit: Vec::new(),
        umask: Some(UMASK),
    };
    let mut worker = contain(order, spawn, tasks)?;
    drop((out_theirs, err_theirs, stdin_theirs));
    let AgentLogs { log, lines_of } = logs;
    let mut pump =
        Pump::new(out, err, log, lines_of, order.answer_bytes_max).map_err(StartError::Worker)?;
    watch_output(&mut pump, order, own_log, worker.fence.as_ref());
    worker.lines = stdin
        .map(|ours| write_input(ours, &launch.input, delivered, tasks))
        .transpose()
        .map_err(StartError::Worker)?
        .flatten();
    worker.interrupt = launch.interrupt;
    Ok((worker, pump))
}

/// Has the agent's output searched for what its preset and its fence require.
fn watch_output(
    pump: &mut Pump,
    order: &Order,
    own_log: Option<OwnLog>,
    fence: Option<&FenceText>,
) {
    if let Some(log) = own_log {
        pump.watch_own_log(log);
    }
    if fence.is_some_and(|fence| fence.enforced == MOUNT_NAMESPACE) {
        pump.watch_denied_writes();
    }
    pump.watch_text_retries(
        order
            .preset
            .as_ref()
            .and_then(|preset| TextRetries::new(&preset.text, &preset.stream)),
    );
}

/// Returns the environment of the agent: that of the attempt's processes, with what its launch adds
/// and overrides.
fn agent_environment(order: &Order, launch: &Launch) -> Vec<(OsString, OsString)> {
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
    env
}

/// Returns the environment of the attempt's processes.
pub(super) fn environment(order: &Order) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = order
        .env
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    env.retain(|(name, _)| name != tree::MARKER && name != "ADJ_WORKER" && name != "ADJ_HOME");
    let access =
        crate::protocol::AttemptDir::new(&order.home, &order.run_id, order.attempt).worker_access();
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
pub(super) fn contain(
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
                        is_status_watched: false,
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
                        is_status_watched: true,
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
    pub(crate) fn ask_to_end(&self) {
        if !self.interrupt {
            self.terminate();
        } else if let Err(error) = rustix::process::kill_process(self.pid, Signal::INT) {
            tracing::debug!(%error, "the agent has ended");
        }
    }

    /// Ends the agent's input.
    pub(crate) fn close_input(&mut self) {
        self.lines = None;
    }

    /// Sends TERM to the agent and its descendants.
    fn terminate(&self) {
        tree::terminate(rustix::process::getpid());
    }

    /// Kills until no process of the attempt is left. Returns how many were killed in addition to
    /// the agent.
    pub(super) async fn sweep(&mut self) -> u32 {
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
    pub(crate) fn stop_reaping(&self) {
        self.reaper.abort();
    }

    fn end_namespace(&mut self) {
        if let Some(Lifeline {
            init_pidfd, end, ..
        }) = self.lifeline.take()
        {
            drop(end);
            if let Err(error) = send_signal(&init_pidfd, Signal::KILL) {
                tracing::debug!(%error, "init has ended");
            }
        }
    }
}

pub(crate) fn pipe_pair() -> Result<(OwnedFd, OwnedFd), StartError> {
    process::pipe().map_err(StartError::Worker)
}

/// How much likelier than others the kernel is to kill an agent, of at most 1000.
const OOM_SCORE: i32 = 500;

/// Lets the kernel kill the agent before its supervisor, guard and hub when memory runs out.
fn raise_oom_score(agent: Pid) {
    if let Err(error) = process::set_oom_score(agent, OOM_SCORE) {
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
    /// The messages of init.
    status: Option<pipe::Receiver>,
    /// Its messages can be awaited. Those of an init that has ended are read in any case.
    is_status_watched: bool,
}

impl ReaperTargets {
    /// Waits for a message of init. Waits forever if there will be none, or if they cannot be
    /// awaited: an error that counted as a message would return at once, again and again. Cancel
    /// safe.
    async fn status_readable(&mut self) {
        if let Some(status) = self.status.as_ref().filter(|_| self.is_status_watched) {
            match status.readable().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(%error, "the messages of init cannot be awaited");
                    self.is_status_watched = false;
                }
            }
        }
        std::future::pending().await
    }
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
            () = tracked.status_readable() => {}
        }
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

/// Reads the messages that init wrote before it ended. They are in the pipe even if the runtime has
/// not been notified.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    }

    fn targets(status: OwnedFd) -> ReaperTargets {
        ReaperTargets {
            agent: None,
            init: None,
            status: Some(pipe::Receiver::from_owned_fd(status).expect("a pipe")),
            is_status_watched: true,
        }
    }

    async fn is_ready(targets: &mut ReaperTargets) -> bool {
        tokio::time::timeout(Duration::from_millis(20), targets.status_readable())
            .await
            .is_ok()
    }

    #[test]
    fn message_of_init_is_awaited() {
        runtime().block_on(async {
            let (ours, theirs) = process::pipe().expect("a pipe");
            let mut targets = targets(ours);
            assert!(!is_ready(&mut targets).await);
            rustix::io::write(&theirs, &[0; Message::BYTES]).expect("it has room");
            assert!(is_ready(&mut targets).await);
        });
    }

    #[test]
    fn init_that_cannot_be_watched_sends_no_message() {
        let (ours, _theirs) = process::pipe().expect("a pipe");
        // Nothing watches the pipe once its runtime is gone.
        let gone = runtime();
        let mut targets = gone.block_on(async { targets(ours) });
        drop(gone);
        assert!(!runtime().block_on(is_ready(&mut targets)));
        assert!(!targets.is_status_watched && targets.status.is_some());
    }
}
