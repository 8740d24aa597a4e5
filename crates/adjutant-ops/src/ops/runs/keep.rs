//! Why a finished run has to stay: its work would be lost, or is in use.

use crate::git::{self, GitError, Scratch, Snapshot};
use crate::ops::OpError;
use crate::ops::review::Reviews;
use crate::ops::trees::{Trees, take_snapshot};
use crate::ops::workspaces::Workspaces;
use crate::store::{
    Merge, Run, Store, Workspace, has_event, interrupted_undo, merges_of, merges_under_way,
    unfinished_below, unfinished_in, workspace_of,
};
use adjutant_core::merge::MergeMode;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{EventKind, WorkspaceState};
use futures::FutureExt;
use std::path::{Path, PathBuf};

/// Maximum number of files that a reason names.
const NAMED_MAX: usize = 5;

/// What to remove.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cleaning {
    /// Nothing.
    pub dry_run: bool,
    /// Also work that was neither merged nor discarded.
    pub force: bool,
}

/// Why a finished run has to stay. The text is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReasonToKeep {
    #[error("{} not finished", runs_below(*.0))]
    Unfinished(u64),
    #[error("an undo of it was interrupted: {command} completes it")]
    InterruptedUndo { command: String },
    #[error(
        "only its snapshot {snapshot}, taken before an undo, has the replaced {}: adj undo {run} {snapshot} restores it",
        name_files(files)
    )]
    ReplacedFiles {
        run: String,
        snapshot: u32,
        files: Vec<String>,
    },
    #[error("its snapshots cannot be checked: {0}")]
    SnapshotsUnchecked(#[source] OpError),
    #[error("{} works in its workspace", .0.join(", "))]
    InUse(Vec<String>),
    #[error("its merge is not complete")]
    MergeUnderWay,
    #[error("its merge is not complete, and its repository is gone: use --force")]
    MergeWithoutRepository,
    #[error(
        "{} has an earlier workspace of it, which was set aside because the machine stopped before all its files were on disk: \
         copy what you need, then remove it or use --force", .0.display()
    )]
    EarlierWorkspace(PathBuf),
    #[error(
        "its workspace {0} may have changes, and no snapshot can be taken of it, because the machine stopped before all its files were on disk: \
         copy what you need, then use --force"
    )]
    TornWorkspace(String),
    #[error("{0}: move it back, or use --force")]
    RepositoryGone(#[source] GitError),
    #[error("its workspace {path} cannot be checked: {error}")]
    WorkspaceUnchecked {
        path: String,
        #[source]
        error: OpError,
    },
    #[error("no snapshot can contain {0} of its workspace")]
    NotInSnapshot(String),
    #[error("its workspace has changed since it was merged")]
    ChangedSinceMerge,
    #[error("no branch or tag contains its merge any more")]
    MergeLost,
    #[error(
        "{} not merged: git merge {git_ref}, or adj discard {run}",
        unmerged_part(git_ref)
    )]
    UnmergedCommits { run: String, git_ref: String },
    #[error("which of its changes were merged is not known: adj discard {run} removes them")]
    UnknownMerge { run: String },
    #[error("its changes were neither merged nor discarded")]
    NotMerged,
    #[error("its workspace {path} cannot be removed: {error}")]
    WorkspaceNotRemoved {
        path: String,
        #[source]
        error: OpError,
    },
}

/// Decides which runs have to stay, and removes the workspaces of the others.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    store: Store,
    trees: Trees,
    workspaces: Workspaces,
    reviews: Reviews,
}

impl Keeper {
    pub(super) fn new(
        store: Store,
        trees: Trees,
        workspaces: Workspaces,
        reviews: Reviews,
    ) -> Self {
        Self {
            store,
            trees,
            workspaces,
            reviews,
        }
    }

