//! The descendants of a process: lists, signals and sweeps them.
//!
//! A process whose parent has died becomes the child of the nearest subreaper above it. So a sweep
//! below a subreaper until no child is left finds all processes: other sessions, double forks,
//! cleared environments, renamed processes.

use super::{properties, system};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::{fs, io};

/// How often the search is repeated for processes that were started meanwhile.
const ROUNDS_MAX: usize = 64;
/// Maximum number of ancestors that run the same program.
const SAME_PROGRAM_MAX: usize = 64;

/// Returns all live descendants of a process, parents before children.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children(pid) {
            if !found.contains(&child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// Returns the children of a process: of each of its threads.
#[must_use]
pub fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        // The children of a thread that has ended meanwhile belong to another thread.
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(
                text.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)),
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.path().exists() => {
                return children_by_scan(pid);
            }
            Err(_) => {}
        }
    }
    found
}

/// The same on kernels without the `children` files.
fn children_by_scan(parent: Pid) -> Vec<Pid> {
    all()
        .into_iter()
        .filter(|pid| status(*pid).is_some_and(|status| status.parent == Some(parent)))
        .collect()
}

/// Returns the pids of all processes.
#[must_use]
pub fn all() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        })
        .collect()
}

/// The fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `None`: its parent is not visible.
    pub parent: Option<Pid>,
    /// It has ended and is not reaped yet.
    pub is_zombie: bool,
    /// When it was started, in ticks since the machine was. With the pid, it identifies the
    /// process.
    pub started: u64,
}

/// Reads the fields of one process. `None`: there is no such process.
#[must_use]
pub fn status(pid: Pid) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may contain any character.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok().and_then(Pid::from_raw);
    // The 22nd field; the state is the third.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Status {
        parent,
        is_zombie,
        started,
    })
}

/// Names the program that a process runs, for as long as it runs: the outermost ancestor with the
/// same program file. `None`: the process cannot be seen.
#[must_use]
pub fn program(mut pid: Pid) -> Option<String> {
    let file = program_file(pid)?;
    for _ in 0..SAME_PROGRAM_MAX {
        match status(pid)?.parent {
            Some(parent) if program_file(parent) == Some(file) => pid = parent,
            _ => break,
        }
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!(
        "{}/{}/{}",
        boot.trim(),
        pid.as_raw_nonzero(),
        status(pid)?.started
    ))
}

/// Returns the device and the inode of the file that a process executes.
fn program_file(pid: Pid) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{}/exe", pid.as_raw_nonzero()))
        .ok()
        .map(|file| (file.dev(), file.ino()))
}

/// Returns the CPU time that a process has used, in clock ticks. `None`: there is no such process.
#[must_use]
pub fn cpu_ticks(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // Fields 14 and 15; the first after the name is 3.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(
        fields
            .next()?
            .parse::<u64>()
            .ok()?
            .saturating_add(fields.next()?.parse().ok()?),
    )
}

/// Returns whether a process has ended, or has been killed and will end.
#[must_use]
pub fn is_dying(pid: Pid) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(text) = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())) else {
        return true;
    };
    let is_pending = |line: &str| {
        let mask = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_some_and(|mask| mask & KILL != 0)
    };
    text.lines().any(|line| {
        line.starts_with("State:\tZ") || line.starts_with("State:\tX") || is_pending(line)
    })
}

