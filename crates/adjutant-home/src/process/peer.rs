//! Identifies the process at the other end of a Unix socket, and its attempt.
//!
//! Only the ancestors of a process count, not what it claims. A guard and a supervisor are identified by their command
//! lines, which name the attempt's directory. The outermost one of a home counts, so a process cannot hide behind an
//! imitation that it has started. A double-forked process remains below its supervisor, which is a subreaper.
//!
//! This protects processes of one user from each other by convention. It is not a security boundary: a process can do
//! everything that its user can.

use super::{limit, lock, tree};
use crate::files;
use crate::link::AttemptDir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How often a walk is repeated when parents die during it.
const WALKS_MAX: usize = 32;
/// Maximum number of ancestors.
const CHAIN_MAX: usize = 10_000;

/// The process at the other end of a connection, at the time of connecting.
#[derive(Debug)]
pub struct Peer {
    pub pid: Pid,
    pub uid: u32,
    pidfd: OwnedFd,
}

/// Where a peer runs, in relation to one home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Below no attempt of this home.
    Outside,
    /// The supervisor of this attempt, which may act for it with its token.
    Supervisor { run_id: String, attempt: u32 },
    /// The worker of this attempt, or a descendant.
    Attempt { run_id: String, attempt: u32 },
}

impl Peer {
    /// Identifies the process at the other end of a connection.
    ///
    /// # Errors
    /// The process has ended, or the kernel does not report it.
    pub fn of(stream: impl AsFd) -> io::Result<Self> {
        let cred = rustix::net::sockopt::socket_peercred(stream.as_fd())?;
        let pidfd = match peer_pidfd(stream) {
            Ok(pidfd) => pidfd,
            // Kernels before 6.5: the pid may belong to another process by now.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                rustix::process::pidfd_open(cred.pid, PidfdFlags::empty())?
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            pid: cred.pid,
            uid: cred.uid.as_raw(),
            pidfd,
        })
    }

    /// Returns whether the process runs as the same user as this one.
    #[must_use]
    pub fn is_same_user(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }

    /// Returns whether the process that connected is still alive.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn is_alive(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        Ok(poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )? == 0)
    }

    /// Finds the attempt that the process belongs to.
    ///
    /// # Errors
    /// The process has ended meanwhile, so its pid proves nothing.
    pub fn place(&self, home: &Path) -> io::Result<Place> {
        let place = place_of(self.pid, home)?;
        if self.is_alive()? {
            Ok(place)
        } else {
            Err(process_gone_error())
        }
    }

    /// Returns whether the process is a descendant of `root`.
    ///
    /// # Errors
    /// The process has ended meanwhile.
    pub fn is_below(&self, root: Pid) -> io::Result<bool> {
        let below = chain(self.pid)?.contains(&root) && self.pid != root;
        if self.is_alive()? {
            Ok(below)
        } else {
            Err(process_gone_error())
        }
    }
}

/// Finds the attempt of `home` that a process belongs to. The process itself can be the guard or supervisor.
///
/// # Errors
/// The process has ended, or its ancestors change faster than they can be read.
pub fn attempt_above(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    Ok(match place_of(pid, home)? {
        Place::Outside => None,
        Place::Supervisor { run_id, attempt } | Place::Attempt { run_id, attempt } => {
            Some((run_id, attempt))
        }
    })
}

/// Determines where a process runs.
pub(super) fn place_of(pid: Pid, home: &Path) -> io::Result<Place> {
    let mut outermost = None;
    for ancestor in chain(pid)? {
        if let Some((_, run_id, attempt)) = role(ancestor, home)? {
            outermost = Some((run_id, attempt));
        }
    }
    let Some((run_id, attempt)) = outermost else {
        let orphan = match attempt_by_marker(pid, home)? {
            Some(attempt) => Some(attempt),
            None => attempt_by_limit(pid, home)?,
        };
        return Ok(
            orphan.map_or(Place::Outside, |(run_id, attempt)| Place::Attempt {
                run_id,
                attempt,
            }),
        );
    };
    let is_supervisor =
        role(pid, home)?.is_some_and(|own| own == (Role::Supervisor, run_id.clone(), attempt)) && {
            let lock = AttemptDir::new(home, &run_id, attempt).supervisor_lock();
            match lock::holder_pid(home, &lock) {
                // Another program replaced the supervisor. An imitation runs below the real one and lacks the token.
                Err(error) if files::unusable(&error).is_some() => {
                    is_outermost_supervisor(pid, home)?
                }
                holder => holder? == Some(pid),
            }
        };
    Ok(if is_supervisor {
        Place::Supervisor { run_id, attempt }
    } else {
        Place::Attempt { run_id, attempt }
    })
}

