//! The processes of launches that an earlier hub has started on this machine. They have a mark in
//! their environment, which names the home, the runner and the launch.

use super::{system, tree, watch};
use rustix::process::{Pid, Signal};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The variable with the mark: `<runner>/<pid of the hub>.<number> <device>:<inode> <home>`. In a
/// container, another directory can have the same path.
const MARKER: &str = "ADJ_LAUNCH";
/// How long a process may take to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How often processes that were started meanwhile are looked for.
const ROUNDS_MAX: usize = 8;

/// Returns the variable for a new launch.
pub(super) fn mark(home: &Path, runner: &str) -> (OsString, OsString) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut value = format!("{runner}/{}.{number} ", std::process::id()).into_bytes();
    value.extend_from_slice(&identity(home));
    (MARKER.into(), OsString::from_vec(value))
}

fn identity(home: &Path) -> Vec<u8> {
    let (device, inode) = fs::metadata(home)
        .map(|meta| (meta.dev(), meta.ino()))
        .unwrap_or_default();
    let mut identity = format!("{device}:{inode} ").into_bytes();
    identity.extend_from_slice(home.as_os_str().as_bytes());
    identity
}

/// A launch that has processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftLaunch {
    mark: Vec<u8>,
}

impl LeftLaunch {
    /// Finds the launches of a home that have processes. Blocks.
    #[must_use]
    pub fn all(home: &Path) -> BTreeSet<Self> {
        let home = identity(home);
        let is_of_home =
            |mark: &Vec<u8>| mark.splitn(2, |byte| *byte == b' ').nth(1) == Some(home.as_slice());
        tree::all()
            .into_iter()
            .filter_map(mark_of)
            .filter(is_of_home)
            .map(|mark| Self { mark })
            .collect()
    }

    /// Returns the name of the runner.
    #[must_use]
    pub fn runner(&self) -> String {
        let name = self
            .mark
            .split(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Waits for the end of its processes, and ends those that are left after `wait`. Returns
    /// whether there were such.
    pub async fn end(&self, wait: Duration) -> bool {
        let mut wait = wait;
        let mut was_ended = false;
        for _ in 0..ROUNDS_MAX {
            let launch = self.clone();
            let Ok(found) = tokio::task::spawn_blocking(move || launch.processes()).await else {
                return was_ended;
            };
            if found.is_empty() {
                break;
            }
            let ends = found.into_iter().map(|process| end(process, wait));
            was_ended |= futures::future::join_all(ends).await.contains(&true);
            wait = Duration::ZERO;
        }
        was_ended
    }

    /// Finds its processes. A descriptor stands for the same process if its number is used again.
    fn processes(&self) -> Vec<OwnedFd> {
        let open = |pid| {
            system::open_process(pid)
                .ok()
                .filter(|_| mark_of(pid).as_ref() == Some(&self.mark))
        };
        tree::all().into_iter().filter_map(open).collect()
    }
}

/// Returns the mark of a process.
fn mark_of(pid: Pid) -> Option<Vec<u8>> {
    let env = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let value = |pair: &[u8]| {
        Some(
            pair.strip_prefix(MARKER.as_bytes())?
                .strip_prefix(b"=")?
                .to_vec(),
        )
    };
    env.split(|byte| *byte == 0).find_map(value)
}

/// Ends a process that has not exited after `wait`. Returns whether it had not.
async fn end(process: OwnedFd, wait: Duration) -> bool {
    for (wait, signal) in [(wait, Signal::TERM), (GRACE, Signal::KILL)] {
        let ended = match process.try_clone() {
            Ok(process) => tokio::time::timeout(wait, watch::ended(process)).await,
            Err(error) => {
                tracing::warn!(%error, "the end of a process cannot be awaited");
                return false;
            }
        };
        if ended.is_ok() {
            return signal == Signal::KILL;
        }
        if let Err(error) = system::send_signal(&process, signal) {
            tracing::debug!(%error, "a process has already exited");
        }
    }
    true
}
