//! Who is at the other end of a Unix socket, and under which attempt it lives.
//!
//! What a process shows, says or sets decides nothing: its ancestors do. A guard and a supervisor
//! are recognised by their command lines, which name the attempt's directory; the outermost one of
//! a home wins, so that a process cannot hide behind an imitation that it started itself. A
//! double-forked process is still below its supervisor, since that is a subreaper.
//!
//! This is a guard rail between processes of one user, no wall: the user's own processes can do
//! anything that the user can.

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
/// Longest chain of parents that is believed.
const CHAIN_MAX: usize = 10_000;

/// The process at the other end of a connection, as of when it connected.
#[derive(Debug)]
pub struct Peer {
    pub pid: Pid,
    pub uid: u32,
    pidfd: OwnedFd,
}

/// Where a peer lives, seen from one home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Under no attempt of this home.
    Outside,
    /// It is the supervisor of this attempt itself, and may speak for it with its token.
    Supervisor { run_id: String, attempt: u32 },
    /// It is, or was started by, the worker of this attempt.
    Attempt { run_id: String, attempt: u32 },
}

impl Peer {
    /// Looks at the other end of a connection.
    ///
    /// # Errors
    /// It has ended already, or the kernel does not tell.
    pub fn of(stream: impl AsFd) -> io::Result<Self> {
        let cred = rustix::net::sockopt::socket_peercred(stream.as_fd())?;
        let pidfd = match peer_pidfd(stream) {
            Ok(pidfd) => pidfd,
            // Kernels before 6.5: the number may have passed on since it connected.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => rustix::process::pidfd_open(cred.pid, PidfdFlags::empty())?,
            Err(error) => return Err(error),
        };
        Ok(Self { pid: cred.pid, uid: cred.uid.as_raw(), pidfd })
    }

    /// Tells whether it runs as the same user as this process.
    #[must_use]
    pub fn is_same_user(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }

    /// Tells whether the very process that connected still lives.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn is_alive(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0)
    }

    /// Finds the attempt that it lives under.
    ///
    /// # Errors
    /// It has ended meanwhile, so that nothing about it can be believed.
    pub fn place(&self, home: &Path) -> io::Result<Place> {
        let place = place_of(self.pid, home)?;
        if self.is_alive()? { Ok(place) } else { Err(gone()) }
    }

    /// Tells whether it lives below the process `root`.
    ///
    /// # Errors
    /// It has ended meanwhile.
    pub fn is_below(&self, root: Pid) -> io::Result<bool> {
        let below = chain(self.pid)?.contains(&root) && self.pid != root;
        if self.is_alive()? { Ok(below) } else { Err(gone()) }
    }
}

/// Finds the attempt of `home` that a process lives under, itself included.
///
/// # Errors
/// It has ended, or its parents change faster than they can be looked at.
pub fn attempt_above(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    Ok(match place_of(pid, home)? {
        Place::Outside => None,
        Place::Supervisor { run_id, attempt } | Place::Attempt { run_id, attempt } => Some((run_id, attempt)),
    })
}

fn place_of(pid: Pid, home: &Path) -> io::Result<Place> {
    let mut outermost = None;
    for ancestor in chain(pid)? {
        if let Some((_, run_id, attempt)) = role(ancestor, home)? {
            outermost = Some((run_id, attempt));
        }
    }
    let Some((run_id, attempt)) = outermost else {
        let orphan = match marked(pid, home)? {
            Some(attempt) => Some(attempt),
            None => limited(pid, home)?,
        };
        return Ok(orphan.map_or(Place::Outside, |(run_id, attempt)| Place::Attempt { run_id, attempt }));
    };
    let is_supervisor = role(pid, home)?.is_some_and(|own| own == (Role::Supervisor, run_id.clone(), attempt)) && {
        let lock = AttemptDir::new(home, &run_id, attempt).supervisor_lock();
        match lock::holder_pid(home, &lock) {
            // Exchanged for something else by its own tree. An imitation lives below the real one, and lacks the token.
            Err(error) if files::unusable(&error).is_some() => is_outermost_supervisor(pid, home)?,
            holder => holder? == Some(pid),
        }
    };
    Ok(if is_supervisor { Place::Supervisor { run_id, attempt } } else { Place::Attempt { run_id, attempt } })
}

