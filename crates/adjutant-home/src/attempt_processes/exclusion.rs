//! Proves that no process of an attempt has a socket that no visible process holds, so that one may
//! belong to a process which cannot be inspected, such as that of `sshd` or of a proxy of another
//! user.
//!
//! All processes of attempts are examined. One that may hide a socket, or may not be inspected,
//! disproves it. A descriptor could move during the examination; so it is repeated, in another
//! order, until no process of an attempt has run meanwhile, or often enough that each of many moves
//! would have had to hit the right instant.

use super::place::{self, Role};
use crate::process::descriptors::{self, Link};
use crate::process::{Pid, properties, tree};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often the processes of attempts are examined while they run.
const EXAMINATIONS_MAX: usize = 12;
/// How often the examination is repeated because of a process that may not be inspected: one that
/// Adjutant has forked is like that until it executes its program. Each time, it starts from the
/// beginning.
const UNKNOWN_MAX: usize = 20;
const UNKNOWN_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of ancestors.
const CHAIN_MAX: usize = 10_000;

/// The processes of this machine, in relation to the attempts of one home.
struct Processes {
    all: HashMap<Pid, tree::Status>,
    /// Guards and supervisors, by their command lines.
    roles: HashMap<Pid, Role>,
    /// The processes of attempts, without Adjutant's own.
    of_attempts: Vec<Pid>,
}

/// Decides whether the holder of a socket, which is not visible, is outside all attempts.
///
/// # Errors
/// It may be a process of an attempt, or there is no process outside that could have the socket.
pub(super) fn require_outside(socket: &str, uid: u32, home: &Path) -> io::Result<()> {
    let processes = Processes::read(home)?;
    if !processes.has_candidate(uid) {
        return Err(refusal("no process is seen to hold the connection"));
    }
    if !processes.of_attempts.is_empty() && !descriptors::reports_messages()? {
        return Err(refusal(
            "this kernel does not report which descriptors are in messages",
        ));
    }
    let mut processes = processes;
    let (mut passed, mut failed) = (0, 0);
    while passed < EXAMINATIONS_MAX {
        let before = processes.activity()?;
        let known = processes.of_attempts.clone();
        let examined = processes.examine(socket);
        processes = Processes::read(home)?;
        match examined? {
            None if before.is_some()
                && known == processes.of_attempts
                && before == processes.activity()? =>
            {
                return Ok(());
            }
            None => passed += 1,
            Some(_) if failed < UNKNOWN_MAX => {
                (passed, failed) = (0, failed + 1);
                std::thread::sleep(UNKNOWN_PAUSE);
            }
            Some(why) => return Err(refusal(&why)),
        }
    }
    Ok(())
}

fn refusal(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

impl Processes {
    fn read(home: &Path) -> io::Result<Self> {
        let all: HashMap<Pid, tree::Status> = tree::all()
            .into_iter()
            .filter_map(|pid| Some((pid, tree::status(pid)?)))
            .collect();
        let mut roles = HashMap::new();
        for pid in all.keys() {
            if let Some((role, ..)) = place::role(*pid, home)? {
                roles.insert(*pid, role);
            }
        }
        let mut processes = Self {
            all,
            roles,
            of_attempts: Vec::new(),
        };
        let own = processes.own();
        let mut members = Vec::new();
        for pid in processes.all.keys().filter(|pid| !own.contains(pid)) {
            let is_below = processes
                .ancestors(*pid)
                .any(|ancestor| processes.roles.contains_key(&ancestor));
            if is_below
                || place::attempt_by_limit(*pid, home)?.is_some()
                || place::attempt_by_marker(*pid, home)?.is_some()
            {
                members.push(*pid);
            }
        }
        members.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        processes.of_attempts = members;
        Ok(processes)
    }

    /// Returns Adjutant's own processes of attempts, which forbid inspection: the outermost guard
    /// or supervisor, the supervisor below a guard, and the init of its namespace. Each is the
    /// oldest child of the one before, so no process of the agent can take its place.
    fn own(&self) -> HashSet<Pid> {
        let mut own = HashSet::new();
        for (pid, role) in &self.roles {
            if self
                .ancestors(*pid)
                .skip(1)
                .any(|ancestor| self.roles.contains_key(&ancestor))
            {
                continue;
            }
            own.insert(*pid);
            let supervisor = match role {
                Role::Supervisor => Some(*pid),
                Role::Guard => self
                    .oldest_child(*pid)
                    .filter(|child| self.roles.get(child) == Some(&Role::Supervisor)),
            };
            own.extend(supervisor);
            own.extend(
                supervisor
                    .and_then(|supervisor| self.oldest_child(supervisor))
                    .filter(|child| properties::is_init_of_namespace(*child)),
            );
        }
        own
    }

    fn oldest_child(&self, parent: Pid) -> Option<Pid> {
        let children = self
            .all
            .iter()
            .filter(|(_, status)| status.parent == Some(parent));
        children
            .min_by_key(|(pid, status)| (status.started, pid.as_raw_nonzero()))
            .map(|(pid, _)| *pid)
    }

    fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        std::iter::successors(Some(pid), |at| self.all.get(at)?.parent).take(CHAIN_MAX)
    }

    /// Returns whether there is a process outside that could have the socket of this user: one that
    /// may not be inspected.
    fn has_candidate(&self, uid: u32) -> bool {
        let inside: HashSet<&Pid> = self.of_attempts.iter().collect();
        let own = self.own();
        let this = rustix::process::getpid();
        self.all.iter().any(|(pid, status)| {
            let is_other =
                *pid != this && !status.is_zombie && !inside.contains(pid) && !own.contains(pid);
            is_other && properties::is_of_user(*pid, uid) && descriptors::is_unreadable(*pid)
        })
    }

    /// Looks for the socket in all processes of attempts. `Some`: why one of them may have it.
    fn examine(&self, socket: &str) -> io::Result<Option<String>> {
        for pid in self.shuffled() {
            match descriptors::examine(pid, socket)? {
                Link::None => {}
                Link::Has(_) => return Err(refusal("this process is part of a run")),
                Link::Unknown(why) => {
                    return Ok(Some(format!(
                        "process {} of a run may hold the connection: {why}",
                        pid.as_raw_nonzero()
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Returns what the processes of attempts did. `None`: one of them runs now.
    fn activity(&self) -> io::Result<Option<Vec<descriptors::Activity>>> {
        self.of_attempts
            .iter()
            .map(|pid| descriptors::activity(*pid))
            .collect()
    }

    fn shuffled(&self) -> Vec<Pid> {
        let random = RandomState::new();
        let mut pids = self.of_attempts.clone();
        pids.sort_by_cached_key(|pid| random.hash_one(pid.as_raw_nonzero()));
        pids
    }
}
