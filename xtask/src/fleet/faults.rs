//! Causes faults, one after another or two at a time.

use super::administrator;
use super::ledger::{Shared, lock};
use super::plan::{Fault, Kind, Machine, Plan, Step};
use super::service::Service;
use super::site::{FIRST_RUNNER, MACHINES, SERVER, Site, wait_for_end};
use crate::lab::Result;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// How long a fault waits for the load to continue after the last fault.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// Acknowledged writes between two faults.
const PROGRESS: u64 = 6;

/// What a campaign has done to the site.
#[derive(Debug, Default)]
pub struct Done {
    counts: BTreeMap<Kind, u64>,
    /// How often two came at a time.
    pub overlaps: u64,
    /// Attempted faults that hit nothing: they count for nothing.
    pub without_effect: u64,
}

impl Done {
    /// Returns how often each kind was caused, as text.
    pub fn counted(&self) -> String {
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(kind, count)| format!("{} {count}", kind.name()))
            .collect();
        format!(
            "{}; two came at a time {} times; {} more had no effect",
            counts.join(", "),
            self.overlaps,
            self.without_effect
        )
    }

    /// Counts a fault and returns its effect as text.
    fn count(&mut self, fault: &Fault, hit: u64) -> String {
        if hit == 0 {
            self.without_effect += 1;
            return "no effect".to_owned();
        }
        *self.counts.entry(fault.kind).or_default() += 1;
        format!("{hit} {} hit", fault.kind.target())
    }

    fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Causes faults, each after the load has continued. `until_found`: ends when a hub that is not the
/// leader has written.
pub async fn at_random(
    site: &mut Site,
    ledger: &Shared,
    faults: u64,
    seed: u64,
    until_found: bool,
) -> Done {
    let mut plan = Plan::new(seed);
    let mut done = Done::default();
    let start = Instant::now();
    // A fault without effect is rare.
    while done.total() < faults && done.without_effect <= faults {
        let number = done.total();
        if let Err(problem) = progress(ledger).await {
            lock(ledger)
                .problems
                .push(format!("before fault {number}: {problem}"));
            return done;
        }
        let step = plan.next();
        tokio::time::sleep(step.fault.pause).await;
        let began = Instant::now();
        let hits = match cause(site, &step).await {
            Ok(hits) => hits,
            Err(problem) => {
                lock(ledger).problems.push(format!(
                    "fault {number} ({}): {problem}",
                    described(&step.fault)
                ));
                return done;
            }
        };
        let at = began.duration_since(start).as_secs_f64();
        done.overlaps += u64::from(hits.len() > 1 && hits.iter().all(|(_, hit)| *hit > 0));
        for (n, (fault, hit)) in hits.iter().enumerate() {
            let (number, beside) = (done.total(), if n > 0 { " meanwhile," } else { "" });
            let effect = done.count(fault, *hit);
            println!(
                "{number},{beside} at {at:.1} s: {}: {effect} (over after {:.1} s)",
                described(fault),
                began.elapsed().as_secs_f64()
            );
        }
        if until_found && block_in_place(|| site.intruders()) > 0 {
            return done;
        }
    }
    if done.total() < faults {
        lock(ledger)
            .problems
            .push(format!("only {} faults had an effect", done.total()));
    }
    done
}