    /// Returns why a finished run has to stay. Otherwise its workspace is removed, except in a dry
    /// run.
    pub(super) async fn reason_to_keep(
        &self,
        run: &Run,
        cleaning: Cleaning,
    ) -> Result<Option<ReasonToKeep>, OpError> {
        // Unfinished descendants draw on its budgets and count in its tree.
        let unfinished = self
            .store
            .read(|connection| unfinished_below(connection, run.id))?;
        if unfinished > 0 {
            return Ok(Some(ReasonToKeep::Unfinished(unfinished)));
        }
        if !cleaning.force
            && let Some(reason) = self.undo_to_keep(run).await?
        {
            return Ok(Some(reason));
        }
        let Some(workspace) = self
            .store
            .read(|connection| workspace_of(connection, run.id))?
        else {
            return Ok(None);
        };
        let _only = self.trees.lock().await;
        if let Some(reason) = self.use_of_workspace(run, &workspace, cleaning).await? {
            return Ok(Some(reason));
        }
        if !cleaning.force
            && let Some(reason) = self.work_to_keep(run, &workspace, cleaning.dry_run).await?
        {
            return Ok(Some(reason));
        }
        if cleaning.dry_run {
            return Ok(None);
        }
        Ok(self.remove_workspace_of_removed(&workspace).await.err())
    }

    /// Returns the undo of a run that is to be completed, or that only its snapshots can revert.
    async fn undo_to_keep(&self, run: &Run) -> Result<Option<ReasonToKeep>, OpError> {
        if let Some(undo) = self
            .store
            .read(|connection| interrupted_undo(connection, run.id))?
        {
            let command = undo.completing_command(&run.name);
            return Ok(Some(ReasonToKeep::InterruptedUndo { command }));
        }
        self.undone_work(run).await
    }

    /// Returns what needs the workspace of a run: other runs, or a merge that is not complete. The
    /// record of a merge whose repository is gone is removed if that is forced.
    async fn use_of_workspace(
        &self,
        run: &Run,
        workspace: &Workspace,
        cleaning: Cleaning,
    ) -> Result<Option<ReasonToKeep>, OpError> {
        let (users, under_way) = self.store.read(|connection| {
            Ok((
                unfinished_in(connection, &workspace.path, run.id)?,
                merges_under_way(connection)?,
            ))
        })?;
        if !users.is_empty() {
            return Ok(Some(ReasonToKeep::InUse(users)));
        }
        let Some(merge) = under_way.into_iter().find(|merge| merge.run == run.id) else {
            return Ok(None);
        };
        let has_repository = Path::new(&merge.repository).join(".git").exists();
        if let Some(reason) = merge_to_complete(has_repository, cleaning.force) {
            return Ok(Some(reason));
        }
        if !cleaning.dry_run {
            self.store.write(move |tx| tx.forget_merge(&merge)).await?;
        }
        Ok(None)
    }

    /// Returns what would be lost with the workspace of a run.
    async fn work_to_keep(
        &self,
        run: &Run,
        workspace: &Workspace,
        dry_run: bool,
    ) -> Result<Option<ReasonToKeep>, OpError> {
        if let Some(torn) = git::torn_workspaces(Path::new(&workspace.path))?.first() {
            return Ok(Some(ReasonToKeep::EarlierWorkspace(torn.clone())));
        }
        if workspace.state == WorkspaceState::Discarded {
            return Ok(None);
        }
        Ok(match self.unmerged_work(run, workspace, dry_run).await {
            Ok(reason) => reason,
            Err(OpError::Git(error @ GitError::RepositoryGone { .. })) => {
                Some(ReasonToKeep::RepositoryGone(error))
            }
            Err(error) => Some(ReasonToKeep::WorkspaceUnchecked {
                path: workspace.path.clone(),
                error,
            }),
        })
    }

    async fn remove_workspace_of_removed(&self, workspace: &Workspace) -> Result<(), ReasonToKeep> {
        let removed = async {
            git::remove_torn_workspaces(Path::new(&workspace.path)).await?;
            self.workspaces.remove(workspace).await
        };
        removed
            .await
            .map_err(|error| ReasonToKeep::WorkspaceNotRemoved {
                path: workspace.path.clone(),
                error,
            })
    }

