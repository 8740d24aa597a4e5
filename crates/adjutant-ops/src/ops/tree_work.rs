//! Background tasks about the trees of runs: snapshots after turns, snapshots of siblings while
//! their agents work, and comparisons.

use super::conflicts::{SIBLINGS_MAX, compare_siblings};
use super::trees::{Trees, take_snapshot};
use super::{OpError, Ops};
use crate::git::{GitError, Scratch};
use crate::store::{
    DueTreeWork, Run, Store, StoreError, attempt_row, due_tree_work, run_by_id, siblings_of,
    workspace_of,
};
use adjutant_core::snapshot::{SnapshotCause, TreeWork};
use adjutant_core::{RunId, RunState};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long one snapshot may take.
const KEEP_MAX: Duration = Duration::from_secs(60);

/// The interval between snapshots of a working run, which doubles each time up to the maximum.
const WATCH_AGAIN: Duration = Duration::from_secs(1);
const WATCH_AGAIN_MAX: Duration = Duration::from_secs(30);
/// The interval is at least this many times as long as the snapshot took, so that large trees are
/// read less often.
const WATCH_SHARE: u32 = 50;
/// Intervals of runs without a snapshot for this long are dropped.
const WATCHED_KEPT: Duration = Duration::from_secs(600);

/// Maximum number of git directories kept between turns. Each has an index as large as the
/// repository's.
const KEPT_MAX: usize = 16;

/// Git directories of live runs, kept between turns so that only changes of a turn are read. The
/// most recently used is last. A cache: losing it has no effect.
#[derive(Debug, Default)]
struct TurnScratches(Vec<(RunId, Scratch)>);

impl TurnScratches {
    fn remove(&mut self, run: RunId) -> Option<Scratch> {
        let at = self.0.iter().position(|(known, _)| *known == run)?;
        Some(self.0.remove(at).1)
    }

    fn insert(&mut self, run: RunId, scratch: Scratch) {
        if self.0.len() >= KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push((run, scratch));
    }
}

/// When the next snapshots of working runs may be taken. Losing it has no effect.
#[derive(Debug, Default)]
struct TreeSchedule(HashMap<RunId, Watch>);

#[derive(Debug, Clone, Copy)]
struct Watch {
    times: u32,
    again: Instant,
}

impl TreeSchedule {
    /// Returns when a task may be performed. `None`: now.
    fn allowed_at(&self, due: &DueTreeWork) -> Option<Instant> {
        let again = self.0.get(&due.run)?.again;
        Some(again).filter(|again| due.what == TreeWork::Watch && *again > Instant::now())
    }

    /// Records that a snapshot of a run was taken, and how long that took.
    fn note(&mut self, run: RunId, took: Duration) {
        let now = Instant::now();
        self.0.retain(|_, watch| watch.again + WATCHED_KEPT > now);
        let times = self.0.get(&run).map_or(0, |watch| watch.times);
        let after = WATCH_AGAIN
            .saturating_mul(1 << times.min(10))
            .min(WATCH_AGAIN_MAX);
        self.0.insert(
            run,
            Watch {
                times: times.saturating_add(1),
                again: now + after.max(took * WATCH_SHARE),
            },
        );
    }
}

/// The remaining tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeWorkLeft {
    Unknown,
    /// None, or none before this time.
    Nothing(Option<Instant>),
}

/// Performs the tasks about the trees of runs, one at a time.
#[derive(Debug)]
pub struct TreeTasks {
    store: Store,
    trees: Trees,
    between_turns: TurnScratches,
    watched: TreeSchedule,
}

