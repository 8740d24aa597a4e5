//! Fifty workers and their parents at once.

use super::{Bench, in_lab};
use crate::agent::{Pair, Task};
use crate::lab::{Lab, Result, monotonic_ns};
use crate::mcp::Mcp;
use crate::stats::Row;
use serde_json::json;
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
        let (mut parents, mut outs) = (Vec::new(), Vec::new());
        for number in 0..PAIRS {
            let out = lab.dir.path().join(format!("pair-{number}"));
            let task = Task::AskUntil { adj: bench.adj.clone(), out: out.clone(), stop: stop.clone() };
            outs.push(out);
            let (lab, prompt) = (lab.clone(), task.prompt()?);
            parents.push(std::thread::spawn(move || parent(&lab, number, &prompt)));
        }
        // Every pair is under way before anything is counted.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (start, from) = (Instant::now(), monotonic_ns());
        tokio::time::sleep(Duration::from_secs(bench.scale.load_s)).await;
        let (seconds, to) = (start.elapsed().as_secs_f64(), monotonic_ns());
        std::fs::write(&stop, "")?;
        let mut tally = Tally::default();
        let answered = tokio::task::spawn_blocking(move || {
            parents.into_iter().map(|parent| parent.join().map_err(|_| "a parent panicked")?).collect::<Result<Vec<u64>>>()
        });
        let answered = answered.await??;
        for (out, answered) in outs.iter().zip(answered) {
            let pair: Pair = serde_json::from_str(&std::fs::read_to_string(out)?)?;
            tally.counts.push(pair.at_ns.iter().filter(|at| (from..to).contains(*at)).count());
            tally.wrong += pair.wrong + pair.asked.abs_diff(answered);
            tally.asked += pair.asked;
        }
        Ok(tally.rows("through 100 adj mcp processes", seconds, 1_500.0))
    })
    .await
}

/// Starts a run through MCP and answers whatever it asks, until it ends. Returns the number of
/// answers.
fn parent(lab: &Lab, number: usize, prompt: &str) -> Result<u64> {
    let mut server = Mcp::parent(lab, &format!("bench-{number}"))?;
    let started = server.call("run_subagent", json!({"agent": "bench", "prompt": prompt, "cwd": lab.dir.path()}))?;
    let run_id = started["run_id"].clone();
    let mut answered = 0;
    loop {
        let found = server.call("wait_for_subagents", json!({"run_ids": [run_id], "wait_s": 30}))?;
        for request in found["needs"].as_array().into_iter().flatten() {
            let answer = format!("re: {}", request["question"].as_str().unwrap_or_default());
            server.call("reply_subagent", json!({"message_id": request["message_id"], "answer": answer}))?;
            answered += 1;
        }
        if found["ended"].as_array().is_some_and(|ended| !ended.is_empty()) {
            return Ok(answered);
        }
    }
}

/// What came of all pairs.
#[derive(Debug, Default)]
struct Tally {
    /// Round trips of each pair within the time that counts.
    counts: Vec<usize>,
    asked: u64,
    /// Answers to something else, questions without an answer, answers without a question.
    wrong: u64,
}

impl Tally {
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    fn rows(&self, how: &str, seconds: f64, target: f64) -> Vec<Row> {
        let total: usize = self.counts.iter().sum();
        let mut sorted = self.counts.clone();
        sorted.sort_unstable();
        let fairness = sorted[0] as f64 / sorted[sorted.len() / 2].max(1) as f64;
        vec![
            Row::number(&format!("ask, answer, retrieve by {} pairs {how}", self.counts.len()), total as f64 / seconds, "/s", target, false),
            Row::number("  slowest pair as a part of the median", fairness, "", 0.8, false),
            Row::number(&format!("  lost or doubled of {}", self.asked), self.wrong as f64, "", 0.0, true),
        ]
    }
}
