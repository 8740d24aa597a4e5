//! Kills the hub, supervisors and guards, and the server of the store.

use super::ledger::{Shared, lock};
use crate::lab::Lab;
use crate::postgres::Server;
use crate::random::Random;
use adjutant_os::process::lock::holder_pid;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is killed. The server of the store restarts at once; it is killed more rarely, because a
/// restart takes a second.
const KINDS: [&str; 4] = ["hub", "supervisor", "guard", "PostgreSQL"];
const HUB: usize = 0;
const SUPERVISOR: usize = 1;
const SERVER: usize = 3;
const SERVER_PART: u64 = 10;

/// Kills processes until each kind was killed as often as it should be. Returns the numbers.
pub async fn kill_at_random(
    lab: &Lab,
    ledger: &Shared,
    kills: u64,
    seed: u64,
    mut server: Option<&mut Server>,
) -> [u64; 4] {
    let mut random = Random::new(seed);
    let mut done = [0; 4];
    let wanted = [
        kills,
        kills,
        kills,
        if server.is_some() {
            kills.div_ceil(SERVER_PART)
        } else {
            0
        },
    ];
    let start = Instant::now();
    let limit = Duration::from_secs(120 + kills * 3);
    while done.iter().zip(wanted).any(|(done, wanted)| *done < wanted) && start.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5 + random.below(120))).await;
        let kinds = if server.is_some() { 4 } else { 3 };
        let kind = usize::try_from(random.below(kinds)).unwrap_or(HUB);
        if done[kind] >= wanted[kind] {
            continue;
        }
        if let (SERVER, Some(server)) = (kind, &mut server) {
            lock(ledger).hub_killed = Some(Instant::now());
            tokio::task::block_in_place(|| {
                server.kill();
                server.resume();
            });
            done[SERVER] += 1;
            lock(ledger).hub_killed = Some(Instant::now());
            continue;
        }
        let victim = if kind == HUB {
            holder(&lab.home.hub_lock()).map(|pid| (pid, None))
        } else {
            attempt_process(lab, kind, &mut random)
        };
        let Some((pid, run)) = victim else { continue };
        // Recorded before the kill, so that later checks of the run see it.
        if let Some(run) = run {
            let mut ledger = lock(ledger);
            if kind == SUPERVISOR {
                ledger.supervisor_killed.insert(run)
            } else {
                ledger.guard_killed.insert(run)
            };
        }
        if kill_process(pid, Signal::KILL).is_ok() {
            done[kind] += 1;
            if kind == HUB {
                lock(ledger).hub_killed = Some(Instant::now());
            }
        }
    }
    if done.iter().zip(wanted).any(|(done, wanted)| *done < wanted) {
        lock(ledger).problems.push(format!(
            "only {done:?} of {wanted:?} kills within {limit:?}"
        ));
    }
    done
}

/// Returns how often each kind was killed, as text.
pub fn counted(done: &[u64; 4]) -> String {
    let counts: Vec<String> = KINDS
        .iter()
        .zip(done)
        .filter(|(_, done)| **done > 0)
        .map(|(kind, done)| format!("{kind} {done}"))
        .collect();
    counts.join(", ")
}

/// Chooses the supervisor or the guard of a random live attempt.
fn attempt_process(lab: &Lab, kind: usize, random: &mut Random) -> Option<(Pid, Option<String>)> {
    let mut found = Vec::new();
    for run in std::fs::read_dir(lab.home.runs_dir()).ok()?.flatten() {
        let Ok(attempts) = std::fs::read_dir(run.path()) else {
            continue;
        };
        for attempt in attempts.flatten() {
            let dir = adjutant_api::protocol::AttemptDir(attempt.path());
            let file: PathBuf = if kind == SUPERVISOR {
                dir.supervisor_lock()
            } else {
                dir.guard_lock()
            };
            if let Some(pid) = holder(&file) {
                found.push((pid, run.file_name().to_string_lossy().into_owned()));
            }
        }
    }
    let at = usize::try_from(random.below(found.len().max(1) as u64)).unwrap_or(0);
    found.into_iter().nth(at).map(|(pid, run)| (pid, Some(run)))
}

/// Returns the holder of a lock. The pid in the file is not enough: the file outlives its holder,
/// and pids are reused.
fn holder(file: &Path) -> Option<Pid> {
    holder_pid(file.parent()?, file).ok().flatten()
}
