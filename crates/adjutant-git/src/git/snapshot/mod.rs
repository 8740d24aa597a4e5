//! Snapshots: the state of a run's tree, stored as a commit under a hidden ref.
//!
//! ```text
//!  refs/adjutant/<run id>/<n>   n = 1, 2, …; the parent of 1 is the commit that was checked out, the parent of n + 1 is n
//! ```
//! The ref is the only record of a snapshot; the commit message gives the reason for it. Files have
//! the content that git itself would commit; see [`super::line_ends`] for their bytes.
mod changes;
mod crowded;
mod listing;
mod refs;
mod tree;
mod watched;

pub(super) use self::changes::{LeftOut, named};
use self::refs::{AT_MS, ATTEMPT, BYTES, CAUSE, LEFT_OUT, name_commit};
pub use self::refs::{remove_all, snapshots};
use self::tree::ReadTree;
#[cfg(test)]
pub(super) use self::tree::read_repositories;
pub(super) use self::tree::{read_tree, write_tree};
use self::watched::{forget_watched, watch_commit, watched_snapshot};
pub use self::watched::{head_before, newest_state};
use super::{GitError, Scratch};
use crate::failpoint::failpoint;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, RunId, Time};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Maximum number of snapshot numbers to try if other processes create snapshots at the same time.
const TRIES_MAX: u32 = 20;

/// The run and the reason for which a snapshot is taken.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub run: RunId,
    pub run_name: String,
    pub attempt: AttemptNo,
    pub cause: SnapshotCause,
    /// The date of the snapshot.
    pub at: Time,
}

/// A stored state of a run's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Number within the run, from 1. 0: the state of a live run's tree, which the next snapshot
    /// replaces.
    pub n: u32,
    pub commit: String,
    pub tree: String,
    /// In milliseconds since the epoch.
    pub at_ms: i64,
    /// `None`: the commit message does not contain it.
    pub cause: Option<SnapshotCause>,
    pub attempt: Option<AttemptNo>,
    /// Files that the snapshot leaves out, quoted, each with the reason.
    pub left_out: Vec<String>,
    /// A commit with the exact bytes of the files that git would check out with different bytes.
    pub bytes: Option<String>,
}

/// The outcome of taking a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    pub snapshot: Snapshot,
    /// Whether this call created the snapshot. Otherwise nothing has changed since this snapshot.
    pub is_new: bool,
    /// Paths of files that are not ignored and not in the snapshot.
    pub unsaved: BTreeSet<Vec<u8>>,
    /// Directories that it leaves out because of the number of their untracked files, quoted, each
    /// with the reason.
    pub crowded: Vec<String>,
}

/// Takes a snapshot of the tree. The snapshot is durable when this returns, unless its cause is
/// [`SnapshotCause::Watch`].
///
/// # Errors
/// git failed, or the disk is full; earlier snapshots are untouched.
pub async fn take(scratch: &Scratch, new: &NewSnapshot) -> Result<TakenSnapshot, GitError> {
    let taken = take_with_index(scratch, new).await;
    if taken.is_err() {
        // The index may name unreachable objects, which git can remove before the next attempt.
        scratch.discard_index()?;
    }
    taken
}

async fn take_with_index(scratch: &Scratch, new: &NewSnapshot) -> Result<TakenSnapshot, GitError> {
    let taking = Taking::prepare(scratch, new).await?;
    let read = taking.read().await?;
    let unsaved = read.left_out.iter().map(|(path, _)| path.clone()).collect();
    let crowded = named(&read.crowded);
    failpoint!("snapshot.before_tree");
    let state = taking.store(read).await?;
    let (snapshot, is_new) = match taking.same(&state).await? {
        Some(last) => (last.clone(), taking.keep(last).await?),
        None if new.cause == SnapshotCause::Watch => taking.watch(state).await?,
        None => taking.commit(state).await?,
    };
    Ok(TakenSnapshot {
        snapshot,
        is_new,
        unsaved,
        crowded,
    })
}

