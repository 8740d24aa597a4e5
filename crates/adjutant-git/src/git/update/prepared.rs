//! The preparation of an update: all checks, before anything is changed.

use super::Update;
use super::lock::{lock, move_ref, replace_index, unlock};
use super::recovery::roll_back;
use crate::failpoint::failpoint;
use crate::git::diff::{DiffEntry, GITLINK};
use crate::git::index_file::IndexStamp;
use crate::git::paths::{as_path, lossy};
use crate::git::refusal::MergeRefusal;
use crate::git::restore::{Restore, Stamps, in_the_way};
use crate::git::work_tree::parts;
use crate::git::{GitError, Head, Repo, Scratch};
use std::collections::{BTreeSet, HashSet};

/// Files in the git directory that show an unfinished operation of the user.
const UNDER_WAY: [(&str, &str); 7] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("sequencer", "a cherry-pick or a revert"),
    ("BISECT_LOG", "a bisect"),
];

/// A checked update, with the state of the repository at the check.
#[derive(Debug)]
pub struct PreparedUpdate {
    scratch: Scratch,
    update: Update,
    head: Head,
    listed: Vec<DiffEntry>,
    restore: Restore,
    index: IndexStamp,
}

/// How an update was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files were replaced without an exchange, which the file system does not support.
    pub is_unguarded: bool,
}

impl Repo {
    /// Returns the unfinished operation of the user, if there is one.
    async fn under_way(&self) -> Result<Option<&'static str>, GitError> {
        for (name, what) in UNDER_WAY {
            // With a ref storage other than files, these are not files either.
            let is_ref = name.ends_with("_HEAD");
            if self.dir.join(name).symlink_metadata().is_ok()
                || (is_ref && self.commit_of(name).await?.is_some())
            {
                return Ok(Some(what));
            }
        }
        Ok(None)
    }
}

impl PreparedUpdate {
    /// Checks whether the update is possible. Changes nothing of the user.
    ///
    /// # Errors
    /// A [`MergeRefusal`], or git or the disk failed.
    pub async fn prepare(scratch: Scratch, head: Head, update: Update) -> Result<Self, GitError> {
        let repo = scratch.repo();
        if let Some(what) = repo.under_way().await? {
            return Err(MergeRefusal::UnderWay(what).into());
        }
        if repo.lock().symlink_metadata().is_ok() {
            return Err(MergeRefusal::Locked(repo.lock().display().to_string()).into());
        }
        let all = scratch.list(&update.before, &update.after).await?;
        refuse_names(&scratch, &update, &all).await?;
        let is_repository = |mode: &Option<String>| mode.as_deref() == Some(GITLINK);
        let (links, listed): (Vec<DiffEntry>, Vec<DiffEntry>) = all
            .iter()
            .cloned()
            .partition(|listed| is_repository(&listed.from_mode) || is_repository(&listed.to_mode));
        // A changed commit of a nested repository is allowed: like git, this does not check it out,
        // and the merge adds it there first.
        let replaced = links
            .iter()
            .filter(|listed| !is_repository(&listed.from_mode) || !is_repository(&listed.to_mode));
        MergeRefusal::files(
            MergeRefusal::Submodules,
            replaced.map(|listed| lossy(&listed.path)),
        )?;
        let filtered = scratch
            .find_filtered(&listed, &[&update.before, &update.after])
            .await?;
        MergeRefusal::files(
            MergeRefusal::Filtered,
            filtered.iter().map(|path| lossy(path)),
        )?;
        // Before the index is read, so that `apply` detects later changes.
        let index = IndexStamp::of(&repo.dir.join("index"));
        scratch.refuse_staged(&update, &all).await?;
        // Before the files are compared, so that `apply` detects later changes.
        let restore = Restore::of(
            &scratch,
            listed.clone(),
            &update.after,
            None,
            &Stamps::default(),
        )
        .await?;
        let dirty = scratch.differing(&listed, &update.before).await?;
        MergeRefusal::files(MergeRefusal::Dirty, dirty.iter().map(|path| lossy(path)))?;
        MergeRefusal::files(
            MergeRefusal::InTheWay,
            in_the_way(scratch.tree(), &BTreeSet::new(), &listed),
        )?;
        Ok(Self {
            scratch,
            update,
            head,
            listed: all,
            restore,
            index,
        })
    }

