//! `cargo xtask bench`: measures the promised figures, each with the machine's own limit (floor) in
//! the same minute.

mod agents;
mod budgets;
mod chat;
mod chats;
mod compare;
mod crowd;
mod failover;
mod fleet;
mod gate;
mod history;
mod hosts;
mod http;
mod hub_connection;
mod live;
mod load;
mod losses;
mod model_api;
mod notes;
mod pools;
mod queued;
mod signals;
mod size;
mod snapshots;
mod start;
mod waiting;
mod workspaces;

use crate::floor::{self, Floors};
use crate::lab::{Lab, Result};
use crate::postgres::Server;
use crate::stats::{self, Row, Samples};
use compare::{Binaries, Part};
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The amounts of work to measure.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub starts: usize,
    pub questions: &'static [u64],
    pub answers: u32,
    pub load_s: u64,
    pub finished_runs: u32,
    pub flood_bytes: u64,
    pub live_runs: u32,
    pub idle_s: u64,
    /// Number of posts by one client.
    pub posts: usize,
    /// Number of posts by each of many clients.
    pub posts_each: usize,
    /// Numbers of messages in the displayed chats.
    pub shown: &'static [i64],
    /// Numbers of chats, each with the hub's target memory in MB.
    pub chats: &'static [(i64, f64)],
    /// Number of searches for each word.
    pub searches: usize,
    /// Numbers of queued runs, and number of races for a last slot.
    pub queued: &'static [usize],
    pub slot_races: usize,
    /// Number of queued runs in a long queue.
    pub queued_shown: usize,
    /// Number of events in a long history.
    pub events: usize,
    /// Number of queued runs that runners claim.
    pub queued_for_runners: usize,
    /// Number of workers that wait on runners.
    pub waiting_workers: usize,
    /// How often the leader ends in each way.
    pub failovers: usize,
    /// Number of races of runs with gates for the budget of their tree.
    pub budget_races: usize,
    /// Numbers of files in the trees, each with the target of a snapshot in ms.
    pub trees: &'static [(usize, f64)],
    /// Number of measured first events of each vendor's CLI, alone and through `adj run`.
    pub first_events: usize,
}

const FULL: Scale = Scale {
    starts: 100,
    questions: &[10, 1_000, 10_000],
    answers: 500,
    load_s: 10,
    finished_runs: 10_000,
    flood_bytes: 1_500_000_000,
    live_runs: 1_000,
    idle_s: 10,
    posts: 500,
    posts_each: 40,
    shown: &[1_000, 100_000],
    chats: &[(50, 30.0), (1_000, 60.0)],
    searches: 100,
    queued: &[10, 10_000],
    slot_races: 10_000,
    queued_shown: 100_000,
    events: 1_000_000,
    queued_for_runners: 10_000,
    waiting_workers: 10_000,
    failovers: 20,
    budget_races: 1_000,
    trees: &[(10_000, 60.0), (100_000, 400.0)],
    first_events: 15,
};

const QUICK: Scale = Scale {
    starts: 20,
    questions: &[10, 1_000],
    answers: 100,
    load_s: 3,
    finished_runs: 300,
    flood_bytes: 200_000_000,
    live_runs: 30,
    idle_s: 3,
    posts: 100,
    posts_each: 10,
    shown: &[1_000, 10_000],
    chats: &[(50, 30.0)],
    searches: 30,
    queued: &[10, 10_000],
    slot_races: 300,
    queued_shown: 10_000,
    events: 50_000,
    queued_for_runners: 1_000,
    waiting_workers: 400,
    failovers: 3,
    budget_races: 12,
    trees: &[(10_000, 60.0)],
    first_events: 5,
};

/// The context of a measurement.
#[derive(Debug)]
pub struct Bench {
    pub adj: PathBuf,
    pub scale: Scale,
    pub floors: Floors,
    pub postgres: Option<Postgres>,
}

/// The server of the stores.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    databases: AtomicU32,
    /// Commits of one row.
    pub commit: Samples,
}

/// The measurements that have targets for a store on PostgreSQL.
const ON_POSTGRES: [&str; 9] = [
    "ask",
    "pairs",
    "queue: replies",
    "history: replies",
    "fleet: claims",
    "fleet: losses",
    "fleet: answer across hosts",
    "fleet: waiting workers",
    "fleet: failover",
];
/// Those that need one.
const ONLY_ON_POSTGRES: [&str; 1] = ["fleet: failover"];