impl TreeTasks {
    pub fn new(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            trees: ops.trees.clone(),
            between_turns: TurnScratches::default(),
            watched: TreeSchedule::default(),
        }
    }

    /// Performs the first due task.
    ///
    /// # Errors
    /// A failure of the store. A failure of git is recorded with the run.
    pub async fn perform_next(&mut self) -> Result<TreeWorkLeft, OpError> {
        let all = self.store.read(due_tree_work)?;
        let Some(due) = all
            .iter()
            .copied()
            .find(|due| self.watched.allowed_at(due).is_none())
        else {
            return Ok(TreeWorkLeft::Nothing(
                all.iter()
                    .filter_map(|due| self.watched.allowed_at(due))
                    .min(),
            ));
        };
        match due.what {
            TreeWork::Keep => self.snapshot_after_turn(due).await?,
            TreeWork::Watch => self.watch_tree(due).await?,
            TreeWork::Compare => compare_siblings(&self.store, &self.trees, due).await?,
        }
        Ok(TreeWorkLeft::Unknown)
    }

    /// Looks at the tree of a run in whose workspace an agent works, if another run is to be merged
    /// into the same repository.
    async fn watch_tree(&mut self, due: DueTreeWork) -> Result<(), OpError> {
        let began = Instant::now();
        let (run, siblings) = self.store.read(|connection| {
            Ok::<_, StoreError>((
                run_by_id(connection, due.run)?,
                siblings_of(connection, due.run, SIBLINGS_MAX)?,
            ))
        })?;
        let mut is_new = false;
        // The end of its own attempt has a snapshot; a run that followed it keeps the tree under a
        // name of its own.
        let is_worked_in = |run: &Run| run.state == RunState::Running || !run.state.is_live();
        if let Some(run) = run.filter(|run| is_worked_in(run) && siblings.len() > 1) {
            let looked = async {
                let scratch = self.trees.scratch_of(&run).await?;
                if scratch.has_tree() {
                    Ok::<_, OpError>(
                        take_snapshot(&scratch, &run, SnapshotCause::Watch)
                            .await?
                            .is_new,
                    )
                } else {
                    Ok(false)
                }
            };
            match tokio::time::timeout(KEEP_MAX, looked).await {
                Ok(Ok(found)) => is_new = found,
                Ok(Err(error)) => {
                    tracing::warn!(%error, run = %due.run, "a snapshot of a working run failed")
                }
                Err(_) => {
                    tracing::warn!(run = %due.run, "a snapshot of a working run failed: git took too long")
                }
            }
        }
        self.watched.note(due.run, began.elapsed());
        // Siblings that have worked alone so far, or under the previous hub.
        let others: Vec<RunId> = siblings
            .iter()
            .map(|sibling| sibling.run)
            .filter(|run| is_new && !self.watched.0.contains_key(run))
            .collect();
        Ok(self
            .store
            .write(move |tx| {
                tx.end_tree_work(&due)?;
                if is_new {
                    tx.add_tree_work(due.run, TreeWork::Compare)?;
                }
                for other in others {
                    if tx.run(other)?.state == RunState::Running {
                        tx.add_tree_work(other, TreeWork::Watch)?;
                    }
                }
                Ok(())
            })
            .await?)
    }

    /// Removes the git directories of runs that are no longer live.
    fn drop_ended(&mut self) -> Result<(), OpError> {
        let is_live = |run: RunId| {
            Ok::<_, StoreError>(
                self.store
                    .read(|connection| run_by_id(connection, run))?
                    .is_some_and(|run| run.state.is_live()),
            )
        };
        let mut live = Vec::new();
        for (run, scratch) in std::mem::take(&mut self.between_turns.0) {
            if is_live(run)? {
                live.push((run, scratch));
            }
        }
        self.between_turns.0 = live;
        Ok(())
    }

    /// Takes a snapshot of a run whose agent has ended a turn. Turns that end meanwhile share one
    /// snapshot.
    async fn snapshot_after_turn(&mut self, due: DueTreeWork) -> Result<(), OpError> {
        let run = self
            .store
            .read(|connection| run_by_id(connection, due.run))?;
        let known = self.between_turns.remove(due.run);
        self.drop_ended()?;
        // The end of an attempt has its own snapshot.
        let is_here = |run: &Run| {
            let row = self
                .store
                .read(|connection| attempt_row(connection, run.id, run.attempt))?;
            Ok::<_, StoreError>(row.is_none_or(|row| row.host.is_none()))
        };
        // The tree of a run on a runner is there.
        let is_here = run.as_ref().map(is_here).transpose()?.unwrap_or(true);
        let Some(run) = run.filter(|run| is_here && run.state == RunState::Running) else {
            return Ok(self.store.write(move |tx| tx.end_tree_work(&due)).await?);
        };
        let kept = async {
            let scratch = self.trees.scratch_after(&run, known).await?;
            let taken = take_snapshot(&scratch, &run, SnapshotCause::Turn).await?;
            Ok::<_, OpError>((scratch, taken))
        };
        let (is_new, problem) = match tokio::time::timeout(KEEP_MAX, kept).await {
            Ok(Ok((scratch, taken))) => {
                self.between_turns.insert(run.id, scratch);
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
                if is_new && is_isolated {
                    tx.add_tree_work(due.run, TreeWork::Compare)
                } else {
                    Ok(())
                }
            })
            .await?)
    }
}
