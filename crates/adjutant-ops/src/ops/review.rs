//! The changes of a run. For an isolated run, these are the changes that a merge would merge.

use super::conflicts::merge_order_of;
use super::trees::{Trees, find_snapshot, take_snapshot, view};
use super::workspaces::{runner_of, workspace_base};
use super::{Caller, OpError, Ops, lookup};
use crate::clock::rfc3339;
use crate::git::{self, DiffCall, Repo, Scratch, Snapshot};
use crate::store::{
    Run, Store, StoreError, Workspace, later_runs_in, merges_of, run_by_id, workspace_around,
    workspace_of,
};
use crate::view::{DiffRun, DiffView, IncludedView, SnapshotView};
use adjutant_core::merge::MergeMode;
use adjutant_core::snapshot::{KeptTree, OwnWork, SnapshotCause, has_edits};
use adjutant_core::{Action, WorkspaceState};
use std::collections::BTreeSet;

/// Maximum number of later runs in a workspace that are considered.
const LATER_RUNS_MAX: u32 = 50;

/// A run whose changes are read.
struct ReviewedRun {
    run: Run,
    /// Its own workspace.
    own: Option<Workspace>,
    /// The run in whose workspace it works.
    around: Option<Run>,
}

impl ReviewedRun {
    /// Returns whether a call is about the tree as it is now.
    fn reads_the_tree(&self, call: &DiffRun) -> bool {
        call.to.is_none() && !call.kept && (self.run.state.is_live() || self.own.is_some())
    }

    /// Returns the newest snapshot with the changes of the run. In the user's tree, a snapshot
    /// before an undo can contain the work of others.
    fn newest<'a>(&self, all: &'a [Snapshot]) -> Option<&'a Snapshot> {
        if self.own.is_none() && self.around.is_none() {
            own_work(all).pop()
        } else {
            all.last()
        }
    }
}

/// Reads the changes of runs.
#[derive(Debug, Clone)]
pub struct Reviews {
    store: Store,
    trees: Trees,
}

