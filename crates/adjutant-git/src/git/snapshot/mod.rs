//! Snapshots: the state of a run's tree, stored as a commit under a hidden ref.
//!
//! ```text
//!  refs/adjutant/<run id>/<n>   n = 1, 2, …; the parent of 1 is the commit that was checked out, the parent of n + 1 is n
//! ```
//! The ref is the only record of a snapshot; the commit message gives the reason for it. Files have the content that git
//! itself would commit; see [`super::line_ends`] for their bytes.
mod changes;
mod crowded;
mod listing;
mod refs;
mod tree;
mod watched;

pub(super) use self::changes::{LeftOut, named};
use self::refs::{AT_MS, ATTEMPT, BYTES, CAUSE, LEFT_OUT, name_commit};
pub use self::refs::{remove_all, snapshots};
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
    /// Number within the run, from 1. 0: the state of a live run's tree, which the next snapshot replaces.
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
    /// Directories that it leaves out because of the number of their untracked files, quoted, each with the reason.
    pub crowded: Vec<String>,
}

/// Takes a snapshot of the tree. The snapshot is durable when this returns, unless its cause is [`SnapshotCause::Watch`].
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
    let earlier = snapshots(scratch.repo(), new.run).await?;
    let last = earlier.last();
    let head = match last {
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
    let first = earlier.first().map(|first| first.commit.as_str());
    let mut read = match read_tree(scratch, first).await {
        Ok(read) => read,
        Err(error @ GitError::Slow { .. }) => return Err(error),
        Err(error) => {
            // The copied index may depend on files beside the original.
            tracing::debug!(%error, "the index is built again");
            scratch.reset_index(head.as_deref()).await?;
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
    let unsaved = read.left_out.iter().map(|(path, _)| path.clone()).collect();
    let left_out = named(&read.left_out);
    let crowded = named(&read.crowded);
    failpoint!("snapshot.before_tree");
    let tree = write_tree(scratch).await?;
    let last_bytes = last.and_then(|last| last.bytes.as_deref());
    let mut known = scratch.exact_files(last_bytes).await?;
    known.retain(|path, _| !read.changed.contains(path));
    if earlier.is_empty() && scratch.workspace().is_none() {
        read.attributes = scratch.contents().await?.attributes;
        if let Some(attributes) = &read.attributes {
            read.texts
                .extend(scratch.unusual_texts(attributes, &read.changed).await?);
        }
    }
    let bytes = scratch
        .keep_exact(read.attributes.as_deref(), &read.texts, known)
        .await?;
    let has_same_bytes = match (&bytes, last_bytes) {
        (Some(bytes), Some(last)) => *bytes == scratch.tree_of(last).await?,
        (bytes, last) => bytes.is_none() && last.is_none(),
    };
    let is_same =
        |last: &&Snapshot| last.tree == tree && last.left_out == left_out && has_same_bytes;
    if let Some(last) = last.filter(|last| is_same(last) && !new.cause.is_always_kept()) {
        scratch.keep_index(&last.commit)?;
        // The agent has reverted its changes since the last snapshot.
        let is_new = new.cause == SnapshotCause::Watch && forget_watched(scratch, new.run).await?;
        return Ok(TakenSnapshot {
            snapshot: last.clone(),
            is_new,
            unsaved,
            crowded,
        });
    }
    let mut message = format!(
        "Adjutant: {}, {}\n\n{CAUSE}: {}\n{ATTEMPT}: {}\n{AT_MS}: {}\n",
        new.run_name,
        new.cause.label(),
        new.cause.word(),
        new.attempt,
        new.at.0
    );
    for file in &left_out {
        // Writing to a string cannot fail.
        let _ = writeln!(message, "{LEFT_OUT}: {file}");
    }
    if new.cause == SnapshotCause::Watch {
        // No snapshot ref keeps the objects in the index.
        scratch.discard_index()?;
        let commit = watch_commit(scratch, new.run, &tree, head.as_deref(), message).await?;
        let is_new = commit.is_some();
        let snapshot = match (commit, last) {
            (None, Some(last)) => last.clone(),
            (commit, _) => watched_snapshot(new, commit.unwrap_or_default(), tree, left_out),
        };
        return Ok(TakenSnapshot {
            snapshot,
            is_new,
            unsaved,
            crowded,
        });
    }
    let date = new.at.0.div_euclid(1000);
    let bytes = match bytes {
        Some(tree) => Some(
            scratch
                .commit_own(
                    &tree,
                    &[],
                    format!("Adjutant: {}, bytes of files\n", new.run_name),
                    Some(date),
                )
                .await?,
        ),
        None => None,
    };
    if let Some(bytes) = &bytes {
        let _ = writeln!(message, "{BYTES}: {bytes}");
    }
    let parents: Vec<&str> = head.iter().chain(&bytes).map(String::as_str).collect();
    let commit = scratch
        .commit_own(&tree, &parents, message, Some(date))
        .await?;
    let n = last.map_or(1, |last| last.n.saturating_add(1));
    failpoint!("snapshot.before_ref");
    // After a turn, the agent works while the tree is read: a snapshot taken meanwhile is newer.
    let tries = if new.cause == SnapshotCause::Turn {
        1
    } else {
        TRIES_MAX
    };
    let n = match name_commit(scratch.repo(), new.run, n, &commit, tries).await {
        Ok(n) => n,
        Err(error) => match snapshots(scratch.repo(), new.run)
            .await?
            .pop()
            .filter(|newest| tries == 1 && newest.n >= n)
        {
            Some(snapshot) => {
                // No ref keeps the objects in the index.
                scratch.discard_index()?;
                return Ok(TakenSnapshot {
                    snapshot,
                    is_new: false,
                    unsaved,
                    crowded,
                });
            }
            None => return Err(error),
        },
    };
    // Only after the ref exists: it protects the objects in the index, on which the next snapshot relies, from garbage collection.
    scratch.keep_index(&commit)?;
    let snapshot = Snapshot {
        n,
        commit,
        tree,
        at_ms: new.at.0,
        cause: Some(new.cause),
        attempt: Some(new.attempt),
        left_out,
        bytes,
    };
    Ok(TakenSnapshot {
        snapshot,
        is_new: true,
        unsaved,
        crowded,
    })
}
