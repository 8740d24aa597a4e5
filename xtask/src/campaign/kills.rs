//! Kills the hub, supervisors and guards.

use super::ledger::{Shared, lock};
use crate::lab::{Lab, lock_pid};
use crate::random::Random;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Kills until each kind had its number. Returns how many there were. Unless `both`, a run loses
/// its guard or its supervisor: without a namespace, nothing can find a process that has scrubbed
/// its environment once both are gone.
pub async fn kill_at_random(lab: &Lab, ledger: &Shared, kills: u64, seed: u64, both: bool) -> [u64; 3] {
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
        let victim = if kind == 0 { lock_pid(&lab.home.hub_lock()).ok().map(|pid| (pid, None)) } else { attempt_process(lab, kind, &mut random) };
        let Some((pid, run)) = victim else { continue };
        if !both && let Some(run) = &run {
            let ledger = lock(ledger);
            if (if kind == 1 { &ledger.guard_killed } else { &ledger.supervisor_killed }).contains(run) {
                continue;
            }
        }
        // Noted before it is done: who looks at the run afterwards has to know.
        if let Some(run) = run {
            let mut ledger = lock(ledger);
            if kind == 1 {
                ledger.supervisor_killed.insert(run)
            } else {
                ledger.guard_killed.insert(run)
            };
        }
        if is_ours(lab, pid) && kill(pid) {
            done[kind] += 1;
        }
    }
    if done.iter().any(|count| *count < kills) {
        lock(ledger).problems.push(format!("only {done:?} of {kills} kills each within {limit:?}"));
    }
    done
}

/// A supervisor (1) or a guard (2) of some attempt that is under way.
fn attempt_process(lab: &Lab, kind: usize, random: &mut Random) -> Option<(u32, Option<String>)> {
    let mut found = Vec::new();
    for run in std::fs::read_dir(lab.home.runs_dir()).ok()?.flatten() {
        let Ok(attempts) = std::fs::read_dir(run.path()) else { continue };
        for attempt in attempts.flatten() {
            let dir = adjutant::link::AttemptDir(attempt.path());
            let file: PathBuf = if kind == 1 { dir.supervisor_lock() } else { dir.guard_lock() };
            if let Ok(pid) = lock_pid(&file)
                && is_ours(lab, pid)
            {
                found.push((pid, run.file_name().to_string_lossy().into_owned()));
            }
        }
    }
    let at = usize::try_from(random.below(found.len().max(1) as u64)).unwrap_or(0);
    found.into_iter().nth(at).map(|(pid, run)| (pid, Some(run)))
}

/// Whether the pid is (still) a process of this home: a lock file outlives its holder.
fn is_ours(lab: &Lab, pid: u32) -> bool {
    let mark = lab.home.dir.display().to_string();
    let has = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&mark));
    has("cmdline") || has("environ")
}

fn kill(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok())
}
