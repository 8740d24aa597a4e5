//! Budgets with real processes: the gates of a tree's runs race for the tree's budget. No request
//! may begin after a gate has refused a request because nothing is left. Raising the budget resumes
//! the runs, which race again.

use super::model_api::{KEY, ModelConnection, answer};
use super::{Bench, in_lab};
use crate::lab::{Lab, Result};
use crate::stats::Row;
use adjutant_api::view::{
    AnswerOne, AnswerRequests, Cancel, ChangeBudget, DecisionWord, Dispatch, GetRun, RunView,
};
use adjutant_net::hub_client::Client;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of runs below the one with the budget, each with a gate.
const CHILDREN: usize = 2;
/// Number of clients of each gate.
const CLIENTS: usize = 2;
/// Number of concurrent trees.
const TREES: usize = 8;
/// The budget of a race and the usage of one response, in tokens.
const BUDGET: u64 = 150;
const ANSWER_TOKENS: u64 = 11;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The agent reports the address of its model's API. The leading agent delegates first. The script
/// starts no other program before that.
const AGENT: &str = r#"#!/bin/sh
while read -r line; do
  case "$line" in *lead-the-race*) leads=1 ;; esac
done
attempt=${ADJ_WORKER%/*}
run=${attempt%/*}
if [ "$leads${attempt##*/}" = 11 ]; then
  for n in CHILDREN; do
    printf '[DELEGATE_WORK]\nagent_id: %s\nnew_task_description: race %s\nindependence: can_proceed_parallel\n[/DELEGATE_WORK]\n' "${run##*/}" "$n"
  done
fi
echo "${run##*/} ${attempt##*/} ${MODEL_URL#http://} $MODEL_KEY" > "$GATES"
exec sleep 1000
"#;

/// The state that the clients of one tree share.
#[derive(Debug, Default)]
struct Race {
    /// Whether a gate has refused a request.
    is_refused: AtomicBool,
    /// Whether the responses so far have used the whole budget, whether or not the hub has recorded
    /// it.
    used: AtomicU64,
    begun: AtomicU64,
    late: AtomicU64,
    unrecorded: AtomicU64,
}

/// The results of all races.
#[derive(Debug, Default)]
struct Totals {
    begun: u64,
    late: u64,
    unrecorded: u64,
    over: u64,
}

/// The address and token of each attempt's gate.
type Gates = BTreeMap<(String, u32), (String, String)>;

/// Lets trees of runs with gates race for their budgets.
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
    let (agent, key) = (
        write(
            "agent",
            &AGENT.replace("CHILDREN", &children.join(" ")),
            0o755,
        )?,
        write("key", KEY, 0o600)?,
    );
    let fifo = files.path().join("gates");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0)?;
    let gates = read_gates(&fifo)?;
    let config = format!(
        "live_runs_max = 64\n[presets.own]\ndriver = \"plain\"\ncommand = [{agent:?}]\n[presets.own.gate]\nbase_url = \"http://{api}\"\n\
         env = {{ MODEL_URL = \"{{gate_url}}\", MODEL_KEY = \"{{gate_token}}\" }}\n\
         [agents.gated]\nharness = \"own\"\npermissions = \"full\"\ngate = true\nkey = {{ file = {key:?} }}\nenv = {{ GATES = {:?} }}\n",
        fifo.display().to_string()
    );
    let rounds = bench.scale.budget_races;
    in_lab(bench, &config, |lab| async move {
        let mut trees = JoinSet::new();
        for tree in 0..TREES.min(rounds) {
            let (lab, gates) = (Arc::clone(&lab), gates.clone());
            let count = rounds / TREES + usize::from(tree < rounds % TREES);
            trees.spawn(async move {
                races_of_tree(&lab, gates, count)
                    .await
                    .map_err(|error| error.to_string())
            });
        }
        let mut all = Totals::default();
        while let Some(ended) = trees.join_next().await {
            let of = ended??;
            all.begun += of.begun;
            all.late += of.late;
            all.unrecorded += of.unrecorded;
            all.over = all.over.max(of.over);
        }
        let gates = CHILDREN + 1;
        #[expect(clippy::cast_precision_loss, reason = "few races")]
        Ok(vec![
            Row::number(
                &format!(
                    "requests begun after a refusal: {rounds} races of {gates} gates for a budget"
                ),
                all.late as f64,
                "",
                0.0,
                true,
            ),
            Row::plain(
                "  requests in all; most tokens beyond a budget of 150",
                all.begun.to_string(),
                all.over.to_string(),
            ),
            Row::plain(
                "  begun before the hub had recorded the answer that used it up",
                all.unrecorded.to_string(),
                "–".to_owned(),
            ),
        ])
    })
    .await
}

/// Collects the gates that agents report through a FIFO.
fn read_gates(fifo: &Path) -> Result<watch::Receiver<Gates>> {
    // Also open for writing, so that reading does not end while no agent writes.
    let lines = BufReader::new(File::options().read(true).write(true).open(fifo)?).lines();
    let (sender, receiver) = watch::channel(Gates::new());
    std::thread::spawn(move || {
        for line in lines.map_while(std::result::Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            if let [run, attempt, host, token] = words.as_slice()
                && let Ok(attempt) = attempt.parse()
            {
                sender.send_modify(|gates| {
                    gates.insert(
                        ((*run).to_owned(), attempt),
                        ((*host).to_owned(), (*token).to_owned()),
                    );
                });
            }
        }
    });
    Ok(receiver)
}

