//! Restoring the files that a run has changed to one of its snapshots.

use super::changes::{find_snapshot, view};
use super::review::own_work;
use super::{Caller, OpError, Ops, lookup};
use crate::failpoint;
use crate::git;
use crate::store::{
    StoreError, Undo, interrupted_undo, runs_beside, working_around, workspace_around,
};
use crate::user_files::{Cause, LeftAlone};
use crate::view::{UndoRun, UndoView};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Denied, RunState, WorkspaceState};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of runs or files that an error names.
const NAMED_MAX: usize = 5;

impl Ops {
    /// Waits until no undo replaces files.
    pub async fn undos_end(&self) {
        drop(self.restoring.read().await);
    }

    /// Settles what an undo has left in the tree when its hub was killed.
    pub(super) async fn settle_undo(
        &self,
        scratch: &git::Scratch,
        undo: &Undo,
    ) -> Result<(), OpError> {
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

    /// Restores the files that an ended or stopped run has changed to one of its snapshots, after taking a snapshot of the current
    /// tree. Other files stay.
    ///
    /// # Errors
    /// Unknown or foreign; live; another run works in the directory; no such snapshot; files have changed since; a file is in the way;
    /// git failed.
    pub async fn undo(&self, caller: Caller, call: UndoRun) -> Result<UndoView, OpError> {
        let only = Arc::clone(&self.tree_changes).lock_owned().await;
        if let Some(earlier) = self.stored_reply(&caller)? {
            return Ok(earlier);
        }
        let who = caller.who.clone();
        let (run, others, workspace, beside) = self.store.read(|connection| {
            let run = lookup::run(connection, &who, Action::Undo, &call.run)?;
            let others = working_around(connection, &run.cwd, run.id)?;
            let workspace = workspace_around(connection, &run.cwd)?;
            let beside = runs_beside(connection, &run)?;
            Ok::<_, StoreError>((run, others, workspace, beside))
        })?;
        if run.state.is_live() || run.state == RunState::Queued {
            return Err(Denied::WrongState {
                run: run.name.clone(),
                state: run.state.word(),
                wanted: "undone; pause or cancel it first",
            }
            .into());
        }
        if !call.force {
            refuse_others(&others)?;
        }
        let scratch = self.scratch_of(&run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let is_start = |first: &&git::Snapshot| {
            first
                .cause
                .is_none_or(|cause| cause == SnapshotCause::Start)
        };
        if call.to.is_none()
            && !call.force
            && let Some(first) = all.first().filter(|first| !is_start(first))
        {
            let problem = format!(
                "the state before {} could not be kept: name a snapshot (adj show lists them), or restore {} with --force",
                run.name, first.n
            );
            return Err(Denied::invalid("snapshot", problem).into());
        }
        let to = find_snapshot(&run, &all, call.to, all.first())?.clone();
        if let Some(interrupted) = self
            .store
            .read(|connection| interrupted_undo(connection, run.id))?
        {
            self.settle_undo(&scratch, &interrupted).await?;
        }
        // Before the snapshot, so that a save during or after it is noticed.
        let start = git::UndoStart::read(&scratch, &to, &own_work(&all)).await?;
        let before = self
            .take_snapshot(&scratch, &run, SnapshotCause::Undo)
            .await?;
        failpoint::save("snapshot");
        let (mut of_others, mut of_each) = (BTreeSet::new(), Vec::new());
        for other in beside.iter().filter(|other| other.parent != Some(run.id)) {
            let all = git::snapshots(scratch.repo(), other.id).await?;
            let changed = git::changed_by_run(&scratch, &own_work(&all)).await?;
            of_others.extend(changed.iter().cloned());
            of_each.push((other.name.clone(), changed));
        }
        let git::PreparedUndo {
            restore,
            changed_since,
            changed_beside,
            not_removed,
            outside,
            mut left_alone,
        } = git::prepare_undo(&scratch, start, &before, &to, &own_work(&all), &of_others).await?;
        if !changed_since.is_empty() && !call.force {
            return Err(
                git::GitError::from(git::Refusal::ChangedSince(name_files(changed_since))).into(),
            );
        }
        if !changed_beside.is_empty() && !call.force {
            let is_of = |changed: &BTreeSet<Vec<u8>>| {
                changed_beside
                    .iter()
                    .any(|file| changed.contains(file.as_bytes()))
            };
            let runs: Vec<String> = of_each
                .into_iter()
                .filter(|(_, changed)| is_of(changed))
                .map(|(name, _)| name)
                .collect();
            let (runs, files) = (name_files(runs), name_files(changed_beside));
            return Err(git::GitError::from(git::Refusal::ChangedBeside { runs, files }).into());
        }
        let head_before = match all
            .first()
            .filter(|first| first.n == to.n && workspace.is_none())
        {
            Some(first) => git::head_before(&scratch, first).await?,
            None => None,
        };
        let head = scratch.repo().head().await?;
        let text = format!(
            "restores snapshot {}, files: {}; before: snapshot {}",
            to.n,
            restore.count(),
            before.snapshot.n
        );
        let id = run.id;
        let undo = Undo {
            run: id,
            to: to.n,
            before: before.snapshot.n,
            is_forced: call.force,
        };
        // Before the check for live runs, so that a run is either found there or starts after the last file.
        let restoring = Arc::clone(&self.restoring).write_owned().await;
        self.write(caller.of_step("start"), move |tx, who| {
            let run = tx.run(id)?;
            // It may have been resumed since, and others started.
            if run.state.is_live() || run.state == RunState::Queued {
                return Err(Denied::WrongState {
                    run: run.name.clone(),
                    state: run.state.word(),
                    wanted: "undone; pause or cancel it first",
                }
                .into());
            }
            if !undo.is_forced {
                refuse_others(&working_around(tx.connection(), &run.cwd, run.id)?)?;
            }
            tx.start_undo(&undo, who, &text)
        })
        .await?;
        let view = UndoView {
            run_id: run.id.to_string(),
            run_name: run.name,
            before: view(id, &before.snapshot),
            to: view(id, &to),
            not_removed,
            head_before: head_before
                .filter(|before| head.as_ref().is_some_and(|head| head != before)),
            outside,
            tree: scratch.tree().display().to_string(),
            is_merged: workspace
                .as_ref()
                .is_some_and(|workspace| workspace.state == WorkspaceState::Merged),
            repository: workspace.map(|workspace| workspace.repository),
            ..UndoView::default()
        };
        let (ops, runtime) = (self.clone(), tokio::runtime::Handle::current());
        // On a thread, so that a disconnecting caller does not interrupt it.
        let apply = move || {
            let (_only, _restoring) = (only, restoring);
            failpoint::hold("held");
            let restored = restore.apply_blocking();
            drop(scratch);
            let restored = match restored {
                Ok(restored) => restored,
                Err(error) => {
                    runtime.block_on(
                        ops.store
                            .write(move |tx| tx.note_interrupted_undos(Some(id))),
                    )?;
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
            let stored = ops.write(caller, move |tx, _| {
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

/// Adds the files that were left alone, because a program has changed them or has them open.
fn with_left_alone(mut view: UndoView, files: Vec<(String, LeftAlone)>) -> UndoView {
    for (file, LeftAlone { cause, kept_as }) in files {
        if let Some(name) = kept_as {
            view.kept_beside.push(
                Path::new(&file)
                    .with_file_name(name)
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        match cause {
            Cause::Changed => view.changed_meanwhile.push(file),
            Cause::InUse => view.in_use.push(file),
        }
    }
    view
}

/// Refuses while other runs work in or around the directory. A run that waits for an answer does not.
fn refuse_others(names: &[String]) -> Result<(), Denied> {
    if names.is_empty() {
        return Ok(());
    }
    let names = names
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    Err(Denied::conflict(
        "run",
        format!(
            "{names} works in or around the same directory: wait for it, or pause it; --force does not wait"
        ),
    ))
}

/// Names the files that others have changed.
fn name_files(mut files: Vec<String>) -> String {
    let more = files.len().saturating_sub(2 * NAMED_MAX);
    files.truncate(2 * NAMED_MAX);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    format!("{}{more}", files.join(", "))
}
