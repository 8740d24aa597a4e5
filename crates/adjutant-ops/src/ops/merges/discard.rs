//! Removing the workspace of a run whose changes are not wanted. Its snapshots remain until the run
//! is removed.

use super::target::{Target, target};
use crate::failpoint::failpoint;
use crate::git;
use crate::ops::trees::{Trees, take_snapshot, view as snapshot_view};
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, Ops};
use crate::store::{Store, Workspace, unfinished_in};
use crate::view::{DiscardRun, DiscardView, SnapshotView};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Denied, RunState, WorkspaceState};
use std::path::Path;
use tokio::sync::OwnedMutexGuard;

/// Maximum number of files that an error names as lost.
const NAMED_MAX: usize = 10;
/// What a run must be for its workspace to be discarded.
const WANTED: &str = "discarded; pause or cancel it first";

/// What was found of a workspace.
#[derive(Debug, Clone, Copy)]
struct FoundWork {
    has_tree: bool,
    /// The machine stopped before all its files were on disk.
    is_torn: bool,
    was_discarded: bool,
}

/// What has to be kept of a workspace before it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkToKeep {
    /// Its tree and its commits.
    Tree,
    /// Nothing is there, or the caller accepts its loss.
    Nothing,
    /// Nothing, because the workspace was discarded before.
    WasDiscarded,
    /// Files of which no snapshot can be taken.
    Torn,
}

impl FoundWork {
    /// Returns what has to be kept. `force`: nothing is worth keeping that no snapshot can have.
    fn to_keep(self, force: bool) -> WorkToKeep {
        if self.has_tree {
            WorkToKeep::Tree
        } else if self.was_discarded {
            WorkToKeep::WasDiscarded
        } else if self.is_torn && !force {
            WorkToKeep::Torn
        } else {
            WorkToKeep::Nothing
        }
    }
}

/// What was kept of a workspace.
enum KeptWork {
    Snapshot(Box<SnapshotView>),
    Nothing,
    WasDiscarded,
}

/// Removes workspaces whose changes are not wanted.
#[derive(Debug, Clone)]
pub struct Discards {
    store: Store,
    trees: Trees,
    workspaces: Workspaces,
}

