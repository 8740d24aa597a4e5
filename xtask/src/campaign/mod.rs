//! `cargo xtask campaign`: kills hub, supervisors and guards with SIGKILL at random moments under
//! load, then at every named failpoint. With `--postgres`, the stores are on a PostgreSQL server,
//! which is killed too. Compares the acknowledged writes with the result: nothing may be lost,
//! duplicated, started twice, left in a wrong state or left running, and no process may panic. The
//! runs ask, are cancelled, stop and are resumed, stop while a request is open, are parked, request
//! approval, and delegate. Other lanes change files in repositories; their work is merged, moved to
//! a branch, discarded and undone.

mod answers;
mod check;
mod delivery;
mod kills;
mod lanes;
mod ledger;
mod plan;
mod workspaces;

use crate::lab::{Lab, Result};
use crate::postgres::Server;
use crate::random::Random;
use adjutant_api::view::GetRun;
use adjutant_os::failpoint;
use lanes::one_run;
use ledger::{Shared, lock};
use plan::{Kind, Plan};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinSet;
use workspaces::Until;

const CONFIG: &str = "live_runs_max = 16\n[agents.echo]\nharness = \"echo\"\ngrace = \"1s\"\n[agents.stubborn]\nharness = \"echo\"\ngrace = \"300ms\"\n";
/// Number of concurrent runs.
const LANES: usize = 10;

/// What all parts of a campaign share.
struct Site<'a> {
    adj: &'a Path,
    seed: u64,
    /// The server of all stores. `None`: each is in its home.
    server: Option<Server>,
    databases: u32,
    /// The home of the current part.
    lab: Option<Arc<Lab>>,
}

impl Site<'_> {
    /// Creates a home with its own store, for one part of the campaign.
    fn lab(&mut self, config: &str) -> Result<Arc<Lab>> {
        self.lab_with_failpoint(config, None)
    }

    /// Creates a home whose processes die at a failpoint, and create this file there.
    fn lab_with_failpoint(&mut self, config: &str, dies_at: Option<&str>) -> Result<Arc<Lab>> {
        let mut lab = match &self.server {
            None => Lab::new(self.adj, config)?,
            Some(server) => {
                self.databases += 1;
                let name = format!("campaign_{}", self.databases);
                server.create_database(&name);
                Lab::new(
                    self.adj,
                    &format!("store = \"{}\"\n{config}", server.url(&name)),
                )?
            }
        };
        if let Some(name) = dies_at {
            lab.env = vec![(
                failpoint::VARIABLE.to_string(),
                format!("{name}={}", reached(&lab).display()),
            )];
        }
        let lab = Arc::new(lab);
        self.lab = Some(Arc::clone(&lab));
        Ok(lab)
    }

    /// Ends a part. Returns its problems, also if it could not be completed, and the panics of its
    /// processes.
    fn end(&mut self, found: Result<Vec<String>>) -> Vec<String> {
        let mut problems = found.unwrap_or_else(|error| vec![error.to_string()]);
        problems.extend(self.lab.take().iter().flat_map(|lab| lab.panics()));
        problems
    }
}

/// Returns the file that a process creates at its failpoint.
fn reached(lab: &Lab) -> PathBuf {
    lab.dir.path().join("reached")
}

