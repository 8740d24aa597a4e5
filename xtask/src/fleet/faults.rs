//! The faults.

use super::load::{Shared, lock};
use super::site::{EACH, LEASE_S, Site};
use crate::random::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

const KINDS: [&str; 7] =
    ["hub killed", "leader killed", "leader stopped for a while", "leader ended", "runner killed", "runner stopped for a while", "PostgreSQL killed"];
/// The longest stop of a hub: longer than its silence that makes another one lead.
const HUB_STOP_MS: u64 = 7_000;
/// How long a fault waits for the load to go on after the one before.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// Acknowledged writes between two faults.
const PROGRESS: u64 = 6;

/// Causes faults, each after the load has continued. Returns how many of each kind.
pub async fn at_random(site: &mut Site, ledger: &Shared, faults: u64, seed: u64) -> [u64; 7] {
    let mut random = Random::new(seed);
    let mut done = [0; 7];
    for number in 0..faults {
        if let Err(problem) = progress(ledger).await {
            lock(ledger).problems.push(format!("before fault {number}: {problem}"));
            return done;
        }
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
        // The server takes longest to come back, so it is killed more rarely.
        let kind = match random.below(20) {
            0 => 6,
            other => usize::try_from(other % 6).unwrap_or(0),
        };
        let n = usize::try_from(random.below(EACH as u64)).unwrap_or(0);
        let stop_ms = random.below(if kind == 5 { LEASE_S * 1_500 } else { HUB_STOP_MS });
        if let Err(problem) = cause(site, kind, n, Duration::from_millis(stop_ms)).await {
            lock(ledger).problems.push(format!("fault {number} ({}): {problem}", KINDS[kind]));
        }
        done[kind] += 1;
    }
    done
}

async fn progress(ledger: &Shared) -> Result<(), String> {
    let (began, before) = (Instant::now(), lock(ledger).progress);
    while lock(ledger).progress < before + PROGRESS {
        if began.elapsed() > PROGRESS_LIMIT {
            return Err(format!("no progress in {PROGRESS_LIMIT:?}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn cause(site: &mut Site, kind: usize, n: usize, length: Duration) -> Result<(), String> {
    let signalled = |pid: Option<Pid>, signal: Signal| pid.is_some_and(|pid| kill_process(pid, signal).is_ok());
    let leader = tokio::task::block_in_place(|| site.leader()).unwrap_or(n);
    match kind {
        0 | 1 => {
            signalled(site.hub_pid(if kind == 0 { n } else { leader }), Signal::KILL);
        }
        2 => {
            let pid = site.hub_pid(leader);
            signalled(pid, Signal::STOP);
            tokio::time::sleep(length).await;
            signalled(pid, Signal::CONT);
        }
        3 => {
            signalled(site.hub_pid(leader), Signal::TERM);
        }
        4 => {
            signalled(site.runner_pid(n), Signal::KILL);
        }
        5 => {
            let pid = site.runner_pid(n);
            signalled(pid, Signal::STOP);
            tokio::time::sleep(length).await;
            signalled(pid, Signal::CONT);
            return Ok(());
        }
        _ => tokio::task::block_in_place(|| {
            site.server.kill();
            site.server.resume();
        }),
    }
    tokio::task::block_in_place(|| site.revive()).map_err(|error| error.to_string())
}

/// Returns how often each kind was caused, as text.
pub fn counted(done: &[u64; 7]) -> String {
    let counts: Vec<String> = KINDS.iter().zip(done).filter(|(_, done)| **done > 0).map(|(kind, done)| format!("{kind} {done}")).collect();
    counts.join(", ")
}

/// Returns how often the lead has changed, and how often it was taken from a hub that was silent, as text.
pub fn failovers(site: &Site) -> String {
    let logs: Vec<String> = (0..EACH).map(|n| site.hub_log(n)).collect();
    let count = |text: &str| logs.iter().map(|log| log.matches(text).count()).sum::<usize>();
    format!(
        "the lead was taken {} times, from a silent hub {} times; {} times a hub found that it does not lead any more",
        site.sql("SELECT epoch FROM hub").trim(),
        count("the hub that leads is silent"),
        count("this hub does not lead any more")
    )
}
