//! Causes faults, one after another.

use super::ledger::{Shared, lock};
use super::plan::{Fault, Kind, Machine, Plan};
use super::service::Service;
use super::site::{FIRST_RUNNER, MACHINES, SERVER, Site, wait_for_end};
use crate::lab::Result;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// How long a fault waits for the load to go on after the one before.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// Acknowledged writes between two faults.
const PROGRESS: u64 = 6;

/// What a campaign has done to the site.
#[derive(Debug, Default)]
pub struct Done {
    counts: BTreeMap<Kind, u64>,
    /// Attempted faults that hit nothing: they count for nothing.
    pub without_effect: u64,
}

impl Done {
    /// Returns how often each kind was caused, as text.
    pub fn counted(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{} {count}", kind.name())).collect();
        format!("{}; {} more had no effect", counts.join(", "), self.without_effect)
    }

    fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Causes faults, each after the load has continued. `until_found`: ends when a hub has written without the lead.
pub async fn at_random(site: &mut Site, ledger: &Shared, faults: u64, seed: u64, until_found: bool) -> Done {
    let mut plan = Plan::new(seed);
    let mut done = Done::default();
    let start = Instant::now();
    // A fault without effect is rare.
    while done.total() < faults && done.without_effect <= faults {
        let number = done.total();
        if let Err(problem) = progress(ledger).await {
            lock(ledger).problems.push(format!("before fault {number}: {problem}"));
            return done;
        }
        let fault = plan.next();
        tokio::time::sleep(fault.pause).await;
        let began = Instant::now();
        let hit = match cause(site, &fault).await {
            Ok(hit) => hit,
            Err(problem) => {
                lock(ledger).problems.push(format!("fault {number} ({}): {problem}", fault.kind.name()));
                return done;
            }
        };
        let effect = match hit {
            0 => {
                done.without_effect += 1;
                "no effect".to_owned()
            }
            hit => {
                *done.counts.entry(fault.kind).or_default() += 1;
                format!("{hit} {} hit", fault.kind.target())
            }
        };
        let [at, took] = [began.duration_since(start), began.elapsed()].map(|time| time.as_secs_f64());
        println!("{number}, at {at:.1} s: {}: {effect} (over after {took:.1} s)", described(&fault));
        if until_found && block_in_place(|| site.intruders()) > 0 {
            return done;
        }
    }
    if done.total() < faults {
        lock(ledger).problems.push(format!("only {} faults had an effect", done.total()));
    }
    done
}

fn described(fault: &Fault) -> String {
    let mut text = fault.kind.name().to_owned();
    match fault.kind {
        Kind::ClockSet => text += &format!(", {:?}, {} s", fault.machine, fault.shift_s),
        Kind::Cut | Kind::CutOneWay | Kind::CutFromOne | Kind::Slow | Kind::Lossy => text += &format!(", {:?}, {:?}", fault.machine, fault.trouble),
        _ => {}
    }
    if fault.kind.lasts() {
        text += &format!(", {:.1} s", fault.length.as_secs_f64());
    }
    if let Some(hub) = fault.meanwhile {
        text += &format!(", hub {hub} killed meanwhile");
    }
    text
}

async fn progress(ledger: &Shared) -> Result<()> {
    let (began, before) = (Instant::now(), lock(ledger).progress);
    while lock(ledger).progress < before + PROGRESS {
        if began.elapsed() > PROGRESS_LIMIT {
            return Err(format!("no progress in {PROGRESS_LIMIT:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Causes a fault, ends it, and starts what it has killed. Returns how many processes, packets or clocks it hit.
async fn cause(site: &mut Site, fault: &Fault) -> Result<u64> {
    let leader = block_in_place(|| site.leader()).unwrap_or(fault.n);
    let machine = match fault.machine {
        Machine::Leader => leader,
        Machine::Number(n) => n,
    };
    let runners_machine = |site: &Site| block_in_place(|| site.network.machines[FIRST_RUNNER + fault.n].processes());
    let hit = match fault.kind {
        Kind::HubKilled => site.hubs[fault.n].kill()?.into(),
        Kind::LeaderKilled => site.hubs[leader].kill()?.into(),
        Kind::LeaderEnded => {
            let pid = site.hubs[leader].pid();
            let hit = signal_all(pid, Signal::TERM);
            block_in_place(|| pid.map_or(Ok(()), wait_for_end))?;
            hit
        }
        Kind::LeaderStopped => stop(site, site.hubs[leader].pid(), fault).await?,
        Kind::RunnerKilled => site.runners[fault.n].kill()?.into(),
        Kind::RunnerStopped => stop(site, site.runners[fault.n].pid(), fault).await?,
        Kind::RunnersMachineKilled => signal_all(runners_machine(site)?, Signal::KILL),
        Kind::RunnersMachineStopped => stop(site, runners_machine(site)?, fault).await?,
        Kind::ServerKilled => {
            block_in_place(|| {
                site.server.kill();
                site.start_server();
            });
            1
        }
        Kind::ServerStopped => {
            let pids = block_in_place(|| site.network.machines[SERVER].processes())?;
            stop(site, pids, fault).await?
        }
        Kind::ServerRestarted => {
            block_in_place(|| site.restart_server())?;
            1
        }
        Kind::Cut | Kind::CutOneWay | Kind::Lossy | Kind::Slow => disturb(site, machine, None, fault).await?,
        Kind::CutFromOne => disturb(site, machine, Some((machine + fault.peer) % MACHINES), fault).await?,
        Kind::ClockSet => {
            // PostgreSQL's clock decides nothing.
            site.clocks[machine % SERVER].set(fault.shift_s)?;
            1
        }
    };
    block_in_place(|| site.revive())?;
    Ok(hit)
}

/// Returns the number of lost or delayed packets.
async fn disturb(site: &mut Site, machine: usize, peer: Option<usize>, fault: &Fault) -> Result<u64> {
    block_in_place(|| site.network.disturb(machine, peer, fault.trouble))?;
    hold(site, fault).await?;
    block_in_place(|| site.network.heal())
}

/// Waits while a fault lasts, and kills a hub in the middle if that is planned.
async fn hold(site: &mut Site, fault: &Fault) -> Result<()> {
    tokio::time::sleep(fault.length / 2).await;
    if let Some(n) = fault.meanwhile {
        site.hubs[n].kill()?;
    }
    tokio::time::sleep(fault.length / 2).await;
    Ok(())
}

/// Returns how many processes received the signal. Others are already gone.
fn signal_all(pids: impl IntoIterator<Item = Pid>, signal: Signal) -> u64 {
    pids.into_iter().filter(|pid| kill_process(*pid, signal).is_ok()).count() as u64
}

/// Returns how many processes were stopped.
async fn stop(site: &mut Site, pids: impl IntoIterator<Item = Pid>, fault: &Fault) -> Result<u64> {
    let stopped = Stopped(pids.into_iter().filter(|pid| kill_process(*pid, Signal::STOP).is_ok()).collect());
    hold(site, fault).await?;
    Ok(stopped.0.len() as u64)
}

/// Stopped processes, which continue when this is dropped, also if the campaign is interrupted.
struct Stopped(Vec<Pid>);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal_all(self.0.iter().copied(), Signal::CONT);
    }
}

/// Returns how often the lead has changed, and how often it was taken from a hub that was silent, as text.
pub fn failovers(site: &Site) -> String {
    let logs: Vec<String> = site.hubs.iter().map(Service::log).collect();
    let count = |text: &str| logs.iter().map(|log| log.matches(text).count()).sum::<usize>();
    format!(
        "the lead was taken {} times, from a silent hub {} times; {} times a hub found that it does not lead any more; \
         events were written with clocks that were off by {} min",
        site.sql("SELECT epoch FROM hub").trim(),
        count("the hub that leads is silent"),
        count("this hub does not lead any more"),
        site.sql("SELECT string_agg(minutes_off::text, ', ' ORDER BY minutes_off) FROM campaign_clocks").trim()
    )
}