/// Runs the whole campaign.
pub async fn run(
    adj: &Path,
    kills: u64,
    seed: u64,
    failpoints: bool,
    only_workspaces: bool,
    postgres: bool,
) -> Result<()> {
    println!("campaign: {kills} kills each of hub, supervisor and guard, seed {seed}");
    let server = if postgres {
        Some(Server::start().ok_or("PostgreSQL is not installed (apt-get install postgresql)")?)
    } else {
        None
    };
    let mut site = Site {
        adj,
        seed,
        server,
        databases: 0,
        lab: None,
    };
    let start = Instant::now();
    let mut problems = Vec::new();
    // Each kind of containment gets half of the kills.
    for (containment, share) in [("auto", kills.div_ceil(2)), ("subreaper", kills / 2)] {
        if only_workspaces {
            continue;
        }
        let found = under_load(&mut site, containment, share).await;
        let found = site.end(found);
        problems.extend(
            found
                .into_iter()
                .map(|problem| format!("containment {containment}: {problem}")),
        );
    }
    let found = workspaces_under_load(&mut site, kills).await;
    let found = site.end(found);
    problems.extend(
        found
            .into_iter()
            .map(|problem| format!("workspaces: {problem}")),
    );
    println!(
        "random kills done in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    if failpoints {
        for name in failpoint::NAMES
            .iter()
            .filter(|name| !is_of_peers(name) && (!only_workspaces || is_of_workspaces(name)))
        {
            let found = if is_of_workspaces(name) {
                workspaces_at_failpoint(&mut site, name).await
            } else {
                at_failpoint(&mut site, name).await
            };
            let found = site.end(found);
            println!(
                "failpoint {name}: {}",
                if found.is_empty() {
                    "ok".to_string()
                } else {
                    found.join("; ")
                }
            );
            problems.extend(
                found
                    .into_iter()
                    .map(|problem| format!("{name}: {problem}")),
            );
        }
    }
    if problems.is_empty() {
        println!(
            "nothing lost, duplicated, started twice, left in a wrong state or left running, no process has panicked ({:.0} s)",
            start.elapsed().as_secs_f64()
        );
        return Ok(());
    }
    for problem in &problems {
        println!("PROBLEM: {problem}");
    }
    Err(format!("{} problems; repeat with --seed {seed}", problems.len()).into())
}

/// A task that answers requests until it is stopped, between two calls.
struct Answering {
    end: watch::Sender<bool>,
    task: JoinSet<()>,
}

impl Answering {
    fn start(lab: &Arc<Lab>, ledger: &Shared) -> Self {
        let (end, ends) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(answers::answer_all(lab.clone(), ledger.clone(), ends));
        Self { end, task }
    }

    /// Stops the task, and waits for its last call.
    async fn stop(mut self, lab: &Lab, ledger: &Shared) -> Result<()> {
        self.end.send(true)?;
        while let Some(joined) = self.task.join_next().await {
            joined?;
        }
        if let Err(problem) = lanes::late_children(lab, ledger).await {
            lock(ledger).problems.push(problem);
        }
        Ok(())
    }
}

async fn under_load(site: &mut Site<'_>, containment: &str, kills: u64) -> Result<Vec<String>> {
    let lab = site.lab(&format!("containment = \"{containment}\"\n{CONFIG}"))?;
    let seed = site.seed;
    lab.start_hub()?;
    let ledger = Shared::default();
    let journal = lab.dir.path().join("journal");
    let (stop, stopped) = watch::channel(false);
    let mut work = JoinSet::new();
    for lane in 0..LANES {
        let (lab, ledger, journal, stopped) = (
            lab.clone(),
            ledger.clone(),
            journal.clone(),
            stopped.clone(),
        );
        work.spawn(async move {
            let mut random = Random::new(seed.wrapping_add(1 + lane as u64));
            for number in lane.. {
                if *stopped.borrow() {
                    break;
                }
                let plan = Plan::draw(Kind::ALL[number % Kind::ALL.len()], &mut random);
                one_run(
                    &lab,
                    &ledger,
                    &journal,
                    &format!("lane-{lane}-{number}"),
                    plan,
                    &mut random,
                )
                .await;
            }
        });
    }
    let answering = Answering::start(&lab, &ledger);
    let done = kills::kill_at_random(&lab, &ledger, kills, seed, site.server.as_mut()).await;
    stop.send(true)?;
    while let Some(joined) = work.join_next().await {
        joined?;
    }
    answering.stop(&lab, &ledger).await?;
    println!(
        "containment {containment}: killed {}",
        kills::counted(&done)
    );
    check::check(&lab, &ledger, &journal).await
}

/// Number of concurrent lanes that change files.
const WORKSPACE_LANES: usize = 4;

/// Returns a configuration with a setup command for workspaces.
fn with_setup() -> String {
    format!("{CONFIG}\n[workspaces]\nsetup = [\"true\"]\n")
}

/// Returns whether a failpoint needs two hubs, or a runner. The tests of these kill a hub at them.
fn is_of_peers(failpoint: &str) -> bool {
    ["peer.", "bundle.", "logs.", "launch."]
        .iter()
        .any(|of_others| failpoint.starts_with(of_others))
}

/// Returns whether a failpoint is reached only by runs that change files.
fn is_of_workspaces(failpoint: &str) -> bool {
    [
        "workspace.",
        "base.",
        "snapshot.",
        "merge.",
        "discard.",
        "undo.",
        "replace.",
    ]
    .iter()
    .any(|beginning| failpoint.starts_with(beginning))
}

