//! `cargo xtask campaign`: kills hub, supervisors and guards with SIGKILL at random moments under
//! load, then at every named failpoint, and checks by set algebra over what was acknowledged that
//! nothing is lost, doubled, started twice, left in a wrong state, or left running.

use crate::lab::{Lab, Result, lock_pid, replied};
use crate::random::Random;
use adjutant::client::Client;
use adjutant::failpoint;
use adjutant::view::{AnswerOne, AnswerRequests, Cancel, Dispatch, ListRequests, ListRuns, ReadRequest, RunView, codes};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CONFIG: &str = "live_runs_max = 16\n[agents.stubborn]\nharness = \"echo\"\ngrace = \"300ms\"\n";
/// Runs under way at once.
const LANES: u64 = 10;
/// A run that is not at its end by then hangs.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Everything that was acknowledged to this process, and what it did.
#[derive(Debug, Default)]
struct Ledger {
    /// Key to the run that it was acknowledged with.
    dispatched: BTreeMap<String, (String, Dispatch)>,
    /// Request to the answer that was accepted.
    answered: BTreeMap<String, String>,
    /// Runs that were told to end.
    cancelled: BTreeSet<String>,
    /// Runs that may have lost a process of theirs.
    supervisor_killed: BTreeSet<String>,
    guard_killed: BTreeSet<String>,
    problems: Vec<String>,
}

type Shared = Arc<Mutex<Ledger>>;

fn lock(ledger: &Shared) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the whole campaign.
pub async fn run(adj: &Path, kills: u64, seed: u64, failpoints: bool) -> Result<()> {
    println!("campaign: {kills} kills each of hub, supervisor and guard, seed {seed}");
    let start = Instant::now();
    let mut problems = Vec::new();
    // Half of them with each way to hold an attempt's processes together.
    for (containment, share) in [("auto", kills.div_ceil(2)), ("subreaper", kills / 2)] {
        let found = under_load(adj, containment, share, seed).await?;
        problems.extend(found.into_iter().map(|problem| format!("containment {containment}: {problem}")));
    }
    println!("random kills done in {:.0} s", start.elapsed().as_secs_f64());
    if failpoints {
        for name in failpoint::NAMES {
            let found = at_failpoint(adj, name).await.unwrap_or_else(|error| vec![error.to_string()]);
            println!("failpoint {name}: {}", if found.is_empty() { "ok".to_string() } else { found.join("; ") });
            problems.extend(found.into_iter().map(|problem| format!("{name}: {problem}")));
        }
    }
    if problems.is_empty() {
        println!(
            "nothing lost, nothing doubled, nothing started twice, every state right, nothing left running ({:.0} s)",
            start.elapsed().as_secs_f64()
        );
        return Ok(());
    }
    for problem in &problems {
        println!("PROBLEM: {problem}");
    }
    Err(format!("{} problems; repeat with --seed {seed}", problems.len()).into())
}

async fn under_load(adj: &Path, containment: &str, kills: u64, seed: u64) -> Result<Vec<String>> {
    let lab = Arc::new(Lab::new(adj, &format!("containment = \"{containment}\"\n{CONFIG}"))?);
    lab.start_hub()?;
    let ledger = Shared::default();
    let journal = lab.dir.path().join("journal");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut work = JoinSet::new();
    for lane in 0..LANES {
        let (lab, ledger, journal, stopped) = (lab.clone(), ledger.clone(), journal.clone(), stopped.clone());
        work.spawn(async move {
            let mut random = Random::new(seed.wrapping_add(1 + lane));
            let mut number = 0;
            while !*stopped.borrow() {
                let key = format!("lane-{lane}-{number}");
                number += 1;
                one_run(&lab, &ledger, &journal, &key, &mut random).await;
            }
        });
    }
    let answering = { (lab.clone(), ledger.clone(), stopped.clone()) };
    let mut answers = JoinSet::new();
    answers.spawn(async move { answer_all(&answering.0, &answering.1, &answering.2).await });

    let done = kill_at_random(&lab, &ledger, kills, seed, containment == "auto").await;
    stop.send(true)?;
    while let Some(joined) = work.join_next().await {
        joined?;
    }
    answers.abort_all();
    println!("containment {containment}: killed hub {}, supervisor {}, guard {}", done[0], done[1], done[2]);
    check(&lab, &ledger, &journal).await
}

