//! Conflicts between isolated runs before any is merged: comparing their newest snapshots in memory.

use super::{OpError, Ops};
use crate::git::{self, GitError, MergeCall, MergePurpose, MergeResult, Scratch};
use crate::store::{
    Comparison, ConflictFile, Connection, DueTreeWork, Run, Sibling, StoreError, changed_count, compared, conflicts_of, pair, run_by_id, siblings_of,
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
    paths: BTreeSet<PathBuf>,
}

impl Work {
    /// Returns whether the changes of both can conflict: the same file, or a file where the other has a directory.
    fn touches_same_path(&self, other: &Self) -> bool {
        let is_in = |path: &Path, paths: &BTreeSet<PathBuf>| path.ancestors().any(|above| paths.contains(above));
        self.paths.iter().any(|path| is_in(path, &other.paths)) || other.paths.iter().any(|path| is_in(path, &self.paths))
    }
}

impl Ops {
    /// Compares the newest snapshot of a run with those of its siblings. Pairs that have not changed are left out.
    pub(super) async fn compare_siblings(&self, due: DueTreeWork) -> Result<(), OpError> {
        let found =
            self.store.read(|connection| Ok::<_, StoreError>((run_by_id(connection, due.run)?, siblings_of(connection, due.run, SIBLINGS_MAX)?)))?;
        let compared = match found {
            (Some(run), siblings) if siblings.len() > 1 => match tokio::time::timeout(ROUND_MAX, self.compare_all(&run, siblings)).await {
                Ok(Ok(compared)) => compared,
                Ok(Err(error)) => {
                    tracing::warn!(%error, run = %due.run, "the trees of sibling runs cannot be compared");
                    Vec::new()
                }
                Err(_) => {
                    tracing::warn!(run = %due.run, "comparing the trees of sibling runs took too long");
                    Vec::new()
                }
            },
            _ => Vec::new(),
        };
        Ok(self
            .store
            .write(move |tx| {
                for comparison in &compared {
                    tx.set_compared(due.run, comparison)?;
                }
                tx.end_tree_work(&due)
            })
            .await?)
    }

    async fn compare_all(&self, run: &Run, siblings: Vec<Sibling>) -> Result<Vec<Comparison>, OpError> {
        let scratch = self.scratch_of(run).await?;
        let (own, others): (Vec<_>, Vec<_>) = siblings.into_iter().partition(|sibling| sibling.run == run.id);
        let Some(own) = own.into_iter().next() else { return Ok(Vec::new()) };
        let Some(own) = work_of(&scratch, own).await? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for other in others {
            let name = other.name.clone();
            let Some(other) = work_of(&scratch, other).await? else { continue };
            let pair = pair(own.run, other.run);
            let (first, second) = if pair.0 == own.run { (&own, &other) } else { (&other, &own) };
            let known = self.store.read(|connection| compared(connection, pair))?;
            if known.is_some_and(|known| known == (first.commit.clone(), second.commit.clone())) {
                continue;
            }
            match conflicts_between(&scratch, first, second).await {
                Ok(files) => found.push(Comparison {
                    pair,
                    commits: (first.commit.clone(), second.commit.clone()),
                    changed: (first.paths.len() as u64, second.paths.len() as u64),
                    files,
                }),
                Err(error) => tracing::warn!(%error, run = %run.id, other = name, "the trees of two runs cannot be compared"),
            }
        }
        Ok(found)
    }
}

async fn work_of(scratch: &Scratch, sibling: Sibling) -> Result<Option<Work>, GitError> {
    let Some(commit) = git::newest_state(scratch, sibling.run).await? else { return Ok(None) };
    let listed = scratch.list(&sibling.base, &commit).await?;
    let paths =
        listed.into_iter().map(|listed| PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(listed.path))).collect();
    Ok(Some(Work { run: sibling.run, base: sibling.base, commit, paths }))
}

async fn conflicts_between(scratch: &Scratch, first: &Work, second: &Work) -> Result<Vec<ConflictFile>, GitError> {
    if !first.touches_same_path(second) {
        return Ok(Vec::new());
    }
    let base = if first.base == second.base { first.base.clone() } else { scratch.merge_base(&first.base, &second.base).await? };
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
            let file = |file: git::Conflict| ConflictFile { path: String::from_utf8_lossy(&file.path).into_owned(), kind: file.kind };
            Ok(files.into_iter().take(FILES_MAX).map(file).collect())
        }
    }
}

/// Adds the conflicts of a run to its view, and a proposed order of merging.
pub(super) fn add_conflicts(connection: &Connection, run: &Run, view: &mut RunView) -> Result<(), StoreError> {
    // Most runs never had one.
    if run.conflict_seq.is_none() {
        return Ok(());
    }
    let found = conflicts_of(connection, run.id)?;
    if found.is_empty() {
        return Ok(());
    }
    view.conflicts = found
        .into_iter()
        .map(|conflict| RunConflictView {
            run_id: conflict.run.to_string(),
            run_name: conflict.name,
            files: conflict.files.into_iter().map(|file| ConflictFileView { path: file.path, kind: file.kind.into() }).collect(),
        })
        .collect();
    view.merge_order = merge_order_of(connection, run)?;
    Ok(())
}

/// Proposes an order of merging a run and its siblings. Empty if it conflicts with none of them.
pub(super) fn merge_order_of(connection: &Connection, run: &Run) -> Result<Vec<String>, StoreError> {
    if run.conflict_seq.is_none() || conflicts_of(connection, run.id)?.is_empty() {
        return Ok(Vec::new());
    }
    let siblings = siblings_of(connection, run.id, SIBLINGS_MAX)?;
    let mut changes = Vec::with_capacity(siblings.len());
    let mut pairs = Vec::new();
    for (at, sibling) in siblings.iter().enumerate() {
        changes.push(Changes { files: changed_count(connection, sibling.run)? });
        for other in conflicts_of(connection, sibling.run)? {
            pairs.extend(siblings.iter().position(|sibling| sibling.run == other.run).map(|other| (at, other)));
        }
    }
    Ok(merge_order(&changes, &pairs).into_iter().map(|at| siblings[at].name.clone()).collect())
}
