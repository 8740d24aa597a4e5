//! The loss of many attempts at once: how fast the hub records it, and whether it answers other
//! calls meanwhile.
//!
//! This program plays the runners: it takes the orders and starts nothing. Then none of the runners
//! calls any more.

use super::hub_connection::HubConnection;
use super::{Bench, fleet};
use crate::lab::{Lab, Result};
use crate::stats::{Row, Samples};
use adjutant_api::protocol::{
    GetRunnerWork, JoinRunner, RUNNER_HOME, RUNNER_SESSION, RunnerJoined, RunnerWork,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RUNNERS: usize = 50;
/// How long the hub may take to record all losses.
const RECORDED_MAX_S: f64 = 5.0;
/// How long a runner waits for an order before it looks whether the others have theirs.
const WAIT_MS: u64 = 500;
const LIMIT: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);
const CONFIG: &str = "listen = \"127.0.0.1:0\"\nrunner_lease = \"10s\"\n[pools.fleet]\nrunners = true\nslots = 10000\n";

pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scale.queued_for_runners;
    let lab = Arc::new(bench.lab(CONFIG)?);
    lab.start_hub()?;
    let url = lab.hub().await?.url.ok_or("the hub does not listen")?;
    let token = lab
        .run(&["token", "new", "fleet", "--role", "runner"])?
        .trim()
        .to_owned();
    fleet::fill(&lab, count).await?;
    let taken = Arc::new(AtomicUsize::new(0));
    let mut runners = JoinSet::new();
    for number in 0..RUNNERS {
        let (url, token, taken) = (url.clone(), token.clone(), Arc::clone(&taken));
        runners.spawn_blocking(move || {
            play(&url, &token, number, &taken, count).map_err(|error| error.to_string())
        });
    }
    while let Some(played) = runners.join_next().await {
        played??;
    }
    let (seconds, meanwhile) = until_lost(&lab, count as u64).await?;
    lab.run(&["stop"])?;
    let mut row = Row::number(
        &format!("loss of {count} attempts on {RUNNERS} runners recorded in"),
        seconds,
        "s",
        RECORDED_MAX_S,
        true,
    );
    row.floor = format!("{} each commit", super::ms(bench.commit_ms()));
    let dispatch = Row::plain(
        "  a dispatch meanwhile",
        super::ms(meanwhile.p50()),
        super::ms(meanwhile.p99()),
    );
    Ok(vec![row, dispatch])
}

/// Takes its share of the orders, and calls the hub until all runners have theirs.
fn play(url: &str, token: &str, number: usize, taken: &AtomicUsize, count: usize) -> Result<()> {
    let mut hub = HubConnection::open(url, token)?;
    let home_id = format!("{number:032x}");
    let slots = u64::try_from(count / RUNNERS)?;
    let join = JoinRunner {
        home_id: home_id.clone(),
        pools: vec!["fleet".to_owned()],
        slots,
        ..JoinRunner::default()
    };
    let joined: RunnerJoined =
        serde_json::from_slice(&hub.post("/runner/join", "", &serde_json::to_value(&join)?)?)?;
    let headers = format!(
        "{RUNNER_SESSION}: {}\r\n{RUNNER_HOME}: {home_id}\r\n",
        joined.session
    );
    let (begun, mut confirmed) = (Instant::now(), Vec::new());
    while taken.load(Ordering::Relaxed) < count {
        let work = GetRunnerWork {
            taken: confirmed,
            wait_ms: WAIT_MS,
            ..GetRunnerWork::default()
        };
        let RunnerWork { orders, .. } = serde_json::from_slice(&hub.post(
            "/runner/work",
            &headers,
            &serde_json::to_value(&work)?,
        )?)?;
        taken.fetch_add(orders.len(), Ordering::Relaxed);
        confirmed = orders
            .into_iter()
            .map(|order| format!("{}/{}", order.run_id, order.attempt))
            .collect();
        if begun.elapsed() > LIMIT {
            return Err(format!(
                "{} of {count} orders in {LIMIT:?}",
                taken.load(Ordering::Relaxed)
            )
            .into());
        }
    }
    Ok(())
}

/// Waits until the hub has recorded all losses. Returns how long that has taken from the first one,
/// and how long dispatches have taken meanwhile.
async fn until_lost(lab: &Arc<Lab>, count: u64) -> Result<(f64, Samples)> {
    let (client, waiting) = (lab.client(), Instant::now());
    let mut dispatches = Samples::default();
    let mut begun: Option<Instant> = None;
    loop {
        let live = lab.hub().await?.live_runs;
        if live < count {
            let begun = *begun.get_or_insert_with(Instant::now);
            if live == 0 {
                return Ok((begun.elapsed().as_secs_f64(), dispatches));
            }
            let mut order = lab.order("echo", "say done".to_owned());
            order.pool = Some("fleet".to_owned());
            let start = Instant::now();
            client.call(&order).await?;
            dispatches.push(start.elapsed());
        }
        if waiting.elapsed() > LIMIT {
            return Err(format!("{live} of {count} attempts are not lost after {LIMIT:?}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
}