fn is_outermost_supervisor(pid: Pid, home: &Path) -> io::Result<bool> {
    for ancestor in chain(pid)? {
        if ancestor != pid && role(ancestor, home)?.is_some_and(|(role, ..)| role == Role::Supervisor) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Guard,
    Supervisor,
}

/// Reads a command line: `<anything> __guard|__supervise <home>/runs/<run>/<attempt>`.
fn role(pid: Pid, home: &Path) -> io::Result<Option<(Role, String, u32)>> {
    Ok(read_proc_file(pid, "cmdline")?.and_then(|line| role_in(&line, home)))
}

/// Reads a file that the kernel has about a process. `None`: it has ended, or does not let us look. An
/// error is no such answer: a process is not outside because we lack a descriptor or memory to see it.
fn read_proc_file(pid: Pid, file: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.raw_os_error().is_some_and(|code| [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EIO].contains(&code)) => Err(error),
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

/// The marker in its environment, for a worker that outlived both its guard and its supervisor. It
/// counts only where it names an attempt of this home.
fn marked(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    Ok(read_proc_file(pid, "environ")?.and_then(|env| marked_in(&env, home)))
}

fn marked_in(env: &[u8], home: &Path) -> Option<(String, u32)> {
    let prefix = format!("{}=", tree::MARKER);
    let value = env.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(prefix.as_bytes()))?;
    let (run_id, attempt) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let attempt = attempt.parse().ok()?;
    let run_id = adjutant_core::RunId::parse(run_id).ok()?.to_string();
    AttemptDir::new(home, &run_id, attempt).0.is_dir().then_some((run_id, attempt))
}

/// The value among its limits, for a worker that has also cleared its environment, or lets nobody read it.
fn limited(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    let Some(value) = read_proc_file(pid, "limits")?.and_then(|limits| limit::in_limits(&limits)) else { return Ok(None) };
    if !limit::is_of_home(value, home) {
        return Ok(None);
    }
    for run in entries(&home.join("runs"))? {
        let Some(run_id) = run.file_name().to_str().and_then(|name| adjutant_core::RunId::parse(name).ok()) else { continue };
        for attempt in entries(&run.path())? {
            if let Some(n) = attempt.file_name().to_str().and_then(|name| name.parse().ok())
                && limit::of_attempt(&AttemptDir(attempt.path())) == value
            {
                return Ok(Some((run_id.to_string(), n)));
            }
        }
    }
    Ok(None)
}

/// Lists a directory: nothing, where there is none.
fn entries(dir: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns a process and all its ancestors, itself first. Parents die and their children move up
/// while one looks, so only a chain that was seen twice is believed.
fn chain(pid: Pid) -> io::Result<Vec<Pid>> {
    let mut before = None;
    for _ in 0..WALKS_MAX {
        let seen = walk(pid)?;
        match seen {
            Some(chain) if before.as_ref() == Some(&chain) => return Ok(chain),
            seen => before = seen,
        }
    }
    Err(io::Error::other(format!("the ancestors of process {} keep changing", pid.as_raw_nonzero())))
}

/// `None`: a parent died during the walk.
fn walk(pid: Pid) -> io::Result<Option<Vec<Pid>>> {
    let mut chain = vec![pid];
    let mut parent = tree::status(pid).ok_or_else(gone)?.parent;
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

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the caller has ended")
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "SO_PEERPIDFD has no safe wrapper")]
fn peer_pidfd(stream: impl AsFd) -> io::Result<OwnedFd> {
    use std::os::fd::{AsRawFd, FromRawFd};
    /// From the kernel's `asm-generic/socket.h`.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes one descriptor, which nobody else owns, into a place of its size.
    unsafe {
        if libc::getsockopt(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut fd).cast(), &raw mut length) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

#[cfg(not(target_os = "linux"))]
fn peer_pidfd(_stream: impl AsFd) -> io::Result<OwnedFd> {
    Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT))
}
