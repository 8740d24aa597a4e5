//! The workspace of an isolated run, which is there before anything else of the attempt needs its directory.

use super::worker::UMASK;
use crate::git::{Git, GitError, NewWorkspace, Repo, make_workspace};
use crate::harness::Refusal;
use crate::link::{AttemptDir, Order, WorkspaceOrder};
use crate::view::codes;
use adjutant_core::{Isolation, RunId};

/// Makes the workspace of the attempt's run, if it has one of its own and it is not there yet.
///
/// # Errors
/// Why the agent cannot be started.
pub async fn make(order: &Order, dir: &AttemptDir) -> Result<(), Refusal> {
    let Some(workspace) = order.workspace.as_ref().filter(|workspace| workspace.run_id == order.run_id) else { return Ok(()) };
    make_for(order, dir, workspace).await.map_err(|error| Refusal {
        code: match error {
            GitError::File { .. } => codes::STORAGE,
            _ => codes::INVALID,
        },
        message: format!("the workspace {} cannot be made: {error}", workspace.path.display()),
    })
}

async fn make_for(order: &Order, dir: &AttemptDir, workspace: &WorkspaceOrder) -> Result<(), GitError> {
    let WorkspaceOrder { isolation, repository, base, branch, changes, path, .. } = workspace;
    let isolation = Isolation::from_word(isolation).ok_or_else(|| GitError::unusable(path, "its kind is a word of a newer version"))?;
    let run = RunId::parse(&order.run_id).map_err(|_| GitError::unusable(path, "the order names no run"))?;
    let repo = Repo::find(&Git::find(&order.env, repository)?, repository).await?;
    let new = NewWorkspace {
        isolation,
        run,
        run_name: &order.run_name,
        base,
        branch: branch.as_deref(),
        changes: changes.as_deref(),
        path,
        home: dir.home(),
        cwd: &order.cwd,
        umask: UMASK,
    };
    make_workspace(&repo, &new).await
}
