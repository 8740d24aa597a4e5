//! Starts this binary: a guard of an attempt, a hub in the background.

use super::hygiene::{inherited, seal_descriptors};
use super::{Child, Lock, Spawn, StdioTarget, watch};
use crate::config;
use crate::files;
use crate::link::{AttemptDir, Order};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use tokio::net::unix::pipe;

/// Path of this binary, valid even if its file was replaced or removed.
pub const SELF_EXE: &str = "/proc/self/exe";
/// The first descriptor that a child inherits in addition to its standard streams.
pub const INHERITED: i32 = 3;

/// A guard that this process has started and must reap.
#[derive(Debug)]
pub struct GuardChild {
    pub pid: Pid,
    pidfd: OwnedFd,
}

impl GuardChild {
    /// Waits for its end and reaps it. No process of the attempt is left then.
    ///
    /// # Errors
    /// It cannot be watched, or was reaped by another process.
    pub async fn wait(self) -> io::Result<WaitIdStatus> {
        watch::ended(self.pidfd.try_clone()?).await?;
        let status =
            rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)?;
        status.ok_or_else(|| io::Error::other("the guard ended without a status"))
    }
}

/// Starts a guard, which starts the attempt's supervisor. Creates the attempt's directory if it is missing. The guard's
/// lock is held before the guard runs.
///
/// # Errors
/// `AlreadyExists`: another guard of this attempt is alive. Otherwise the kernel's error; no process is left then.
pub fn spawn_guard(dir: &AttemptDir, order: &Order) -> io::Result<GuardChild> {
    spawn_guard_of(Path::new(SELF_EXE), dir, order)
}

/// [`spawn_guard`] with another binary, for tests.
///
/// # Errors
/// As [`spawn_guard`].
pub fn spawn_guard_of(exe: &Path, dir: &AttemptDir, order: &Order) -> io::Result<GuardChild> {
    files::make_dirs(dir.home(), &dir.0)?;
    let lock = Lock::try_take(dir.home(), &dir.guard_lock())?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{}: a guard lives", dir.0.display()),
        )
    })?;
    let order = unlinked_file(dir.home(), &dir.0, &serde_json::to_vec(order)?)?;
    let log = files::open_for_append(dir.home(), &dir.log())?;
    let Child { pid, pidfd } = Spawn {
        program: exe,
        argv: vec![
            OsString::from("adj"),
            OsString::from("__guard"),
            dir.0.clone().into_os_string(),
        ],
        env: config::guard_env(),
        cwd: Path::new("/"),
        stdin: StdioTarget::Fd(order.as_fd()),
        stdout: StdioTarget::Fd(log.as_fd()),
        stderr: StdioTarget::Fd(log.as_fd()),
        inherit: vec![lock.as_fd()],
        umask: None,
    }
    .start()?;
    // The guard writes its pid too. Until then, a watcher finds it here.
    if let Err(error) = lock.write_pid(pid) {
        tracing::warn!(%error, dir = %dir.0.display(), "the guard's pid could not be written");
    }
    Ok(GuardChild { pid, pidfd })
}