fn is_outermost_supervisor(pid: Pid, home: &Path) -> io::Result<bool> {
    for ancestor in chain(pid)? {
        if ancestor != pid
            && role(ancestor, home)?.is_some_and(|(role, ..)| role == Role::Supervisor)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Guard,
    Supervisor,
}

/// Parses a command line: `<anything> __guard|__supervise <home>/runs/<run>/<attempt>`.
pub(super) fn role(pid: Pid, home: &Path) -> io::Result<Option<(Role, String, u32)>> {
    Ok(read_proc_file(pid, "cmdline")?.and_then(|line| role_in(&line, home)))
}

/// Reads a file of a process in `/proc`. `None`: the process has ended, or the file is not readable. Other errors are
/// returned: a lack of descriptors or memory does not mean that a process is outside.
fn read_proc_file(pid: Pid, file: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error)
            if error.raw_os_error().is_some_and(|code| {
                [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EIO].contains(&code)
            }) =>
        {
            Err(error)
        }
        Err(_) => Ok(None),
    }
}

fn role_in(line: &[u8], home: &Path) -> Option<(Role, String, u32)> {
    let mut args = line.split(|byte| *byte == 0).skip(1);
    let role = match args.next()? {
        b"__guard" => Role::Guard,
        b"__supervise" => Role::Supervisor,
        _ => return None,
    };
    let dir = Path::new(OsStr::from_bytes(args.next()?));
    let mut below = dir.strip_prefix(home).ok()?.iter();
    if below.next()? != "runs" {
        return None;
    }
    let run_id = below.next()?.to_str()?.to_owned();
    let attempt = below.next()?.to_str()?.parse().ok()?;
    below.next().is_none().then_some((role, run_id, attempt))
}

/// Returns the attempt in the marker of a process's environment, for a worker that outlived its guard and its supervisor.
/// The marker counts only if it names an attempt of this home.
pub(super) fn attempt_by_marker(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    Ok(read_proc_file(pid, "environ")?.and_then(|env| marked_in(&env, home)))
}

fn marked_in(env: &[u8], home: &Path) -> Option<(String, u32)> {
    let prefix = format!("{}=", tree::MARKER);
    let value = env
        .split(|byte| *byte == 0)
        .find_map(|pair| pair.strip_prefix(prefix.as_bytes()))?;
    let (run_id, attempt) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let attempt = attempt.parse().ok()?;
    let run_id = adjutant_core::RunId::parse(run_id).ok()?.to_string();
    AttemptDir::new(home, &run_id, attempt)
        .0
        .is_dir()
        .then_some((run_id, attempt))
}

/// Returns the attempt in the limits of a process, for such a worker whose environment is cleared or not readable.
pub(super) fn attempt_by_limit(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    let Some(value) = read_proc_file(pid, "limits")?.and_then(|limits| limit::in_limits(&limits))
    else {
        return Ok(None);
    };
    if !limit::is_of_home(value, home) {
        return Ok(None);
    }
    for run in entries(&home.join("runs"))? {
        let Some(run_id) = run
            .file_name()
            .to_str()
            .and_then(|name| adjutant_core::RunId::parse(name).ok())
        else {
            continue;
        };
        for attempt in entries(&run.path())? {
            if let Some(n) = attempt
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                && limit::of_attempt(&AttemptDir(attempt.path())) == value
            {
                return Ok(Some((run_id.to_string(), n)));
            }
        }
    }
    Ok(None)
}

/// Lists a directory. A missing directory has no entries.
fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Returns a process and all its ancestors, beginning with itself. Parents may exit meanwhile, so the chain is read until
/// two readings agree.
fn chain(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut before = None;
    for _ in 0..WALKS_MAX {
        let seen = walk(pid)?;
        match seen {
            Some(chain) if before.as_ref() == Some(&chain) => return Ok(chain),
            seen => before = seen,
        }
    }
    Err(io::Error::other(format!(
        "the ancestors of process {} keep changing",
        pid.as_raw_nonzero()
    )))
}

/// `None`: a parent died during the walk.
fn walk(pid: Pid) -> io::Result<Option<Vec<Pid>>> {
    let mut chain = vec![pid];
    let mut parent = tree::status(pid).ok_or_else(process_gone_error)?.parent;
    while let Some(at) = parent {
        if chain.len() > CHAIN_MAX {
            return Ok(None);
        }
        chain.push(at);
        match tree::status(at) {
            Some(status) => parent = status.parent,
            None => return Ok(None),
        }
    }
    Ok(Some(chain))
}

fn process_gone_error() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the caller has ended")
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "SO_PEERPIDFD has no safe wrapper")]
fn peer_pidfd(stream: impl AsFd) -> io::Result<OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd};
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

#[cfg(not(target_os = "linux"))]
fn peer_pidfd(_stream: impl AsFd) -> io::Result<OwnedFd> {
    Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT))
}