    /// Returns the user's repository.
    #[must_use]
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns the paths of the files that change, from the top of the tree.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.listed
            .iter()
            .map(|listed| lossy(&listed.path))
            .collect()
    }

    /// Sets the update as it was recorded.
    #[must_use]
    pub fn with_name(self, update: Update) -> Self {
        Self { update, ..self }
    }

    /// Applies the update. After an error, everything is as before, except after
    /// [`GitError::PartlyApplied`].
    ///
    /// # Errors
    /// The repository changed since the preparation ([`MergeRefusal::Changed`]), or git or the disk
    /// failed.
    pub async fn apply(self) -> Result<Applied, GitError> {
        let Self {
            scratch,
            update,
            head,
            listed,
            restore,
            index,
        } = self;
        let repo = scratch.repo();
        failpoint!("merge.after_journal");
        if let Err(error) = lock(&scratch, &update, &listed).await {
            repo.remove_new_index(&update)?;
            return Err(error);
        }
        failpoint!("merge.after_lock");
        let done = async {
            // From here on, git cannot change the index. It may have done so since the preparation.
            if IndexStamp::of(&repo.dir.join("index")) != index {
                return Err(MergeRefusal::Changed("the index".to_owned()).into());
            }
            if repo.checked_out().await?.as_ref() != Some(&head) {
                return Err(MergeRefusal::Changed("the checked-out commit".to_owned()).into());
            }
            MergeRefusal::files(MergeRefusal::Changed, restore.changed_files()?)?;
            Ok(())
        };
        if let Err(error) = done.await {
            unlock(repo, &update)?;
            return Err(error);
        }
        let applied = match restore.apply_blocking() {
            Ok(restored) if restored.left_alone.is_empty() => Ok(Applied {
                is_unguarded: restored.is_unguarded,
            }),
            Ok(restored) => Err(MergeRefusal::of_left_alone(&restored.left_alone).into()),
            Err(error) => Err(error),
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => return Err(roll_back(&scratch, &update, error).await),
        };
        failpoint!("merge.after_files");
        // Under the lock. If the branch was moved meanwhile, everything is rolled back.
        if let Err(error) = move_ref(&scratch, &update).await {
            return Err(roll_back(&scratch, &update, error).await);
        }
        // No rollback: the branch has moved and can be seen by others. The lock stays, and recovery
        // completes the update.
        replace_index(repo, &update).map(|()| applied)
    }
}

/// Refuses names that are invalid in a work tree, and names that differ only in case on a file
/// system that ignores case.
async fn refuse_names(
    scratch: &Scratch,
    update: &Update,
    all: &[DiffEntry],
) -> Result<(), GitError> {
    let added = || all.iter().filter(|listed| listed.to_mode.is_some());
    MergeRefusal::files(
        MergeRefusal::Names,
        all.iter()
            .filter(|listed| parts(as_path(&listed.path)).is_none())
            .map(|listed| lossy(&listed.path)),
    )?;
    if !scratch.repo().ignores_case() || added().next().is_none() {
        return Ok(());
    }
    let listed = scratch
        .call(&["ls-tree", "-r", "-z", "--name-only"])
        .arg(&update.after)
        .output()
        .await?;
    let mut seen: HashSet<String> = HashSet::new();
    let folded = |path: &[u8]| lossy(path).to_lowercase();
    let twice: HashSet<String> = listed
        .split(|byte| *byte == 0)
        .map(folded)
        .filter(|path| !seen.insert(path.clone()))
        .collect();
    Ok(MergeRefusal::files(
        MergeRefusal::Names,
        added()
            .filter(|listed| twice.contains(&folded(&listed.path)))
            .map(|listed| lossy(&listed.path)),
    )?)
}
