//! A worker and its parent: latencies of asking and answering.

use super::{Bench, in_lab};
use crate::agent::{Level, Returned, Task};
use crate::lab::{Lab, Result, monotonic_ns};
use crate::stats::{Row, Samples};
use adjutant_api::view::{AnswerOne, AnswerRequests, Dispatch, RunView, Wait, WaitUntil};
use adjutant_core::RunStateKind;
use adjutant_net::hub_client::Client;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

pub async fn ask(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let out = lab.dir.path().join("levels");
        let levels = bench.scale.questions.to_vec();
        let task = Task::AskAt {
            levels,
            samples: 300,
            adj: bench.adj.clone(),
            out: out.clone(),
        };
        let run: RunView = client.call(&lab.order("bench", task.prompt()?)).await?;
        let levels: Vec<Level> =
            read_when_there(&lab, &client, &run, &out, Duration::from_secs(120)).await?;
        let floor = bench.commit_ms();
        let target = if bench.postgres.is_some() {
            3.0 * floor
        } else {
            floor + 0.4
        };
        let rows = levels.iter().map(|level| {
            let mut samples = Samples::default();
            level
                .times_ns
                .iter()
                .for_each(|time| samples.push_ns(*time));
            let what = format!(
                "ask_parent acknowledged, durable, through MCP, {} questions in the run",
                level.questions
            );
            Row::latency(&what, &samples, Some(floor), target)
        });
        Ok(rows.collect())
    })
    .await
}

/// Measures the time from the answer to the return of the worker's blocked call.
pub async fn answer(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let times = answers(bench, &lab, None).await?;
        let floor = bench.fdatasync_ms() + bench.floors.socket_round_trip.p50();
        let mut row = Row::latency(
            "answer given to the worker's blocked call returning",
            &times,
            Some(floor),
            bench.fdatasync_ms() + 0.7,
        );
        row.target = format!("{}, p99 <= 10 ms", row.target);
        row.met = Some(row.met == Some(true) && times.p99() <= 10.0);
        Ok(vec![row])
    })
    .await
}

/// Answers each question of a worker, which may run in a pool, and returns the times until its
/// blocked calls returned.
pub async fn answers(bench: &Bench, lab: &Lab, pool: Option<&str>) -> Result<Samples> {
    let client = lab.client();
    let out = lab.dir.path().join("returned");
    let task = Task::AskAndWait {
        count: bench.scale.answers,
        adj: bench.adj.clone(),
        out: out.clone(),
    };
    let order = Dispatch {
        pool: pool.map(str::to_owned),
        ..lab.order("bench", task.prompt()?)
    };
    let run: RunView = client.call(&order).await?;
    let mut given = BTreeMap::new();
    while given.len() < bench.scale.answers as usize {
        let wait = Wait {
            runs: vec![run.identity.run_id.clone()],
            until: WaitUntil::Attention,
            after: None,
            new_reports: false,
            wait_ms: 10_000,
        };
        let found = client.call(&wait).await?;
        let Some(request) = found
            .needs
            .iter()
            .find(|request| !given.contains_key(&request.message_id))
        else {
            if found.working.is_empty() {
                return Err(format!("the worker exited early: {:?}", found.ended).into());
            }
            continue;
        };
        // After this, the worker is in its blocked call.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let one = AnswerOne {
            message_id: Some(request.message_id.clone()),
            answer: "yes".to_string(),
            ..AnswerOne::default()
        };
        given.insert(request.message_id.clone(), monotonic_ns());
        client.call(&AnswerRequests { answers: vec![one] }).await?;
    }
    let returned: Vec<Returned> =
        read_when_there(lab, &client, &run, &out, Duration::from_secs(20)).await?;
    let mut times = Samples::default();
    for one in &returned {
        times.push_ns(
            one.at_ns
                - given
                    .get(&one.message_id)
                    .ok_or("no answer was given for this message")?,
        );
    }
    Ok(times)
}

/// Waits for the file that an agent writes at its end. Asks the hub only rarely whether the agent
/// is still running, because frequent calls would affect the measurement.
pub async fn read_when_there<T: serde::de::DeserializeOwned>(
    lab: &Lab,
    client: &Client,
    run: &RunView,
    out: &Path,
    limit: Duration,
) -> Result<T> {
    let start = Instant::now();
    for look in 1_u32.. {
        if out.exists() {
            break;
        }
        if look.is_multiple_of(100) {
            let view = client
                .call(&adjutant_api::view::GetRun {
                    run: run.identity.run_id.clone(),
                    ..adjutant_api::view::GetRun::default()
                })
                .await?;
            if view.condition.state == RunStateKind::Finished && !out.exists() {
                let log = std::fs::read_to_string(&view.place.log_path)
                    .unwrap_or_else(|error| error.to_string());
                return Err(format!(
                    "{} ended ({:?} {:?}) without its measurements: {log}",
                    view.identity.name, view.condition.outcome, view.condition.reason
                )
                .into());
            }
        }
        if start.elapsed() > limit {
            return Err(format!(
                "{} has measured nothing in {limit:?}; {:?}",
                run.identity.name,
                lab.hub().await
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}
