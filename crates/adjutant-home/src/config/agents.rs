//! The agents of a configuration: the built-in ones, and those that the file declares.

use super::file::{FileAgent, FileConfig};
use super::gate::{self, DeclaredGate, GateSettings};
use super::values::UnusableValues;
use super::{builtin, declared, fence};
use crate::preset::Preset;
use adjutant_core::{AgentName, AgentSpec, Budget, PoolName};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The source of a built-in agent.
pub const BUILT_IN: &str = "built-in";

/// An agent, and where it is declared.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    pub spec: AgentSpec,
    /// `built-in`, or the path of the file.
    pub source: String,
    /// Whether its entry sets `isolation`. Otherwise `[workspaces]` counts.
    pub has_isolation: bool,
    /// The pool that it names.
    pub pool: Option<PoolName>,
    pub gate: Option<GateSettings>,
    /// The budget of its runs.
    pub budget: Budget,
}

/// All agents of a configuration.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) entries: BTreeMap<AgentName, AgentEntry>,
    /// The names of the entries in the file. An invalid entry is reported by itself, not where its
    /// name is used.
    declared: BTreeSet<String>,
}

/// Reads the agents of a file at `path`. Invalid ones are reported. `text` is the file.
pub(super) fn read(
    file: &FileConfig,
    text: &str,
    path: &Path,
    unusable: &mut UnusableValues,
) -> Agents {
    let presets = declared::presets(&file.presets, text, unusable);
    let mut agents = Agents::built_in();
    agents.declared = file.agents.keys().cloned().collect();
    for (name, agent) in &file.agents {
        agents.add_declared(name, agent, &presets, path, unusable);
    }
    agents.set_fences(file, unusable);
    if let Some(default) = file
        .default_agent
        .as_ref()
        .filter(|name| !agents.is_declared(name))
    {
        unusable.report("default_agent", format!("no agent {default:?} is declared"));
    }
    agents
}

impl Agents {
    fn built_in() -> Self {
        let entry = |spec: AgentSpec| {
            let entry = AgentEntry {
                spec,
                source: BUILT_IN.to_owned(),
                has_isolation: false,
                pool: None,
                gate: None,
                budget: Budget::default(),
            };
            (entry.spec.name.clone(), entry)
        };
        Self {
            entries: builtin::all().map(entry).collect(),
            declared: BTreeSet::new(),
        }
    }

    /// Adds an agent of the file, with its gate. An invalid one is reported.
    fn add_declared(
        &mut self,
        name: &str,
        agent: &FileAgent,
        presets: &BTreeMap<String, Preset>,
        path: &Path,
        unusable: &mut UnusableValues,
    ) {
        let Some(spec) = declared::agent(name, agent, presets, unusable) else {
            return;
        };
        let mut entry = AgentEntry {
            spec,
            source: path.display().to_string(),
            has_isolation: agent.isolation.is_some(),
            pool: None,
            gate: None,
            budget: Budget::default(),
        };
        let preset = Preset::from_text(&entry.spec.preset);
        let declared_gate = DeclaredGate {
            agent: name,
            // The agent is valid, so its harness is known.
            harness: declared::harness_name(name, agent, presets).unwrap_or(name),
            gate: agent.gate,
            base_url: agent.base_url.as_deref(),
            key: agent.key.as_ref(),
        };
        entry.gate = gate::gate(&declared_gate, preset.as_ref(), path, unusable);
        entry.spec.gate = entry.gate.as_ref().map(GateSettings::of_agent);
        self.entries.insert(entry.spec.name.clone(), entry);
    }

    /// Applies the general fence to the agents without their own, and its writable directories to
    /// all.
    fn set_fences(&mut self, file: &FileConfig, unusable: &mut UnusableValues) {
        let general = fence::fence("fence", file.fence.as_deref(), unusable).unwrap_or_default();
        fence::check_dirs("fence_write", &file.fence_write, unusable);
        for AgentEntry { spec, .. } in self.entries.values_mut() {
            let own = file.agents.get(spec.name.as_str());
            if own.is_none_or(|agent| agent.fence.is_none()) {
                spec.fence = general;
            }
            spec.fence_write.extend(file.fence_write.iter().cloned());
        }
    }