async fn workspaces_under_load(site: &mut Site<'_>, kills: u64) -> Result<Vec<String>> {
    let lab = site.lab(&with_setup())?;
    let seed = site.seed;
    lab.start_hub()?;
    let ledger = Shared::default();
    let (stop, stopped) = watch::channel(false);
    let mut work = JoinSet::new();
    for lane in 0..WORKSPACE_LANES {
        let (lab, ledger, stopped) = (lab.clone(), ledger.clone(), stopped.clone());
        work.spawn_blocking(move || {
            workspaces::lane(&lab, &ledger, lane, seed, Until::Stopped(&stopped))
        });
    }
    let done = kills::kill_at_random(&lab, &ledger, kills, seed, site.server.as_mut()).await;
    stop.send(true)?;
    let mut runs = 0;
    while let Some(joined) = work.join_next().await {
        runs += joined??;
    }
    println!(
        "workspaces: killed {}; {runs} runs merged, discarded or undone",
        kills::counted(&done)
    );
    workspaces_end(&lab, &ledger).await
}

async fn workspaces_at_failpoint(site: &mut Site<'_>, name: &str) -> Result<Vec<String>> {
    let lab = site.lab_with_failpoint(&with_setup(), Some(name))?;
    let seed = site.seed;
    let ledger = Shared::default();
    let (of_lane, ledger_of_lane, name) = (lab.clone(), ledger.clone(), name.to_string());
    tokio::task::spawn_blocking(move || {
        workspaces::lane(&of_lane, &ledger_of_lane, 0, seed, Until::Reached(&name))
    })
    .await??;
    let mut problems = workspaces_end(&lab, &ledger).await?;
    if !reached(&lab).exists() {
        problems.push("was not reached".to_string());
    }
    Ok(problems)
}

async fn workspaces_end(lab: &Lab, ledger: &Shared) -> Result<Vec<String>> {
    let mut problems = std::mem::take(&mut lock(ledger).problems);
    let left = lab.close().await?;
    if !left.is_empty() {
        problems.push(format!("not removed one second after the end: {left:?}"));
    }
    Ok(problems)
}

/// Runs the load. The first process that reaches the failpoint is killed there.
async fn at_failpoint(site: &mut Site<'_>, name: &str) -> Result<Vec<String>> {
    let lab = site.lab_with_failpoint(CONFIG, Some(name))?;
    let seed = site.seed;
    let ledger = Shared::default();
    let journal = lab.dir.path().join("journal");
    let answering = Answering::start(&lab, &ledger);
    let mut work = JoinSet::new();
    for (lane, pair) in Kind::ALL.chunks(2).enumerate() {
        let (lab, ledger, journal) = (lab.clone(), ledger.clone(), journal.clone());
        let mut random = Random::new(
            seed.wrapping_add(lane as u64)
                .wrapping_add(name.bytes().map(u64::from).sum()),
        );
        work.spawn(async move {
            for kind in pair {
                let plan = Plan::draw(*kind, &mut random);
                one_run(
                    &lab,
                    &ledger,
                    &journal,
                    &format!("lane-{lane}-{}", kind.word()),
                    plan,
                    &mut random,
                )
                .await;
            }
        });
    }
    while let Some(joined) = work.join_next().await {
        joined?;
    }
    answering.stop(&lab, &ledger).await?;
    if name.starts_with("supervisor.") || name.starts_with("guard.") {
        // The affected run is unknown, so at most one run may have ended differently.
        let all: BTreeSet<String> = {
            let ledger = lock(&ledger);
            ledger
                .dispatched
                .values()
                .map(|one| one.run.clone())
                .chain(ledger.children.iter().cloned())
                .collect()
        };
        let client = lab.client();
        let mut hit = Vec::new();
        for run in all {
            let view = lab
                .persist(
                    &client,
                    &GetRun {
                        run: run.clone(),
                        ..GetRun::default()
                    },
                    "look",
                )
                .await?;
            if check::wrong_state(&view, &lock(&ledger)).is_some() {
                hit.push(run);
            }
        }
        if let [one] = hit.as_slice() {
            lock(&ledger).supervisor_killed.insert(one.clone());
        }
    }
    let mut problems = check::check(&lab, &ledger, &journal).await?;
    if !reached(&lab).exists() {
        problems.push("was not reached".to_string());
    }
    Ok(problems)
}
