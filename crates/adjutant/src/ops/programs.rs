//! The programs of agents: where they are, and which environment they get.

use crate::config::{AgentEntry, is_for_agent};
use crate::ops::OpError;
use crate::preset::Preset;
use adjutant_core::{AgentSpec, HarnessKind};
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

/// Leaves out of a dispatcher's environment what belongs to other vendors and other agents: their keys are none of
/// this agent's business.
pub(super) fn own_env(agent: &AgentSpec, mut env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let preset = Preset::from_text(&agent.preset);
    env.retain(|name, _| is_for_agent(name, agent, preset.as_ref()));
    env
}
