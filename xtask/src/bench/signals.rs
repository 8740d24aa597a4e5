//! Signals: the latency from a block to the parent, the rate of scanning output, the latency of a
//! resume, and the cost of waiting runs.

use super::chat::read_when_there;
use super::crowd::{gather, idle_cost};
use super::{Bench, in_lab};
use crate::agent::{Printed, Task};
use crate::lab::{Result, monotonic_ns};
use crate::stats::{Row, Samples};
use adjutant_api::view::{
    AnswerOne, AnswerRequests, Pause, Resume, RunView, Wait, WaitUntil, codes,
};
use adjutant_core::OutcomeKind;
use adjutant_stream::signal::Scanner;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Measures the time from a block's last byte to the return of the waiting parent's call.
pub async fn block(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let out = lab.dir.path().join("printed");
        let count = bench.scale.answers;
        let run: RunView = client
            .call(
                &lab.order(
                    "bench",
                    Task::PrintBlocks {
                        count,
                        out: out.clone(),
                    }
                    .prompt()?,
                ),
            )
            .await?;
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        while seen.len() < count as usize {
            let wait = Wait {
                runs: vec![run.identity.run_id.clone()],
                until: WaitUntil::Attention,
                after: None,
                new_reports: false,
                wait_ms: 10_000,
            };
            let found = client.call(&wait).await?;
            let at_ns = monotonic_ns();
            if found.needs.is_empty() && found.working.is_empty() {
                return Err(format!("the agent exited early: {:?}", found.ended).into());
            }
            for request in found.needs {
                seen.insert(request.content.question.clone(), at_ns);
                let one = AnswerOne {
                    message_id: Some(request.message_id),
                    answer: "seen".to_string(),
                    ..AnswerOne::default()
                };
                let answered = client.call(&AnswerRequests { answers: vec![one] }).await;
                // The agent ends 40 ms after its last block, which withdraws an open question.
                if let Err(error) = answered
                    && error.code != codes::WITHDRAWN
                {
                    return Err(error.into());
                }
            }
        }
        let printed: Vec<Printed> =
            read_when_there(&lab, &client, &run, &out, Duration::from_secs(60)).await?;
        let mut times = Samples::default();
        for one in &printed {
            times.push_ns(
                seen.get(&one.question)
                    .ok_or("the parent received no question for a block")?
                    .saturating_sub(one.at_ns),
            );
        }
        let floor = bench.fdatasync_ms();
        Ok(vec![Row::latency(
            "a block's last byte to the waiting parent's call returning",
            &times,
            Some(floor),
            floor + 3.0,
        )])
    })
    .await
}

/// Measures the rate of scanning ordinary output for blocks.
pub async fn scan(_bench: &Bench) -> Result<Vec<Row>> {
    const BYTES: usize = 512 * 1024 * 1024;
    let mut text = String::new();
    let mut number = 0;
    while text.len() < 64 * 1024 {
        let line = match number % 5 {
            0 => {
                format!("   Compiling crate-{number} v0.{number}.0 (/work/crates/crate-{number})\n")
            }
            1 => format!(
                "[INFO] 2026-01-11 line {number} of an ordinary log, as long as such lines are\n"
            ),
            2 => format!(
                "{{\"level\":\"debug\",\"n\":{number},\"msg\":\"one object on its line\"}}\n"
            ),
            3 => "\n".to_string(),
            _ => format!(
                "{number}: what a model says in a sentence or two, and then a bit more of it until the line is full\n"
            ),
        };
        text.push_str(&line);
        number += 1;
    }
    let mut scanner = Scanner::default();
    let mut found = 0_u64;
    let start = Instant::now();
    for _ in 0..BYTES / text.len() {
        scanner.feed(&text, &mut |_| found += 1);
    }
    let seconds = start.elapsed().as_secs_f64();
    if found > 0 {
        return Err(format!("{found} blocks where there are none").into());
    }
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
    let rate = (BYTES / text.len() * text.len()) as f64 / 1e6 / seconds;
    Ok(vec![Row::number(
        "ordinary output scanned for blocks",
        rate,
        "MB/s",
        200.0,
        false,
    )])
}

/// Measures the time from the resuming call to the new attempt's first instruction.
pub async fn resume(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let journal = lab.dir.path().join("journal");
        let mut times = Samples::default();
        for number in 0..bench.scale.starts {
            let run = lab
                .dispatch(
                    &client,
                    "echo",
                    &format!(
                        "say here\nhang\nresume-here\njournal {} {number}",
                        journal.display()
                    ),
                )
                .await?;
            let ended = |until| Wait {
                runs: vec![run.identity.run_id.clone()],
                until,
                after: None,
                new_reports: false,
                wait_ms: 20_000,
            };
            super::size::wait_for_log(&lab, &run.place.log_path).await?;
            client
                .call(&Pause {
                    run: run.identity.run_id.clone(),
                })
                .await?;
            client.call(&ended(WaitUntil::All)).await?;
            let start_ns = monotonic_ns();
            client
                .call(&Resume {
                    run: run.identity.run_id.clone(),
                    ..Resume::default()
                })
                .await?;
            let found = client.call(&ended(WaitUntil::All)).await?;
            if !found
                .ended
                .first()
                .is_some_and(|run| run.has_outcome(OutcomeKind::Succeeded))
            {
                return Err(format!("{}: {:?}", run.identity.name, found.ended).into());
            }
            let text = std::fs::read_to_string(&journal)?;
            let last: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
            if last.first() != Some(&run.identity.run_id.as_str()) {
                return Err(format!("the journal's last line is {last:?}").into());
            }
            times.push_ns(last[3].parse::<u64>()? - start_ns);
        }
        let floor = bench.floors.spawn.p50() * 3.0 + bench.fdatasync_ms();
        Ok(vec![Row::latency(
            "resume to the new attempt's first instruction",
            &times,
            Some(floor),
            50.0,
        )])
    })
    .await
}

/// Measures the hub's idle cost with runs that wait for answers.
pub async fn waiting(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "live_runs_max = 5000", |lab| async move {
        let client = lab.client();
        let count = bench.scale.live_runs;
        gather(&lab, &client, count, "ask \"Go on?\"", |run| {
            run.requests.pending_total > 0
        })
        .await?;
        let pid = lab.hub().await?.pid;
        let idle = idle_cost(pid, Duration::from_secs(bench.scale.idle_s)).await?;
        Ok(vec![Row::number(
            &format!("{count} runs that wait for an answer: hub"),
            idle,
            "% of a core",
            1.0,
            true,
        )])
    })
    .await
}
