//! Budgets over real processes: the gates of a tree's runs race for its budget, and no request may begin after one of them
//! has refused a request because nothing is left.

use super::gate::{Connection, KEY, answer};
use super::{Bench, in_lab};
use crate::lab::{Lab, Result};
use crate::stats::Row;
use adjutant::client::Client;
use adjutant::view::{AnswerOne, AnswerRequests, Cancel, DecisionWord, Dispatch, GetRun, RunView};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs below the one with the budget, each with a gate.
const CHILDREN: usize = 2;
/// Clients of each gate.
const CLIENTS: usize = 2;
/// Trees that race at the same time.
const TREES: usize = 4;
/// The budget of a tree, and what an answer of the API uses, in tokens.
const BUDGET: u64 = 150;
const ANSWER_TOKENS: u64 = 11;
const PATIENCE: Duration = Duration::from_secs(60);

/// The agent says where its model is. One that leads delegates first.
const AGENT: &str = r#"#!/bin/sh
prompt=$(cat)
echo "$MODEL_URL $MODEL_KEY"
case "$prompt" in *lead-the-race*)
  id=$(printf '%s' "$prompt" | grep -oE '[0-9a-f]{8}-[0-9a-f-]{27}' | head -n 1)
  for n in CHILDREN; do
    printf '[DELEGATE_WORK]\nagent_id: %s\nnew_task_description: race %s\nindependence: can_proceed_parallel\n[/DELEGATE_WORK]\n' "$id" "$n"
  done
esac
exec sleep 1000
"#;

/// What the clients of one tree know together.
#[derive(Debug, Default)]
struct Race {
    /// A gate has refused a request.
    is_refused: AtomicBool,
    /// The answers that have come have used it all, recorded or not.
    used: AtomicU64,
    begun: AtomicU64,
    late: AtomicU64,
    unrecorded: AtomicU64,
}

/// Races of trees of gated runs for their budget.
pub async fn races(bench: &Bench) -> Result<Vec<Row>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let api = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    let files = tempfile::tempdir()?;
    let write = |name: &str, text: &str, mode: u32| -> Result<String> {
        let path = files.path().join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        Ok(path.display().to_string())
    };
    let children: Vec<String> = (0..CHILDREN).map(|n| n.to_string()).collect();
    let (agent, key) = (write("agent", &AGENT.replace("CHILDREN", &children.join(" ")), 0o755)?, write("key", KEY, 0o600)?);
    let config = format!(
        "live_runs_max = 64\n[presets.own]\ndriver = \"plain\"\ncommand = [{agent:?}]\n[presets.own.gate]\nbase_url = \"http://{api}\"\n\
         env = {{ MODEL_URL = \"{{gate_url}}\", MODEL_KEY = \"{{gate_token}}\" }}\n\
         [agents.gated]\nharness = \"own\"\npermissions = \"full\"\ngate = true\nkey = {{ file = {key:?} }}\n"
    );
    let rounds = bench.scale.budget_races;
    in_lab(bench, &config, |lab| async move {
        let race = Arc::new((AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)));
        let mut lanes = JoinSet::new();
        for lane in 0..TREES.min(rounds) {
            let (lab, all) = (Arc::clone(&lab), Arc::clone(&race));
            let count = rounds / TREES + usize::from(lane < rounds % TREES);
            lanes.spawn(async move {
                for _ in 0..count {
                    let one = one_race(&lab).await.map_err(|error| error.to_string())?;
                    all.0.fetch_add(one.begun.load(Ordering::SeqCst), Ordering::SeqCst);
                    all.1.fetch_add(one.late.load(Ordering::SeqCst), Ordering::SeqCst);
                    all.2.fetch_add(one.unrecorded.load(Ordering::SeqCst), Ordering::SeqCst);
                    all.3.fetch_max(one.used.load(Ordering::SeqCst).saturating_sub(BUDGET), Ordering::SeqCst);
                }
                Ok::<_, String>(())
            });
        }
        while let Some(ended) = lanes.join_next().await {
            ended??;
        }
        let [begun, late, unrecorded, over] = [&race.0, &race.1, &race.2, &race.3].map(|count| count.load(Ordering::SeqCst));
        let gates = CHILDREN + 1;
        #[expect(clippy::cast_precision_loss, reason = "few races")]
        Ok(vec![
            Row::number(&format!("requests begun after a refusal: {rounds} races of {gates} gates for a budget"), late as f64, "", 0.0, true),
            Row::plain("  requests in all; most tokens beyond a budget of 150", begun.to_string(), over.to_string()),
            Row::plain("  begun before the hub had recorded the answer that used it up", unrecorded.to_string(), "–".to_owned()),
        ])
    })
    .await
}

