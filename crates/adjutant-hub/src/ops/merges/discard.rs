//! Removing the workspace of a run whose changes are not wanted. Its snapshots remain until the run is removed.

use crate::failpoint::failpoint;
use crate::git;
use crate::ops::changes::view as snapshot_view;
use crate::ops::{Caller, OpError, Ops};
use crate::store::{Workspace, unfinished_in};
use crate::view::{DiscardRun, DiscardView};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Denied, RunState, WorkspaceState};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// Maximum number of files that an error names as lost.
const NAMED_MAX: usize = 10;

impl Ops {
    /// Takes a snapshot of the tree of an isolated run that has stopped or ended, and removes its workspace.
    ///
    /// # Errors
    /// Unknown or foreign; live; not isolated; files would be lost; git or the disk failed.
    pub async fn discard(&self, caller: Caller, call: DiscardRun) -> Result<DiscardView, OpError> {
        let run = call.run.clone();
        self.discard_run(caller, call)
            .await
            .map_err(|error| error.of_run(&run))
    }

    async fn discard_run(&self, caller: Caller, call: DiscardRun) -> Result<DiscardView, OpError> {
        let only = Arc::clone(&self.tree_changes).lock_owned().await;
        let earlier = self.stored_reply(&caller)?;
        let target = self.target(
            &caller.who,
            Action::Discard,
            &call.run,
            "discarded; pause or cancel it first",
        );
        if let Some(earlier) = earlier {
            // The hub may have died before the removal.
            if let Some(target) = target
                .ok()
                .filter(|target| target.workspace.state == WorkspaceState::Discarded)
            {
                self.remove_directories(only, target.workspace, call.force)
                    .await?;
            }
            return Ok(earlier);
        }
        let target = target?;
        let mut view = DiscardView {
            run_id: target.run.id.to_string(),
            run_name: target.run.name.clone(),
            path: target.workspace.path.clone(),
            ..DiscardView::default()
        };
        let scratch = match self.scratch_of(&target.run).await {
            // Nothing can be kept without it.
            Err(OpError::Git(git::GitError::RepositoryGone { .. })) if call.force => None,
            found => Some(found?),
        };
        if let Some(scratch) = scratch.as_ref().filter(|scratch| scratch.has_tree()) {
            let taken = self
                .take_snapshot(scratch, &target.run, SnapshotCause::Discard)
                .await?;
            if !taken.unsaved.is_empty() && !call.force {
                let named: Vec<&str> = taken
                    .snapshot
                    .left_out
                    .iter()
                    .take(NAMED_MAX)
                    .map(String::as_str)
                    .collect();
                let (named, torn) = (named.join(", "), torn_note(&target.workspace.path)?);
                let problem = format!(
                    "these files would be lost, because no snapshot can have them: {named}; copy them, or use --force{torn}"
                );
                return Err(Denied::conflict("workspace", problem).into());
            }
            match git::keep_commits(scratch, target.run.id).await {
                // Its files are kept anyway.
                Err(error) if call.force => {
                    tracing::warn!(%error, run = %target.run.id, "the commits in a discarded workspace cannot be kept")
                }
                kept => drop(kept?),
            }
            view.kept = Some(snapshot_view(target.run.id, &taken.snapshot));
        } else if target.workspace.state == WorkspaceState::Discarded {
            if call.force {
                git::remove_torn_workspaces(Path::new(&target.workspace.path)).await?;
            }
            view.was_discarded = true;
            return Ok(view);
        } else if scratch.as_ref().is_some_and(git::Scratch::is_torn) && !call.force {
            let (path, why) = (
                &target.workspace.path,
                "the machine stopped before all its files were on disk",
            );
            let torn = torn_note(path)?;
            let problem = format!(
                "no snapshot can be taken of {path}: {why}; copy what you need, then use --force{torn}"
            );
            return Err(Denied::conflict("workspace", problem).into());
        }
        drop(scratch);
        let (id, path, reply) = (target.run.id, target.workspace.path.clone(), view.clone());
        let text = view
            .kept
            .as_ref()
            .map_or_else(String::new, |kept| format!("kept as snapshot {}", kept.n));
        let view = self
            .write(caller, move |tx, who| {
                let run = tx.run(id)?;
                // It may have been resumed since.
                if run.state.is_live() || run.state == RunState::Queued {
                    return Err(Denied::WrongState {
                        run: run.name.clone(),
                        state: run.state.word(),
                        wanted: "discarded; pause or cancel it first",
                    }
                    .into());
                }
                // Another one may have been started in it.
                if let Some(other) = unfinished_in(tx.connection(), &path, id)?.first() {
                    return Err(Denied::conflict(
                        "run",
                        format!("{other} works in its workspace: wait for it, or cancel it"),
                    )
                    .into());
                }
                tx.discard_workspace(&run, who, &text)?;
                Ok(reply)
            })
            .await?;
        failpoint!("discard.before_removal");
        self.remove_directories(only, target.workspace, call.force)
            .await?;
        Ok(view)
    }

    /// Removes the directory of a discarded workspace; with `force` also the earlier ones that a crash of the machine has left.
    async fn remove_directories(
        &self,
        only: OwnedMutexGuard<()>,
        workspace: Workspace,
        force: bool,
    ) -> Result<(), OpError> {
        // In a thread, so that a disconnecting caller does not interrupt it.
        let (ops, runtime) = (self.clone(), tokio::runtime::Handle::current());
        let remove = move || {
            let _only = only;
            runtime.block_on(async {
                if force {
                    git::remove_torn_workspaces(Path::new(&workspace.path)).await?;
                }
                ops.remove_workspace(&workspace).await
            })
        };
        tokio::task::spawn_blocking(remove)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    }
}

/// Lists the earlier workspaces that `--force` also removes.
fn torn_note(path: &str) -> Result<String, OpError> {
    let torn: Vec<String> = git::torn_workspaces(Path::new(path))?
        .iter()
        .map(|dir| dir.display().to_string())
        .collect();
    Ok(match torn.is_empty() {
        true => String::new(),
        false => format!(
            ", which also removes what was set aside when the machine stopped: {}",
            torn.join(", ")
        ),
    })
}