/// Starts a tree and runs `count` races.
async fn races_of_tree(
    lab: &Lab,
    mut gates: watch::Receiver<Gates>,
    count: usize,
) -> Result<Totals> {
    let client = lab.client();
    let order = Dispatch {
        budget: Some(format!("tokens={BUDGET}")),
        ..lab.order("gated", "lead-the-race\n".to_owned())
    };
    let top = client.call(&order).await?.identity.run_id;
    let asked = until(&client, &top, |view| {
        view.requests.pending.len() == CHILDREN
    })
    .await?;
    for request in asked.requests.pending {
        let one = AnswerOne {
            message_id: Some(request.message_id),
            decision: Some(DecisionWord::Approve),
            ..AnswerOne::default()
        };
        client.call(&AnswerRequests { answers: vec![one] }).await?;
    }
    let mut runs = Vec::new();
    for child in until(&client, &top, |view| {
        view.identity.children.len() == CHILDREN
    })
    .await?
    .identity
    .children
    {
        runs.push(
            client
                .call(&GetRun {
                    run: child,
                    ..GetRun::default()
                })
                .await?
                .identity
                .run_id,
        );
    }
    runs.push(top.clone());
    let mut all = Totals::default();
    let mut beyond = 0;
    for attempt in (1_u32..).take(count) {
        if attempt > 1 {
            client
                .call(&ChangeBudget {
                    run: top.clone(),
                    add: Some(format!("tokens={}", BUDGET + beyond)),
                })
                .await?;
        }
        let keys: Vec<(String, u32)> = runs.iter().map(|run| (run.clone(), attempt)).collect();
        let known = tokio::time::timeout(
            TIMEOUT,
            gates.wait_for(|gates| keys.iter().all(|key| gates.contains_key(key))),
        )
        .await;
        let found: Vec<_> = known
            .map_err(|_| format!("{top}: no gates of attempt {attempt}"))??
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(_, gate)| gate.clone())
            .collect();
        let race = Arc::new(Race::default());
        let mut clients = JoinSet::new();
        for (host, token) in found {
            for _ in 0..CLIENTS {
                let (race, host, token) = (Arc::clone(&race), host.clone(), token.clone());
                clients.spawn_blocking(move || {
                    ask_until_refused(&race, &host, &token).map_err(|error| error.to_string())
                });
            }
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        all.begun += race.begun.load(Ordering::SeqCst);
        all.late += race.late.load(Ordering::SeqCst);
        all.unrecorded += race.unrecorded.load(Ordering::SeqCst);
        all.over = all
            .over
            .max(race.used.load(Ordering::SeqCst).saturating_sub(BUDGET));
        // A raised budget resumes stopped runs only. The run with the budget is the last in the
        // list.
        for run in &runs {
            beyond = until(&client, run, |view| {
                view.condition.state.as_str() == "stopped"
            })
            .await?
            .cost
            .budgets
            .first()
            .map_or(0, |of| of.used.unwrap_or(0).saturating_sub(of.amount));
        }
    }
    client
        .call(&Cancel {
            run: top.clone(),
            reason: None,
        })
        .await?;
    lab.finished(&client, &top, TIMEOUT).await?;
    Ok(all)
}

async fn until(client: &Client, run: &str, holds: impl Fn(&RunView) -> bool) -> Result<RunView> {
    let start = Instant::now();
    loop {
        let view = client
            .call(&GetRun {
                run: run.to_owned(),
                ..GetRun::default()
            })
            .await?;
        if holds(&view) {
            return Ok(view);
        }
        if start.elapsed() > TIMEOUT {
            return Err(format!(
                "{} is {} after {TIMEOUT:?}: {:?}",
                view.identity.name, view.condition.state, view.condition.reason
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends requests through a gate until one is refused, or the gate is closed.
fn ask_until_refused(race: &Race, host: &str, token: &str) -> Result<()> {
    // The run may have been stopped before this client could start.
    let Ok(mut connection) = ModelConnection::open(host, token) else {
        return Ok(());
    };
    loop {
        let (is_late, is_used_up) = (
            race.is_refused.load(Ordering::SeqCst),
            race.used.load(Ordering::SeqCst) >= BUDGET,
        );
        let Ok((status, body)) = connection.exchange() else {
            return Ok(());
        };
        match status {
            200 => {
                race.used.fetch_add(ANSWER_TOKENS, Ordering::SeqCst);
                race.begun.fetch_add(1, Ordering::SeqCst);
                race.late.fetch_add(u64::from(is_late), Ordering::SeqCst);
                race.unrecorded
                    .fetch_add(u64::from(is_used_up && !is_late), Ordering::SeqCst);
            }
            400 => {
                race.is_refused.store(true, Ordering::SeqCst);
                return Ok(());
            }
            _ => return Err(format!("{status}: {body}").into()),
        }
    }
}