/// A snapshot that is being taken.
struct Taking<'a> {
    scratch: &'a Scratch,
    new: &'a NewSnapshot,
    /// The snapshots of the run, in their order.
    earlier: Vec<Snapshot>,
    /// The parent of the snapshot: the last one, else the commit that is checked out.
    head: Option<String>,
}

/// The state of a tree, whose objects are stored.
struct TreeState {
    tree: String,
    /// A tree with the exact bytes of the files that git would check out with different bytes.
    bytes: Option<String>,
    left_out: Vec<String>,
}

impl<'a> Taking<'a> {
    /// Makes the index that of the last snapshot.
    async fn prepare(scratch: &'a Scratch, new: &'a NewSnapshot) -> Result<Self, GitError> {
        let earlier = snapshots(scratch.repo(), new.run).await?;
        let head = match earlier.last() {
            Some(last) => Some(last.commit.clone()),
            None => scratch.base().await?,
        };
        scratch.check_tree()?;
        if !scratch
            .index_snapshot()
            .is_some_and(|commit| earlier.iter().any(|snapshot| snapshot.commit == commit))
        {
            scratch.discard_index()?;
        }
        scratch.prepare_index(head.as_deref()).await?;
        Ok(Self {
            scratch,
            new,
            earlier,
            head,
        })
    }

    /// Updates the index to the state of the tree.
    async fn read(&self) -> Result<ReadTree, GitError> {
        let scratch = self.scratch;
        let first = self.earlier.first().map(|first| first.commit.as_str());
        let mut read = match read_tree(scratch, first).await {
            Ok(read) => read,
            Err(error @ GitError::Slow { .. }) => return Err(error),
            Err(error) => {
                // The copied index may depend on files beside the original.
                tracing::debug!(%error, "the index is built again");
                scratch.reset_index(self.head.as_deref()).await?;
                read_tree(scratch, first).await?
            }
        };
        let unsaved = scratch.unsaved_in_repositories().await?;
        read.left_out.extend(
            unsaved
                .into_iter()
                .filter(|(path, _)| !read.left_out.iter().any(|(known, _)| known == path))
                .collect::<Vec<_>>(),
        );
        Ok(read)
    }

    /// Stores the index and the exact bytes of files as trees.
    async fn store(&self, mut read: ReadTree) -> Result<TreeState, GitError> {
        let scratch = self.scratch;
        let tree = write_tree(scratch).await?;
        let mut known = scratch.exact_files(self.last_bytes()).await?;
        known.retain(|path, _| !read.changed.contains(path));
        if self.earlier.is_empty() && scratch.workspace().is_none() {
            read.attributes = scratch.contents().await?.attributes;
            if let Some(attributes) = &read.attributes {
                read.texts
                    .extend(scratch.unusual_texts(attributes, &read.changed).await?);
            }
        }
        let bytes = scratch
            .keep_exact(read.attributes.as_deref(), &read.texts, known)
            .await?;
        Ok(TreeState {
            tree,
            bytes,
            left_out: named(&read.left_out),
        })
    }

    fn last_bytes(&self) -> Option<&str> {
        self.earlier.last().and_then(|last| last.bytes.as_deref())
    }

    /// Returns the last snapshot if it has this state, and the cause needs no other one.
    async fn same(&self, state: &TreeState) -> Result<Option<&Snapshot>, GitError> {
        let has_same_bytes = match (&state.bytes, self.last_bytes()) {
            (Some(bytes), Some(last)) => *bytes == self.scratch.tree_of(last).await?,
            (bytes, last) => bytes.is_none() && last.is_none(),
        };
        let is_same = |last: &&Snapshot| {
            last.tree == state.tree && last.left_out == state.left_out && has_same_bytes
        };
        Ok(self
            .earlier
            .last()
            .filter(|last| is_same(last) && !self.new.cause.is_always_kept()))
    }

    /// Keeps the last snapshot. Returns whether the agent has reverted changes that were observed
    /// since.
    async fn keep(&self, last: &Snapshot) -> Result<bool, GitError> {
        self.scratch.keep_index(&last.commit)?;
        Ok(self.new.cause == SnapshotCause::Watch
            && forget_watched(self.scratch, self.new.run).await?)
    }

