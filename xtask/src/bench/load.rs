//! Fifty workers and their parents at once.

use super::{Bench, in_lab};
use crate::agent::{Pair, Task};
use crate::bench::chat::read_when_there;
use crate::lab::{Lab, Result};
use crate::mcp::Mcp;
use crate::stats::{Row, Samples};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PAIRS: usize = 50;

/// From one load process at the hub's API.
pub async fn pairs(_bench: &Bench) -> Result<Vec<Row>> {
    Err("not there yet".into())
}

/// Through 50 parents' and 50 workers' `adj mcp` processes.
pub async fn processes(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "live_runs_max = 100", |lab| async move {
        let stop = lab.dir.path().join("stop");
        let over = Arc::new(AtomicBool::new(false));
        let mut parents = Vec::new();
        let mut outs = Vec::new();
        for number in 0..PAIRS {
            let out = lab.dir.path().join(format!("pair-{number}"));
            let task = Task::AskUntil { adj: bench.adj.clone(), out: out.clone(), stop: stop.clone() };
            outs.push(out);
            let (lab, over, prompt) = (lab.clone(), over.clone(), task.prompt()?);
            parents.push(std::thread::spawn(move || parent(&lab, number, &prompt, &over)));
        }
        // Every pair is under way before anything is counted.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let from = crate::lab::monotonic_ns();
        let start = Instant::now();
        tokio::time::sleep(Duration::from_secs(bench.scale.load_s)).await;
        let to = crate::lab::monotonic_ns();
        let seconds = start.elapsed().as_secs_f64();
        std::fs::write(&stop, "")?;
        let client = lab.client();
        let mut counts = Vec::new();
        let (mut wrong, mut answered) = (0, 0);
        for (out, parent) in outs.iter().zip(parents) {
            let run: adjutant::view::RunView = Default::default();
            let pair: Pair = read_pair(&lab, &client, &run, out).await?;
            over.store(out == &outs[outs.len() - 1], Ordering::Relaxed);
            counts.push(pair.at_ns.iter().filter(|at| (from..to).contains(*at)).count());
            wrong += pair.wrong;
            answered += pair.asked;
            drop(parent);
        }
        Ok(report("through 100 adj mcp processes", &counts, seconds, 1_500.0, wrong, answered))
    })
    .await
}

async fn read_pair(lab: &Lab, client: &adjutant::client::Client, run: &adjutant::view::RunView, out: &std::path::Path) -> Result<Pair> {
    read_when_there(lab, client, run, out, Duration::from_secs(30)).await
}

fn report(how: &str, counts: &[usize], seconds: f64, target: f64, wrong: u64, answered: u64) -> Vec<Row> {
    let total: usize = counts.iter().sum();
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (rate, fairness) = (total as f64 / seconds, sorted[0] as f64 / sorted[sorted.len() / 2].max(1) as f64);
    vec![
        Row::number(&format!("ask, answer, retrieve by 50 pairs {how}"), rate, "/s", target, false),
        Row::number(&format!("  slowest pair of the median, {how}"), fairness, "", 0.8, false),
        Row::number(&format!("  wrong or lost of {answered}, {how}"), wrong as f64, "", 0.0, true),
    ]
}

fn parent(_lab: &Lab, _number: usize, _prompt: &str, _over: &AtomicBool) -> Result<()> {
    Ok(())
}
