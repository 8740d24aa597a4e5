//! The pools that a configuration file declares.

use super::launcher::{self, FileLauncher, Launcher};
use super::values::UnusableValues;
use adjutant_core::pool::{BUILD_JOBS_MAX, SLOTS_MAX, is_label_part};
use adjutant_core::{AgentName, Budget, Isolation, PoolName};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A pool as the file declares it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilePool {
    slots: Option<u64>,
    #[serde(default)]
    agents: Vec<String>,
    isolation: Option<String>,
    keep_slot: Option<bool>,
    #[serde(default)]
    fallback: bool,
    budget: Option<String>,
    build_jobs: Option<u64>,
    #[serde(default)]
    runners: bool,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    launch: Option<Vec<String>>,
    launch_input: Option<String>,
    launch_max: Option<u64>,
    launch_timeout: Option<String>,
}

/// A configured pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolEntry {
    /// How many of its runs may be live at a time.
    pub slots: u64,
    /// The agents for runs that name the pool but no agent, the preferred one first.
    pub agents: Vec<AgentName>,
    /// Where its runs work unless the dispatch says so. `None`: the agent's setting.
    pub isolation: Option<Isolation>,
    /// Whether a run keeps its slot while it waits for an answer.
    pub keep_slot: bool,
    /// Whether a run moves to the next agent if its own one cannot work.
    pub fallback: bool,
    /// The budget of each of its runs, unless the dispatch sets another.
    pub budget: Budget,
    /// How many jobs the builds of all its runs may have together. `None`: no limit is set.
    pub build_jobs: Option<u64>,
    /// Whether its runs start on runners (`adj runner`), not on the hub's machine.
    pub on_runners: bool,
    /// The labels that a runner must have to serve it, by name.
    pub labels: BTreeMap<String, String>,
    /// Starts runners that serve it on demand.
    pub launcher: Option<Launcher>,
}

/// Reads the declared pools. `dir`: that of the configuration file. The default pool always exists, with `live_runs_max` slots unless it says otherwise.
pub(super) fn pools(
    declared: &BTreeMap<String, FilePool>,
    live_runs_max: u64,
    dir: &Path,
    named: &dyn Fn(&str) -> Option<AgentName>,
    unusable: &mut UnusableValues,
) -> BTreeMap<PoolName, PoolEntry> {
    let mut pools = BTreeMap::new();
    let all = std::iter::once((PoolName::DEFAULT, FilePool::default())).chain(
        declared
            .iter()
            .map(|(name, pool)| (name.as_str(), pool.clone())),
    );
    for (name, pool) in all {
        let field = |key: &str| format!("pools.{name}.{key}");
        let slots = pool.slots.unwrap_or(live_runs_max);
        if !(1..=SLOTS_MAX).contains(&slots) {
            unusable.report(field("slots"), format!("use 1 to {SLOTS_MAX}"));
        }
        if pool
            .build_jobs
            .is_some_and(|jobs| !(1..=BUILD_JOBS_MAX).contains(&jobs))
        {
            unusable.report(field("build_jobs"), format!("use 1 to {BUILD_JOBS_MAX}"));
        }
        let mut agents = Vec::new();
        for agent in &pool.agents {
            match named(agent) {
                Some(agent) if agents.contains(&agent) => {
                    unusable.report(field("agents"), format!("{agent} is named twice"))
                }
                Some(agent) => agents.push(agent),
                None => unusable.report(field("agents"), format!("no agent {agent:?} is declared")),
            }
        }
        if pool.fallback && agents.len() < 2 {
            unusable.report(
                field("fallback"),
                "needs two or more agents, as agents = [\"first\", \"second\"]",
            );
        }
        let isolation = pool.isolation.as_deref().and_then(|word| {
            let kind = Isolation::from_word(word)
                .ok_or_else(|| format!("unknown isolation {word:?}: use none, clone or worktree"));
            unusable.check(&field("isolation"), kind)
        });
        if !pool
            .labels
            .iter()
            .all(|(name, value)| is_label_part(name) && is_label_part(value))
        {
            unusable.report(
                field("labels"),
                "names and values consist of letters, digits and . _ - /",
            );
        }
        let launcher = FileLauncher {
            launch: pool.launch.as_deref(),
            launch_input: pool.launch_input.as_deref(),
            launch_max: pool.launch_max,
            launch_timeout: pool.launch_timeout.as_deref(),
        };
        let launcher = launcher::read(&launcher, name, dir, unusable);
        let budget = unusable.budget(&field("budget"), pool.budget.as_deref());
        if let Some(name) = unusable.check(
            &format!("pools.{name}"),
            PoolName::parse(name).map_err(|error| error.to_string()),
        ) {
            let keep_slot = pool.keep_slot.unwrap_or(true);
            let entry = PoolEntry {
                slots,
                agents,
                isolation,
                keep_slot,
                fallback: pool.fallback,
                budget,
                build_jobs: pool.build_jobs,
                on_runners: pool.runners,
                labels: pool.labels,
                launcher,
            };
            pools.insert(name, entry);
        }
    }
    pools
}

/// Reads the pools of the agents that name one.
pub(super) fn pools_of_agents<'a>(
    agents: impl Iterator<Item = (&'a String, Option<&'a String>)>,
    pools: &BTreeMap<PoolName, PoolEntry>,
    unusable: &mut UnusableValues,
) -> BTreeMap<AgentName, PoolName> {
    let mut found = BTreeMap::new();
    for (agent, pool) in agents {
        let Some(pool) = pool else { continue };
        match (AgentName::parse(agent), PoolName::parse(pool)) {
            (Ok(agent), Ok(pool)) if pools.contains_key(&pool) => {
                found.insert(agent, pool);
            }
            _ => {
                let known = pools
                    .keys()
                    .map(PoolName::as_str)
                    .collect::<Vec<_>>()
                    .join(", ");
                unusable.report(
                    format!("agents.{agent}.pool"),
                    format!("no pool {pool:?} is declared: use {known}, or add [pools.{pool}]"),
                );
            }
        }
    }
    found
}