impl Discards {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
            workspaces: Workspaces::of(ops),
        }
    }

    /// Takes a snapshot of the tree of an isolated run that has stopped or ended, and removes its
    /// workspace.
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
        let only = self.trees.lock().await;
        let earlier = caller.stored_reply(&self.store)?;
        let target = target(&self.store, &caller.who, Action::Discard, &call.run, WANTED);
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
        match self.keep_work(&target, call.force).await? {
            KeptWork::Snapshot(kept) => view.kept = Some(*kept),
            KeptWork::Nothing => {}
            KeptWork::WasDiscarded => {
                if call.force {
                    git::remove_torn_workspaces(Path::new(&target.workspace.path)).await?;
                }
                view.was_discarded = true;
                return Ok(view);
            }
        }
        let view = self.record_discard(caller, &target, view).await?;
        failpoint!("discard.before_removal");
        self.remove_directories(only, target.workspace, call.force)
            .await?;
        Ok(view)
    }

    /// Keeps what is in the workspace of a run, or refuses to discard it. With `force`, what cannot
    /// be kept is lost.
    async fn keep_work(&self, target: &Target, force: bool) -> Result<KeptWork, OpError> {
        let Target { run, workspace } = target;
        let scratch = match self.trees.scratch_of(run).await {
            // Nothing can be kept without it.
            Err(OpError::Git(git::GitError::RepositoryGone { .. })) if force => None,
            found => Some(found?),
        };
        let found = FoundWork {
            has_tree: scratch.as_ref().is_some_and(git::Scratch::has_tree),
            is_torn: scratch.as_ref().is_some_and(git::Scratch::is_torn),
            was_discarded: workspace.state == WorkspaceState::Discarded,
        };
        match (found.to_keep(force), &scratch) {
            (WorkToKeep::Tree, Some(scratch)) => {
                let kept = keep_tree(scratch, target, force).await?;
                Ok(KeptWork::Snapshot(Box::new(kept)))
            }
            (WorkToKeep::Tree | WorkToKeep::Nothing, _) => Ok(KeptWork::Nothing),
            (WorkToKeep::WasDiscarded, _) => Ok(KeptWork::WasDiscarded),
            (WorkToKeep::Torn, _) => {
                let (path, why) = (
                    &workspace.path,
                    "the machine stopped before all its files were on disk",
                );
                let torn = torn_note(path)?;
                let problem = format!(
                    "no snapshot can be taken of {path}: {why}; copy what you need, then use --force{torn}"
                );
                Err(Denied::conflict("workspace", problem).into())
            }
        }
    }

    /// Records that a workspace is discarded, before it is removed.
    async fn record_discard(
        &self,
        caller: Caller,
        target: &Target,
        view: DiscardView,
    ) -> Result<DiscardView, OpError> {
        let (id, path) = (target.run.id, target.workspace.path.clone());
        let text = view
            .kept
            .as_ref()
            .map_or_else(String::new, |kept| format!("kept as snapshot {}", kept.n));
        caller
            .write(&self.store, move |tx, who| {
                let run = tx.run(id)?;
                // It may have been resumed since.
                if run.state.is_live() || run.state == RunState::Queued {
                    return Err(Denied::WrongState {
                        run: run.name.clone(),
                        state: run.state.word(),
                        wanted: WANTED,
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
                Ok(view)
            })
            .await
    }

    /// Removes the directory of a discarded workspace; with `force` also the earlier ones that a
    /// crash of the machine has left.
    async fn remove_directories(
        &self,
        only: OwnedMutexGuard<()>,
        workspace: Workspace,
        force: bool,
    ) -> Result<(), OpError> {
        // In a thread, so that a disconnecting caller does not interrupt it.
        let (workspaces, runtime) = (self.workspaces.clone(), tokio::runtime::Handle::current());
        let remove = move || {
            let _only = only;
            runtime.block_on(async {
                if force {
                    git::remove_torn_workspaces(Path::new(&workspace.path)).await?;
                }
                workspaces.remove(&workspace).await
            })
        };
        tokio::task::spawn_blocking(remove)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    }
}

/// Takes a snapshot of a workspace, and keeps its commits. Files that no snapshot can have are
/// lost only with `force`.
async fn keep_tree(
    scratch: &git::Scratch,
    target: &Target,
    force: bool,
) -> Result<SnapshotView, OpError> {
    let run = &target.run;
    let taken = take_snapshot(scratch, run, SnapshotCause::Discard).await?;
    if !taken.unsaved.is_empty() && !force {
        let left_out = taken.snapshot.left_out.iter().take(NAMED_MAX);
        let named: Vec<&str> = left_out.map(String::as_str).collect();
        let (named, torn) = (named.join(", "), torn_note(&target.workspace.path)?);
        let problem = format!(
            "these files would be lost, because no snapshot can have them: {named}; copy them, or use --force{torn}"
        );
        return Err(Denied::conflict("workspace", problem).into());
    }
    match git::keep_commits(scratch, run.id).await {
        // Its files are kept anyway.
        Err(error) if force => {
            tracing::warn!(%error, run = %run.id, "the commits in a discarded workspace cannot be kept")
        }
        kept => drop(kept?),
    }
    Ok(snapshot_view(run.id, &taken.snapshot))
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

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: FoundWork = FoundWork {
        has_tree: false,
        is_torn: false,
        was_discarded: false,
    };

    #[test]
    fn tree_is_kept_even_with_force() {
        let found = FoundWork {
            has_tree: true,
            was_discarded: true,
            ..EMPTY
        };
        assert_eq!(found.to_keep(false), WorkToKeep::Tree);
        assert_eq!(found.to_keep(true), WorkToKeep::Tree);
    }

    #[test]
    fn torn_workspace_is_lost_only_with_force() {
        let found = FoundWork {
            is_torn: true,
            ..EMPTY
        };
        assert_eq!(found.to_keep(false), WorkToKeep::Torn);
        assert_eq!(found.to_keep(true), WorkToKeep::Nothing);
    }

    #[test]
    fn workspace_is_discarded_once() {
        let found = FoundWork {
            was_discarded: true,
            is_torn: true,
            ..EMPTY
        };
        assert_eq!(found.to_keep(false), WorkToKeep::WasDiscarded);
        assert_eq!(EMPTY.to_keep(false), WorkToKeep::Nothing);
    }
}
