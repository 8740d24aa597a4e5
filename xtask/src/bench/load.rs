//! Fifty workers and their parents at once.

use super::{Bench, in_lab};
use crate::agent::{Pair, Task};
use crate::lab::{Lab, Result, monotonic_ns};
use crate::mcp::Mcp;
use crate::standin;
use crate::stats::Row;
use crate::wire::Wire;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const PAIRS: usize = 50;

/// Measures pairs that call the hub's API from one process, with a thread for each side of each
/// pair.
pub async fn pairs(bench: &Bench) -> Result<Vec<Row>> {
    let scale = bench.scale;
    let lab = bench.lab("live_runs_max = 100")?;
    let target = if bench.postgres.is_some() {
        1_500.0
    } else {
        5_000.0
    };
    tokio::task::spawn_blocking(move || pairs_at_the_hub(&lab, scale.load_s, target)).await?
}

fn pairs_at_the_hub(lab: &Lab, load_s: u64, target: f64) -> Result<Vec<Row>> {
    // This program starts the hub itself, so that test doubles replace the supervisors.
    let command = lab.command(&["__hub"]);
    let mut hub = std::process::Command::new(std::env::current_exe()?);
    crate::processes::Mark::of(&lab.home.dir).put_on(&mut hub);
    let hub = hub
        .args(command.get_args())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir("/")
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let _hub = Killed(hub);
    let start = Instant::now();
    while !lab.home.socket().exists() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let listener = UnixListener::bind(standin::socket(&lab.home.dir))?;
    let mut person = Wire::new(UnixStream::connect(lab.home.socket())?, None);
    let mut standins = Vec::new();
    for _ in 0..PAIRS {
        person.post::<IgnoredAny>("/api/v1/dispatch", &lab.order("echo", "hang".to_string()))?;
        standins.push(standin::take(&listener)?);
    }
    let begin = Arc::new(Barrier::new(PAIRS + 1));
    let over = Arc::new(AtomicBool::new(false));
    let mut pairs = Vec::new();
    let mut alive = Vec::new();
    for (given, connection, standin) in standins {
        alive.push(standin);
        let (ask, answers) = std::sync::mpsc::channel::<String>();
        let mut person = Wire::new(UnixStream::connect(lab.home.socket())?, None);
        let parent = std::thread::spawn(move || -> Result<u64> {
            let mut answered = 0;
            for message_id in answers {
                let one = json!({"message_id": message_id, "answer": format!("re: {message_id}")});
                person.post::<IgnoredAny>("/api/v1/answer", &json!({"answers": [one]}))?;
                answered += 1;
            }
            Ok(answered)
        });
        let (begin, over) = (begin.clone(), over.clone());
        let worker = std::thread::spawn(move || -> Result<Pair> {
            let mut wire = Wire::new(connection, Some(&given));
            let mut pair = Pair::default();
            begin.wait();
            while !over.load(Ordering::Relaxed) {
                let asked: Asked = wire.post(
                    "/api/v1/ask",
                    &json!({"question": format!("q{}", pair.asked)}),
                )?;
                ask.send(asked.message_id.clone())?;
                let read: Answered = wire.post(
                    "/api/v1/request",
                    &json!({"message_id": asked.message_id, "wait_ms": 30_000}),
                )?;
                pair.asked += 1;
                if read.answer.as_deref() != Some(&format!("re: {}", asked.message_id))
                    || read.status != "retrieved"
                {
                    pair.wrong += 1;
                }
                pair.at_ns.push(monotonic_ns());
            }
            Ok(pair)
        });
        pairs.push((worker, parent));
    }
    begin.wait();
    std::thread::sleep(Duration::from_millis(500));
    let (start, from) = (Instant::now(), monotonic_ns());
    std::thread::sleep(Duration::from_secs(load_s));
    let (seconds, to) = (start.elapsed().as_secs_f64(), monotonic_ns());
    over.store(true, Ordering::Relaxed);
    let mut tally = Tally::default();
    for (worker, parent) in pairs {
        let pair = worker.join().map_err(|_| "a worker panicked")??;
        let answered = parent.join().map_err(|_| "a parent panicked")??;
        tally.counts.push(
            pair.at_ns
                .iter()
                .filter(|at| (from..to).contains(*at))
                .count(),
        );
        tally.wrong += pair.wrong + pair.asked.abs_diff(answered);
        tally.asked += pair.asked;
    }
    Ok(tally.rows("on the hub's API from one load process", seconds, target))
}

