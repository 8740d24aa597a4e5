//! Workspaces of isolated runs: what a dispatch records, and what an attempt is ordered to make.

use super::{OpError, Ops};
use crate::config;
use crate::git::{self, Git};
use crate::link::WorkspaceOrder;
use crate::store::{Connection, NewWorkspace, StoreError, Workspace, run_by_id, workspace_around};
use adjutant_core::{Denied, Isolation, RunId};
use std::path::{Path, PathBuf};

impl Ops {
    /// Resolves what the workspace of a new run is made from. `None`: the run is not isolated.
    ///
    /// # Errors
    /// No git; the directory lies in no repository with a commit, or in another run's workspace.
    pub(super) async fn plan_workspace(&self, cwd: &str, isolation: Isolation) -> Result<Option<NewWorkspace>, OpError> {
        match isolation {
            Isolation::None => return Ok(None),
            Isolation::Clone => {}
            Isolation::Worktree => return Err(Denied::invalid("isolation", "worktree is not supported yet: use clone").into()),
        }
        if let Some(other) = self.store.read(|connection| workspace_around(connection, cwd))? {
            let problem = format!("{cwd} is in the workspace of another run: name a directory in {}", other.repository);
            return Err(Denied::invalid("cwd", problem).into());
        }
        let cwd = Path::new(cwd);
        let (repo, base) = git::find_base(&Git::find(&config::base_env(), cwd)?, cwd).await?;
        Ok(Some(NewWorkspace {
            isolation,
            repository: repo.top.display().to_string(),
            base: base.commit,
            branch: base.branch,
            all: self.home.workspaces_dir(),
            below: repo.below,
        }))
    }

    /// Keeps the base of a new run in its repository. What fails is logged: its supervisor does it again.
    pub(super) async fn pin_base(&self, run: RunId, new: &NewWorkspace) {
        let repository = Path::new(&new.repository);
        let pinned = async {
            let repo = git::Repo::find(&Git::find(&config::base_env(), repository)?, repository).await?;
            git::pin_base(&repo, run, &new.base).await
        };
        if let Err(error) = pinned.await {
            tracing::warn!(%error, %run, "the commit that a run starts from is not kept yet");
        }
    }
}

/// Returns what the attempts of a run in a directory have to know of the workspace that it lies in.
pub(super) fn order_of(connection: &Connection, cwd: &str) -> Result<Option<WorkspaceOrder>, StoreError> {
    let Some(found) = workspace_around(connection, cwd)? else { return Ok(None) };
    let Workspace { run, isolation, repository, base, branch, path, state: _ } = found;
    let run_name = run_by_id(connection, run)?.map_or_else(String::new, |run| run.name);
    Ok(Some(WorkspaceOrder {
        isolation: isolation.word().to_owned(),
        repository: PathBuf::from(repository),
        base,
        branch,
        path: PathBuf::from(path),
        run_id: run.to_string(),
        run_name,
    }))
}

/// Returns the directory of the user's whose agent configuration a run in a workspace has: the one that it was dispatched for,
/// until the workspace is there.
pub(super) fn source_of(cwd: &str, workspace: Option<&WorkspaceOrder>) -> String {
    match workspace {
        Some(workspace) if !Path::new(cwd).exists() => {
            let below = Path::new(cwd).strip_prefix(&workspace.path).unwrap_or("".as_ref());
            workspace.repository.join(below).display().to_string()
        }
        _ => cwd.to_owned(),
    }
}
