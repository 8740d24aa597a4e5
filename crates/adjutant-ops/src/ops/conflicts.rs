//! Conflicts between isolated runs before any is merged: comparing their newest snapshots in
//! memory.

use super::OpError;
use super::trees::Trees;
use crate::git::{self, GitError, MergeCall, MergePurpose, MergeResult, Scratch};
use crate::store::{
    Comparison, ConflictFile, Connection, DueTreeWork, Run, Sibling, Store, StoreError,
    changed_count, compared, conflicts_of, pair, run_by_id, siblings_of,
};
use crate::view::{ConflictFileView, RunConflictView, RunView};
use adjutant_core::RunId;
use adjutant_core::conflict::{Changes, merge_order};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of runs whose trees are compared with each other, the newest.
pub(super) const SIBLINGS_MAX: u32 = 32;
/// How long one round may take.
const ROUND_MAX: Duration = Duration::from_secs(120);
/// Maximum number of files of a conflict that are stored.
const FILES_MAX: usize = 50;

/// The newest snapshot of a run, and its changed files.
struct Work {
    run: RunId,
    base: String,
    commit: String,
    /// Without what the user had changed before.
    paths: BTreeSet<PathBuf>,
    has_added: bool,
    has_removed: bool,
    /// It started with uncommitted changes of the user.
    has_given: bool,
}

impl Work {
    /// Returns whether the changes of both can conflict: the same file, a file where the other has
    /// a directory, or a new file in a directory that the other may have renamed.
    fn can_conflict(&self, other: &Self) -> bool {
        let may_rename =
            |one: &Self, other: &Self| one.has_removed && one.has_added && other.has_added;
        may_rename(self, other)
            || may_rename(other, self)
            || self.paths.iter().any(|path| other.has_around(path))
            || other.paths.iter().any(|path| self.has_around(path))
    }

    /// Returns whether a path or a directory around it is among the changed files.
    fn has_around(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.paths.contains(above))
    }

    /// The same, or a file below the path is.
    fn touches(&self, path: &Path) -> bool {
        self.has_around(path) || self.paths.iter().any(|changed| changed.starts_with(path))
    }
}

/// Compares the newest snapshot of a run with those of its siblings. Unchanged pairs are
/// skipped.
pub(super) async fn compare_siblings(
    store: &Store,
    trees: &Trees,
    due: DueTreeWork,
) -> Result<(), OpError> {
    let found = store.read(|connection| {
        Ok::<_, StoreError>((
            run_by_id(connection, due.run)?,
            siblings_of(connection, due.run, SIBLINGS_MAX)?,
        ))
    })?;
    let compared = match found {
        (Some(run), siblings) if siblings.len() > 1 => {
            match tokio::time::timeout(ROUND_MAX, compare_all(store, trees, &run, siblings)).await {
                Ok(Ok(compared)) => compared,
                Ok(Err(error)) => {
                    tracing::warn!(%error, run = %due.run, "the trees of sibling runs cannot be compared");
                    Vec::new()
                }
                Err(_) => {
                    tracing::warn!(run = %due.run, "comparing the trees of sibling runs took too long");
                    Vec::new()
                }
            }
        }
        _ => Vec::new(),
    };
    Ok(store
        .write(move |tx| {
            for comparison in &compared {
                tx.set_compared(due.run, comparison)?;
            }
            tx.end_tree_work(&due)
        })
        .await?)
}

async fn compare_all(
    store: &Store,
    trees: &Trees,
    run: &Run,
    siblings: Vec<Sibling>,
) -> Result<Vec<Comparison>, OpError> {
    let scratch = trees.scratch_of(run).await?;
    let (own, others): (Vec<_>, Vec<_>) = siblings
        .into_iter()
        .partition(|sibling| sibling.run == run.id);
    let Some(sibling) = own.into_iter().next() else {
        return Ok(Vec::new());
    };
    let Some(commit) = git::newest_state(&scratch, sibling.run).await? else {
        return Ok(Vec::new());
    };
    // Listed when the first pair has changed.
    let mut own: Option<Work> = None;
    let mut found = Vec::new();
    for other in others {
        let name = other.name.clone();
        let Some(state) = git::newest_state(&scratch, other.run).await? else {
            continue;
        };
        let pair = pair(sibling.run, other.run);
        let commits = if pair.0 == sibling.run {
            (commit.clone(), state.clone())
        } else {
            (state.clone(), commit.clone())
        };
        if store
            .read(|connection| compared(connection, pair))?
            .is_some_and(|known| known == commits)
        {
            continue;
        }
        let own = match &own {
            Some(own) => own,
            None => own.insert(work_of(&scratch, &sibling, commit.clone()).await?),
        };
        let other = work_of(&scratch, &other, state).await?;
        let (first, second) = if pair.0 == own.run {
            (own, &other)
        } else {
            (&other, own)
        };
        match conflicts_between(&scratch, first, second).await {
            Ok(files) => found.push(Comparison {
                pair,
                commits: (first.commit.clone(), second.commit.clone()),
                changed: (first.paths.len() as u64, second.paths.len() as u64),
                files,
            }),
            Err(error) => {
                tracing::warn!(%error, run = %run.id, other = name, "the trees of two runs cannot be compared")
            }
        }
    }
    Ok(found)
}

