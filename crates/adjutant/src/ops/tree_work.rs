//! What the hub does about the trees of runs by itself: keeping them after turns, comparing those of
//! siblings.

use super::{OpError, Ops};
use crate::git::{GitError, Scratch, TakenSnapshot};
use crate::store::{DueTreeWork, Run, StoreError, next_tree_work, run_by_id, workspace_of};
use adjutant_core::snapshot::{SnapshotCause, TreeWork};
use adjutant_core::{RunId, RunState};
use std::time::Duration;

/// How long keeping a tree after a turn may take.
const KEEP_MAX: Duration = Duration::from_secs(60);

/// Most runs of which a git directory is kept between turns: each has an index as large as the repository's.
const KEPT_MAX: usize = 16;

/// Git directories of live runs that are kept between turns, so that only what a turn has changed is read. The last used is the
/// last. Nothing is lost with them.
#[derive(Debug, Default)]
pub struct TurnScratches(Vec<(RunId, Scratch)>);

impl TurnScratches {
    fn take(&mut self, run: RunId) -> Option<Scratch> {
        let at = self.0.iter().position(|(known, _)| *known == run)?;
        Some(self.0.remove(at).1)
    }

    fn keep(&mut self, run: RunId, scratch: Scratch) {
        if self.0.len() >= KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push((run, scratch));
    }
}

impl Ops {
    /// Performs the task that is due first about the tree of a run. `false`: nothing is due.
    ///
    /// # Errors
    /// A failure of the store. What git cannot do is recorded with the run.
    pub async fn do_tree_work(&self, between_turns: &mut TurnScratches) -> Result<bool, OpError> {
        let Some(due) = self.store.read(next_tree_work)? else { return Ok(false) };
        match due.what {
            TreeWork::Keep => self.snapshot_after_turn(due, between_turns).await?,
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

    /// Removes the git directories of runs that are not live any more.
    fn drop_ended(&self, between_turns: &mut TurnScratches) -> Result<(), OpError> {
        let is_live =
            |run: RunId| Ok::<_, StoreError>(self.store.read(|connection| run_by_id(connection, run))?.is_some_and(|run| run.state.is_live()));
        let mut live = Vec::new();
        for (run, scratch) in between_turns.0.drain(..) {
            if is_live(run)? {
                live.push((run, scratch));
            }
        }
        between_turns.0 = live;
        Ok(())
    }

    /// Takes a snapshot of a run whose agent has ended a turn. Turns that end meanwhile share one snapshot.
    async fn snapshot_after_turn(&self, due: DueTreeWork, between_turns: &mut TurnScratches) -> Result<(), OpError> {
        let run = self.store.read(|connection| run_by_id(connection, due.run))?;
        let known = between_turns.take(due.run);
        self.drop_ended(between_turns)?;
        // The end of the attempt has a snapshot of its own.
        let Some(run) = run.filter(|run| run.state == RunState::Running) else {
            return Ok(self.store.write(move |tx| tx.end_tree_work(&due)).await?);
        };
        let kept = async {
            let scratch = self.scratch_after(&run, known).await?;
            let taken = self.take_snapshot(&scratch, &run, SnapshotCause::Turn).await?;
            Ok::<_, OpError>((scratch, taken))
        };
        let (is_new, problem) = match tokio::time::timeout(KEEP_MAX, kept).await {
            Ok(Ok((scratch, taken))) => {
                between_turns.keep(run.id, scratch);
                (taken.is_new, None)
            }
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
