//! A command beside the agent, when that has ended: the acceptance command. Held together,
//! stopped and swept as the agent is; its output is kept as far as it is wanted.

use super::stop::Stop;
use super::worker::{self, Seen};
use crate::link::{Order, Orders};
use crate::process::containment::Failed;
use crate::process::{Spawn, StdioTarget};
use adjutant_core::Exit;
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

/// What is to be run.
#[derive(Debug)]
pub struct SideCommand {
    /// Absolute.
    pub program: PathBuf,
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub limit: Duration,
    /// The end of its output that is kept, of both streams together.
    pub output_bytes_max: usize,
}

/// Its result.
#[derive(Debug)]
pub struct CommandOutput {
    /// How it ended by itself. `None`: it was stopped.
    pub exit: Option<Exit>,
    /// Why it was stopped.
    pub stopped: Option<&'static str>,
    pub output: Vec<u8>,
    pub took: Duration,
}

/// Finds a program: a path as it stands (from the given directory), a bare name in the absolute
/// directories of `path`, those below the given one left out: what the agent could have put there is
/// not taken for a tool of the system.
#[must_use]
pub fn find(program: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program));
    }
    let is_program = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let dirs = path.split(':').filter(|dir| dir.starts_with('/')).map(Path::new);
    let below = |dir: &Path| cwd != Path::new("/") && dir.starts_with(cwd);
    dirs.filter(|dir| !below(dir)).map(|dir| dir.join(program)).find(|candidate| is_program(candidate))
}

/// Runs a command in the order's directory to its end. It is stopped when its time is over, or when
/// `orders` want the run to stop.
///
/// # Errors
/// It could not be started; nothing runs then.
pub async fn run(order: &Order, command: SideCommand, mut orders: Option<&mut watch::Receiver<Orders>>) -> Result<CommandOutput, Failed> {
    let (out, out_theirs) = worker::pipe_pair()?;
    let (err, err_theirs) = worker::pipe_pair()?;
    let spawn = Spawn {
        program: &command.program,
        argv: command.argv,
        env: command.env,
        cwd: Path::new(&order.cwd),
        stdin: StdioTarget::Null,
        stdout: StdioTarget::Fd(out_theirs.as_fd()),
        stderr: StdioTarget::Fd(err_theirs.as_fd()),
        inherit: Vec::new(),
        umask: Some(worker::UMASK),
    };
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    let mut worker = worker::hold(order, spawn, &mut tasks)?;
    drop((out_theirs, err_theirs));
    let mut streams =
        [Some(pipe::Receiver::from_owned_fd(out).map_err(Failed::Worker)?), Some(pipe::Receiver::from_owned_fd(err).map_err(Failed::Worker)?)];
    let mut kept = OutputBuffer { bytes: Vec::new(), bytes_max: command.output_bytes_max };
    let (mut stop, mut stopped) = (Stop::Not, None);
    let grace = Duration::from_millis(u64::try_from(order.grace_ms).unwrap_or(0));
    let over = began + command.limit;
    loop {
        let [out, err] = &streams;
        let wanted = orders.as_mut().is_some_and(|orders| orders.borrow_and_update().stop.is_some());
        let why = if wanted { Some("the run was to stop") } else { (Instant::now() >= over).then_some("its time was used up") };
        if let (Some(why), Stop::Not) = (why, stop) {
            stopped = Some(why);
            stop = Stop::begin(&worker, None, grace, Instant::now());
        }
        tokio::select! {
            biased;
            Ok(()) = worker.seen.changed() => {
                let Seen { exit, none_left } = *worker.seen.borrow_and_update();
                if none_left || (exit.is_some() && stop == Stop::Not) {
                    break;
                }
            }
            () = super::stop::until(stop.due()) => match stop.next(&worker) {
                Some(next) => stop = next,
                None => break,
            },
            () = tokio::time::sleep_until(over.into()), if stop == Stop::Not => {}
            () = changed(orders.as_deref_mut()) => {}
            () = readable(out.as_ref()) => kept.read(&mut streams, 0),
            () = readable(err.as_ref()) => kept.read(&mut streams, 1),
        }
    }
    let exit = worker.seen.borrow().exit.filter(|_| stopped.is_none());
    let took = began.elapsed();
    drain(&mut streams, &mut kept).await;
    worker.sweep().await;
    drain(&mut streams, &mut kept).await;
    worker.let_go();
    Ok(CommandOutput { exit, stopped, output: kept.bytes, took })
}

async fn changed(orders: Option<&mut watch::Receiver<Orders>>) {
    if let Some(orders) = orders
        && orders.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Reads what is there until both streams have ended, for a moment.
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
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
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
        // An error here shows in the read that follows.
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "a stream cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
