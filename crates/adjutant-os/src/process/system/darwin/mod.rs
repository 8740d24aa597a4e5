//! macOS. It compiles there, and nothing was run there: what needs Linux is [`Unsupported`].

pub mod descriptors;
pub mod sock_diag;

use super::Unsupported;
use rustix::process::{Pid, Signal, WaitIdStatus};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use tokio::net::unix::pipe;

/// The flag of `posix_spawn` for a new session, from the system's `spawn.h`. The crate `libc` does
/// not name it.
pub(crate) const SPAWN_SETSID: libc::c_short = 0x0400;

/// Fails, so that no process is started that could not be watched.
///
/// # Errors
/// Always.
pub(crate) fn require_process_descriptors() -> io::Result<()> {
    Err(Unsupported::ProcessDescriptors.into())
}

/// Fails: there are no descriptors of processes here.
///
/// # Errors
/// Always.
pub(crate) fn open_process(_pid: Pid) -> io::Result<OwnedFd> {
    Err(Unsupported::ProcessDescriptors.into())
}

/// Fails: there are no descriptors of processes here.
///
/// # Errors
/// Always.
pub(crate) fn watch_process(_pid: Pid) -> io::Result<OwnedFd> {
    Err(Unsupported::ProcessDescriptors.into())
}

/// Fails: there are no descriptors of processes here.
///
/// # Errors
/// Always.
pub fn send_signal(_process: &OwnedFd, _signal: Signal) -> io::Result<()> {
    Err(Unsupported::ProcessDescriptors.into())
}

/// Fails: there are no descriptors of processes here.
///
/// # Errors
/// Always.
pub(crate) fn reap_process(_process: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    Err(Unsupported::ProcessDescriptors.into())
}

/// Fails: a caller is not identified here yet.
///
/// # Errors
/// Always.
pub(crate) fn peer_process(_stream: impl AsFd) -> io::Result<(Pid, u32, OwnedFd)> {
    Err(Unsupported::PeerProcess.into())
}

/// Fails: the other end of a socket is not identified here yet.
///
/// # Errors
/// Always.
pub(crate) fn peer_pid(_stream: impl AsFd) -> io::Result<Pid> {
    Err(Unsupported::PeerProcess.into())
}

/// Does nothing: only root can inspect other processes here.
///
/// # Errors
/// Never.
pub(crate) fn forbid_inspection() -> io::Result<()> {
    Ok(())
}

/// Fails: the orphans of an agent become children of another process here, and escape.
///
/// # Errors
/// Always.
pub fn become_subreaper() -> io::Result<()> {
    Err(Unsupported::Containment.into())
}

/// Does nothing: the kernel has no such score here.
///
/// # Errors
/// Never.
pub fn set_oom_score(_pid: Pid, _score: i32) -> io::Result<()> {
    Ok(())
}

/// Fails: a pipe cannot be opened here so that it never ends.
///
/// # Errors
/// Always.
pub fn make_named_pipe(_path: &Path) -> io::Result<pipe::Receiver> {
    Err(Unsupported::NamedPipe.into())
}
