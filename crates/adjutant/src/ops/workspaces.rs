//! Workspaces of isolated runs: what a dispatch records, and the orders for creating them.

use super::{OpError, Ops};
use crate::config;
use crate::git::{self, Git, Scratch};
use crate::link::WorkspaceOrder;
use crate::store::{Connection, NewWorkspace, StoreError, Workspace, run_by_id, workspace_around};
use adjutant_core::{Denied, Isolation, RunId};
use std::path::{Path, PathBuf};

impl Ops {
    /// Resolves the repository and the base of a new run's workspace, `with_changes` including the user's
    /// uncommitted changes. `None`: the run is not isolated.
    ///
    /// # Errors
    /// Git is missing, the directory is not in a repository with a commit, or it is in another run's workspace.
    pub(super) async fn plan_workspace(&self, cwd: &str, isolation: Isolation, with_changes: bool) -> Result<Option<NewWorkspace>, OpError> {
        if isolation == Isolation::None {
            let unusable = || Denied::invalid("with_changes", "a run without isolation has your changes: use isolation clone or worktree");
            return if with_changes { Err(unusable().into()) } else { Ok(None) };
        }
        if let Some(other) = self.store.read(|connection| workspace_around(connection, cwd))? {
            let problem = format!("{cwd} is in the workspace of another run: name a directory in {}", other.repository);
            return Err(Denied::invalid("cwd", problem).into());
        }
        let cwd = Path::new(cwd);
        let (repo, base) = git::find_base(&Git::find(&config::base_env(), cwd)?, cwd).await?;
        let (repository, below) = (repo.top.display().to_string(), repo.below.clone());
        let changes = if with_changes {
            let dir = self.home.runs_dir().join(format!("git-{}", crate::client::random_hex::<8>()));
            git::capture_changes(&Scratch::new(repo, &self.home.dir, &dir).await?, &base.commit).await?
        } else {
            None
        };
        let all = self.home.workspaces_dir();
        Ok(Some(NewWorkspace { isolation, repository, base: base.commit, branch: base.branch, changes, all, below }))
    }

    /// Removes the directory of a workspace, and its registration if it is a work tree.
    pub(super) async fn remove_workspace(&self, workspace: &Workspace) -> Result<(), OpError> {
        let repository = Path::new(&workspace.repository);
        let repo = match workspace.isolation {
            Isolation::Worktree if repository.exists() => Some(git::Repo::find(&Git::find(&config::base_env(), repository)?, repository).await?),
            // The registration was removed with the repository.
            Isolation::Worktree => None,
            Isolation::Clone | Isolation::None => None,
        };
        Ok(git::remove_workspace(repo.as_ref(), workspace.isolation, &self.home.dir, Path::new(&workspace.path)).await?)
    }

    /// Pins the base of a new run with a ref in its repository. A failure is logged; the supervisor tries again.
    pub(super) async fn pin_base(&self, run: RunId, new: &NewWorkspace) {
        let repository = Path::new(&new.repository);
        let pinned = async {
            let repo = git::Repo::find(&Git::find(&config::base_env(), repository)?, repository).await?;
            git::pin_base(&repo, run, &new.base, new.changes.as_deref()).await
        };
        if let Err(error) = pinned.await {
            tracing::warn!(%error, %run, "the base of a run is not pinned yet");
        }
    }
}

/// Returns the workspace that contains a run's directory, for the orders of its attempts.
pub(super) fn order_of(connection: &Connection, cwd: &str) -> Result<Option<WorkspaceOrder>, StoreError> {
    let Some(found) = workspace_around(connection, cwd)? else { return Ok(None) };
    let Workspace { run, isolation, repository, base, branch, changes, path, state: _ } = found;
    let run_name = run_by_id(connection, run)?.map_or_else(String::new, |run| run.name);
    Ok(Some(WorkspaceOrder {
        isolation: isolation.word().to_owned(),
        repository: PathBuf::from(repository),
        base,
        branch,
        changes,
        path: PathBuf::from(path),
        run_id: run.to_string(),
        run_name,
    }))
}

/// Returns the directory whose agent configuration applies to a run: its working directory or, until its workspace
/// exists, the corresponding directory of the user's repository.
pub(super) fn source_of(cwd: &str, workspace: Option<&WorkspaceOrder>) -> String {
    match workspace {
        Some(workspace) if !Path::new(cwd).exists() => {
            let below = Path::new(cwd).strip_prefix(&workspace.path).unwrap_or("".as_ref());
            workspace.repository.join(below).display().to_string()
        }
        _ => cwd.to_owned(),
    }
}