/// The part of the reply to a question that a worker needs.
#[derive(Debug, Deserialize)]
struct Asked {
    message_id: String,
}

/// The part of an answer that a worker needs.
#[derive(Debug, Deserialize)]
struct Answered {
    answer: Option<String>,
    status: String,
}

/// A child process that is killed on drop.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("the hub: {error}");
        }
    }
}

/// Measures pairs that call through `adj mcp`, with processes for 50 parents and 50 workers.
pub async fn processes(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "live_runs_max = 100", |lab| async move {
        let stop = lab.dir.path().join("stop");
        let (mut parents, mut outs) = (Vec::new(), Vec::new());
        for number in 0..PAIRS {
            let out = lab.dir.path().join(format!("pair-{number}"));
            let task = Task::AskUntil {
                adj: bench.adj.clone(),
                out: out.clone(),
                stop: stop.clone(),
            };
            outs.push(out);
            let (lab, prompt) = (lab.clone(), task.prompt()?);
            parents.push(std::thread::spawn(move || parent(&lab, number, &prompt)));
        }
        // Start counting once every pair is running.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (start, from) = (Instant::now(), monotonic_ns());
        tokio::time::sleep(Duration::from_secs(bench.scale.load_s)).await;
        let (seconds, to) = (start.elapsed().as_secs_f64(), monotonic_ns());
        std::fs::write(&stop, "")?;
        let mut tally = Tally::default();
        let answered = tokio::task::spawn_blocking(move || {
            parents
                .into_iter()
                .map(|parent| parent.join().map_err(|_| "a parent panicked")?)
                .collect::<Result<Vec<u64>>>()
        });
        let answered = answered.await??;
        for (out, answered) in outs.iter().zip(answered) {
            let pair: Pair = serde_json::from_str(&std::fs::read_to_string(out)?)?;
            tally.counts.push(
                pair.at_ns
                    .iter()
                    .filter(|at| (from..to).contains(*at))
                    .count(),
            );
            tally.wrong += pair.wrong + pair.asked.abs_diff(answered);
            tally.asked += pair.asked;
        }
        Ok(tally.rows("through 100 adj mcp processes", seconds, 1_500.0))
    })
    .await
}

/// Starts a run through MCP and answers its questions until it ends. Returns the number of answers.
fn parent(lab: &Lab, number: usize, prompt: &str) -> Result<u64> {
    let mut server = Mcp::parent(lab, &format!("bench-{number}"))?;
    let started = server.call(
        "run_subagent",
        json!({"agent": "bench", "prompt": prompt, "cwd": lab.dir.path()}),
    )?;
    let run_id = started["run_id"].clone();
    let mut answered = 0;
    loop {
        let found = server.call(
            "wait_for_subagents",
            json!({"run_ids": [run_id], "wait_s": 30}),
        )?;
        for request in found["needs"].as_array().into_iter().flatten() {
            let answer = format!("re: {}", request["question"].as_str().unwrap_or_default());
            server.call(
                "reply_subagent",
                json!({"message_id": request["message_id"], "answer": answer}),
            )?;
            answered += 1;
        }
        if found["ended"]
            .as_array()
            .is_some_and(|ended| !ended.is_empty())
        {
            return Ok(answered);
        }
    }
}

/// The results of all pairs.
#[derive(Debug, Default)]
struct Tally {
    /// Round trips of each pair within the measured time.
    counts: Vec<usize>,
    asked: u64,
    /// Number of wrong answers, unanswered questions and unexpected answers.
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
            Row::number(
                &format!("ask, answer, retrieve by {} pairs {how}", self.counts.len()),
                total as f64 / seconds,
                "/s",
                target,
                false,
            ),
            Row::number(
                "  slowest pair as a part of the median",
                fairness,
                "",
                0.8,
                false,
            ),
            Row::number(
                &format!("  lost or doubled of {}", self.asked),
                self.wrong as f64,
                "",
                0.0,
                true,
            ),
        ]
    }
}
