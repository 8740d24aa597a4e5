//! The programs of agents: their paths and environments.

use crate::config::{AgentEntry, Config, is_for_agent};
use crate::ops::OpError;
use crate::preset::Preset;
use adjutant_core::agent::suggested_name;
use adjutant_core::{AgentName, AgentSpec, HarnessKind};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds an agent's program: an absolute path as given, a bare name on `PATH`.
pub(super) fn program(entry: &AgentEntry, path: &str) -> Result<Option<PathBuf>, OpError> {
    if entry.spec.harness == HarnessKind::Echo {
        return Ok(None);
    }
    let agent = entry.spec.name.to_string();
    let Some(program) = entry.spec.command.first().cloned() else {
        return Err(OpError::ProgramNotFound {
            agent,
            program: "(none)".to_owned(),
        });
    };
    let is_program = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = PathBuf::from(&program);
        return match path.metadata() {
            Ok(_) if is_program(&path) && path.is_absolute() => Ok(Some(path)),
            Ok(_) if path.is_absolute() => Err(OpError::ProgramNotExecutable { agent, program }),
            _ => Err(OpError::ProgramNotFound { agent, program }),
        };
    }
    let mut refused = None;
    for dir in path.split(':').filter(|dir| dir.starts_with('/')) {
        let candidate = Path::new(dir).join(&program);
        if is_program(&candidate) {
            return Ok(Some(candidate));
        }
        if candidate.is_file() {
            refused.get_or_insert(candidate);
        }
    }
    Err(match refused {
        Some(found) => OpError::ProgramNotExecutable {
            agent,
            program: found.display().to_string(),
        },
        None => OpError::ProgramNotFound { agent, program },
    })
}

/// Removes variables of other vendors and agents, and the key of its gate, from a dispatcher's
/// environment.
pub(super) fn own_env(
    agent: &AgentSpec,
    mut env: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let preset = Preset::from_text(&agent.preset);
    env.retain(|name, _| is_for_agent(name, agent, preset.as_ref()) && !is_gate_key(name, agent));
    env
}

/// Returns the stored part of a dispatcher's environment for an agent: its variables, and the key
/// of its gate, which only the gate receives.
pub(super) fn stored_env(
    agent: &AgentSpec,
    mut env: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let preset = Preset::from_text(&agent.preset);
    env.retain(|name, _| is_for_agent(name, agent, preset.as_ref()) || is_gate_key(name, agent));
    env
}

fn is_gate_key(name: &str, agent: &AgentSpec) -> bool {
    agent
        .gate
        .as_ref()
        .is_some_and(|gate| gate.key_variable.as_deref() == Some(name))
}

/// Maximum number of characters of an agent's name that an error repeats.
const NAME_SHOWN_CHARS_MAX: usize = 80;

/// Creates the error for an agent that is not configured. It lists the agents that can be started
/// from `path`.
pub(super) fn unknown_agent(config: &Config, given: &str, path: &str) -> OpError {
    let name: String = given
        .chars()
        .take(NAME_SHOWN_CHARS_MAX)
        .filter(|c| !c.is_control())
        .collect();
    let suggested =
        suggested_name(&name, config.agents.keys().map(AgentName::as_str)).map(str::to_owned);
    OpError::UnknownAgent {
        name,
        suggested,
        installed: installed_agents(config, path),
    }
}

/// Returns the names of agents whose programs are installed.
pub(super) fn installed_agents(config: &Config, path: &str) -> Vec<String> {
    config
        .agents
        .values()
        .filter(|entry| program(entry, path).is_ok())
        .map(|entry| entry.spec.name.to_string())
        .collect()
}
