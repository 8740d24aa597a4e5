//! Linux.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open,
    pidfd_send_signal, waitid,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use tokio::net::unix::pipe;

/// The flag of `posix_spawn` for a new session.
pub(crate) const SPAWN_SETSID: libc::c_short = libc::POSIX_SPAWN_SETSID;

/// Succeeds: a started process can be watched and signalled without its number.
///
/// # Errors
/// Never.
pub(crate) fn require_process_descriptors() -> io::Result<()> {
    Ok(())
}

/// Opens a descriptor of a process, which refers to it even if its pid is reused.
///
/// # Errors
/// `ESRCH`: there is no such process.
pub(crate) fn open_process(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Opens a descriptor of a process that is readable when the process has ended, and whose use never
/// blocks.
///
/// # Errors
/// As [`open_process`].
pub(crate) fn watch_process(pid: Pid) -> io::Result<OwnedFd> {
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        // Kernels before 5.10.
        Err(Errno::INVAL) => open_process(pid),
        other => Ok(other?),
    }
}

/// Sends a signal to the process of a descriptor.
///
/// # Errors
/// `ESRCH`: it was reaped.
pub fn send_signal(process: &OwnedFd, signal: Signal) -> io::Result<()> {
    Ok(pidfd_send_signal(process, signal)?)
}

/// Waits for the end of a child, and reaps it.
///
/// # Errors
/// It is no child of this process, or was reaped.
pub(crate) fn reap_process(process: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    Ok(waitid(
        WaitId::PidFd(process.as_fd()),
        WaitIdOptions::EXITED,
    )?)
}

/// Returns the process that has connected a Unix socket, its user, and a descriptor of it.
///
/// # Errors
/// The process has ended, or the kernel does not report it.
pub(crate) fn peer_process(stream: impl AsFd) -> io::Result<(Pid, u32, OwnedFd)> {
    let cred = rustix::net::sockopt::socket_peercred(stream.as_fd())?;
    let process = match peer_pidfd(stream) {
        Ok(process) => process,
        // Kernels before 6.5: the pid may belong to another process by now.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => open_process(cred.pid)?,
        Err(error) => return Err(error),
    };
    Ok((cred.pid, cred.uid.as_raw(), process))
}

/// Returns the process that listens at the other end of a Unix socket, as it was when the
/// connection was made.
///
/// # Errors
/// The kernel does not report it.
pub(crate) fn peer_pid(stream: impl AsFd) -> io::Result<Pid> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid)
}

#[expect(unsafe_code, reason = "SO_PEERPIDFD has no safe wrapper")]
fn peer_pidfd(stream: impl AsFd) -> io::Result<OwnedFd> {
    /// From the kernel's `asm-generic/socket.h`.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut length =
        libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes one descriptor, which has no other owner, into memory of its size.
    unsafe {
        if libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        ) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Prevents other processes of this user from inspecting this one.
///
/// # Errors
/// The kernel rejects it.
pub(crate) fn forbid_inspection() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// Makes orphans below this process its children, so that none escapes its sweep.
///
/// # Errors
/// The kernel rejects it.
pub fn become_subreaper() -> io::Result<()> {
    // Any pid enables it.
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// Changes how likely the kernel is to kill a process when memory runs out: from -1000 to 1000, and
/// 0 is usual.
///
/// # Errors
/// There is no such process, or the score is lower than this user may set.
pub fn set_oom_score(pid: Pid, score: i32) -> io::Result<()> {
    std::fs::write(
        format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero()),
        score.to_string(),
    )
}

/// Creates a pipe with a name, and opens it so that it never ends.
///
/// # Errors
/// There is something with this name.
pub fn make_named_pipe(path: &Path) -> io::Result<pipe::Receiver> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )?;
    pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(path)
}