impl Reviews {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
        }
    }

    /// Returns the difference between two snapshots of a run; by default, all its changes. For a
    /// run with its own workspace, these are the changes that a merge would merge, including those
    /// of later runs and edits in that workspace.
    ///
    /// # Errors
    /// The run is unknown or foreign, there is no repository or no such snapshot, or git failed.
    pub async fn diff(&self, caller: &Caller, call: &DiffRun) -> Result<DiffView, OpError> {
        let found = self
            .store
            .read(|connection| lookup::run(connection, &caller.who, Action::Review, &call.run))?;
        // Locks out a merge or a discard, which could change the tree of an ended run meanwhile.
        let only = if found.state.is_live() {
            None
        } else {
            Some(self.trees.lock().await)
        };
        let reviewed = self.reviewed_run(found)?;
        let (run, own) = (&reviewed.run, reviewed.own.as_ref());
        let scratch = self.trees.scratch_of(run).await?;
        if reviewed.reads_the_tree(call) && scratch.has_tree() {
            let taken = take_snapshot(&scratch, run, SnapshotCause::Look).await?;
            self.trees.compare_later(run, &taken).await?;
        }
        drop(only);
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let from = match (own, call.from) {
            (Some(workspace), None | Some(0)) if !all.is_empty() => {
                self.base_view(&scratch, run, workspace).await?
            }
            (_, from) => view(run.id, find_snapshot(run, &all, from, all.first())?),
        };
        let to = find_snapshot(run, &all, call.to, reviewed.newest(&all))?;
        let wanted = DiffCall {
            from: from.commit.clone(),
            to: to.commit.clone(),
            paths: call.paths.clone(),
            stat: call.stat,
            words: call.words,
        };
        let git::Diff { text, is_cut } = scratch.diff(&wanted).await?;
        let (includes, merged) = match own {
            Some(workspace) if from.n == 0 => (
                self.included_changes(&scratch, run, workspace, &all)
                    .await?,
                self.last_merged(run)?,
            ),
            None => (
                IncludedView {
                    with_edits: has_edits_between(run, &all, from.n, to.n),
                    ..IncludedView::default()
                },
                None,
            ),
            Some(_) => (IncludedView::default(), None),
        };
        Ok(DiffView {
            run_id: run.id.to_string(),
            from,
            to: view(run.id, to),
            text,
            is_cut,
            missing: self.missing_workspace(&reviewed, &scratch)?,
            merge_order: self
                .store
                .read(|connection| merge_order_of(connection, run))?,
            includes,
            merged,
            committed_copies: self.trees.committed_copies(run).await,
            workspace_of: reviewed.around.map(|around| around.name),
            run_name: reviewed.run.name,
        })
    }

    /// Reads a run again, with the workspace in which it works.
    fn reviewed_run(&self, found: Run) -> Result<ReviewedRun, OpError> {
        Ok(self.store.read(|connection| {
            let run = run_by_id(connection, found.id)?.unwrap_or(found);
            let (own, around) = (
                workspace_of(connection, run.id)?,
                workspace_around(connection, &run.cwd)?,
            );
            let around = around
                .filter(|around| around.run != run.id)
                .map(|around| run_by_id(connection, around.run))
                .transpose()?
                .flatten();
            Ok::<_, StoreError>(ReviewedRun { run, own, around })
        })?)
    }

    /// Returns the path of the run's own workspace if it should be there and is not.
    fn missing_workspace(
        &self,
        reviewed: &ReviewedRun,
        scratch: &Scratch,
    ) -> Result<Option<String>, OpError> {
        let is_elsewhere = runner_of(&self.store, &reviewed.run)?.is_some();
        let is_there = is_elsewhere || scratch.has_tree() || scratch.is_torn();
        let missing = reviewed.own.as_ref().filter(|workspace| {
            !is_there
                && matches!(
                    workspace.state,
                    WorkspaceState::Ready | WorkspaceState::Merged
                )
        });
        Ok(missing.map(|workspace| workspace.path.clone()))
    }

    /// Describes the commit with which the changes of an isolated run are compared.
    async fn base_view(
        &self,
        scratch: &Scratch,
        run: &Run,
        workspace: &Workspace,
    ) -> Result<SnapshotView, OpError> {
        let name = if workspace.changes.is_some() {
            "changes"
        } else {
            "base"
        };
        let mut view = SnapshotView {
            n: 0,
            git_ref: format!("refs/adjutant/{}/{name}", run.id),
            commit: workspace_base(workspace).commit,
            at: rfc3339(run.created_at),
            ..SnapshotView::default()
        };
        if workspace.changes.is_none()
            && let Some(commit) = self.taken_in(scratch, run, workspace).await?
        {
            (view.git_ref, view.commit) = (commit.clone(), commit);
        }
        Ok(view)
    }

    /// Returns the newest commit of the user's branch that the run has pulled in. A merge counts
    /// changes from it.
    async fn taken_in(
        &self,
        scratch: &Scratch,
        run: &Run,
        workspace: &Workspace,
    ) -> Result<Option<String>, OpError> {
        let repo = scratch.repo();
        let Some(own_head) = repo.own_head(run.id).await? else {
            return Ok(None);
        };
        let merges = self
            .store
            .read(|connection| merges_of(connection, run.id))?;
        let head = match merges.into_iter().last() {
            Some(first) => Some(first.before),
            None => repo.head().await?,
        };
        let Some(head) = head else { return Ok(None) };
        match scratch.taken_in(&head, &own_head, &workspace.base).await {
            // A merge is refused.
            Err(git::GitError::Refused(git::MergeRefusal::CrissCross)) => Ok(None),
            found => Ok(found?),
        }
    }

    /// Returns the changes of an isolated run that are not the work of its own agent.
    async fn included_changes(
        &self,
        scratch: &Scratch,
        run: &Run,
        workspace: &Workspace,
        all: &[Snapshot],
    ) -> Result<IncludedView, OpError> {
        let base = scratch.tree_of(&workspace_base(workspace).commit).await?;
        let later = self.store.read(|connection| {
            later_runs_in(connection, &workspace.path, run.id, LATER_RUNS_MAX)
        })?;
        let mut kept: Vec<(&Run, Snapshot)> =
            all.iter().map(|snapshot| (run, snapshot.clone())).collect();
        let mut with_runs = Vec::new();
        // While a later run works, the current changes are its work.
        if later.iter().any(|later| later.state.is_live())
            && kept
                .last()
                .is_some_and(|(_, last)| last.cause == Some(SnapshotCause::Look))
        {
            kept.pop();
        }
        for later in &later {
            let snapshots = git::snapshots(scratch.repo(), later.id).await?;
            if later.state.is_live()
                || snapshots
                    .iter()
                    .any(|snapshot| snapshot.tree != snapshots[0].tree)
            {
                with_runs.push(later.name.clone());
            }
            kept.extend(snapshots.into_iter().map(|snapshot| (later, snapshot)));
        }
        let trees: Vec<_> = kept
            .iter()
            .map(|(run, snapshot)| KeptTree {
                run: run.id,
                cause: snapshot.cause,
                tree: &snapshot.tree,
            })
            .collect();
        let with_edits = has_edits(&base, &trees);
        let with_setup = all
            .first()
            .is_some_and(|first| first.cause == Some(SnapshotCause::Start) && first.tree != base);
        Ok(IncludedView {
            with_setup,
            with_runs,
            with_edits,
        })
    }

    /// Returns the number of the newest snapshot that was merged.
    fn last_merged(&self, run: &Run) -> Result<Option<u32>, OpError> {
        let merges = self
            .store
            .read(|connection| merges_of(connection, run.id))?;
        Ok(merges
            .iter()
            .find(|merge| !matches!(merge.mode, MergeMode::Branch | MergeMode::Stage))
            .map(|merge| merge.snapshot))
    }

    /// Finds a snapshot taken before an undo with file versions that exist nowhere else: not in the
    /// run's own work (which excludes changes of others between its attempts), not in the user's
    /// commit, and not in the tree. Returns its number and the files.
    pub(super) async fn only_before_undo(
        &self,
        run: &Run,
    ) -> Result<Option<(u32, Vec<String>)>, OpError> {
        let scratch = self.trees.scratch_of(run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let own = own_work(&all);
        let trees: BTreeSet<&str> = own.iter().map(|snapshot| snapshot.tree.as_str()).collect();
        let trees: Vec<&str> = trees.into_iter().collect();
        let mut edits = None;
        let mut elsewhere: Option<Vec<String>> = None;
        for before in all
            .iter()
            .filter(|snapshot| snapshot.cause == Some(SnapshotCause::Undo))
        {
            let mut only = git::only_in(&scratch, &before.tree, &trees).await?;
            let edits = match &edits {
                Some(known) => known,
                None => edits.insert(git::edits_between_attempts(&scratch, &own).await?),
            };
            for (start, edited) in edits.iter().filter(|(_, edited)| !edited.is_empty()) {
                let changed = git::paths_between(&scratch, &start.commit, &before.commit).await?;
                only.extend(edited.difference(&changed).cloned());
            }
            if only.is_empty() {
                continue;
            }
            let elsewhere = match &elsewhere {
                Some(known) => known,
                None => elsewhere.insert(present(&scratch).await?),
            };
            for other in elsewhere {
                let differs = git::paths_between(&scratch, other, &before.commit).await?;
                only.retain(|path| differs.contains(path));
            }
            if !only.is_empty() {
                return Ok(Some((
                    before.n,
                    only.iter()
                        .map(|path| String::from_utf8_lossy(path).into_owned())
                        .collect(),
                )));
            }
        }
        Ok(None)
    }
}

