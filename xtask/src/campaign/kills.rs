//! Kills the hub, supervisors and guards.

use super::ledger::{Shared, lock};
use crate::lab::Lab;
use crate::random::Random;
use adjutant::process::lock::holder_pid;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kills processes until each kind was killed `kills` times. Returns the numbers.
pub async fn kill_at_random(lab: &Lab, ledger: &Shared, kills: u64, seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let mut done = [0; 3];
    let start = Instant::now();
    let limit = Duration::from_secs(120 + kills * 3);
    while done.iter().any(|count| *count < kills) && start.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5 + random.below(120))).await;
        let kind = usize::try_from(random.below(3)).unwrap_or(0);
        if done[kind] >= kills {
            continue;
        }
        let victim = if kind == 0 { holder(&lab.home.hub_lock()).map(|pid| (pid, None)) } else { attempt_process(lab, kind, &mut random) };
        let Some((pid, run)) = victim else { continue };
        // Recorded before the kill, so that later checks of the run see it.
        if let Some(run) = run {
            let mut ledger = lock(ledger);
            if kind == 1 {
                ledger.supervisor_killed.insert(run)
            } else {
                ledger.guard_killed.insert(run)
            };
        }
        if kill_process(pid, Signal::KILL).is_ok() {
            done[kind] += 1;
        }
    }
    if done.iter().any(|count| *count < kills) {
        lock(ledger).problems.push(format!("only {done:?} of {kills} kills each within {limit:?}"));
    }
    done
}

/// Chooses the supervisor (1) or the guard (2) of a random live attempt.
fn attempt_process(lab: &Lab, kind: usize, random: &mut Random) -> Option<(Pid, Option<String>)> {
    let mut found = Vec::new();
    for run in std::fs::read_dir(lab.home.runs_dir()).ok()?.flatten() {
        let Ok(attempts) = std::fs::read_dir(run.path()) else { continue };
        for attempt in attempts.flatten() {
            let dir = adjutant::link::AttemptDir(attempt.path());
            let file: PathBuf = if kind == 1 { dir.supervisor_lock() } else { dir.guard_lock() };
            if let Some(pid) = holder(&file) {
                found.push((pid, run.file_name().to_string_lossy().into_owned()));
            }
        }
    }
    let at = usize::try_from(random.below(found.len().max(1) as u64)).unwrap_or(0);
    found.into_iter().nth(at).map(|(pid, run)| (pid, Some(run)))
}

/// Returns the holder of a lock. The pid in the file is not enough: the file outlives its holder, and pids are reused.
fn holder(file: &Path) -> Option<Pid> {
    holder_pid(file.parent()?, file).ok().flatten()
}