    /// Returns the files replaced by an undo that only a snapshot of the run still has.
    async fn undone_work(&self, run: &Run) -> Result<Option<ReasonToKeep>, OpError> {
        if !self
            .store
            .read(|connection| has_event(connection, run.id, EventKind::RunUndone))?
        {
            return Ok(None);
        }
        Ok(match self.reviews.only_before_undo(run).boxed().await {
            // The snapshots are not there, or stay where they are.
            Ok(None)
            | Err(OpError::Git(
                GitError::Missing
                | GitError::NotARepository(_)
                | GitError::RepositoryGone { .. }
                | GitError::DirectoryGone(_),
            )) => None,
            Ok(Some((snapshot, files))) => Some(ReasonToKeep::ReplacedFiles {
                run: run.name.clone(),
                snapshot,
                files,
            }),
            Err(error) => Some(ReasonToKeep::SnapshotsUnchecked(error)),
        })
    }

    /// Returns the work that would be lost with the refs and the workspace of a run. A snapshot is
    /// taken first, also in a dry run, so that it names the same runs.
    async fn unmerged_work(
        &self,
        run: &Run,
        workspace: &Workspace,
        dry_run: bool,
    ) -> Result<Option<ReasonToKeep>, OpError> {
        let scratch = self.trees.scratch_of(run).await?;
        if scratch.is_torn() {
            let path = workspace.path.clone();
            return Ok(Some(ReasonToKeep::TornWorkspace(path)));
        }
        if scratch.has_tree() {
            let cause = if dry_run {
                SnapshotCause::Look
            } else {
                SnapshotCause::Discard
            };
            let taken = take_snapshot(&scratch, run, cause).await?;
            if let Some(file) = taken.snapshot.left_out.first() {
                return Ok(Some(ReasonToKeep::NotInSnapshot(file.clone())));
            }
            git::keep_commits(&scratch, run.id).await?;
        }
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let Some(last) = all.last() else {
            return Ok(None);
        };
        let merges = self
            .store
            .read(|connection| merges_of(connection, run.id))?;
        if let Some(merge) = merges.first() {
            return unmerged_since(&scratch, run, merge, &all).await;
        }
        if workspace.state == WorkspaceState::Merged {
            return Ok(Some(ReasonToKeep::UnknownMerge {
                run: run.name.clone(),
            }));
        }
        let is_changed = match start_of(&all) {
            Some(start) => start.tree != last.tree,
            // There is no snapshot of the start, but its base is known.
            None => {
                let base = workspace.changes.as_deref().unwrap_or(&workspace.base);
                scratch.tree_of(base).await? != last.tree
            }
        };
        let has_commits = git::has_commits(scratch.repo(), run.id).await?;
        Ok((is_changed || has_commits).then_some(ReasonToKeep::NotMerged))
    }
}

/// Returns what a merged run has besides its merge.
async fn unmerged_since(
    scratch: &Scratch,
    run: &Run,
    merge: &Merge,
    all: &[Snapshot],
) -> Result<Option<ReasonToKeep>, OpError> {
    let Some(last) = all.last() else {
        return Ok(None);
    };
    if !is_newest(merge.snapshot, all) {
        return Ok(Some(ReasonToKeep::ChangedSinceMerge));
    }
    if merge.mode != MergeMode::Stage && !scratch.repo().is_in_a_branch(&merge.after).await? {
        return Ok(Some(ReasonToKeep::MergeLost));
    }
    let unmerged = git::unmerged_refs(scratch.repo(), run.id, &last.tree).await?;
    Ok(unmerged
        .into_iter()
        .next()
        .map(|git_ref| ReasonToKeep::UnmergedCommits {
            run: run.name.clone(),
            git_ref,
        }))
}

/// Returns why the record of a merge that is not complete has to stay: it is needed to complete or
/// revert the merge. `force`: not if its repository is gone.
fn merge_to_complete(has_repository: bool, force: bool) -> Option<ReasonToKeep> {
    if has_repository {
        Some(ReasonToKeep::MergeUnderWay)
    } else if force {
        None
    } else {
        Some(ReasonToKeep::MergeWithoutRepository)
    }
}

