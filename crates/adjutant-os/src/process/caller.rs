//! Identifies the process at the other end of a Unix socket, and its ancestors.

use super::{system, tree};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How often a walk is repeated when parents die during it.
const WALKS_MAX: usize = 32;
/// Maximum number of ancestors.
const CHAIN_MAX: usize = 10_000;

/// The process at the other end of a connection, at the time of connecting.
#[derive(Debug)]
pub struct CallerProcess {
    pub pid: Pid,
    pub uid: u32,
    pidfd: OwnedFd,
}

impl CallerProcess {
    /// Identifies the process at the other end of a connection.
    ///
    /// # Errors
    /// The process has ended, or the kernel does not report it.
    pub fn of(stream: impl AsFd) -> io::Result<Self> {
        let (pid, uid, pidfd) = system::peer_process(stream)?;
        Ok(Self { pid, uid, pidfd })
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

    /// Returns whether the process is a descendant of `root`.
    ///
    /// # Errors
    /// The process has ended meanwhile.
    pub fn is_below(&self, root: Pid) -> io::Result<bool> {
        let below = ancestry(self.pid)?.contains(&root) && self.pid != root;
        if self.is_alive()? {
            Ok(below)
        } else {
            Err(gone())
        }
    }
}

/// Returns a process and all its ancestors, beginning with itself. Parents may exit meanwhile, so
/// the chain is read until two readings agree.
///
/// # Errors
/// The process has ended, or its ancestors change faster than they can be read.
pub fn ancestry(pid: Pid) -> io::Result<Vec<Pid>> {
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

/// Returns the error about a peer that has ended.
#[must_use]
pub fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the caller has ended")
}