impl Postgres {
    fn start() -> Result<Self> {
        let server = Server::start_durable()
            .ok_or("PostgreSQL is not installed (apt-get install postgresql)")?;
        Ok(Self {
            server,
            databases: AtomicU32::new(0),
            commit: Samples::default(),
        })
    }

    /// Measures the floor.
    fn measure(&mut self) {
        self.commit = Samples::default();
        self.server
            .commit_times_us(300)
            .into_iter()
            .for_each(|time| self.commit.push_ns(time * 1_000));
    }
}

impl Bench {
    fn fdatasync_ms(&self) -> f64 {
        self.floors.append_fdatasync.p50()
    }

    /// Returns the floor of a durable write to the store: an append with `fdatasync`, or a commit
    /// on PostgreSQL.
    fn commit_ms(&self) -> f64 {
        self.postgres
            .as_ref()
            .map_or_else(|| self.fdatasync_ms(), |postgres| postgres.commit.p50())
    }

    /// Measures how many rows a second clients take from a queue on the server. `None`: the store
    /// is not on one.
    fn skip_locked_per_s(&self, clients: usize, count: usize) -> Option<f64> {
        self.postgres
            .as_ref()
            .map(|postgres| postgres.server.skip_locked_per_s(clients, count))
    }

    /// Returns whether the kind of store in use is measured.
    fn has_store_for(&self, name: &str) -> bool {
        if self.postgres.is_some() {
            ON_POSTGRES.contains(&name)
        } else {
            !ONLY_ON_POSTGRES.contains(&name)
        }
    }

    /// Creates the homes of two hubs that share a database.
    fn labs_of_one_store(&self, config: &str) -> Result<[Lab; 2]> {
        let Some(Postgres {
            server, databases, ..
        }) = &self.postgres
        else {
            return Err("only on PostgreSQL".into());
        };
        let name = format!("bench_{}", databases.fetch_add(1, Ordering::Relaxed));
        server.create_database(&name);
        let config = format!("store = \"{}\"\n{config}", server.url(&name));
        Ok([Lab::new(&self.adj, &config)?, Lab::new(&self.adj, &config)?])
    }

    /// Creates a home.
    pub fn lab(&self, config: &str) -> Result<Lab> {
        let Some(Postgres {
            server, databases, ..
        }) = &self.postgres
        else {
            return Lab::new(&self.adj, config);
        };
        let name = format!("bench_{}", databases.fetch_add(1, Ordering::Relaxed));
        server.create_database(&name);
        Lab::new(
            &self.adj,
            &format!("store = \"{}\"\n{config}", server.url(&name)),
        )
    }
}

