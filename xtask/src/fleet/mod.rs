//! `cargo xtask fleet`: three hubs share a store on a PostgreSQL server, and three runners work for
//! them, each in a network namespace of its own. At random moments under load, any of them is
//! killed, stopped for a while, restarted, cut off from some or all of the others (also in one
//! direction), or gets a slow or lossy network, disks are full for a while, and clocks are set
//! wrong. Compares the acknowledged writes with the result: nothing may be lost or doubled, no
//! attempt may start twice, only the leader may commit, each wait must end, and no process may
//! panic.
//!
//! With `--unfenced`, a former leader continues to write, and the campaign must find it.

mod administrator;
mod calls;
mod check;
mod clock;
mod disk;
mod faults;
mod ledger;
mod load;
pub mod namespace;
pub mod network;
mod plan;
mod probe;
pub mod service;
pub mod site;
mod waits;

use crate::lab::Result;
use crate::random::Random;
use ledger::lock;
use site::Site;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of concurrent runs.
const LANES: usize = 6;
/// How long the load may take to end after the last fault.
const END_LIMIT: Duration = Duration::from_secs(180);

/// Runs the campaign, until it is done or interrupted.
pub async fn run(adj: &Path, faults: u64, seed: u64, unfenced: bool) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        done = campaign(adj, faults, seed, unfenced) => done,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Into::into).and(Err("interrupted".into())),
        _ = terminated.recv() => Err("terminated".into()),
    }
}

async fn campaign(adj: &Path, faults: u64, seed: u64, unfenced: bool) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err("a fleet needs root, for its network namespaces".into());
    }
    println!(
        "fleet: {faults} faults, seed {seed}{}",
        if unfenced { ", without fencing" } else { "" }
    );
    let start = Instant::now();
    let mut site = tokio::task::block_in_place(|| Site::start(adj, unfenced))?;
    println!(
        "the site is up after {} s, and the faults of its network and clocks work",
        start.elapsed().as_secs()
    );
    let hubs = Arc::new(site.hubs());
    let ledger = ledger::Shared::default();
    load::start_chat(&hubs).await?;
    let (stop, stopped) = watch::channel(false);
    let mut work = JoinSet::new();
    for lane in 0..LANES {
        let random = Random::new(seed.wrapping_add(1 + lane as u64));
        work.spawn(load::runs(
            Arc::clone(&hubs),
            Arc::clone(&ledger),
            site.journal(),
            lane,
            random,
            stopped.clone(),
        ));
    }
    work.spawn(load::posts(
        Arc::clone(&hubs),
        Arc::clone(&ledger),
        Random::new(seed.wrapping_add(100)),
        stopped.clone(),
    ));
    let done = faults::at_random(&mut site, &ledger, faults, seed, unfenced).await;
    let faults_s = start.elapsed().as_secs();
    if unfenced {
        // The store is broken by now, so the load would not end.
        return match site.intruders() {
            0 => Err(format!(
                "fencing was off, and no write of a former leader was found; other problems: {:?}",
                lock(&ledger).problems
            )
            .into()),
            intruders => {
                println!("{} in {faults_s} s", done.counted());
                println!(
                    "the missing fencing was found: {}",
                    check::of_intruders(&site, intruders)
                );
                Ok(())
            }
        };
    }
    tokio::task::block_in_place(|| site.revive())?;
    stop.send(true)?;
    let ended = tokio::time::timeout(END_LIMIT, async {
        while let Some(joined) = work.join_next().await {
            if let Err(error) = joined {
                lock(&ledger).problems.push(error.to_string());
            }
        }
    });
    if ended.await.is_err() {
        lock(&ledger).problems.push(format!(
            "the load has not ended {END_LIMIT:?} after the last fault"
        ));
    }
    let counts = lock(&ledger).counts();
    println!("{counts}; {} in {faults_s} s", done.counted());
    println!("{}", faults::failovers(&site));
    let mut problems = check::check(&mut site, &hubs, &ledger)
        .await
        .unwrap_or_else(|error| vec![error.to_string()]);
    problems.extend(std::mem::take(&mut lock(&ledger).problems));
    problems.extend(site.panics());
    for problem in &problems {
        println!("PROBLEM: {problem}");
    }
    if problems.is_empty() {
        let seconds = start.elapsed().as_secs();
        println!(
            "nothing lost, doubled or started twice, only hubs that led have committed, each wait has ended, no process has panicked ({seconds} s)"
        );
        return Ok(());
    }
    let logs = std::env::temp_dir().join(format!("adj-fleet-{seed}"));
    site.keep_logs(&logs)?;
    Err(format!(
        "{} problems; the logs are in {}; repeat with --seed {seed}",
        problems.len(),
        logs.display()
    )
    .into())
}
