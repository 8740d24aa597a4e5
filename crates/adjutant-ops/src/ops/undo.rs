//! Restoring the files that a run has changed to one of its snapshots.

use super::review::own_work;
use super::trees::{Trees, take_snapshot, view};
use super::undo_checks::{
    ChangedBeside, refuse_changed, refuse_others, refuse_unended, snapshot_to_restore,
    with_left_alone,
};
use super::{Caller, OpError, Ops, lookup};
use crate::store::{
    Run, Store, StoreError, Undo, Workspace, interrupted_undo, runs_beside, working_around,
    workspace_around,
};
use crate::view::{UndoRun, UndoView};
use crate::{failpoint, git};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Principal, WorkspaceState};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockWriteGuard};

/// A run whose files are restored, and what is beside it.
struct UndoTarget {
    run: Run,
    /// The workspace that it has worked in.
    workspace: Option<Workspace>,
    /// Runs that have worked in or around its directory at the same time.
    beside: Vec<Run>,
}

/// A checked undo.
struct UndoPlan {
    target: UndoTarget,
    scratch: git::Scratch,
    /// The snapshot of the tree before the undo.
    before: git::Snapshot,
    to: git::Snapshot,
    prepared: git::PreparedUndo,
    /// The commit that was checked out when the run started, if another one is now.
    head_before: Option<String>,
    is_forced: bool,
}

/// What may not happen to a tree while its files are replaced.
struct TreeGuards {
    _restoring: OwnedRwLockWriteGuard<()>,
    _only: OwnedMutexGuard<()>,
}

/// Restores the files of runs.
#[derive(Debug, Clone)]
pub struct Undos {
    store: Store,
    trees: Trees,
}

impl Undos {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
        }
    }

    /// Restores the files that an ended or stopped run has changed to one of its snapshots, after
    /// taking a snapshot of the current tree. Other files stay.
    ///
    /// # Errors
    /// Unknown or foreign; live; another run works in the directory; no such snapshot; files have
    /// changed since; a file is in the way; git failed.
    pub async fn undo(&self, caller: Caller, call: UndoRun) -> Result<UndoView, OpError> {
        let only = self.trees.lock().await;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        let target = self.undo_target(&caller.who, &call)?;
        let plan = self.plan_undo(target, &call).await?;
        // Before the check for live runs, so that a run is either found there or starts after the
        // last file.
        let restoring = self.trees.start_restoring().await;
        self.record_undo(caller.of_step("start"), &plan).await?;
        let guards = TreeGuards {
            _restoring: restoring,
            _only: only,
        };
        self.restore(guards, caller, plan).await
    }

    /// Finds the run of an undo, which must have ended or stopped, with no others at work.
    fn undo_target(&self, who: &Principal, call: &UndoRun) -> Result<UndoTarget, OpError> {
        let (target, others) = self.store.read(|connection| {
            let run = lookup::run(connection, who, Action::Undo, &call.run)?;
            let others = working_around(connection, &run.cwd, run.id)?;
            let target = UndoTarget {
                workspace: workspace_around(connection, &run.cwd)?,
                beside: runs_beside(connection, &run)?,
                run,
            };
            Ok::<_, StoreError>((target, others))
        })?;
        refuse_unended(&target.run)?;
        if !call.force {
            refuse_others(&others)?;
        }
        Ok(target)
    }

    /// Takes a snapshot of the tree, and checks what is to be restored. Changes no file.
    async fn plan_undo(&self, target: UndoTarget, call: &UndoRun) -> Result<UndoPlan, OpError> {
        let run = &target.run;
        let scratch = self.trees.scratch_of(run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let to = snapshot_to_restore(run, &all, call)?.clone();
        if let Some(interrupted) = self
            .store
            .read(|connection| interrupted_undo(connection, run.id))?
        {
            settle_undo(&scratch, &interrupted).await?;
        }
        let own = own_work(&all);
        // Before the snapshot, so that a save during or after it is noticed.
        let start = git::UndoStart::read(&scratch, &to, &own).await?;
        let before = take_snapshot(&scratch, run, SnapshotCause::Undo).await?;
        failpoint::save("snapshot");
        let beside = changed_beside(&scratch, &target).await?;
        let undo = git::Undo {
            scratch: &scratch,
            now: &before,
            to: &to,
            own: &own,
        };
        let prepared = undo.prepare(start, &beside.files()).await?;
        if !call.force {
            refuse_changed(&prepared, beside).map_err(git::GitError::from)?;
        }
        let first = all
            .first()
            .filter(|first| first.n == to.n && target.workspace.is_none());
        let head_before = match first {
            Some(first) => git::head_before(&scratch, first).await?,
            None => None,
        };
        let head = scratch.repo().head().await?;
        Ok(UndoPlan {
            head_before: head_before
                .filter(|before| head.as_ref().is_some_and(|head| head != before)),
            target,
            scratch,
            before: before.snapshot,
            to,
            prepared,
            is_forced: call.force,
        })
    }

    /// Records an undo before it replaces files.
    async fn record_undo(&self, caller: Caller, plan: &UndoPlan) -> Result<(), OpError> {
        let (undo, text) = (plan.record(), plan.describe());
        caller
            .write(&self.store, move |tx, who| {
                let run = tx.run(undo.run)?;
                // It may have been resumed since, and others started.
                refuse_unended(&run)?;
                if !undo.is_forced {
                    refuse_others(&working_around(tx.connection(), &run.cwd, run.id)?)?;
                }
                tx.start_undo(&undo, who, &text)
            })
            .await
    }

    /// Replaces the files, and records the end.
    async fn restore(
        &self,
        guards: TreeGuards,
        caller: Caller,
        plan: UndoPlan,
    ) -> Result<UndoView, OpError> {
        let (store, runtime) = (self.store.clone(), tokio::runtime::Handle::current());
        let (id, view) = (plan.target.run.id, plan.view());
        let git::PreparedUndo {
            restore,
            mut left_alone,
            ..
        } = plan.prepared;
        let scratch = plan.scratch;
        // On a thread, so that a disconnecting caller does not interrupt it.
        let apply = move || {
            let _guards = guards;
            failpoint::hold("held");
            let restored = restore.apply_blocking();
            drop(scratch);
            let restored = match restored {
                Ok(restored) => restored,
                Err(error) => {
                    runtime.block_on(store.write(move |tx| tx.note_interrupted_undos(Some(id))))?;
                    return Err(error.into());
                }
            };
            left_alone.extend(restored.left_alone);
            let view = UndoView {
                files: restored.files,
                skipped: restored.skipped,
                is_unguarded: restored.is_unguarded,
                ..with_left_alone(view, left_alone)
            };
            let stored = caller.write(&store, move |tx, _| {
                tx.finish_undo(id)?;
                Ok(view)
            });
            runtime.block_on(stored)
        };
        tokio::task::spawn_blocking(apply)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    }
}

