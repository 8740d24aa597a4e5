//! Notes between runs, and races for an entry of a board.

use super::{Bench, in_lab};
use crate::lab::{Result, monotonic_ns};
use crate::stats::{Row, Samples};
use adjutant_api::view::Say;
use adjutant_core::{ClientName, Principal};
use adjutant_home::config::Home;
use adjutant_ops::ops::{Caller, Ops, SayCall};
use adjutant_store::store::Store;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const STREAM: &str = "[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n";
/// Number of calls that race for one version of an entry.
const RACERS: usize = 64;
/// Timeout for the delivery of a note.
const NOTE_MAX: Duration = Duration::from_secs(10);

/// Measures the time from posting a note until a live run has read it from its standard input.
pub async fn stream(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, STREAM, |lab| async move {
        let client = lab.client();
        let journal = lab.dir.path().join("journal");
        let count = bench.scale.posts;
        let script: String = (0..count)
            .map(|number| format!("expect-message\njournal {} {number}\n", journal.display()))
            .collect();
        let run = lab
            .dispatch(&client, "stream", &format!("say here\n{script}"))
            .await?;
        super::size::wait_for_log(&lab, &run.place.log_path).await?;
        let mut times = Samples::default();
        for number in 0..count {
            let start = Instant::now();
            let start_ns = monotonic_ns();
            let note = Say {
                to: vec![run.identity.run_id.clone()],
                message: Some(format!("note {number}")),
                ..Say::default()
            };
            client.call(&note).await?;
            let line = loop {
                let text = std::fs::read_to_string(&journal).unwrap_or_default();
                if let Some(line) = text.lines().nth(number) {
                    break line.to_owned();
                }
                if start.elapsed() > NOTE_MAX {
                    return Err(format!("note {number} was not delivered in {NOTE_MAX:?}").into());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            };
            let at_ns: u64 = line
                .split(' ')
                .nth(3)
                .ok_or("a line without a time")?
                .parse()?;
            times.push_ns(at_ns.saturating_sub(start_ns));
        }
        let floor = bench.fdatasync_ms();
        Ok(vec![Row::latency(
            "a note from its post until the live run has read it",
            &times,
            Some(floor),
            floor + 3.0,
        )])
    })
    .await
}

/// Lets calls race for one version of an entry of a board.
pub async fn races(bench: &Bench) -> Result<Vec<Row>> {
    let dir = tempfile::Builder::new().prefix("adj-bench-").tempdir_in(
        if Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        },
    )?;
    let home = Home::at(&dir.path().join("home"))?;
    home.ensure()?;
    let ops = Arc::new(Ops::new(Store::open(&home)?, home, u64::MAX, None));
    let who = Principal::Client(ClientName::parse("bench")?);
    let rounds = bench.scale.slot_races;
    let mut wrong = 0;
    for round in 0..rounds {
        let mut calls = JoinSet::new();
        for racer in 0..RACERS {
            let (ops, caller) = (
                ops.clone(),
                Caller {
                    who: who.clone(),
                    key: None,
                },
            );
            let say = Say {
                to: vec!["board".to_owned()],
                key: Some("plan".to_owned()),
                message: Some(format!("{{\"round\":{round},\"by\":{racer}}}")),
                expect: Some(u32::try_from(round)?),
                ..Say::default()
            };
            calls.spawn(async move {
                SayCall::of(&ops)
                    .say(caller, say)
                    .await
                    .map(|said| said.message.revision + 1)
            });
        }
        let mut won = Vec::new();
        while let Some(said) = calls.join_next().await {
            won.extend(said?.ok());
        }
        wrong += usize::from(won != [u32::try_from(round + 1)?]);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let row = Row::number(
        &format!(
            "{RACERS} changes of one board entry, rounds without exactly one winner of {rounds}"
        ),
        wrong as f64,
        "",
        0.0,
        true,
    );
    Ok(vec![row])
}