async fn work_of(scratch: &Scratch, sibling: &Sibling, commit: String) -> Result<Work, GitError> {
    let listed = scratch
        .list(sibling.changes.as_ref().unwrap_or(&sibling.base), &commit)
        .await?;
    let (has_added, has_removed) = (
        listed.iter().any(|entry| entry.from_mode.is_none()),
        listed.iter().any(|entry| entry.to_mode.is_none()),
    );
    let paths = listed
        .into_iter()
        .map(|listed| {
            PathBuf::from(
                <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(listed.path),
            )
        })
        .collect();
    Ok(Work {
        run: sibling.run,
        base: sibling.base.clone(),
        commit,
        paths,
        has_added,
        has_removed,
        has_given: sibling.changes.is_some(),
    })
}

async fn conflicts_between(
    scratch: &Scratch,
    first: &Work,
    second: &Work,
) -> Result<Vec<ConflictFile>, GitError> {
    if !first.can_conflict(second) {
        return Ok(Vec::new());
    }
    let base = if first.base == second.base {
        first.base.clone()
    } else {
        scratch.merge_base(&first.base, &second.base).await?
    };
    let call = MergeCall {
        base: &base,
        ours: &first.commit,
        theirs: &second.commit,
        ours_label: "first",
        theirs_label: "second",
        purpose: MergePurpose::Probe,
    };
    match scratch.merge(&call).await? {
        MergeResult::Clean { .. } => Ok(Vec::new()),
        MergeResult::Conflicts(files) => {
            // Where both runs have not changed it, changes that the user had made before conflict.
            // A merge does not bring those.
            let is_theirs = |file: &git::Conflict| {
                let path = Path::new(
                    <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&file.path),
                );
                !(first.has_given || second.has_given)
                    || (first.touches(path) && second.touches(path))
            };
            let file = |file: git::Conflict| ConflictFile {
                path: String::from_utf8_lossy(&file.path).into_owned(),
                kind: file.kind,
            };
            Ok(files
                .into_iter()
                .filter(is_theirs)
                .take(FILES_MAX)
                .map(file)
                .collect())
        }
    }
}

/// Adds the conflicts of a run to its view, and a proposed order of merging.
pub(super) fn add_conflicts(
    connection: &Connection,
    run: &Run,
    view: &mut RunView,
) -> Result<(), StoreError> {
    // Most runs never had a conflict.
    if run.conflict_seq.is_none() {
        return Ok(());
    }
    let found = conflicts_of(connection, run.id)?;
    if found.is_empty() {
        return Ok(());
    }
    view.changes.conflicts = found
        .into_iter()
        .map(|conflict| RunConflictView {
            run_id: conflict.run.to_string(),
            run_name: conflict.name,
            files: conflict
                .files
                .into_iter()
                .map(|file| ConflictFileView {
                    path: file.path,
                    kind: file.kind.into(),
                })
                .collect(),
        })
        .collect();
    view.changes.merge_order = merge_order_of(connection, run)?;
    Ok(())
}

/// Proposes an order of merging a run and its siblings. Empty if it conflicts with none of them.
pub(super) fn merge_order_of(
    connection: &Connection,
    run: &Run,
) -> Result<Vec<String>, StoreError> {
    if run.conflict_seq.is_none() || conflicts_of(connection, run.id)?.is_empty() {
        return Ok(Vec::new());
    }
    let siblings = siblings_of(connection, run.id, SIBLINGS_MAX)?;
    let mut changes = Vec::with_capacity(siblings.len());
    let mut pairs = Vec::new();
    for (at, sibling) in siblings.iter().enumerate() {
        changes.push(Changes {
            files: changed_count(connection, sibling.run)?,
        });
        for other in conflicts_of(connection, sibling.run)? {
            pairs.extend(
                siblings
                    .iter()
                    .position(|sibling| sibling.run == other.run)
                    .map(|other| (at, other)),
            );
        }
    }
    Ok(merge_order(&changes, &pairs)
        .into_iter()
        .map(|at| siblings[at].name.clone())
        .collect())
}
