//! What the kernel states about one process.

use rustix::process::Pid;
use std::path::PathBuf;
use std::{fs, io};

/// Returns the arguments of a process, each with a NUL at its end. `None`: it has ended, or may not
/// be inspected.
///
/// # Errors
/// This process lacks descriptors or memory, which does not mean that there is no such process.
pub fn command_line(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    read(pid, "cmdline")
}

/// Returns the environment of a process as it was at its start, each variable with a NUL at its end.
/// `None`: it has ended, or may not be inspected.
///
/// # Errors
/// As [`command_line`].
pub fn environment(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    read(pid, "environ")
}

pub(super) fn limits(pid: Pid) -> io::Result<Option<Vec<u8>>> {
    read(pid, "limits")
}

fn read(pid: Pid, file: &str) -> io::Result<Option<Vec<u8>>> {
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

/// Returns the working directory of a process. `None`: it has ended, or may not be inspected.
#[must_use]
pub fn working_dir(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).ok()
}

/// Returns whether a process is the first one of a PID namespace.
#[must_use]
pub fn is_init_of_namespace(pid: Pid) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else {
        return false;
    };
    let pids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or_default();
    pids.split_ascii_whitespace().count() > 1
        && pids.split_ascii_whitespace().next_back() == Some("1")
}

/// Returns whether a process acts as this user for files and sockets.
#[must_use]
pub fn is_of_user(pid: Pid, uid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else {
        return false;
    };
    let uids = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap_or_default();
    // Real, effective, saved and that of file access.
    [1, 3].into_iter().any(|at| {
        uids.split_ascii_whitespace()
            .nth(at)
            .and_then(|uid| uid.parse().ok())
            == Some(uid)
    })
}