/// Settles what an undo has left in the tree when its hub was killed.
pub(super) async fn settle_undo(scratch: &git::Scratch, undo: &Undo) -> Result<(), OpError> {
    let all = git::snapshots(scratch.repo(), undo.run).await?;
    let find = |n: u32| all.iter().find(|snapshot| snapshot.n == n);
    let (Some(before), Some(to)) = (find(undo.before), find(undo.to)) else {
        return Ok(());
    };
    let listed = scratch.list(&before.commit, &to.commit).await?;
    let state = |snapshot: &git::Snapshot| (snapshot.commit.clone(), snapshot.bytes.clone());
    let ((before, before_bytes), (to, to_bytes)) = (state(before), state(to));
    git::settle_strays(
        scratch,
        &listed,
        (&before, before_bytes.as_deref()),
        (&to, to_bytes.as_deref()),
    )
    .await?;
    Ok(())
}

impl UndoPlan {
    fn record(&self) -> Undo {
        Undo {
            run: self.target.run.id,
            to: self.to.n,
            before: self.before.n,
            is_forced: self.is_forced,
        }
    }

    /// Describes the undo for its event.
    fn describe(&self) -> String {
        format!(
            "restores snapshot {}, files: {}; before: snapshot {}",
            self.to.n,
            self.prepared.restore.count(),
            self.before.n
        )
    }

    /// Returns the view of the undo, without the files that it replaces.
    fn view(&self) -> UndoView {
        let UndoTarget { run, workspace, .. } = &self.target;
        UndoView {
            run_id: run.id.to_string(),
            run_name: run.name.clone(),
            before: view(run.id, &self.before),
            to: view(run.id, &self.to),
            not_removed: self.prepared.not_removed.clone(),
            head_before: self.head_before.clone(),
            outside: self.prepared.outside.clone(),
            tree: self.scratch.tree().display().to_string(),
            is_merged: workspace
                .as_ref()
                .is_some_and(|workspace| workspace.state == WorkspaceState::Merged),
            repository: workspace
                .as_ref()
                .map(|workspace| workspace.repository.clone()),
            ..UndoView::default()
        }
    }
}

/// Lists the files that other runs have changed at the same time. The changes of a child run count
/// as those of its parent.
async fn changed_beside(
    scratch: &git::Scratch,
    target: &UndoTarget,
) -> Result<ChangedBeside, git::GitError> {
    let mut changed = Vec::new();
    for other in &target.beside {
        if other.parent == Some(target.run.id) {
            continue;
        }
        let all = git::snapshots(scratch.repo(), other.id).await?;
        let files = git::changed_by_run(scratch, &own_work(&all)).await?;
        changed.push((other.name.clone(), files));
    }
    Ok(ChangedBeside(changed))
}