/// Dispatches one run and waits for its end.
async fn one_run(lab: &Lab, ledger: &Shared, journal: &Path, key: &str, random: &mut Random) {
    let client = lab.client();
    let journal = journal.display();
    let hangs = random.below(4) == 0;
    let script = if hangs {
        format!("journal {journal}\nspawn setsid ignore-term\nspawn doublefork ignore-term\nspawn closedfds\nsay hanging\nhang")
    } else {
        format!(
            "journal {journal}\nspawn setsid\nask \"first of {key}?\"\nprogress 50 half\nspawn keep-stdout ignore-term\nask \"second of {key}?\"\ndone fine"
        )
    };
    let order = lab.order(if hangs { "stubborn" } else { "echo" }, format!("{script}\n"));
    let run = match lab.persist(&client, &order, key).await {
        Ok(run) => run.run_id,
        Err(error) => {
            lock(ledger).problems.push(format!("dispatch {key}: {}: {error}", error.code));
            return;
        }
    };
    lock(ledger).dispatched.insert(key.to_string(), (run.clone(), order));
    let start = Instant::now();
    let cancel_after = Duration::from_millis(200 + random.below(800));
    loop {
        match lab.persist(&client, &adjutant::view::GetRun { run: run.clone() }, key).await {
            Ok(view) if is_over(&view) => return,
            Ok(view) if start.elapsed() > RUN_LIMIT => {
                lock(ledger).problems.push(format!("{run} is still {} ({:?}) after {RUN_LIMIT:?}", view.state, view.reason));
                return;
            }
            Ok(_) => {}
            Err(error) => {
                lock(ledger).problems.push(format!("{run} cannot be read: {}: {error}", error.code));
                return;
            }
        }
        if hangs && start.elapsed() > cancel_after && !lock(ledger).cancelled.contains(&run) {
            let cancelled = lab.persist(&client, &Cancel { run: run.clone(), reason: None }, &format!("{key}-cancel")).await;
            match cancelled {
                Ok(_) => {
                    lock(ledger).cancelled.insert(run.clone());
                }
                Err(error) if error.code == codes::RUN_FINISHED || error.code == codes::CONFLICT => {}
                Err(error) => lock(ledger).problems.push(format!("cancel {run}: {}: {error}", error.code)),
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_over(view: &RunView) -> bool {
    view.state == "finished" || view.state == "stopped"
}

/// Answers every question that is open, in two ways at once: exactly one may win.
async fn answer_all(lab: &Lab, ledger: &Shared, stopped: &tokio::sync::watch::Receiver<bool>) {
    let client = lab.client();
    let mut number = 0_u64;
    loop {
        let listed = lab.persist(&client, &ListRequests::default(), "").await.map(|list| list.requests).unwrap_or_default();
        for request in listed {
            let mut tries = JoinSet::new();
            for rival in 0..2 {
                number += 1;
                let answer = format!("re: {} by {rival}", request.question);
                let one = AnswerOne { message_id: Some(request.message_id.clone()), answer: answer.clone(), ..AnswerOne::default() };
                let (client, key) = (client.clone(), format!("answer-{number}"));
                let call = AnswerRequests { answers: vec![one] };
                tries.spawn(async move { (answer, persist_plain(&client, &call, &key).await) });
            }
            let mut accepted = Vec::new();
            while let Some(Ok((answer, result))) = tries.join_next().await {
                match result {
                    Ok(_) => accepted.push(answer),
                    Err(error)
                        if [codes::UNREACHABLE, codes::ALREADY_ANSWERED, codes::WITHDRAWN, codes::RUN_FINISHED].contains(&error.code.as_str()) => {}
                    Err(error) => lock(ledger).problems.push(format!("answer {}: {}: {error}", request.message_id, error.code)),
                }
            }
            let mut ledger = lock(ledger);
            if accepted.len() > 1 {
                ledger.problems.push(format!("{}: two answers were accepted: {accepted:?}", request.message_id));
            }
            if let Some(answer) = accepted.pop()
                && let Some(before) = ledger.answered.insert(request.message_id.clone(), answer)
            {
                ledger.problems.push(format!("{}: answered again, before that {before:?}", request.message_id));
            }
        }
        if *stopped.borrow() {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Repeats a call under its key while the hub is away; somebody else starts it.
async fn persist_plain<C: adjutant::view::Call>(client: &Client, call: &C, key: &str) -> std::result::Result<C::Reply, adjutant::view::ErrorView> {
    let start = Instant::now();
    loop {
        match replied(client, call, key).await {
            Err(error) if error.code == codes::UNREACHABLE && start.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

/// Kills until each kind had its number. Returns how many there were. Unless `both`, a run loses
/// its guard or its supervisor: without a namespace, nothing can find a process that has scrubbed
/// its environment once both are gone.
async fn kill_at_random(lab: &Lab, ledger: &Shared, kills: u64, seed: u64, both: bool) -> [u64; 3] {
    let mut random = Random::new(seed);
    let mut done = [0; 3];
    let start = Instant::now();
    let limit = Duration::from_secs(120 + kills * 3);
    while done.iter().any(|count| *count < kills) && start.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5 + random.below(120))).await;
        let kind = usize::try_from(random.below(3)).unwrap_or(0);
        if done[kind] >= kills {
            continue;
        }
        let victim = if kind == 0 { lock_pid(&lab.home.hub_lock()).ok().map(|pid| (pid, None)) } else { attempt_process(lab, kind, &mut random) };
        let Some((pid, run)) = victim else { continue };
        if !both && let Some(run) = &run {
            let ledger = lock(ledger);
            if (if kind == 1 { &ledger.guard_killed } else { &ledger.supervisor_killed }).contains(run) {
                continue;
            }
        }
        // Noted before it is done: who looks at the run afterwards has to know.
        if let Some(run) = run {
            let mut ledger = lock(ledger);
            if kind == 1 {
                ledger.supervisor_killed.insert(run)
            } else {
                ledger.guard_killed.insert(run)
            };
        }
        if is_ours(lab, pid) && kill(pid) {
            done[kind] += 1;
        }
    }
    if done.iter().any(|count| *count < kills) {
        lock(ledger).problems.push(format!("only {done:?} of {kills} kills each within {limit:?}"));
    }
    done
}

/// A supervisor (1) or a guard (2) of some attempt that is under way.
fn attempt_process(lab: &Lab, kind: usize, random: &mut Random) -> Option<(u32, Option<String>)> {
    let mut found = Vec::new();
    for run in std::fs::read_dir(lab.home.runs_dir()).ok()?.flatten() {
        let Ok(attempts) = std::fs::read_dir(run.path()) else { continue };
        for attempt in attempts.flatten() {
            let dir = adjutant::link::AttemptDir(attempt.path());
            let file: PathBuf = if kind == 1 { dir.supervisor_lock() } else { dir.guard_lock() };
            if let Ok(pid) = lock_pid(&file)
                && is_ours(lab, pid)
            {
                found.push((pid, run.file_name().to_string_lossy().into_owned()));
            }
        }
    }
    let at = usize::try_from(random.below(found.len().max(1) as u64)).unwrap_or(0);
    found.into_iter().nth(at).map(|(pid, run)| (pid, Some(run)))
}

/// Whether the pid is (still) a process of this home: a lock file outlives its holder.
fn is_ours(lab: &Lab, pid: u32) -> bool {
    let mark = lab.home.dir.display().to_string();
    let has = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&mark));
    has("cmdline") || has("environ")
}

fn kill(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok())
}

/// Compares what was acknowledged with what is there.
async fn check(lab: &Lab, ledger: &Shared, journal: &Path) -> Result<Vec<String>> {
    lab.start_hub()?;
    let client = lab.client();
    let runs = client.call(&ListRuns { all: true, limit: Some(1_000_000) }).await?;
    let (dispatched, answered) = {
        let ledger = lock(ledger);
        (ledger.dispatched.clone(), ledger.answered.clone())
    };
    let mut problems = Vec::new();

    let listed = runs.runs.len() as u64 + runs.more;
    let mut stored: BTreeMap<String, RunView> = runs.runs.into_iter().map(|run| (run.run_id.clone(), run)).collect();
    // A list has a limit; what it left out is looked up.
    for (run, _) in dispatched.values() {
        if !stored.contains_key(run)
            && let Ok(view) = client.call(&adjutant::view::GetRun { run: run.clone() }).await
        {
            stored.insert(run.clone(), view);
        }
    }
    let acknowledged: BTreeSet<&String> = dispatched.values().map(|(run, _)| run).collect();
    if acknowledged.len() != dispatched.len() {
        problems.push("two keys were given one run".to_string());
    }
    if listed != dispatched.len() as u64 {
        problems.push(format!("{listed} runs are stored, {} were acknowledged", dispatched.len()));
    }
    for (key, (run, order)) in &dispatched {
        match stored.get(run) {
            None => problems.push(format!("{run} was acknowledged and is lost")),
            Some(view) => problems.extend(wrong_state(view, &lock(ledger))),
        }
        let again = client.call_with_key(order, key).await;
        if again.as_ref().map(|view| &view.run_id) != Ok(run) {
            problems.push(format!("{key} repeated gave {:?} and not {run}", again.map(|view| view.run_id)));
        }
    }
    println!("  {}", tally(&stored, answered.len()));
    for view in stored.values().filter(|view| view.outcome.as_deref() == Some("succeeded")) {
        problems.extend(unheard(&client, view, &answered).await?);
    }
    for (id, answer) in &answered {
        match client.call(&ReadRequest { message_id: id.clone(), wait_ms: 0 }).await {
            Ok(request) if request.answer.as_ref() == Some(answer) => {}
            Ok(request) => problems.push(format!("{id} was answered {answer:?} and has {:?} ({})", request.answer, request.status)),
            Err(error) => problems.push(format!("{id} was answered and is {}: {error}", error.code)),
        }
    }
    let mut started = BTreeSet::new();
    for line in std::fs::read_to_string(journal).unwrap_or_default().lines() {
        let attempt: Vec<&str> = line.split(' ').take(2).collect();
        if !started.insert(attempt.join(" ")) {
            problems.push(format!("attempt {attempt:?} was started twice"));
        }
    }
    let mut left = lab.close().await?;
    left.extend(strays(&stored));
    if !left.is_empty() {
        problems.push(format!("still there a second after the end: {left:?}"));
    }
    let mut all = std::mem::take(&mut lock(ledger).problems);
    all.extend(problems);
    Ok(all)
}

/// Processes whose arguments name a run of ours, wherever they went.
fn strays(runs: &BTreeMap<String, RunView>) -> Vec<String> {
    let line = |pid| std::fs::read(format!("/proc/{pid}/cmdline")).map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    let all = crate::lab::pids().into_iter().filter_map(|pid| Some((pid, line(pid).ok()?)));
    all.filter(|(_, line)| line.split(' ').any(|word| runs.contains_key(word))).map(|(pid, line)| format!("{pid}: {line}")).collect()
}

/// Counts how runs ended.
fn tally(runs: &BTreeMap<String, RunView>, answers: usize) -> String {
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for view in runs.values() {
        *ends.entry(view.outcome.as_deref().unwrap_or(&view.state)).or_default() += 1;
    }
    let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
    format!("{} runs ({}), {answers} answers accepted", runs.len(), ends.join(", "))
}

/// Answers that were accepted and never reached the worker, or reached it otherwise. Only a run
/// that has succeeded has heard them all.
async fn unheard(client: &Client, view: &RunView, answered: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let requests = client.call(&ListRequests { run: Some(view.run_id.clone()), all: true, limit: None }).await?.requests;
    let log = std::fs::read_to_string(&view.log_path)?;
    let heard: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("answer: ")).collect();
    let mut problems = Vec::new();
    if requests.len() != 2 || heard.len() != 2 {
        problems.push(format!("{} asked twice; {} questions are stored, {} answers were heard", view.run_id, requests.len(), heard.len()));
    }
    for request in requests {
        // An answer whose acknowledgement was lost with its sender is known from the store only.
        let accepted = answered.get(&request.message_id).or(request.answer.as_ref());
        if !accepted.is_some_and(|answer| heard.contains(&answer.as_str())) || request.status != "retrieved" {
            problems.push(format!("{} was answered {accepted:?} ({}), and the worker heard {heard:?}", request.message_id, request.status));
        }
    }
    Ok(problems)
}

/// What is wrong with the state in which a run ended, given what was done to it.
fn wrong_state(view: &RunView, ledger: &Ledger) -> Option<String> {
    let hit = ledger.supervisor_killed.contains(&view.run_id);
    let cancelled = ledger.cancelled.contains(&view.run_id);
    let right = match (view.state.as_str(), view.outcome.as_deref()) {
        ("finished", Some("succeeded")) => !cancelled,
        ("finished", Some("cancelled")) => cancelled,
        ("stopped", None) | ("finished", Some("lost")) => hit,
        // Killed before it could start, as often as is tried.
        ("finished", Some("spawn_failed")) => hit || ledger.guard_killed.contains(&view.run_id),
        _ => false,
    };
    (!right).then(|| {
        let guard = ledger.guard_killed.contains(&view.run_id);
        format!(
            "{} {} is {} {:?} ({:?}); supervisor killed: {hit}, guard killed: {guard}, cancelled: {cancelled}",
            view.run_id, view.name, view.state, view.outcome, view.reason
        )
    })
}

/// Lets the first process that comes there die at a failpoint.
async fn at_failpoint(adj: &Path, name: &str) -> Result<Vec<String>> {
    let mut lab = Lab::new(adj, CONFIG)?;
    let reached = lab.dir.path().join("reached");
    lab.env = vec![(failpoint::VARIABLE.to_string(), format!("{name}={}", reached.display()))];
    let lab = Arc::new(lab);
    let ledger = Shared::default();
    let journal = lab.dir.path().join("journal");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut answers = JoinSet::new();
    let answering = (lab.clone(), ledger.clone(), stopped);
    answers.spawn(async move { answer_all(&answering.0, &answering.1, &answering.2).await });
    let mut work = JoinSet::new();
    for lane in 0..3 {
        let (lab, ledger, journal) = (lab.clone(), ledger.clone(), journal.clone());
        work.spawn(async move {
            let mut random = Random::new(lane);
            for number in 0..2 {
                one_run(&lab, &ledger, &journal, &format!("lane-{lane}-{number}"), &mut random).await;
            }
        });
    }
    while let Some(joined) = work.join_next().await {
        joined?;
    }
    stop.send(true)?;
    answers.abort_all();
    if name.starts_with("supervisor.") || name.starts_with("guard.") {
        // Whose process it was is not known: at most one run may have ended otherwise.
        let all: BTreeSet<String> = lock(&ledger).dispatched.values().map(|(run, _)| run.clone()).collect();
        let client = lab.client();
        let mut hit = Vec::new();
        for run in all {
            let view = lab.persist(&client, &adjutant::view::GetRun { run: run.clone() }, &run).await?;
            if wrong_state(&view, &lock(&ledger)).is_some() {
                hit.push(run);
            }
        }
        if let [one] = hit.as_slice() {
            lock(&ledger).supervisor_killed.insert(one.clone());
        }
    }
    let mut problems = check(&lab, &ledger, &journal).await?;
    if !reached.exists() {
        problems.push("was never reached".to_string());
    }
    Ok(problems)
}