async fn one_race(lab: &Lab) -> Result<Race> {
    let client = lab.client();
    let order = Dispatch { budget: Some(format!("tokens={BUDGET}")), ..lab.order("gated", "lead-the-race\n".to_owned()) };
    let top = client.call(&order).await?;
    let asked = until(&client, &top.run_id, |view| view.pending.len() == CHILDREN).await?;
    for request in asked.pending {
        let one = AnswerOne { message_id: Some(request.message_id), decision: Some(DecisionWord::Approve), ..AnswerOne::default() };
        client.call(&AnswerRequests { answers: vec![one] }).await?;
    }
    let mut runs = until(&client, &top.run_id, |view| view.children.len() == CHILDREN).await?.children;
    runs.push(top.run_id.clone());
    let mut gates = Vec::new();
    for run in runs {
        let view = until(&client, &run, |view| access(&view.log_path).is_some()).await?;
        gates.extend(access(&view.log_path));
    }
    let race = Arc::new(Race::default());
    let mut clients = JoinSet::new();
    for (host, token) in gates {
        for _ in 0..CLIENTS {
            let (race, host, token) = (Arc::clone(&race), host.clone(), token.clone());
            clients.spawn_blocking(move || ask_until_refused(&race, &host, &token).map_err(|error| error.to_string()));
        }
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    until(&client, &top.run_id, |view| view.budgets.iter().any(|budget| budget.left == 0)).await?;
    client.call(&Cancel { run: top.run_id.clone(), reason: None }).await?;
    lab.finished(&client, &top.run_id, PATIENCE).await?;
    Ok(Arc::into_inner(race).ok_or("a client still runs")?)
}

async fn until(client: &Client, run: &str, holds: impl Fn(&RunView) -> bool) -> Result<RunView> {
    let start = Instant::now();
    loop {
        let view = client.call(&GetRun { run: run.to_owned(), ..GetRun::default() }).await?;
        if holds(&view) {
            return Ok(view);
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{} is {} after {PATIENCE:?}: {:?}", view.name, view.state, view.reason).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads where a run's gate is, and its token, once the agent has said so.
fn access(log: &str) -> Option<(String, String)> {
    let log = std::fs::read_to_string(log).ok()?;
    let (lines, _) = log.rsplit_once('\n')?;
    let (url, token) = lines.lines().find(|line| line.starts_with("http://"))?.split_once(' ')?;
    Some((url.trim_start_matches("http://").to_owned(), token.to_owned()))
}

/// Sends requests through a gate until one is refused, or the gate is closed.
fn ask_until_refused(race: &Race, host: &str, token: &str) -> Result<()> {
    // The run may have been stopped before this client could begin.
    let Ok(mut connection) = Connection::open(host, token) else { return Ok(()) };
    loop {
        let (is_late, is_used_up) = (race.is_refused.load(Ordering::SeqCst), race.used.load(Ordering::SeqCst) >= BUDGET);
        let Ok((status, body)) = connection.exchange() else { return Ok(()) };
        match status {
            200 => {
                race.used.fetch_add(ANSWER_TOKENS, Ordering::SeqCst);
                race.begun.fetch_add(1, Ordering::SeqCst);
                race.late.fetch_add(u64::from(is_late), Ordering::SeqCst);
                race.unrecorded.fetch_add(u64::from(is_used_up && !is_late), Ordering::SeqCst);
            }
            400 => {
                race.is_refused.store(true, Ordering::SeqCst);
                return Ok(());
            }
            _ => return Err(format!("{status}: {body}").into()),
        }
    }
}
