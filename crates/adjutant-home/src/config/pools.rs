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

/// Reads the declared pools. `dir`: that of the configuration file. The default pool always exists,
/// with `live_runs_max` slots unless it says otherwise.
pub(super) fn pools(
    declared: &BTreeMap<String, FilePool>,
    live_runs_max: u64,
    dir: &Path,
    named: &dyn Fn(&str) -> Option<AgentName>,
    unusable: &mut UnusableValues,
) -> BTreeMap<PoolName, PoolEntry> {
    let default = FilePool::default();
    let all = std::iter::once((PoolName::DEFAULT, &default))
        .chain(declared.iter().map(|(name, pool)| (name.as_str(), pool)));
    let mut pools = BTreeMap::new();
    for (name, pool) in all {
        let declared = DeclaredPool { name, pool };
        let entry = declared.read(live_runs_max, dir, named, unusable);
        let name = PoolName::parse(name).map_err(|error| error.to_string());
        if let Some(name) = unusable.check(&format!("pools.{}", declared.name), name) {
            pools.insert(name, entry);
        }
    }
    pools
}

/// A pool of the file with its name.
struct DeclaredPool<'a> {
    name: &'a str,
    pool: &'a FilePool,
}

impl DeclaredPool<'_> {
    fn field(&self, key: &str) -> String {
        format!("pools.{}.{key}", self.name)
    }

    fn read(
        &self,
        live_runs_max: u64,
        dir: &Path,
        named: &dyn Fn(&str) -> Option<AgentName>,
        unusable: &mut UnusableValues,
    ) -> PoolEntry {
        let pool = self.pool;
        let slots = pool.slots.unwrap_or(live_runs_max);
        self.check_numbers(slots, unusable);
        let agents = self.agents(named, unusable);
        let isolation = pool.isolation.as_deref().and_then(|word| {
            let kind = Isolation::from_word(word)
                .ok_or_else(|| format!("unknown isolation {word:?}: use none, clone or worktree"));
            unusable.check(&self.field("isolation"), kind)
        });
        let is_label =
            |(name, value): (&String, &String)| is_label_part(name) && is_label_part(value);
        if !pool.labels.iter().all(is_label) {
            unusable.report(
                self.field("labels"),
                "names and values consist of letters, digits and . _ - /",
            );
        }
        let launcher = FileLauncher {
            launch: pool.launch.as_deref(),
            launch_input: pool.launch_input.as_deref(),
            launch_max: pool.launch_max,
            launch_timeout: pool.launch_timeout.as_deref(),
        };
        let launcher = launcher::read(&launcher, self.name, dir, unusable);
        PoolEntry {
            slots,
            agents,
            isolation,
            keep_slot: pool.keep_slot.unwrap_or(true),
            fallback: pool.fallback,
            budget: unusable.budget(&self.field("budget"), pool.budget.as_deref()),
            build_jobs: pool.build_jobs,
            on_runners: pool.runners,
            labels: pool.labels.clone(),
            launcher,
        }
    }

    fn check_numbers(&self, slots: u64, unusable: &mut UnusableValues) {
        if !(1..=SLOTS_MAX).contains(&slots) {
            unusable.report(self.field("slots"), format!("use 1 to {SLOTS_MAX}"));
        }
        let is_allowed = |jobs| (1..=BUILD_JOBS_MAX).contains(&jobs);
        if self.pool.build_jobs.is_some_and(|jobs| !is_allowed(jobs)) {
            unusable.report(
                self.field("build_jobs"),
                format!("use 1 to {BUILD_JOBS_MAX}"),
            );
        }
    }

    /// Returns the agents of the pool. A fallback needs another agent.
    fn agents(
        &self,
        named: &dyn Fn(&str) -> Option<AgentName>,
        unusable: &mut UnusableValues,
    ) -> Vec<AgentName> {
        let field = self.field("agents");
        let mut agents = Vec::new();
        for agent in &self.pool.agents {
            match named(agent) {
                Some(agent) if agents.contains(&agent) => {
                    unusable.report(field.as_str(), format!("{agent} is named twice"))
                }
                Some(agent) => agents.push(agent),
                None => unusable.report(field.as_str(), format!("no agent {agent:?} is declared")),
            }
        }
        if self.pool.fallback && agents.len() < 2 {
            unusable.report(
                self.field("fallback"),
                "needs two or more agents, as agents = [\"first\", \"second\"]",
            );
        }
        agents
    }
}

/// Makes all pools pools for runners if the store is shared. Labels and launchers of other pools
/// are reported.
pub(super) fn place(
    pools: &mut BTreeMap<PoolName, PoolEntry>,
    is_shared: bool,
    unusable: &mut UnusableValues,
) {
    if is_shared {
        pools.values_mut().for_each(|pool| pool.on_runners = true);
    }
    let on_hub = || pools.iter().filter(|(_, pool)| !pool.on_runners);
    for (name, _) in on_hub().filter(|(_, pool)| !pool.labels.is_empty()) {
        unusable.report(format!("pools.{name}.labels"), "labels need runners = true");
    }
    for (name, _) in on_hub().filter(|(_, pool)| pool.launcher.is_some()) {
        unusable.report(format!("pools.{name}.launch"), "needs runners = true");
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (BTreeMap<PoolName, PoolEntry>, UnusableValues) {
        let declared: BTreeMap<String, FilePool> = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let named = |name: &str| AgentName::parse(name).ok().filter(|_| name != "nobody");
        let pools = pools(&declared, 16, Path::new("/etc/adj"), &named, &mut unusable);
        (pools, unusable)
    }

    #[test]
    fn default_pool_has_the_general_number_of_slots() {
        let slots = |text: &str| read(text).0[&PoolName::default()].slots;
        assert_eq!((slots(""), slots("[default]\nslots = 2\n")), (16, 2));
    }

    #[test]
    fn unusable_pools_are_reported() {
        for (text, field) in [
            ("slots = 0", "pools.p.slots"),
            ("build_jobs = 0", "pools.p.build_jobs"),
            ("agents = [\"a\", \"nobody\"]", "pools.p.agents"),
            ("agents = [\"a\", \"a\"]", "pools.p.agents"),
            ("agents = [\"a\"]\nfallback = true", "pools.p.fallback"),
            ("isolation = \"vm\"", "pools.p.isolation"),
            ("labels = { gpu = \"a b\" }", "pools.p.labels"),
            ("budget = \"much\"", "pools.p.budget"),
        ] {
            let (_, unusable) = read(&format!("[p]\n{text}\n"));
            assert_eq!(unusable.fields(), [field], "{text}");
        }
        assert_eq!(read("[\"a b\"]\n").1.fields(), ["pools.a b"]);
    }

    #[test]
    fn labels_and_launchers_need_runners() {
        let text = "[p]\nlabels = { gpu = \"yes\" }\nlaunch = [\"ssh\"]\n";
        for (runners, is_shared, fields) in [
            (false, false, &["pools.p.labels", "pools.p.launch"][..]),
            (true, false, &[]),
            (false, true, &[]),
        ] {
            let (mut pools, mut unusable) = read(&format!("{text}runners = {runners}\n"));
            place(&mut pools, is_shared, &mut unusable);
            assert_eq!(unusable.fields(), fields, "{runners} {is_shared}");
            assert_eq!(pools[&PoolName::default()].on_runners, is_shared);
        }
    }
}
