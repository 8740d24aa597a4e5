//! Runners: how fast a hub starts many queued runs on them.

use super::Bench;
use super::hub_connection::HubConnection;
use crate::lab::{Lab, Result};
use crate::stats::Row;
use adjutant_api::protocol::{
    GetRunnerWork, JoinRunner, RUNNER_HOME, RUNNER_SESSION, RunnerJoined, RunnerWork,
};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RUNNERS: usize = 50;
/// Number of concurrent dispatches.
const DISPATCHERS: usize = 32;
/// How long a runner waits for an order before it checks whether all have arrived.
const WAIT_MS: u64 = 5_000;
/// Least rate of claims, as a share of what the server does for a queue without anything else.
const SHARE_MIN: f64 = 0.25;
/// Number of rows that are taken to measure that.
const FLOOR_ROWS: usize = 10_000;
/// The pool of [`CONFIG`].
pub const POOL: &str = "fleet";
const LIMIT: Duration = Duration::from_secs(300);
pub const CONFIG: &str = "listen = \"127.0.0.1:0\"\n[pools.fleet]\nrunners = true\nslots = 10000\n";

/// Measures how many queued runs a second arrive at runners that this program plays: it makes their
/// calls, and starts nothing.
pub async fn claims(bench: &Bench) -> Result<Vec<Row>> {
    let queued = bench.scale.queued_for_runners;
    let lab = Arc::new(bench.lab(CONFIG)?);
    lab.start_hub()?;
    let url = lab.hub().await?.url.ok_or("the hub does not listen")?;
    let token = lab
        .run(&["token", "new", "fleet", "--role", "runner"])?
        .trim()
        .to_owned();
    fill(&lab, queued).await?;
    let (begin, share) = (Arc::new(Barrier::new(RUNNERS)), queued / RUNNERS);
    let mut runners = JoinSet::new();
    for number in 0..RUNNERS {
        let (url, token, begin) = (url.clone(), token.clone(), Arc::clone(&begin));
        runners.spawn_blocking(move || {
            play(&url, &token, number, share, &begin).map_err(|error| error.to_string())
        });
    }
    let (mut attempts, mut received) = (BTreeSet::new(), 0);
    let (mut begun, mut ended) = (None, None);
    while let Some(played) = runners.join_next().await {
        let (first, last, orders) = played??;
        begun = Some(begun.map_or(first, |begun: Instant| begun.min(first)));
        ended = ended.max(Some(last));
        received += orders.len();
        attempts.extend(orders);
    }
    let (begun, ended) = begun.zip(ended).ok_or("no runner")?;
    let seconds = (ended - begun).as_secs_f64();
    if attempts.len() != queued || received != queued {
        return Err(format!(
            "{queued} runs were queued, {} were started, {received} orders arrived",
            attempts.len()
        )
        .into());
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let rate = queued as f64 / seconds;
    let mut row = Row::number(
        &format!("{queued} queued runs claimed by {RUNNERS} runners"),
        rate,
        "/s",
        1_000.0,
        false,
    );
    row.floor = format!("{} each commit", super::ms(bench.commit_ms()));
    let mut rows = vec![row];
    if let Some(floor) = bench.skip_locked_per_s(RUNNERS, FLOOR_ROWS) {
        let mut row = Row::number(
            &format!("  as a share of SKIP LOCKED with {RUNNERS} clients"),
            rate / floor,
            "",
            SHARE_MIN,
            false,
        );
        row.floor = format!("{floor:.0}/s");
        rows.push(row);
    }
    Ok(rows)
}

/// Takes its share of the orders. Returns when it began and ended, and what it received.
fn play(
    url: &str,
    token: &str,
    number: usize,
    share: usize,
    begin: &Barrier,
) -> Result<(Instant, Instant, Vec<String>)> {
    let mut hub = HubConnection::open(url, token)?;
    let home_id = format!("{number:032x}");
    let join = JoinRunner {
        home_id: home_id.clone(),
        pools: vec![POOL.to_owned()],
        slots: u64::try_from(share)?,
        ..JoinRunner::default()
    };
    let joined: RunnerJoined =
        serde_json::from_slice(&hub.post("/runner/join", "", &serde_json::to_value(&join)?)?)?;
    let headers = format!(
        "{RUNNER_SESSION}: {}\r\n{RUNNER_HOME}: {home_id}\r\n",
        joined.session
    );
    begin.wait();
    let start = Instant::now();
    let (mut received, mut taken) = (Vec::new(), Vec::new());
    while received.len() < share {
        let work = GetRunnerWork {
            taken,
            wait_ms: WAIT_MS,
            ..GetRunnerWork::default()
        };
        let RunnerWork { orders, .. } = serde_json::from_slice(&hub.post(
            "/runner/work",
            &headers,
            &serde_json::to_value(&work)?,
        )?)?;
        taken = orders
            .into_iter()
            .map(|order| format!("{}/{}", order.run_id, order.attempt))
            .collect();
        received.extend(taken.iter().cloned());
        if start.elapsed() > LIMIT {
            return Err(format!("{} of {share} orders in {LIMIT:?}", received.len()).into());
        }
    }
    Ok((start, Instant::now(), received))
}

/// Queues runs while no runner is connected.
pub async fn fill(lab: &Arc<Lab>, count: usize) -> Result<()> {
    let mut dispatchers = JoinSet::new();
    for first in 0..DISPATCHERS {
        let lab = Arc::clone(lab);
        dispatchers.spawn(async move {
            let client = lab.client();
            let mut order = lab.order("echo", "say done".to_owned());
            order.pool = Some(POOL.to_owned());
            for _ in (first..count).step_by(DISPATCHERS) {
                client
                    .call(&order)
                    .await
                    .map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        });
    }
    while let Some(done) = dispatchers.join_next().await {
        done??;
    }
    Ok(())
}
