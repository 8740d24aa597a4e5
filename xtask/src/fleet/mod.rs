//! `cargo xtask fleet`: three hubs share a store on a PostgreSQL server, three runners work for them, and any of them is killed, stopped
//! for a while or ended at random moments under load. Compares the acknowledged writes with the result: nothing may be lost or
//! doubled, no attempt may start twice, and only the hub that leads may commit.
//!
//! With `--unfenced`, a hub that has lost the lead goes on writing, and the campaign must find it.

mod check;
mod faults;
mod load;
mod site;

use crate::lab::Result;
use crate::random::Random;
use load::lock;
use site::Site;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of concurrent runs.
const LANES: usize = 6;
/// How long the load may take to end after the last fault.
const END_LIMIT: Duration = Duration::from_secs(180);

/// Runs the campaign.
pub async fn run(adj: &Path, faults: u64, seed: u64, unfenced: bool) -> Result<()> {
    println!("fleet: {faults} faults, seed {seed}{}", if unfenced { ", without fencing" } else { "" });
    let start = Instant::now();
    let mut site = Site::start(adj, unfenced)?;
    let hubs = Arc::new(site.hubs());
    let ledger = load::Shared::default();
    load::start_chat(&hubs).await?;
    let (stop, stopped) = watch::channel(false);
    let mut work = JoinSet::new();
    for lane in 0..LANES {
        let random = Random::new(seed.wrapping_add(1 + lane as u64));
        work.spawn(load::runs(Arc::clone(&hubs), Arc::clone(&ledger), site.journal(), lane, random, stopped.clone()));
    }
    work.spawn(load::posts(Arc::clone(&hubs), Arc::clone(&ledger), Random::new(seed.wrapping_add(100)), stopped.clone()));
    let done = faults::at_random(&mut site, &ledger, faults, seed).await;
    let faults_s = start.elapsed().as_secs();
    site.revive()?;
    stop.send(true)?;
    let ended = tokio::time::timeout(END_LIMIT, async {
        while let Some(joined) = work.join_next().await {
            if let Err(error) = joined {
                lock(&ledger).problems.push(error.to_string());
            }
        }
    });
    if ended.await.is_err() {
        lock(&ledger).problems.push(format!("the load has not ended {END_LIMIT:?} after the last fault"));
    }
    let counts = lock(&ledger).counts();
    println!("{counts}; {} in {faults_s} s", faults::counted(&done));
    println!("{}", faults::failovers(&site));
    let mut problems = check::check(&mut site, &hubs, &ledger).await?;
    problems.extend(std::mem::take(&mut lock(&ledger).problems));
    for problem in &problems {
        println!("PROBLEM: {problem}");
    }
    let seconds = start.elapsed().as_secs();
    match (unfenced, problems.is_empty()) {
        (false, true) => println!("nothing lost, doubled or started twice, and only hubs that led have committed ({seconds} s)"),
        (true, false) => println!("the missing fencing was found ({seconds} s)"),
        (true, true) => return Err("fencing was off, and nothing was found".into()),
        (false, false) => return Err(format!("{} problems; repeat with --seed {seed}", problems.len()).into()),
    }
    Ok(())
}