/// Runs the measurements whose name contains a text of `only` (empty: all), and prints the table. A
/// missed target is reported but is no failure, because times on a shared machine vary. With
/// `postgres`, the stores are on a PostgreSQL server of its own, and only what has targets there is
/// measured. With `against`, `adj` is compared with this binary.
pub async fn run(
    adj: PathBuf,
    quick: bool,
    only: &[String],
    postgres: bool,
    against: Option<PathBuf>,
) -> Result<()> {
    let scale = if quick { QUICK } else { FULL };
    let dir = tempfile::tempdir()?;
    let floors = floor::measure(dir.path(), 400)?;
    let postgres = if postgres {
        Some(Postgres::start()?)
    } else {
        None
    };
    let binaries = Binaries {
        now: adj.clone(),
        before: against,
    };
    let mut bench = Bench {
        adj,
        scale,
        floors,
        postgres,
    };
    let mut rows = vec![
        Row::plain(
            "floor: append 4 KiB + fdatasync",
            ms(bench.floors.append_fdatasync.p50()),
            ms(bench.floors.append_fdatasync.p99()),
        ),
        Row::plain(
            "floor: Unix socket round trip",
            ms(bench.floors.socket_round_trip.p50()),
            ms(bench.floors.socket_round_trip.p99()),
        ),
        Row::plain(
            "floor: spawn + exec + wait",
            ms(bench.floors.spawn.p50()),
            ms(bench.floors.spawn.p99()),
        ),
    ];
    let mut broken = Vec::new();
    macro_rules! measure {
        ($name:expr, $measurement:expr) => {
            let name = String::from($name);
            let is_wanted = only.is_empty() || only.iter().any(|only| name.contains(only));
            if is_wanted && binaries.have(&name) && bench.has_store_for(&name) {
                eprintln!("measuring: {name}");
                let mut parts = Vec::new();
                for (binary, is_before) in binaries.in_turn() {
                    bench.adj = binary.to_path_buf();
                    // Flush the writes of the last measurement, and measure the floor again.
                    rustix::fs::sync();
                    bench.floors = floor::measure(dir.path(), 200)?;
                    if let Some(postgres) = &mut bench.postgres {
                        postgres.measure();
                        let name = "floor: commit of one row on PostgreSQL";
                        rows.push(Row::plain(
                            name,
                            ms(postgres.commit.p50()),
                            ms(postgres.commit.p99()),
                        ));
                    }
                    match $measurement.await {
                        Ok(rows) => parts.push(Part { is_before, rows }),
                        Err(error) => {
                            eprintln!("{name}: {}: {error}", binary.display());
                            rows.push(Row::failed(&name, &error.to_string()));
                            broken.push(name.clone());
                            parts.clear();
                            break;
                        }
                    }
                }
                rows.extend(compare::summary(parts));
            }
        };
    }
    measure!("start", start::measure(&bench));
    measure!("memory", size::memory(&bench));
    measure!("ask", chat::ask(&bench));
    measure!("answer", chat::answer(&bench));
    measure!("dispatch", start::dispatch(&bench));
    measure!("fence", start::fence(&bench));
    measure!("signal: block", signals::block(&bench));
    measure!("signal: scan", signals::scan(&bench));
    measure!("signal: resume", signals::resume(&bench));
    measure!("signal: waiting", signals::waiting(&bench));
    measure!("pairs", load::pairs(&bench));
    measure!("pools: claim", pools::claim(&bench));
    measure!("pools: races", pools::races(&bench));
    measure!("queue: replies", queued::replies(&bench));
    measure!("history: replies", history::replies(&bench));
    measure!("fleet: claims", fleet::claims(&bench));
    measure!("fleet: losses", losses::measure(&bench));
    measure!("fleet: answer across hosts", hosts::answer(&bench));
    measure!("fleet: waiting workers", waiting::measure(&bench));
    measure!("fleet: failover", failover::measure(&bench));
    measure!("processes", load::processes(&bench));
    measure!("chat: post", chats::post(&bench));
    measure!("chat: wake", chats::wake(&bench));
    measure!("notes: stream", notes::stream(&bench));
    measure!("notes: races", notes::races(&bench));
    measure!("chat: show", chats::show(&bench));
    measure!("chat: search", chats::search(&bench));
    measure!("snapshots: take", snapshots::take(&bench));
    measure!("snapshots: diff", snapshots::diff(&bench));
    measure!("snapshots: conflicts", snapshots::conflicts(&bench));
    measure!("workspaces", workspaces::measure(&bench));
    measure!("flood", size::flood(&bench));
    measure!("agents: streams", agents::decode());
    for cli in agents::STARTED {
        measure!(
            format!("agents: first event of {cli}"),
            agents::overhead(&bench, cli)
        );
    }
    measure!("http", http::measure(&bench));
    measure!("live: streams", live::streams(&bench));
    measure!("live: top", live::top(&bench));
    measure!("live: listener", live::listener(&bench));
    measure!("agents: list", agents::list(&bench));
    measure!("gate", gate::measure(&bench));
    measure!("budgets: races", budgets::races(&bench));
    measure!("restart", size::restart(&bench));
    stats::print(&rows);
    if !broken.is_empty() {
        return Err(format!("could not be measured: {}", broken.join(", ")).into());
    }
    let missed: Vec<&str> = rows
        .iter()
        .filter(|row| row.met == Some(false))
        .map(|row| row.what.as_str())
        .collect();
    if !missed.is_empty() {
        println!("missed: {}", missed.join("; "));
    }
    Ok(())
}

fn ms(value: f64) -> String {
    format!("{} ms", stats::short(value))
}

/// Runs a measurement in its own home. A process or file that remains is an error.
async fn in_lab<F, T>(
    bench: &Bench,
    config: &str,
    work: impl FnOnce(std::sync::Arc<Lab>) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let lab = std::sync::Arc::new(bench.lab(config)?);
    lab.start_hub()?;
    let result = work(lab.clone()).await?;
    let left = lab.close().await?;
    if left.is_empty() {
        Ok(result)
    } else {
        Err(format!("not removed one second after the end: {left:?}").into())
    }
}