/// Returns whether a process is a descendant of `root`.
#[must_use]
pub fn is_below(pid: Pid, root: Pid) -> bool {
    let mut at = pid;
    // No chain of parents is longer; this only guards against reused pids.
    for _ in 0..100_000 {
        match status(at).and_then(|status| status.parent) {
            Some(parent) if parent == root => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// Sends TERM to all descendants of `root`, and CONT, because TERM stays pending in a stopped
/// process.
pub fn terminate(root: Pid) {
    for (_, target) in targets(root, &HashSet::new()) {
        send(&target, Signal::TERM);
        send(&target, Signal::CONT);
    }
}

/// Kills all descendants of `root`, and returns their pids. Stops them first, so that none forks
/// meanwhile.
pub fn kill(root: Pid) -> HashSet<Pid> {
    let mut killed = HashSet::new();
    let mut frozen = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = targets(root, &killed);
        if found.is_empty() {
            break;
        }
        for (pid, target) in found {
            send(&target, Signal::STOP);
            killed.insert(pid);
            frozen.push(target);
        }
    }
    for target in &frozen {
        send(target, Signal::KILL);
    }
    killed
}

/// Opens every live descendant that is not in `known`.
fn targets(root: Pid, known: &HashSet<Pid>) -> Vec<(Pid, OwnedFd)> {
    let mut found = Vec::new();
    for pid in descendants(root) {
        if known.contains(&pid) {
            continue;
        }
        let Ok(target) = system::open_process(pid) else {
            continue;
        };
        // Another process may have the pid since it was listed. It counts only if it is a
        // descendant of `root`.
        if is_below(pid, root) && status(pid).is_some_and(|status| !status.is_zombie) {
            found.push((pid, target));
        }
    }
    found
}

fn send(target: &OwnedFd, signal: Signal) {
    match system::send_signal(target, signal) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
        Err(error) => tracing::warn!(%error, "a process could not be signalled"),
    }
}

/// One step of reaping.
#[derive(Debug, Clone, Copy)]
pub enum Reaped {
    Child(Pid, WaitStatus),
    /// There are children, and none has ended.
    NoneEnded,
    /// There are no children. Below a subreaper, no process is left.
    NoneLeft,
}

/// Reaps one child that has ended.
#[must_use]
pub fn reap(wait: WaitOptions) -> Reaped {
    loop {
        match rustix::process::wait(wait) {
            Ok(Some((pid, status))) => return Reaped::Child(pid, status),
            Ok(None) => return Reaped::NoneEnded,
            Err(Errno::INTR) => {}
            Err(_) => return Reaped::NoneLeft,
        }
    }
}

/// Kills and reaps, blocking the thread, until this process (a subreaper) has no child left.
pub fn sweep_blocking() {
    let own = rustix::process::getpid();
    loop {
        kill(own);
        // All of them are ending. A process forked at the last moment becomes a child of this
        // process, and the next round finds it.
        if matches!(reap(WaitOptions::empty()), Reaped::NoneLeft) {
            return;
        }
        while matches!(reap(WaitOptions::NOHANG), Reaped::Child(..)) {}
    }
}

/// The environment variable that marks a process and its descendants. Its value names who has
/// started the first one.
pub const MARKER: &str = "ADJ_RUN";

/// Kills all processes with this mark in their environment. Returns the number of killed processes.
#[must_use]
pub(crate) fn kill_marked(mark: &str) -> u32 {
    kill_where(|pid| has_mark(pid, mark))
}

/// Returns whether a process has this mark in its environment.
#[must_use]
pub fn has_mark(pid: Pid, mark: &str) -> bool {
    let pair = format!("{MARKER}={mark}").into_bytes();
    properties::environment(pid)
        .is_ok_and(|env| env.is_some_and(|env| env.split(|byte| *byte == 0).any(|it| it == pair)))
}

/// Kills all processes for which `is_theirs` holds, but not this one. Returns the number of killed
/// processes.
#[must_use]
pub fn kill_where(is_theirs: impl Fn(Pid) -> bool) -> u32 {
    let own = rustix::process::getpid();
    let mut killed = HashSet::new();
    for _ in 0..ROUNDS_MAX {
        let before = killed.len();
        for pid in all() {
            if pid == own || killed.contains(&pid) {
                continue;
            }
            let Ok(target) = system::open_process(pid) else {
                continue;
            };
            if is_theirs(pid) {
                send(&target, Signal::KILL);
                killed.insert(pid);
            }
        }
        if killed.len() == before {
            break;
        }
    }
    u32::try_from(killed.len()).unwrap_or(u32::MAX)
}
