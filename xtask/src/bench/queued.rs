//! A long queue: calls must take about as long as with a short one.

use super::fleet::{self, POOL};
use super::{Bench, ms};
use crate::lab::{Lab, Result};
use crate::stats::{Row, Samples};
use adjutant_api::view::{Call, GetRun, GetStats, ListPools, ListRuns};
use adjutant_net::hub_client::Client;
use std::sync::Arc;
use std::time::Instant;

/// Length of the queue with which a longer one is compared.
const SHORT: usize = 10;
/// How many times as long a call may take with a long queue.
const FACTOR_MAX: f64 = 2.0;
/// Number of calls of each kind.
const CALLS: usize = 200;
/// Number of runs in a page: the short queue has as many.
const PAGE: u32 = 10;
/// Number of runs in the page that `adj ps` shows.
const WHOLE_PAGE: u32 = 200;

/// The times of each kind of call.
#[derive(Debug, Default)]
struct Times {
    dispatch: Samples,
    page: Samples,
    whole_page: Samples,
    show: Samples,
    pools: Samples,
    hub: Samples,
    stats: Samples,
}

/// Measures a dispatch, a page of the list, the display of a run, the pools, the state of the hub
/// and the statistics, with a short and a long queue.
pub async fn replies(bench: &Bench) -> Result<Vec<Row>> {
    let lab = Arc::new(bench.lab(fleet::CONFIG)?);
    lab.start_hub()?;
    fleet::fill(&lab, SHORT).await?;
    let short = measure(&lab).await?;
    let queued = bench.scale.queued_shown;
    fleet::fill(&lab, queued - SHORT - CALLS).await?;
    let long = measure(&lab).await?;
    let mut rows = Vec::new();
    let page = format!("page of {PAGE} of the list");
    for (what, short, long) in [
        ("dispatch", &short.dispatch, &long.dispatch),
        (page.as_str(), &short.page, &long.page),
        ("show of a queued run", &short.show, &long.show),
        ("list of pools", &short.pools, &long.pools),
        ("state of the hub", &short.hub, &long.hub),
    ] {
        rows.push(Row::plain(
            &format!("{what}, {SHORT} queued"),
            ms(short.p50()),
            ms(short.p99()),
        ));
        rows.push(Row::latency(
            &format!("{what}, {queued} queued"),
            long,
            Some(short.p50()),
            short.p50() * FACTOR_MAX,
        ));
    }
    let whole = &long.whole_page;
    rows.push(Row::plain(
        &format!("page of {WHOLE_PAGE} of the list, {queued} queued"),
        ms(whole.p50()),
        ms(whole.p99()),
    ));
    for (stats, queued) in [(&short.stats, SHORT), (&long.stats, queued)] {
        rows.push(Row::plain(
            &format!("statistics, {queued} queued"),
            ms(stats.p50()),
            ms(stats.p99()),
        ));
    }
    Ok(rows)
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
    let show = GetRun {
        run: first.identity.run_id,
        ..GetRun::default()
    };
    for number in 0..CALLS {
        timed(
            &mut times.page,
            &client,
            &ListRuns {
                limit: Some(PAGE),
                ..ListRuns::default()
            },
        )
        .await?;
        timed(&mut times.show, &client, &show).await?;
        timed(&mut times.pools, &client, &ListPools {}).await?;
        let start = Instant::now();
        lab.hub().await?;
        times.hub.push(start.elapsed());
        if number % 10 == 0 {
            timed(
                &mut times.whole_page,
                &client,
                &ListRuns {
                    limit: Some(WHOLE_PAGE),
                    ..ListRuns::default()
                },
            )
            .await?;
            timed(&mut times.stats, &client, &GetStats::default()).await?;
        }
    }
    // Afterwards, because each one makes the queue longer.
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
