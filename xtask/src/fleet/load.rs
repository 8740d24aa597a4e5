//! The load: runs that ask, and posts to a chat, each call through a random hub.

use crate::lab::{Lab, Result};
use crate::random::Random;
use adjutant::view::{AnswerOne, AnswerRequests, Call, Dispatch, ErrorView, GetRun, Resume, RunView, Say, StartChat, codes};
use adjutant_core::RunStateKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a hub may take to reply before the next one is called.
const REPLY_LIMIT: Duration = Duration::from_secs(10);
/// How long a call may take, whatever is killed.
const CALL_LIMIT: Duration = Duration::from_secs(90);
/// How long a run may take.
const RUN_LIMIT: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// All acknowledged writes.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The run and the dispatch of each key.
    pub runs: BTreeMap<String, (String, Dispatch)>,
    /// The accepted answer of each request.
    pub answers: BTreeMap<String, String>,
    pub posts: Vec<String>,
    pub problems: Vec<String>,
    /// Counts acknowledged writes.
    pub progress: u64,
}

impl Ledger {
    /// Returns what was acknowledged, as text.
    pub fn counts(&self) -> String {
        format!("{} runs, {} answers, {} posts", self.runs.len(), self.answers.len(), self.posts.len())
    }

    fn record_post<T>(&mut self, text: String, posted: std::result::Result<T, ErrorView>) {
        match posted {
            Ok(_) => {
                self.posts.push(text);
                self.progress += 1;
            }
            Err(error) => self.problems.push(format!("{text}: {}: {error}", error.code)),
        }
    }
}

pub type Shared = Arc<Mutex<Ledger>>;

pub fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a call with its key, through one hub after another until one has answered it.
pub async fn call<C: Call>(hubs: &[Arc<Lab>], random: &mut Random, call: &C, key: &str) -> std::result::Result<C::Reply, ErrorView> {
    let began = Instant::now();
    let mut n = usize::try_from(random.below(hubs.len() as u64)).unwrap_or(0);
    loop {
        let client = hubs[n].client();
        let error = match tokio::time::timeout(REPLY_LIMIT, client.call_with_key(call, key)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error,
            Err(_) => ErrorView { code: codes::UNREACHABLE.to_owned(), message: "no reply".to_owned(), hint: None },
        };
        let can_pass = [codes::UNREACHABLE, codes::CLOSING, codes::STORAGE].contains(&error.code.as_str());
        if !can_pass || began.elapsed() > CALL_LIMIT {
            return Err(error);
        }
        n = (n + 1) % hubs.len();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub async fn start_chat(hubs: &[Arc<Lab>]) -> Result<()> {
    call(hubs, &mut Random::new(0), &StartChat { title: "fleet".to_owned(), ..StartChat::default() }, "chat").await?;
    Ok(())
}

/// Posts until it is stopped.
pub async fn posts(hubs: Arc<Vec<Arc<Lab>>>, ledger: Shared, mut random: Random, stopped: watch::Receiver<bool>) {
    for number in 0.. {
        if *stopped.borrow() {
            return;
        }
        let text = format!("post {number}");
        let say = Say { chat_id: Some(1), message: Some(text.clone()), ..Say::default() };
        let posted = call(&hubs, &mut random, &say, &text).await;
        lock(&ledger).record_post(text, posted);
        tokio::time::sleep(LOOK_EVERY / 4).await;
    }
}

/// Drives one run after another until it is stopped.
pub async fn runs(hubs: Arc<Vec<Arc<Lab>>>, ledger: Shared, journal: PathBuf, lane: usize, mut random: Random, stopped: watch::Receiver<bool>) {
    for number in 0.. {
        if *stopped.borrow() {
            return;
        }
        let key = format!("lane-{lane}-{number}");
        if let Err(problem) = one_run(&hubs, &ledger, &journal, &key, &mut random).await {
            lock(&ledger).problems.push(format!("{key}: {problem}"));
            return;
        }
    }
}

fn is_over(error: &ErrorView) -> bool {
    [codes::CONFLICT, codes::RUN_FINISHED].contains(&error.code.as_str())
}

async fn one_run(hubs: &[Arc<Lab>], ledger: &Shared, journal: &Path, key: &str, random: &mut Random) -> std::result::Result<(), String> {
    let described = |error: ErrorView| format!("{}: {error}", error.code);
    let script = format!("journal {} begin\nask \"first of {key}?\"\nask \"second of {key}?\"\ndone {key}\n", journal.display());
    let order = Dispatch { agent: "echo".to_owned(), prompt: script, cwd: hubs[0].dir.path().display().to_string(), ..Dispatch::default() };
    let run = call(hubs, random, &order, key).await.map_err(described)?.run_id;
    {
        let mut ledger = lock(ledger);
        ledger.runs.insert(key.to_owned(), (run.clone(), order));
        ledger.progress += 1;
    }
    let began = Instant::now();
    loop {
        let view: RunView = call(hubs, random, &GetRun { run: run.clone(), ..GetRun::default() }, "look").await.map_err(described)?;
        if view.state == RunStateKind::Finished {
            return Ok(());
        }
        if began.elapsed() > RUN_LIMIT {
            return Err(format!("{run} is still {} ({:?}) after {RUN_LIMIT:?}", view.state, view.reason));
        }
        for request in &view.pending {
            let answer = format!("re: {}", request.question);
            let one = AnswerOne { message_id: Some(request.message_id.clone()), answer: answer.clone(), ..AnswerOne::default() };
            let answered = call(hubs, random, &AnswerRequests { answers: vec![one] }, &format!("answer-{}", request.message_id)).await;
            match answered {
                Ok(_) => {
                    let mut ledger = lock(ledger);
                    ledger.answers.insert(request.message_id.clone(), answer);
                    ledger.progress += 1;
                }
                // The question was closed with its attempt.
                Err(error) if is_over(&error) => {}
                Err(error) => return Err(described(error)),
            }
        }
        if view.state == RunStateKind::Stopped && view.pending.is_empty() {
            // Its runner was cut off, or a process of it was killed.
            let resume = Resume { run: run.clone(), ..Resume::default() };
            match call(hubs, random, &resume, &format!("resume-{run}-{}", view.attempt)).await {
                Ok(_) => lock(ledger).progress += 1,
                Err(error) if is_over(&error) => {}
                Err(error) => return Err(described(error)),
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
