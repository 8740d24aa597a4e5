//! Two hubs that share a store on PostgreSQL: how long the store accepts no writes when the leader
//! ends.

use super::Bench;
use crate::lab::{Lab, Result, replied};
use crate::stats::{Row, Samples};
use adjutant_api::view::{ListChats, StartChat, codes};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest time until another hub is the leader.
const FAILOVER_MAX_MS: f64 = 5_000.0;
/// How long a hub may take to start as a standby hub.
const LIMIT: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// How the leader ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    /// `SIGSTOP`, until the other one leads.
    Suspend,
    /// `adj stop`.
    Stop,
}

/// Measures the time from the end of the leader until a write, which its client repeats, is
/// acknowledged by the other hub.
pub async fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let labs = bench.labs_of_one_store("store_shared = true\nlisten = \"127.0.0.1:0\"\n")?;
    let mut writes = 0;
    let mut rows = Vec::new();
    let mut leads = 0;
    labs[leads].start_hub()?;
    for (end, what) in [
        (End::Kill, "is killed"),
        (End::Suspend, "is suspended"),
        (End::Stop, "is stopped"),
    ] {
        let mut times = Samples::default();
        for _ in 0..bench.scale.failovers {
            let (first, second) = (&labs[leads], &labs[1 - leads]);
            second.start_hub()?;
            until_standby(second).await?;
            times.push(take_over(first, second, end, writes).await?);
            writes += 1;
            leads = 1 - leads;
        }
        let what = format!("write acknowledged by another hub after the leader {what}");
        let mut row = Row::latency(&what, &times, Some(bench.commit_ms()), FAILOVER_MAX_MS);
        row.target = format!("p99 <= {FAILOVER_MAX_MS} ms");
        row.met = Some(times.p99() <= FAILOVER_MAX_MS);
        rows.push(row);
    }
    let kept = labs[leads]
        .client()
        .call(&ListChats {
            limit: Some(1_000),
            ..ListChats::default()
        })
        .await?
        .chats;
    let mut lost: BTreeSet<String> = (0..writes).map(title).collect();
    let doubled = kept.iter().filter(|chat| !lost.remove(&chat.title)).count();
    let wrong = f64::from(u32::try_from(lost.len() + doubled)?);
    rows.push(Row::number(
        &format!("  lost or doubled of {writes}"),
        wrong,
        "",
        0.0,
        true,
    ));
    for lab in labs.iter().rev() {
        lab.run(&["stop"])?;
    }
    Ok(rows)
}

fn title(number: u32) -> String {
    format!("chat {number}")
}

async fn until_standby(lab: &Lab) -> Result<()> {
    let start = Instant::now();
    while !lab.hub().await.is_ok_and(|hub| hub.leader.is_some()) {
        if start.elapsed() > LIMIT {
            return Err(format!("the hub is not on standby within {LIMIT:?}").into());
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
    Ok(())
}

/// Ends the first hub, and returns how long the write of a client of the second one took.
async fn take_over(first: &Lab, second: &Lab, end: End, number: u32) -> Result<Duration> {
    let hub = i32::try_from(first.hub().await?.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("the hub has no pid")?;
    let write = StartChat {
        title: title(number),
        ..StartChat::default()
    };
    let client = second.client();
    let start = Instant::now();
    match end {
        End::Kill => kill_process(hub, Signal::KILL)?,
        End::Suspend => kill_process(hub, Signal::STOP)?,
        End::Stop => drop(first.run(&["stop"])?),
    }
    let written = until_written(&client, &write, &format!("failover-{number}")).await;
    let took = start.elapsed();
    if matches!(end, End::Suspend) {
        kill_process(hub, Signal::CONT)?;
    }
    written.map(|()| took)
}

async fn until_written(
    client: &adjutant_net::hub_client::Client,
    write: &StartChat,
    key: &str,
) -> Result<()> {
    let start = Instant::now();
    loop {
        match replied(client, write, key).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code == codes::UNREACHABLE && start.elapsed() < LIMIT => {
                tokio::time::sleep(RETRY_AFTER).await
            }
            Err(error) => return Err(error.into()),
        }
    }
}
