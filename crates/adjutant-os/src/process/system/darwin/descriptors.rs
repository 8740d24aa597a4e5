//! The descriptors of other processes, which Adjutant cannot see here yet.

use super::Unsupported;
use rustix::process::Pid;
use std::io;

/// What a process has to do with a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    Has(u32),
    None,
    Unknown(&'static str),
}

/// What the threads of a process did.
pub type Activity = Vec<(u32, u64)>;

/// Finds none: the descriptors of other processes are not visible.
#[must_use]
pub fn find(_pid: Pid, _socket: &str) -> Option<u32> {
    None
}

/// Confirms none: the descriptors of other processes are not visible.
#[must_use]
pub fn is_of(_pid: Pid, _descriptor: u32, _socket: &str) -> bool {
    false
}

/// Returns `true`: the descriptors of other processes are not visible.
#[must_use]
pub fn is_unreadable(_pid: Pid) -> bool {
    true
}

/// Fails: see [`super::peer_process`].
///
/// # Errors
/// Always.
pub fn reports_messages() -> io::Result<bool> {
    Err(Unsupported::PeerProcess.into())
}

/// Fails: see [`super::peer_process`].
///
/// # Errors
/// Always.
pub fn examine(_pid: Pid, _socket: &str) -> io::Result<Link> {
    Err(Unsupported::PeerProcess.into())
}

/// Fails: see [`super::peer_process`].
///
/// # Errors
/// Always.
pub fn activity(_pid: Pid) -> io::Result<Option<Activity>> {
    Err(Unsupported::PeerProcess.into())
}