    /// Stores the state as the last observed one of a live run. Also returns whether it is new.
    async fn watch(&self, state: TreeState) -> Result<(Snapshot, bool), GitError> {
        let (scratch, new) = (self.scratch, self.new);
        // No snapshot ref keeps the objects in the index.
        scratch.discard_index()?;
        let message = message(new, &state.left_out, None);
        let commit =
            watch_commit(scratch, new.run, &state.tree, self.head.as_deref(), message).await?;
        let is_new = commit.is_some();
        let snapshot = match (commit, self.earlier.last()) {
            (None, Some(last)) => last.clone(),
            (commit, _) => {
                watched_snapshot(new, commit.unwrap_or_default(), state.tree, state.left_out)
            }
        };
        Ok((snapshot, is_new))
    }

    /// Stores the state as a snapshot. Also returns whether it is new.
    async fn commit(&self, state: TreeState) -> Result<(Snapshot, bool), GitError> {
        let (scratch, new) = (self.scratch, self.new);
        let date = Some(new.at.0.div_euclid(1000));
        let bytes = match state.bytes {
            Some(tree) => {
                let message = format!("Adjutant: {}, bytes of files\n", new.run_name);
                Some(scratch.commit_own(&tree, &[], message, date).await?)
            }
            None => None,
        };
        let message = message(new, &state.left_out, bytes.as_deref());
        let parents: Vec<&str> = self.head.iter().chain(&bytes).map(String::as_str).collect();
        let commit = scratch
            .commit_own(&state.tree, &parents, message, date)
            .await?;
        failpoint!("snapshot.before_ref");
        let n = match self.name(&commit).await? {
            Named::As(n) => n,
            Named::Newer(snapshot) => {
                // No ref keeps the objects in the index.
                scratch.discard_index()?;
                return Ok((snapshot, false));
            }
        };
        // Only after the ref exists: it protects the objects in the index, on which the next
        // snapshot relies, from garbage collection.
        scratch.keep_index(&commit)?;
        let snapshot = Snapshot {
            n,
            commit,
            tree: state.tree,
            at_ms: new.at.0,
            cause: Some(new.cause),
            attempt: Some(new.attempt),
            left_out: state.left_out,
            bytes,
        };
        Ok((snapshot, true))
    }

    /// Creates the ref of the snapshot.
    async fn name(&self, commit: &str) -> Result<Named, GitError> {
        let (repo, run) = (self.scratch.repo(), self.new.run);
        let last = self.earlier.last();
        let n = last.map_or(1, |last| last.n.saturating_add(1));
        // After a turn, the agent works while the tree is read: a snapshot taken meanwhile is
        // newer.
        let is_turn = self.new.cause == SnapshotCause::Turn;
        let tries = if is_turn { 1 } else { TRIES_MAX };
        let error = match name_commit(repo, run, n, commit, tries).await {
            Ok(n) => return Ok(Named::As(n)),
            Err(error) => error,
        };
        let newest = snapshots(repo, run).await?.pop();
        newest
            .filter(|newest| is_turn && newest.n >= n)
            .map_or(Err(error), |newest| Ok(Named::Newer(newest)))
    }
}

/// The outcome of naming a snapshot.
enum Named {
    As(u32),
    /// Another process has taken this newer one.
    Newer(Snapshot),
}

/// Returns the commit message of a snapshot. `bytes`: the commit with the exact bytes of files.
fn message(new: &NewSnapshot, left_out: &[String], bytes: Option<&str>) -> String {
    let mut message = format!(
        "Adjutant: {}, {}\n\n{CAUSE}: {}\n{ATTEMPT}: {}\n{AT_MS}: {}\n",
        new.run_name,
        new.cause.label(),
        new.cause.word(),
        new.attempt,
        new.at.0
    );
    let left_out = left_out.iter().map(|file| (LEFT_OUT, file.as_str()));
    for (name, value) in left_out.chain(bytes.map(|bytes| (BYTES, bytes))) {
        // Writing to a string cannot fail.
        let _ = writeln!(message, "{name}: {value}");
    }
    message
}
