//! The workspace of an isolated run. It is created before the attempt uses its directory.

use super::worker::UMASK;
use crate::git::{
    Git, GitError, NewWorkspace, Repo, continued_state, make_workspace, sync_workspace,
};
use crate::harness::StartRefusal;
use crate::protocol::{AttemptDir, Order, TreeStart, WorkspaceOrder};
use crate::view::codes;
use crate::{clock, config, files};
use adjutant_core::{Isolation, RunId};
use tokio_util::sync::CancellationToken;

/// Creates the workspace of an isolated run, if it does not exist yet, and the caches that it
/// shares.
///
/// # Errors
/// Why the agent cannot be started.
pub(super) async fn make(order: &Order, dir: &AttemptDir) -> Result<(), StartRefusal> {
    let Some(workspace) = &order.workspace else {
        return Ok(());
    };
    for cache in &workspace.caches {
        let made = if cache.starts_with(dir.home()) {
            files::make_dirs(dir.home(), cache)
        } else {
            std::fs::create_dir_all(cache)
        };
        made.map_err(|error| StartRefusal {
            code: if files::is_unwritable(&error) { codes::STORAGE_FULL } else { codes::STORAGE },
            message: format!("the shared cache {} cannot be made: {error}: correct caches in [workspaces] of the configuration", cache.display()),
        })?;
    }
    if workspace.run_id != order.run_id {
        return Ok(());
    }
    make_for(order, dir, workspace)
        .await
        .map_err(|error| StartRefusal {
            code: match error {
                _ if files::names_full_disk(&error.to_string()) => codes::STORAGE_FULL,
                GitError::File { .. } => codes::STORAGE,
                _ => codes::INVALID,
            },
            message: format!(
                "the workspace {} cannot be made: {error}",
                workspace.path.display()
            ),
        })
}

/// Syncs the files of the attempt's workspace to disk while the agent runs. The token is cancelled
/// when this has ended.
pub(crate) fn sync_in_background(order: &Order, dir: &AttemptDir) -> CancellationToken {
    let synced = CancellationToken::new();
    let over = synced.clone().drop_guard();
    let Some(workspace) = order
        .workspace
        .as_ref()
        .filter(|workspace| workspace.run_id == order.run_id)
    else {
        return synced;
    };
    let (home, path) = (dir.home().to_owned(), workspace.path.clone());
    // The next attempt repeats an interrupted sync.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = sync_workspace(&home, &path) {
            tracing::warn!(%error, "the files of the workspace may not be on disk yet");
        }
        drop(over);
    });
    synced
}

async fn make_for(
    order: &Order,
    dir: &AttemptDir,
    workspace: &WorkspaceOrder,
) -> Result<(), GitError> {
    let WorkspaceOrder {
        isolation,
        repository,
        base,
        branch,
        changes,
        path,
        copy,
        start,
        ..
    } = workspace;
    let isolation = Isolation::from_word(isolation)
        .ok_or_else(|| GitError::unusable(path, "its kind is a word of a newer version"))?;
    let run = RunId::parse(&order.run_id)
        .map_err(|_| GitError::unusable(path, "the order names no run"))?;
    let repo = Repo::find(
        &Git::find(&config::git_env(order.env.get("PATH")), repository)?,
        repository,
    )
    .await?;
    let continued = match start {
        TreeStart::Base => None,
        TreeStart::Newest | TreeStart::Moved => continued_state(&repo, run).await?,
    };
    let new = NewWorkspace {
        continued: continued.as_ref(),
        is_moved: *start == TreeStart::Moved,
        isolation,
        run,
        run_name: &order.run_name,
        base,
        branch: branch.as_deref(),
        changes: changes.as_deref(),
        copy,
        path,
        home: dir.home(),
        boot: &clock::reading().boot,
        cwd: &order.cwd,
        umask: UMASK,
    };
    make_workspace(&repo, &new).await
}
