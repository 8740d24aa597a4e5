//! Load generators inside a run: `xtask agent`, started by a supervisor like any other agent, with
//! one line of JSON as its task. It writes its measurements to a file.

use crate::lab::{Result, monotonic_ns};
use crate::mcp::Mcp;
use crate::stats::Samples;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Task {
    /// Fills the run with questions, and measures asking at each of these counts.
    AskAt {
        levels: Vec<u64>,
        samples: u32,
        adj: PathBuf,
        out: PathBuf,
    },
    /// Asks repeatedly and waits for each answer.
    AskAndWait {
        count: u32,
        adj: PathBuf,
        out: PathBuf,
    },
    /// Prints questions in blocks, and records when each was written.
    PrintBlocks { count: u32, out: PathBuf },
    /// Asks and waits until the file `stop` exists.
    AskUntil {
        adj: PathBuf,
        out: PathBuf,
        stop: PathBuf,
    },
}

impl Task {
    /// Returns the prompt of a run with this task.
    pub fn prompt(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string(self)?))
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Level {
    pub questions: u64,
    pub times_ns: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Returned {
    pub message_id: String,
    /// When the blocked call returned, by the monotonic clock.
    pub at_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Printed {
    pub question: String,
    /// When its last byte was written.
    pub at_ns: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Pair {
    pub asked: u64,
    /// Number of answers to another question.
    pub wrong: u64,
    pub at_ns: Vec<u64>,
}

pub fn main() -> Result<()> {
    let mut prompt = String::new();
    std::io::stdin().read_to_string(&mut prompt)?;
    let line = prompt
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .ok_or("no task")?;
    match serde_json::from_str(line)? {
        Task::AskAt {
            levels,
            samples,
            adj,
            out,
        } => ask_at(&levels, samples, &adj, &out),
        Task::AskAndWait { count, adj, out } => {
            let mut server = worker(&adj)?;
            let mut returned = Vec::new();
            for number in 0..count {
                let reply = server.call(
                    "ask_parent",
                    json!({"question": format!("number {number}")}),
                )?;
                let at_ns = monotonic_ns();
                let message_id = reply["message_id"]
                    .as_str()
                    .ok_or("no message_id")?
                    .to_string();
                returned.push(Returned { message_id, at_ns });
            }
            write(&out, &returned)
        }
        Task::PrintBlocks { count, out } => {
            let access = std::env::var_os("ADJ_WORKER").ok_or("ADJ_WORKER is not set")?;
            let access: adjutant_api::protocol::WorkerAccess =
                serde_json::from_str(&std::fs::read_to_string(access)?)?;
            let mut printed = Vec::new();
            let mut stdout = std::io::stdout();
            for number in 0..count {
                let question = format!("number {number}?");
                let fields = format!(
                    "agent_id: {}\nquestions:\n  - text: {question}\n    type: optional\n",
                    access.run_id
                );
                let block = format!("[CLARIFICATION_NEEDED]\n{fields}[/CLARIFICATION_NEEDED]\n");
                stdout.write_all(block.as_bytes())?;
                stdout.flush()?;
                printed.push(Printed {
                    question,
                    at_ns: monotonic_ns(),
                });
                // By then, the parent has handled the block and waits again.
                std::thread::sleep(Duration::from_millis(40));
            }
            write(&out, &printed)
        }
        Task::AskUntil { adj, out, stop } => {
            let mut server = worker(&adj)?;
            let mut pair = Pair::default();
            while !stop.exists() {
                let question = format!("q{}", pair.asked);
                let reply = server.call("ask_parent", json!({"question": question}))?;
                pair.asked += 1;
                if reply["answer"] != format!("re: {question}") {
                    pair.wrong += 1;
                }
                pair.at_ns.push(monotonic_ns());
            }
            write(&out, &pair)
        }
    }
}

fn ask_at(
    levels: &[u64],
    samples: u32,
    adj: &std::path::Path,
    out: &std::path::Path,
) -> Result<()> {
    let mut server = worker(adj)?;
    let mut asked = 0;
    let mut ask = |asked: &mut u64| -> Result<Duration> {
        let start = Instant::now();
        server.call(
            "ask_parent",
            json!({"question": format!("number {asked}"), "blocking": false, "wait_s": 0}),
        )?;
        *asked += 1;
        Ok(start.elapsed())
    };
    let mut found = Vec::new();
    for level in levels {
        while asked < *level {
            ask(&mut asked)?;
        }
        let mut times = Samples::default();
        for _ in 0..samples {
            times.push(ask(&mut asked)?);
        }
        found.push(Level {
            questions: *level,
            times_ns: times.into_ns(),
        });
    }
    write(out, &found)
}

/// Starts the worker's MCP server, as its CLI would.
fn worker(adj: &std::path::Path) -> Result<Mcp> {
    let access = std::env::var_os("ADJ_WORKER").ok_or("ADJ_WORKER is not set")?;
    let mut command = Command::new(adj);
    command.arg("mcp").arg("--token-file").arg(access);
    Mcp::start(command)
}

/// Writes a file atomically.
fn write(out: &std::path::Path, what: &impl Serialize) -> Result<()> {
    let part = out.with_extension("part");
    let mut file = std::fs::File::create(&part)?;
    file.write_all(serde_json::to_string(what)?.as_bytes())?;
    std::fs::rename(part, out)?;
    Ok(())
}