/// Creates an unnamed file in memory with this content, positioned at its beginning.
#[cfg(target_os = "linux")]
pub(super) fn unlinked_bytes(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = fs::File::from(rustix::fs::memfd_create(
        "order",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

#[cfg(target_os = "linux")]
pub(super) fn unlinked_file(_home: &Path, _dir: &Path, bytes: &[u8]) -> io::Result<OwnedFd> {
    unlinked_bytes(bytes)
}

/// Creates an unnamed file with this content, positioned at its beginning.
#[cfg(not(target_os = "linux"))]
pub(super) fn unlinked_file(home: &Path, dir: &Path, bytes: &[u8]) -> io::Result<OwnedFd> {
    let path = dir.join("order");
    let mut file = files::create_new(home, &path)?;
    fs::remove_file(&path)?;
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// A process started in the background that reports on a pipe when it is ready.
#[derive(Debug)]
pub struct Detached {
    ready: OwnedFd,
}

/// Longest message on a readiness pipe, in bytes.
const READY_BYTES_MAX: u64 = 64 * 1024;

impl Detached {
    /// Waits until the process has closed its readiness pipe, and returns its message, which is empty if it exited without
    /// one.
    ///
    /// # Errors
    /// The pipe cannot be read.
    pub async fn ready(self) -> io::Result<Vec<u8>> {
        use tokio::io::AsyncReadExt;
        let mut message = Vec::new();
        let pipe = pipe::Receiver::from_owned_fd(self.ready)?;
        pipe.take(READY_BYTES_MAX).read_to_end(&mut message).await?;
        Ok(message)
    }

    /// Does the same, but blocks the thread.
    ///
    /// # Errors
    /// The pipe cannot be read.
    pub fn ready_blocking(self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        fs::File::from(self.ready)
            .take(READY_BYTES_MAX)
            .read_to_end(&mut message)?;
        Ok(message)
    }
}

/// Starts `adj <args>` in the background: in a new session, without a parent that must reap it, in the working directory
/// `/`, with the given environment and a [`ReadyPipe`]. Its output is written to `log`, or dropped.
///
/// # Errors
/// The kernel's error; no process is left then.
pub fn spawn_detached_self(
    args: &[&OsStr],
    env: Vec<(OsString, OsString)>,
    log: Option<BorrowedFd<'_>>,
) -> io::Result<Detached> {
    let (ready, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let out = log.map_or(StdioTarget::Null, StdioTarget::Fd);
    let child = Spawn {
        program: Path::new(SELF_EXE),
        argv: [OsStr::new("adj"), OsStr::new("__detach")]
            .into_iter()
            .chain(args.iter().copied())
            .map(OsStr::to_owned)
            .collect(),
        env,
        cwd: Path::new("/"),
        stdin: StdioTarget::Null,
        stdout: out,
        stderr: out,
        inherit: vec![theirs.as_fd()],
        umask: None,
    }
    .start()?;
    drop(theirs);
    match child.wait_blocking()?.exit_status() {
        Some(0) => Ok(Detached { ready }),
        other => Err(io::Error::other(format!(
            "the background process could not be started (status {other:?})"
        ))),
    }
}

/// `adj __detach <args>`: starts `adj <args>` with its own environment, output and readiness pipe, and exits, so that the
/// new process has no parent.
#[must_use]
pub fn detach(args: &[OsString]) -> ExitCode {
    match start_detached(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the process in the background could not be started");
            ExitCode::FAILURE
        }
    }
}

fn start_detached(args: &[OsString]) -> io::Result<()> {
    let ready = inherited(INHERITED).ok_or_else(|| io::Error::other("no readiness pipe"))?;
    // The caller's locks and pipes would stay open as long as the process in the background runs.
    seal_descriptors()?;
    Spawn {
        program: Path::new(SELF_EXE),
        argv: [OsString::from("adj")]
            .into_iter()
            .chain(args.iter().cloned())
            .collect(),
        env: config::whole_env(),
        cwd: Path::new("/"),
        stdin: StdioTarget::Null,
        stdout: StdioTarget::Fd(rustix::stdio::stdout()),
        stderr: StdioTarget::Fd(rustix::stdio::stderr()),
        inherit: vec![ready.as_fd()],
        umask: None,
    }
    .start()
    .map(|_| ())
}

/// The other end of [`Detached`]. Must be taken once, before any descriptor is opened.
#[derive(Debug)]
pub struct ReadyPipe(fs::File);

impl ReadyPipe {
    /// Takes the pipe from the starter. `None`: the process runs in the foreground.
    #[must_use]
    pub fn inherited() -> Option<Self> {
        let fd = inherited(INHERITED)?;
        let is_pipe = rustix::fs::fstat(&fd).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo
        });
        is_pipe.then(|| Self(fd.into()))
    }

    /// Writes `message` and closes the pipe.
    ///
    /// # Errors
    /// The starter has exited.
    pub fn report(mut self, message: &str) -> io::Result<()> {
        self.0.write_all(message.as_bytes())
    }
}
