//! Pools: claiming the next of many queued runs, and races for the last slot.

use super::Bench;
use crate::lab::Result;
use crate::stats::{Row, Samples};
use adjutant_core::pool::{AfterFailed, PoolTarget};
use adjutant_core::run::Retention;
use adjutant_core::signal::{Independence, Priority};
use adjutant_core::tree::Rank;
use adjutant_core::{
    AgentName, AgentSpec, ClientName, PoolName, Principal, RunEvent, RunId, StopReason,
};
use adjutant_home::config::{Config, Home};
use adjutant_os::clock;
use adjutant_store::store::{
    ConfiguredPool, DispatchEnv, NewRun, Pools, Run, RunInput, StartTarget, Store, next_to_start,
    slots_used,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const POOLS: [&str; 4] = ["a", "b", "c", "default"];
const OWNERS: usize = 10;
/// Number of measured claims for each length of the queue.
const CLAIMS: u64 = 200;
/// Number of claims that race for one slot.
const RACERS: usize = 64;
/// Number of runs that are queued in one transaction.
const PART: usize = 500;
/// Makes ids unique.
static RUNS: AtomicU64 = AtomicU64::new(0);
const RETENTION: Retention = Retention { stopped_ms: 60_000 };

/// Measures the time of a claim in its transaction, without the commit.
pub async fn claim(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for queued in bench.scale.queued {
        let dir = tempfile::tempdir()?;
        let store = open(dir.path())?;
        fill(&store, queued + usize::try_from(CLAIMS)?, &POOLS, OWNERS).await?;
        let mut times = Samples::default();
        for _ in 0..CLAIMS {
            let (time, run) = claim_next(&store, u64::MAX).await?;
            run.ok_or("no run could be claimed")?;
            times.push(time);
        }
        rows.push(Row::latency(
            &format!("claim of the next of {queued} queued runs, without the commit"),
            &times,
            None,
            1.0,
        ));
    }
    Ok(rows)
}

/// Lets claims race for the last slot of a pool.
pub async fn races(bench: &Bench) -> Result<Vec<Row>> {
    let dir = tempfile::Builder::new().prefix("adj-bench-").tempdir_in(
        if Path::new("/dev/shm").is_dir() {
            "/dev/shm"
        } else {
            "/tmp"
        },
    )?;
    let store = open(dir.path())?;
    let rounds = bench.scale.slot_races;
    let mut wrong = 0;
    for round in 0..rounds {
        if round % PART == 0 {
            fill(&store, 2 * PART, &["default"], 2).await?;
        }
        let mut claims = JoinSet::new();
        for _ in 0..RACERS {
            let store = store.clone();
            claims.spawn(async move {
                claim_next(&store, 1)
                    .await
                    .map(|(_, run)| run)
                    .map_err(|error| error.to_string())
            });
        }
        let mut won = Vec::new();
        while let Some(claimed) = claims.join_next().await {
            won.extend(claimed??);
        }
        wrong += usize::from(won.len() != 1);
        for run in won {
            let end = move |tx: &mut adjutant_store::store::Tx<'_>| {
                let run = tx.advance(
                    &run,
                    RunEvent::StopAsked(StopReason::Cancelled),
                    RETENTION,
                    "bench",
                    "",
                )?;
                tx.advance(&run, RunEvent::NotStarted, RETENTION, "bench", "")
                    .map(drop)
            };
            store.write(end).await?;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let row = Row::number(
        &format!(
            "{RACERS} claims for the last slot, rounds without exactly one winner of {rounds}"
        ),
        wrong as f64,
        "",
        0.0,
        true,
    );
    Ok(vec![row])
}

fn open(dir: &Path) -> Result<Store> {
    let home = Home::at(&dir.join("home"))?;
    home.ensure()?;
    Ok(Store::open(&home)?)
}

async fn claim_next(store: &Store, slots: u64) -> Result<(Duration, Option<Run>)> {
    let pool = ConfiguredPool {
        slots,
        keep_slot: true,
        place: PoolTarget::Here,
    };
    let configured: BTreeMap<PoolName, ConfiguredPool> = POOLS
        .iter()
        .map(|name| Ok((PoolName::parse(name)?, pool)))
        .collect::<Result<_>>()?;
    let claim = store.write(move |tx| {
        let start = Instant::now();
        let pools = Pools::read(tx.connection(), &configured, u64::MAX, tx.steady())?;
        let run = match next_to_start(
            tx.connection(),
            &pools,
            &slots_used(tx.connection(), &pools)?,
            &StartTarget::Here,
        )? {
            Some(run) => Some(tx.claim(&run, &[1; 32], None, RETENTION)?),
            None => None,
        };
        Ok((start.elapsed(), run))
    });
    Ok(claim.await?)
}

/// Queues runs of several owners in several pools, with all priorities.
async fn fill(
    store: &Store,
    count: usize,
    pools: &'static [&'static str],
    owners: usize,
) -> Result<()> {
    let config = Config::builtin(&Home {
        dir: PathBuf::new(),
    });
    let agent = &config
        .agents
        .get(&AgentName::parse("echo")?)
        .ok_or("no echo agent")?
        .spec;
    for first in (0..count).step_by(PART) {
        let runs: Vec<NewRun> = (first..count.min(first + PART))
            .map(|number| new_run(number, pools, owners, agent.clone()))
            .collect::<Result<_>>()?;
        store
            .write(move |tx| {
                for run in &runs {
                    tx.dispatch(run)?;
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}

fn new_run(number: usize, pools: &[&str], owners: usize, agent: AgentSpec) -> Result<NewRun> {
    let owner = Principal::Client(ClientName::parse(&format!("/project/{}", number % owners))?);
    let priority = Priority::ALL[number % Priority::ALL.len()];
    let mut random = [0; 10];
    random[2..].copy_from_slice(&RUNS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let id = RunId::new(clock::now(), random);
    Ok(NewRun {
        id,
        name: Some(adjutant_core::RunName::parse(&format!(
            "r-{}",
            id.to_string().replace('-', "")
        ))?),
        name_seed: [0; 4],
        cwd: "/tmp".to_owned(),
        workspace: None,
        fence_workspace: None,
        owner: owner.clone(),
        retry_of: None,
        under: None,
        rank: Rank::of(priority, Independence::Parallel),
        pool: PoolName::parse(pools[number % pools.len()])?,
        after: Vec::new(),
        after_failed: AfterFailed::default(),
        agent_why: None,
        estimate_ms: None,
        budget: adjutant_core::Budget::default(),
        unmetered: Vec::new(),
        task: "work".to_owned(),
        by: owner,
        input: RunInput {
            prompt: "say done".to_owned(),
            agent,
            env: DispatchEnv::default(),
            criteria: None,
            accept: Vec::new(),
            variables: None,
        },
    })
}
