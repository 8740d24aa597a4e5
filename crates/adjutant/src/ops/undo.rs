//! Bringing the files that a run has changed back to one of its snapshots.

use super::changes::{find_snapshot, view};
use super::review::own_work;
use super::{Caller, OpError, Ops, lookup};
use crate::git;
use crate::store::{StoreError, live_around, workspace_around};
use crate::view::{UndoRun, UndoView};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Denied, RunState, WorkspaceState};

/// Maximum number of runs or files that an error names.
const NAMED_MAX: usize = 5;

impl Ops {
    /// Restores the files that an ended or stopped run has changed to one of its snapshots, after taking a snapshot of the current
    /// tree. Other files stay.
    ///
    /// # Errors
    /// Unknown or foreign; live; another run works in the directory; no such snapshot; files have changed since; a file is in the way;
    /// git failed.
    pub async fn undo(&self, caller: Caller, call: UndoRun) -> Result<UndoView, OpError> {
        let only = std::sync::Arc::clone(&self.tree_changes).lock_owned().await;
        let who = caller.who.clone();
        let (run, others, workspace) = self.store.read(|connection| {
            let run = lookup::run(connection, &who, Action::Undo, &call.run)?;
            let others = live_around(connection, &run.cwd, run.id)?;
            let workspace = workspace_around(connection, &run.cwd)?;
            Ok::<_, StoreError>((run, others, workspace))
        })?;
        if run.state.is_live() || run.state == RunState::Queued {
            return Err(Denied::WrongState { state: run.state.word(), wanted: "undone; pause or cancel it first" }.into());
        }
        if !others.is_empty() {
            let names = others.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
            return Err(Denied::conflict("run", format!("{names} works in or around the same directory: wait for it, or pause it")).into());
        }
        let scratch = self.scratch_of(&run).await?;
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let to = find_snapshot(&run, &all, call.to, all.first())?.clone();
        let before = self.take_snapshot(&scratch, &run, SnapshotCause::Undo).await?;
        let git::PreparedUndo { restore, changed_since, outside } = git::prepare_undo(&scratch, &before, &to, &own_work(&all)).await?;
        if !changed_since.is_empty() && !call.force {
            return Err(git::GitError::from(changed(changed_since)).into());
        }
        let text = format!("restores snapshot {}, files: {}; before: snapshot {}", to.n, restore.count(), before.snapshot.n);
        let id = run.id;
        self.write(caller, move |tx, who| {
            let run = tx.run(id)?;
            // It may have been resumed since.
            if run.state.is_live() || run.state == RunState::Queued {
                return Err(Denied::WrongState { state: run.state.word(), wanted: "undone; pause or cancel it first" }.into());
            }
            tx.note_undone(&run, who, &text)
        })
        .await?;
        let tree = scratch.tree().display().to_string();
        // On a thread, so that a disconnecting caller does not interrupt it.
        let apply = move || {
            let _only = only;
            let restored = restore.apply_blocking();
            drop(scratch);
            restored
        };
        let restored = tokio::task::spawn_blocking(apply).await.map_err(|error| OpError::Io(error.to_string()))??;
        Ok(UndoView {
            run_id: run.id.to_string(),
            run_name: run.name,
            before: view(id, &before.snapshot),
            to: view(id, &to),
            files: restored.files,
            skipped: restored.skipped,
            changed_meanwhile: restored.changed_meanwhile,
            outside,
            tree,
            is_merged: workspace.as_ref().is_some_and(|workspace| workspace.state == WorkspaceState::Merged),
            repository: workspace.map(|workspace| workspace.repository),
        })
    }
}

/// Names the files that have changed since the run.
fn changed(mut files: Vec<String>) -> git::Refusal {
    let more = files.len().saturating_sub(2 * NAMED_MAX);
    files.truncate(2 * NAMED_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    git::Refusal::ChangedSince(format!("{}{more}", files.join(", ")))
}
