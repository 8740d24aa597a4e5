//! Determines the fence of a run when it is dispatched.

use crate::config::{Config, Containment, Home};
use crate::git;
use crate::ops::OpError;
use crate::ops::fence::fence_workspace;
use adjutant_core::fence::shared_workspace;
use adjutant_core::{AgentSpec, Denied, Fence, Isolation};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Refuses a run whose fence cannot be enforced. `env` is what the agent finds. Returns the
/// workspace of a run in the user's own files.
pub(super) fn check_fence(
    home: &Home,
    config: &Config,
    agent: &AgentSpec,
    cwd: &Path,
    isolation: Isolation,
    env: &BTreeMap<String, String>,
) -> Result<Option<String>, OpError> {
    if agent.fence != Fence::Workspace {
        return Ok(if isolation == Isolation::None {
            fence_workspace(agent.fence, cwd, None)
        } else {
            None
        });
    }
    if config.containment == Containment::Subreaper {
        return Err(OpError::NoFence {
            why: "it needs a PID namespace, and the configuration says containment = \"subreaper\""
                .to_owned(),
        });
    }
    match isolation {
        Isolation::Clone => Ok(None),
        // Git writes the index and the refs of a worktree into the repository.
        Isolation::Worktree => Err(OpError::NoFence {
            why: "a worktree writes to its repository; use isolation = \"clone\"".to_owned(),
        }),
        Isolation::None => {
            let user_home = env
                .get("HOME")
                .and_then(|home| PathBuf::from(home).canonicalize().ok());
            let home = home.dir.canonicalize().unwrap_or_else(|_| home.dir.clone());
            let workspace = shared_workspace(
                cwd,
                git::nearest_repository(cwd),
                user_home.as_deref(),
                &home,
            );
            workspace.map_err(|unfit| Denied::invalid("cwd", unfit.to_string()))?;
            Ok(fence_workspace(agent.fence, cwd, None))
        }
    }
}
