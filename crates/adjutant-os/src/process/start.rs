//! Starts this binary in the background.

use super::hygiene::{inherited, seal_descriptors};
use super::{Spawn, StdioTarget};
#[cfg(not(target_os = "linux"))]
use crate::files;
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

/// Creates an unnamed file with this content, positioned at its beginning, for a child. Where there
/// are none in memory, it is in `dir`, which is in `base`.
///
/// # Errors
/// The file cannot be made.
#[cfg(target_os = "linux")]
pub fn unlinked_file(_base: &Path, _dir: &Path, bytes: &[u8]) -> io::Result<OwnedFd> {
    unlinked_bytes(bytes)
}

#[cfg(not(target_os = "linux"))]
pub fn unlinked_file(base: &Path, dir: &Path, bytes: &[u8]) -> io::Result<OwnedFd> {
    let path = dir.join("order");
    let mut file = files::create_new(base, &path)?;
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
    /// Waits until the process has closed its readiness pipe, and returns its message, which is
    /// empty if it exited without one.
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

/// Starts `adj <args>` in the background: in a new session, without a parent that must reap it, in
/// the working directory `/`, with the given environment and a [`ReadyPipe`]. Its output is written
/// to `log`, or dropped.
///
/// # Errors
/// The kernel's error; no process is left then.
pub fn spawn_detached_self(
    args: &[&OsStr],
    env: Vec<(OsString, OsString)>,
    log: Option<BorrowedFd<'_>>,
) -> io::Result<Detached> {
    let (ready, theirs) = super::pipe()?;
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

/// `adj __detach <args>`: starts `adj <args>` with its own environment, output and readiness pipe,
/// and exits, so that the new process has no parent.
#[must_use]
pub fn detach(args: &[OsString], env: Vec<(OsString, OsString)>) -> ExitCode {
    match start_detached(args, env) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the process in the background could not be started");
            ExitCode::FAILURE
        }
    }
}

fn start_detached(args: &[OsString], env: Vec<(OsString, OsString)>) -> io::Result<()> {
    let ready = inherited(INHERITED).ok_or_else(|| io::Error::other("no readiness pipe"))?;
    // The caller's locks and pipes would stay open as long as the process in the background runs.
    seal_descriptors()?;
    Spawn {
        program: Path::new(SELF_EXE),
        argv: [OsString::from("adj")]
            .into_iter()
            .chain(args.iter().cloned())
            .collect(),
        env,
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
