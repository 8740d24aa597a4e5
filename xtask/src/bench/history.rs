//! A long history: calls must take about as long as with a short one.

use super::fleet::{self, POOL};
use super::{Bench, ms};
use crate::lab::{Lab, Result};
use crate::stats::{Row, Samples};
use adjutant_api::view::{Call, GetRun, ListRequests, ListRuns, ReadEvents, Wait};
use adjutant_core::{EventKind, RunId};
use adjutant_net::hub_client::Client;
use adjutant_store::store::{Store, StoreLocation, append_event};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of runs. The events are spread evenly over them.
const RUNS: usize = 100;
/// How many times as long a call may take with a long history.
const FACTOR_MAX: f64 = 2.0;
/// Number of calls of each kind.
const CALLS: usize = 200;
const PAGE: u32 = 50;
/// Number of events that are stored in one transaction.
const TOGETHER: usize = 5_000;

/// The times of each kind of call.
#[derive(Debug, Default)]
struct Times {
    dispatch: Samples,
    list: Samples,
    show: Samples,
    inbox: Samples,
    newest: Samples,
    of_run: Samples,
}

/// Measures a dispatch, the list of runs, the display of one, the inbox, and pages of the history,
/// with a short and a long history.
pub async fn replies(bench: &Bench) -> Result<Vec<Row>> {
    let lab = Arc::new(bench.lab(fleet::CONFIG)?);
    lab.start_hub()?;
    fleet::fill(&lab, RUNS).await?;
    // A page of each run, so that both measurements read as much.
    let few = RUNS * usize::try_from(PAGE)?;
    append(&lab, few).await?;
    let short = measure(&lab).await?;
    let events = bench.scale.events;
    append(&lab, events - few).await?;
    let long = measure(&lab).await?;
    let mut rows = Vec::new();
    for (what, short, long) in [
        ("dispatch", &short.dispatch, &long.dispatch),
        ("list of runs", &short.list, &long.list),
        ("show of a run", &short.show, &long.show),
        ("inbox", &short.inbox, &long.inbox),
        ("newest events", &short.newest, &long.newest),
        ("first events of a run", &short.of_run, &long.of_run),
    ] {
        rows.push(Row::plain(
            &format!("{what}, a short history"),
            ms(short.p50()),
            ms(short.p99()),
        ));
        rows.push(Row::latency(
            &format!("{what}, {events} events"),
            long,
            Some(short.p50()),
            short.p50() * FACTOR_MAX,
        ));
    }
    Ok(rows)
}

/// Stores events while no hub runs: the database has one writer.
async fn append(lab: &Arc<Lab>, count: usize) -> Result<()> {
    let listed = lab
        .client()
        .call(&ListRuns {
            limit: Some(u32::try_from(RUNS)?),
            ..ListRuns::default()
        })
        .await?;
    let runs: Vec<RunId> = listed
        .runs
        .iter()
        .map(|run| RunId::parse(&run.identity.run_id))
        .collect::<std::result::Result<_, _>>()?;
    lab.run(&["stop"])?;
    while !lab.processes().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let store = Store::open_at(&lab.home, place_of(lab)?)?;
    for first in (0..count).step_by(TOGETHER) {
        let runs = runs.clone();
        let append = move |tx: &mut adjutant_store::store::Tx<'_>| {
            for number in first..(first + TOGETHER).min(count) {
                let kind = if number % 2 == 0 {
                    EventKind::RunStalled
                } else {
                    EventKind::RunActiveAgain
                };
                append_event(
                    tx,
                    kind,
                    runs[number % runs.len()],
                    "person",
                    None,
                    "hub",
                    "no output and no call for 5m",
                )?;
            }
            Ok(())
        };
        store.write(append).await?;
    }
    store.close();
    lab.start_hub()
}

/// Returns where the store of a lab is. The configuration that this program would read is another
/// one.
fn place_of(lab: &Lab) -> Result<StoreLocation> {
    let config = std::fs::read_to_string(lab.home.dir.join("config.toml"))?;
    Ok(
        match config
            .lines()
            .find_map(|line| line.strip_prefix("store = \"")?.strip_suffix('"'))
        {
            Some(url) => StoreLocation::Postgres(url.parse()?),
            None => StoreLocation::Home(lab.home.clone()),
        },
    )
}

async fn measure(lab: &Arc<Lab>) -> Result<Times> {
    let client = lab.client();
    let mut times = Times::default();
    let mut order = lab.order("echo", "say done".to_owned());
    order.pool = Some(POOL.to_owned());
    let first = client
        .call(&ListRuns {
            limit: Some(1),
            ..ListRuns::default()
        })
        .await?
        .runs
        .pop()
        .ok_or("no run is queued")?;
    let newest = client.call(&Wait::default()).await?.cursor;
    for _ in 0..CALLS {
        timed(
            &mut times.list,
            &client,
            &ListRuns {
                limit: Some(PAGE),
                ..ListRuns::default()
            },
        )
        .await?;
        timed(
            &mut times.show,
            &client,
            &GetRun {
                run: first.identity.run_id.clone(),
                ..GetRun::default()
            },
        )
        .await?;
        timed(&mut times.inbox, &client, &ListRequests::default()).await?;
        timed(
            &mut times.newest,
            &client,
            &ReadEvents {
                after: newest - i64::from(PAGE),
                limit: Some(PAGE),
                ..ReadEvents::default()
            },
        )
        .await?;
        timed(
            &mut times.of_run,
            &client,
            &ReadEvents {
                run: Some(first.identity.run_id.clone()),
                limit: Some(PAGE),
                ..ReadEvents::default()
            },
        )
        .await?;
    }
    for _ in 0..CALLS {
        timed(&mut times.dispatch, &client, &order).await?;
    }
    Ok(times)
}

async fn timed<C: Call>(times: &mut Samples, client: &Client, call: &C) -> Result<()> {
    let start = Instant::now();
    client.call(call).await?;
    times.push(start.elapsed());
    Ok(())
}
