//! What the hub does about the trees of runs by itself: keeping them after turns, comparing those of
//! siblings.

use super::{OpError, Ops};
use crate::git::{GitError, TakenSnapshot};
use crate::store::{DueTreeWork, Run, next_tree_work, run_by_id, workspace_of};
use adjutant_core::RunState;
use adjutant_core::snapshot::{SnapshotCause, TreeWork};
use std::time::Duration;

/// How long keeping a tree after a turn may take.
const KEEP_MAX: Duration = Duration::from_secs(60);

impl Ops {
    /// Performs the task that is due first about the tree of a run. `false`: nothing is due.
    ///
    /// # Errors
    /// A failure of the store. What git cannot do is recorded with the run.
    pub async fn do_tree_work(&self) -> Result<bool, OpError> {
        let Some(due) = self.store.read(next_tree_work)? else { return Ok(false) };
        match due.what {
            TreeWork::Keep => self.keep_after_turn(due).await?,
            TreeWork::Compare => self.compare_siblings(due).await?,
        }
        Ok(true)
    }

    /// Schedules a comparison of the newest snapshot of an isolated run with those of its siblings.
    pub(super) async fn compare_later(&self, run: &Run, taken: &TakenSnapshot) -> Result<(), OpError> {
        let id = run.id;
        if !taken.is_new || self.store.read(|connection| workspace_of(connection, id))?.is_none() {
            return Ok(());
        }
        Ok(self.store.write(move |tx| tx.add_tree_work(id, TreeWork::Compare)).await?)
    }

    /// Takes a snapshot of a run whose agent has ended a turn. Turns that end meanwhile share one snapshot.
    async fn keep_after_turn(&self, due: DueTreeWork) -> Result<(), OpError> {
        let run = self.store.read(|connection| run_by_id(connection, due.run))?;
        // The end of the attempt has a snapshot of its own.
        let Some(run) = run.filter(|run| run.state == RunState::Running) else {
            return Ok(self.store.write(move |tx| tx.end_tree_work(&due)).await?);
        };
        let kept = async {
            let scratch = self.scratch_of(&run).await?;
            self.keep(&scratch, &run, SnapshotCause::Turn).await
        };
        let (is_new, problem) = match tokio::time::timeout(KEEP_MAX, kept).await {
            Ok(Ok(taken)) => (taken.is_new, None),
            Ok(Err(OpError::Git(GitError::Missing | GitError::NotARepository(_)))) => (false, None),
            Ok(Err(error)) => (false, Some(error.to_string())),
            Err(_) => (false, Some("git took too long".to_owned())),
        };
        Ok(self
            .store
            .write(move |tx| {
                tx.end_tree_work(&due)?;
                if let Some(problem) = problem {
                    tx.set_snapshot_problem(&run, &problem, "hub")?;
                }
                let is_isolated = workspace_of(tx.connection(), due.run)?.is_some();
                if is_new && is_isolated { tx.add_tree_work(due.run, TreeWork::Compare) } else { Ok(()) }
            })
            .await?)
    }
}