/// Lists the trees that exist besides a run's snapshots: the user's commit, and the work tree if it
/// stays.
async fn present(scratch: &Scratch) -> Result<Vec<String>, OpError> {
    let mut present: Vec<String> = Repo::head(scratch.repo()).await?.into_iter().collect();
    if !scratch.is_of_workspace() {
        present.push(git::present_tree(scratch).await?);
    }
    Ok(present)
}

/// Lists the snapshots of a run's own work.
pub(super) fn own_work(all: &[Snapshot]) -> Vec<&Snapshot> {
    let mut work = OwnWork::default();
    all.iter()
        .filter(|snapshot| work.is_own(snapshot.cause))
        .collect()
}

/// Returns whether others have changed files between the attempts of a run, from one of its
/// snapshots to another.
fn has_edits_between(run: &Run, all: &[Snapshot], from: u32, to: u32) -> bool {
    let Some(base) = all.iter().find(|snapshot| snapshot.n == from) else {
        return false;
    };
    let kept = own_work(all)
        .into_iter()
        .filter(|snapshot| (from..=to).contains(&snapshot.n));
    let kept: Vec<_> = kept
        .map(|snapshot| KeptTree {
            run: run.id,
            cause: snapshot.cause,
            tree: &snapshot.tree,
        })
        .collect();
    has_edits(&base.tree, &kept)
}