fn described(fault: &Fault) -> String {
    let mut text = fault.kind.name().to_owned();
    match fault.kind {
        Kind::ClockSet => text += &format!(", {:?}, {} s", fault.machine, fault.shift_s),
        Kind::Cut | Kind::CutOneWay | Kind::CutFromOne | Kind::Slow | Kind::Lossy => {
            text += &format!(", {:?}, {:?}", fault.machine, fault.trouble)
        }
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

/// Causes one fault or two, ends them, and starts what they have killed. Returns how many
/// processes, packets, disks or clocks each has hit.
async fn cause(site: &mut Site, step: &Step) -> Result<Vec<(Fault, u64)>> {
    // Before the first one, because then the server may not answer.
    let leader = block_in_place(|| site.leader()).unwrap_or(step.fault.n);
    let mut second = step.second.map(|fault| (fault, 0));
    let hit = cause_one(site, &step.fault, leader, second.as_mut()).await?;
    block_in_place(|| site.revive())?;
    Ok([Some((step.fault, hit)), second]
        .into_iter()
        .flatten()
        .collect())
}

/// Causes a fault and ends it. `second`: another one in the middle of it, whose effect is added.
async fn cause_one(
    site: &mut Site,
    fault: &Fault,
    leader: usize,
    second: Option<&mut (Fault, u64)>,
) -> Result<u64> {
    let during = During { leader, second };
    let machine = match fault.machine {
        Machine::Leader => leader,
        Machine::Number(n) => n,
    };
    let runners_machine =
        |site: &Site| block_in_place(|| site.network.machines[FIRST_RUNNER + fault.n].processes());
    Ok(match fault.kind {
        Kind::HubKilled => site.hubs[fault.n].kill()?.into(),
        Kind::LeaderKilled => site.hubs[leader].kill()?.into(),
        Kind::LeaderEnded => {
            let pid = site.hubs[leader].pid();
            let hit = signal_all(pid, Signal::TERM);
            block_in_place(|| pid.map_or(Ok(()), wait_for_end))?;
            hit
        }
        Kind::LeaderStopped => stop(site, site.hubs[leader].pid(), fault, during).await?,
        Kind::RunnerKilled => site.runners[fault.n].kill()?.into(),
        Kind::RunnerStopped => stop(site, site.runners[fault.n].pid(), fault, during).await?,
        Kind::RunnersMachineKilled => signal_all(runners_machine(site)?, Signal::KILL),
        Kind::RunnersMachineStopped => stop(site, runners_machine(site)?, fault, during).await?,
        Kind::ServerKilled => {
            block_in_place(|| {
                site.server.kill();
                site.start_server();
            });
            1
        }
        Kind::ServerStopped => {
            let pids = block_in_place(|| site.network.machines[SERVER].processes())?;
            stop(site, pids, fault, during).await?
        }
        Kind::ServerRestarted => {
            block_in_place(|| site.restart_server())?;
            1
        }
        Kind::ReplicaPromoted => {
            block_in_place(|| site.promote_replica());
            1
        }
        kind if kind.is_of_administrator() => {
            let ongoing = block_in_place(|| administrator::begin(site, fault))?;
            hold(site, fault, during).await?;
            block_in_place(|| administrator::end(site, fault, ongoing))?;
            1
        }
        Kind::HubsDiskFull => fill(site, fault.n, fault, during).await?,
        Kind::RunnersDiskFull => fill(site, FIRST_RUNNER + fault.n, fault, during).await?,
        Kind::ServersDiskFull => {
            let hit = fill(site, SERVER, fault, during).await?;
            // A server that cannot write its log of transactions ends all its processes.
            block_in_place(|| site.network.machines[SERVER].inside(|| site.server.recover()));
            hit
        }
        Kind::Cut | Kind::CutOneWay | Kind::Lossy | Kind::Slow => {
            disturb(site, machine, None, fault, during).await?
        }
        Kind::CutFromOne => {
            disturb(
                site,
                machine,
                Some((machine + fault.peer) % MACHINES),
                fault,
                during,
            )
            .await?
        }
        Kind::ClockSet => {
            site.clocks[machine].set(fault.shift_s)?;
            1
        }
        _ => return Err(format!("there is no way to cause: {}", fault.kind.name()).into()),
    })
}

/// Returns the number of lost or delayed packets.
async fn disturb(
    site: &mut Site,
    machine: usize,
    peer: Option<usize>,
    fault: &Fault,
    during: During<'_>,
) -> Result<u64> {
    block_in_place(|| site.network.disturb(machine, peer, fault.trouble))?;
    hold(site, fault, during).await?;
    block_in_place(|| site.network.heal())
}

/// Returns the number of filled disks.
async fn fill(site: &mut Site, machine: usize, fault: &Fault, during: During<'_>) -> Result<u64> {
    let full = block_in_place(|| site.disks[machine].fill())?;
    hold(site, fault, during).await?;
    drop(full);
    Ok(1)
}

/// What happens in the middle of a fault.
struct During<'a> {
    leader: usize,
    second: Option<&'a mut (Fault, u64)>,
}

/// Waits while a fault lasts. In the middle, kills a hub or causes another fault, if that is
/// planned.
async fn hold(site: &mut Site, fault: &Fault, during: During<'_>) -> Result<()> {
    tokio::time::sleep(fault.length / 2).await;
    if let Some((second, hit)) = during.second {
        *hit = Box::pin(cause_one(site, second, during.leader, None)).await?;
    }
    if let Some(n) = fault.meanwhile {
        site.hubs[n].kill()?;
    }
    tokio::time::sleep(fault.length / 2).await;
    Ok(())
}

/// Returns how many processes received the signal. Others are already gone.
fn signal_all(pids: impl IntoIterator<Item = Pid>, signal: Signal) -> u64 {
    pids.into_iter()
        .filter(|pid| kill_process(*pid, signal).is_ok())
        .count() as u64
}

/// Returns how many processes were stopped.
async fn stop(
    site: &mut Site,
    pids: impl IntoIterator<Item = Pid>,
    fault: &Fault,
    during: During<'_>,
) -> Result<u64> {
    let stopped = Stopped(
        pids.into_iter()
            .filter(|pid| kill_process(*pid, Signal::STOP).is_ok())
            .collect(),
    );
    hold(site, fault, during).await?;
    Ok(stopped.0.len() as u64)
}

/// Stopped processes, which continue when this is dropped, also if the campaign is interrupted.
struct Stopped(Vec<Pid>);

impl Drop for Stopped {
    fn drop(&mut self) {
        signal_all(self.0.iter().copied(), Signal::CONT);
    }
}

/// Returns how often the leader has changed, and how often because it was silent, as text.
pub fn failovers(site: &Site) -> String {
    let logs: Vec<String> = site.hubs.iter().map(Service::log).collect();
    let count = |text: &str| {
        logs.iter()
            .map(|log| log.matches(text).count())
            .sum::<usize>()
    };
    format!(
        "another hub became the leader {} times, {} of them because the leader was silent; {} times a hub found that it is no longer the leader; \
         events were written with clocks that were off from PostgreSQL's by {} min",
        site.sql("SELECT epoch FROM hub").trim(),
        count("the leader is silent"),
        count("this hub is no longer the leader"),
        site.sql(
            "SELECT string_agg(minutes_off::text, ', ' ORDER BY minutes_off) FROM campaign_clocks"
        )
        .trim()
    )
}