/// Returns whether the snapshot with a number has the tree of the newest one.
fn is_newest(n: u32, all: &[Snapshot]) -> bool {
    all.last().is_some_and(|last| {
        all.iter()
            .any(|snapshot| snapshot.n == n && snapshot.tree == last.tree)
    })
}

/// Returns the snapshot of the start of a run, if there is one.
fn start_of(all: &[Snapshot]) -> Option<&Snapshot> {
    all.first()
        .filter(|first| first.cause == Some(SnapshotCause::Start))
}

fn runs_below(unfinished: u64) -> String {
    if unfinished == 1 {
        "1 run below it has".to_owned()
    } else {
        format!("{unfinished} runs below it have")
    }
}

fn name_files(files: &[String]) -> String {
    let named = files
        .iter()
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match files.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Describes unmerged commits on a branch or in the stash of a merged run.
fn unmerged_part(git_ref: &str) -> String {
    match git_ref.split_once("/heads/") {
        Some((_, branch)) => format!(
            "its branch {} is",
            branch.replace("%2F", "/").replace("%25", "%")
        ),
        None => "its stash is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(n: u32, tree: &str, cause: SnapshotCause) -> Snapshot {
        Snapshot {
            n,
            commit: String::new(),
            tree: tree.to_owned(),
            at_ms: 0,
            cause: Some(cause),
            attempt: None,
            left_out: Vec::new(),
            bytes: None,
        }
    }

    #[test]
    fn merge_with_a_repository_is_never_forgotten() {
        for force in [true, false] {
            let reason = merge_to_complete(true, force);
            assert!(matches!(reason, Some(ReasonToKeep::MergeUnderWay)));
        }
        let reason = merge_to_complete(false, false);
        assert!(matches!(reason, Some(ReasonToKeep::MergeWithoutRepository)));
        assert!(merge_to_complete(false, true).is_none());
    }

    #[test]
    fn later_snapshot_with_the_same_tree_was_merged_too() {
        let mut all = vec![
            snapshot(1, "a", SnapshotCause::Start),
            snapshot(2, "b", SnapshotCause::End),
            snapshot(3, "b", SnapshotCause::Merge),
        ];
        assert!(is_newest(2, &all));
        assert!(!is_newest(1, &all), "it has another tree");
        assert!(!is_newest(9, &all), "it is not there");
        all.push(snapshot(4, "c", SnapshotCause::Look));
        assert!(!is_newest(2, &all));
    }

    #[test]
    fn first_snapshot_of_a_turn_is_no_start() {
        assert!(start_of(&[snapshot(1, "a", SnapshotCause::Start)]).is_some());
        assert!(start_of(&[snapshot(2, "a", SnapshotCause::Turn)]).is_none());
        assert!(start_of(&[]).is_none());
    }

    #[test]
    fn reasons_agree_in_number_and_name_few_files() {
        let text = |reason: ReasonToKeep| reason.to_string();
        assert_eq!(
            text(ReasonToKeep::Unfinished(1)),
            "1 run below it has not finished"
        );
        assert_eq!(
            text(ReasonToKeep::Unfinished(2)),
            "2 runs below it have not finished"
        );
        let files = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).into();
        let replaced = ReasonToKeep::ReplacedFiles {
            run: "amy".to_owned(),
            snapshot: 3,
            files,
        };
        assert_eq!(
            text(replaced),
            "only its snapshot 3, taken before an undo, has the replaced a, b, c, d, e and 1 more: adj undo amy 3 restores it"
        );
    }

    #[test]
    fn unmerged_branch_is_named_as_the_agent_named_it() {
        let reason = ReasonToKeep::UnmergedCommits {
            run: "amy".to_owned(),
            git_ref: "refs/adjutant/r/heads/topic%2Fone".to_owned(),
        };
        assert_eq!(
            reason.to_string(),
            "its branch topic/one is not merged: git merge refs/adjutant/r/heads/topic%2Fone, or adj discard amy"
        );
        assert_eq!(unmerged_part("refs/adjutant/r/stash"), "its stash is");
    }
}