    /// Gives the agents the pools that they name, and their budgets.
    pub(super) fn set_terms(
        &mut self,
        mut pools: BTreeMap<AgentName, PoolName>,
        mut budgets: BTreeMap<AgentName, Budget>,
    ) {
        for (name, entry) in &mut self.entries {
            entry.pool = pools.remove(name);
            entry.budget = budgets.remove(name).unwrap_or_default();
        }
    }

    fn is_declared(&self, name: &str) -> bool {
        self.declared.contains(name) || self.entries.keys().any(|agent| agent.as_str() == name)
    }

    /// Returns the agent that a value of the file names. `None`: there is none.
    pub(super) fn named(&self, name: &str) -> Option<AgentName> {
        AgentName::parse(name)
            .ok()
            .filter(|_| self.is_declared(name))
    }
}

/// Lists a value of each agent of the file.
pub(super) fn values<'a>(
    agents: &'a BTreeMap<String, FileAgent>,
    value: impl Fn(&'a FileAgent) -> Option<&'a String>,
) -> impl Iterator<Item = (&'a String, Option<&'a String>)> {
    agents.iter().map(move |(name, agent)| (name, value(agent)))
}

/// Reads the budgets of the agents that have one.
pub(super) fn budgets(
    agents: &BTreeMap<String, FileAgent>,
    unusable: &mut UnusableValues,
) -> BTreeMap<AgentName, Budget> {
    let mut budgets = BTreeMap::new();
    for (name, agent) in agents {
        let budget = unusable.budget(&format!("agents.{name}.budget"), agent.budget.as_deref());
        if let (Ok(name), false) = (AgentName::parse(name), budget.is_empty()) {
            budgets.insert(name, budget);
        }
    }
    budgets
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Fence;

    fn read_text(text: &str) -> (Agents, UnusableValues) {
        let file: FileConfig = toml::from_str(text).expect("TOML");
        let mut unusable = UnusableValues::default();
        let agents = read(
            &file,
            text,
            Path::new("/etc/adj/config.toml"),
            &mut unusable,
        );
        (agents, unusable)
    }

    #[test]
    fn general_fence_applies_where_an_agent_has_none() {
        let (agents, unusable) = read_text(
            "fence = \"workspace\"\nfence_write = [\"/cache\"]\n\
             [agents.open]\nharness = \"echo\"\nfence = \"none\"\nfence_write = [\"/own\"]\n\
             [agents.closed]\nharness = \"echo\"\n",
        );
        assert!(unusable.fields().is_empty(), "{unusable:?}");
        let fence = |name: &str| {
            let spec = &agents.entries[&AgentName::parse(name).expect("a name")].spec;
            (spec.fence, spec.fence_write.join(" "))
        };
        assert_eq!(fence("open"), (Fence::None, "/own /cache".to_owned()));
        assert_eq!(fence("closed"), (Fence::Workspace, "/cache".to_owned()));
        assert_eq!(fence("echo"), (Fence::Workspace, "/cache".to_owned()));
    }

    #[test]
    fn name_of_an_invalid_agent_can_be_used() {
        let (agents, unusable) =
            read_text("default_agent = \"a\"\n[agents.a]\nharness = \"magic\"\n");
        assert_eq!(unusable.fields(), ["agents.a.harness"]);
        assert!(agents.named("a").is_some() && agents.named("b").is_none());
        assert!(agents.entries.keys().all(|name| name.as_str() != "a"));
        let (_, unusable) = read_text("default_agent = \"b\"\n");
        assert_eq!(unusable.fields(), ["default_agent"]);
    }
}
