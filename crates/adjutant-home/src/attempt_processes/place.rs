//! Where a process runs: in which attempt of a home, if in one.
//!
//! Only the ancestors of a process count, not what it claims. A guard and a supervisor are
//! identified by their command lines, which name the attempt's directory. The outermost one of a
//! home counts, so a process cannot hide behind an imitation that it has started. A double-forked
//! process remains below its supervisor, which is a subreaper.
//!
//! This protects processes of one user from each other by convention. It is not a security
//! boundary: a process can do everything that its user can.

use super::mark;
use crate::files;
use crate::process::caller::{self, CallerProcess, ancestry};
use crate::process::{Pid, limit, lock, properties};
use crate::protocol::AttemptDir;
use adjutant_core::RunId;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

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

/// Finds the attempt that the process at the other end of a connection belongs to.
///
/// # Errors
/// The process has ended meanwhile, so its pid proves nothing.
pub fn of_caller(peer: &CallerProcess, home: &Path) -> io::Result<Place> {
    let place = place_of(peer.pid, home)?;
    if peer.is_alive()? {
        Ok(place)
    } else {
        Err(caller::gone())
    }
}

/// Determines where a process runs.
pub(super) fn place_of(pid: Pid, home: &Path) -> io::Result<Place> {
    let mut outermost = None;
    for ancestor in ancestry(pid)? {
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
                // Another program replaced the supervisor. An imitation runs below the real one and
                // lacks the token.
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
    for ancestor in ancestry(pid)? {
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
    Ok(properties::command_line(pid)?.and_then(|line| role_in(&line, home)))
}

/// Returns whether a process is the attempt's guard or supervisor, by its command line.
pub(super) fn is_guard_or_supervisor(pid: Pid, dir: &AttemptDir) -> bool {
    let Ok(Some(line)) = properties::command_line(pid) else {
        return false;
    };
    let mut args = line.split(|byte| *byte == 0).skip(1);
    matches!(args.next(), Some(b"__guard" | b"__supervise"))
        && args.next() == Some(dir.0.as_os_str().as_bytes())
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

/// Returns the attempt in the marker of a process's environment, for a worker that outlived its
/// guard and its supervisor. The marker counts only if it names an attempt of this home.
pub(super) fn attempt_by_marker(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    Ok(properties::environment(pid)?.and_then(|env| marked_in(&env, home)))
}

fn marked_in(env: &[u8], home: &Path) -> Option<(String, u32)> {
    let value = mark::in_environment(env).next()?;
    let (run_id, attempt) = std::str::from_utf8(value).ok()?.split_once('/')?;
    let attempt = attempt.parse().ok()?;
    let run_id = RunId::parse(run_id).ok()?.to_string();
    AttemptDir::new(home, &run_id, attempt)
        .0
        .is_dir()
        .then_some((run_id, attempt))
}

/// Returns the attempt in the limits of a process, for such a worker whose environment is cleared
/// or not readable.
pub(super) fn attempt_by_limit(pid: Pid, home: &Path) -> io::Result<Option<(String, u32)>> {
    let Some(value) = limit::of_process(pid)?.filter(|value| mark::is_of_home(*value, home)) else {
        return Ok(None);
    };
    for run in entries(&home.join("runs"))? {
        let Some(run_id) = run
            .file_name()
            .to_str()
            .and_then(|name| RunId::parse(name).ok())
        else {
            continue;
        };
        for attempt in entries(&run.path())? {
            if let Some(n) = attempt
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                && mark::limit(&AttemptDir(attempt.path())) == value
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
