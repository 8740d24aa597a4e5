//! Agents as the configuration has them, and whether their programs are there.

use super::{OpError, Ops};
use crate::config::AgentEntry;
use crate::preset::{self, Preset};
use crate::store::harness_word;
use crate::view::{AgentList, AgentView};
use adjutant_core::{Action, AgentSpec, HarnessKind, Principal};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds an agent's program: an absolute path as it stands, a bare name on `PATH`.
pub(super) fn program(entry: &AgentEntry, path: &str) -> Result<Option<PathBuf>, OpError> {
    if entry.spec.harness == HarnessKind::Echo {
        return Ok(None);
    }
    let agent = entry.spec.name.to_string();
    let Some(program) = entry.spec.command.first().cloned() else {
        return Err(OpError::ProgramNotFound { agent, program: "(none)".to_owned() });
    };
    let is_program = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
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
        Some(found) => OpError::ProgramNotExecutable { agent, program: found.display().to_string() },
        None => OpError::ProgramNotFound { agent, program },
    })
}

/// Leaves out of a dispatcher's environment what belongs to other vendors: their keys are none of
/// this agent's business.
pub(super) fn own_env(agent: &AgentSpec, mut env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let preset = Preset::from_text(&agent.preset);
    env.retain(|name, _| !preset::is_vendors_variable(name) || preset.as_ref().is_some_and(|preset| preset.passes(name)));
    env
}

impl Ops {
    /// Lists the configured agents and whether they can be started from here.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn list_agents(&self, who: &Principal) -> Result<AgentList, OpError> {
        Self::check(who, Action::ListAgents)?;
        let config = self.config()?;
        let env: BTreeMap<String, String> = crate::config::dispatch_env();
        let path = env.get("PATH").map_or("", String::as_str);
        let agents = config
            .agents
            .values()
            .map(|entry| (entry, program(entry, path)))
            // A preset whose program is not there is no agent of this machine.
            .filter(|(entry, found)| found.is_ok() || entry.source != "built-in")
            .map(|(entry, found)| {
                let preset = Preset::from_text(&entry.spec.preset);
                AgentView {
                    name: entry.spec.name.to_string(),
                    harness: preset.map_or_else(|| harness_word(entry.spec.harness).to_owned(), |preset| preset.name),
                    description: entry.spec.description.clone(),
                    found: found.is_ok(),
                    problem: found.as_ref().err().map(ToString::to_string),
                    program: found.ok().flatten().map(|path| path.display().to_string()),
                    source: entry.source.clone(),
                }
            })
            .collect();
        Ok(AgentList { agents, warnings: Vec::new() })
    }
}
