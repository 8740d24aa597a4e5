//! Many live runs at once, and the hub's idle cost with them.

use crate::lab::{Lab, Result, cpu_time};
use adjutant_api::view::{ListRuns, RunView};
use adjutant_net::hub_client::Client;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Number of tasks that dispatch concurrently.
const LANES: u32 = 8;
/// Timeout for the start of all runs.
const UP_MAX: Duration = Duration::from_secs(120);

/// Dispatches `count` scripted runs and returns when `is_up` holds for all of them.
pub async fn gather(
    lab: &Arc<Lab>,
    client: &Client,
    count: u32,
    script: &'static str,
    is_up: fn(&RunView) -> bool,
) -> Result<()> {
    let mut work = JoinSet::new();
    for lane in 0..LANES {
        let (client, lab) = (client.clone(), Arc::clone(lab));
        work.spawn(async move {
            for _ in 0..count / LANES + u32::from(lane < count % LANES) {
                lab.dispatch(&client, "echo", script).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(done) = work.join_next().await {
        done??;
    }
    let start = Instant::now();
    loop {
        let up = count_runs(client, is_up).await?;
        if up >= count as usize {
            return Ok(());
        }
        if start.elapsed() > UP_MAX {
            return Err(format!("only {up} of {count} runs came up").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Counts the unfinished runs with a property.
pub async fn count_runs(client: &Client, holds: fn(&RunView) -> bool) -> Result<usize> {
    let runs = client
        .call(&ListRuns {
            all: false,
            limit: Some(10_000),
            before: None,
        })
        .await?
        .runs;
    Ok(runs.iter().filter(|run| holds(run)).count())
}

/// Measures the CPU usage of the idle hub during `length`, in percent of a core.
pub async fn idle_cost(pid: u32, length: Duration) -> Result<f64> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = cpu_time(pid)?;
    let start = Instant::now();
    tokio::time::sleep(length).await;
    Ok((cpu_time(pid)? - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0)
}
