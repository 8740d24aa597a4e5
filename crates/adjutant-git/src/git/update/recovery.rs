//! Finishes or rolls back an interrupted update.

use super::lock::{has_moved_ref, inode_of, lock, move_ref, replace_index, unlock};
use super::{RecoveryOutcome, Update};
use crate::git::diff::{DiffEntry, GITLINK};
use crate::git::paths::as_path;
use crate::git::refusal::MergeRefusal;
use crate::git::restore::{Restore, Stamps, settle_strays};
use crate::git::{GitError, Repo, Scratch};
use std::collections::HashSet;
use std::path::Path;

/// Returns whether an update has left its lock or its new index, although its end was recorded: the
/// disk has not kept what it had confirmed.
///
/// # Errors
/// The disk failed.
pub fn has_remains(repo: &Repo, update: &Update) -> Result<bool, GitError> {
    Ok(inode_of(&repo.new_index(update))?.is_some())
}

/// Returns whether an update can have left something in the repository with this work tree, without
/// a call of git.
#[must_use]
pub fn may_have_remains(top: &Path, update: &Update) -> bool {
    let dir = top.join(".git");
    let name = format!("adjutant-{}.index", update.name);
    if dir.is_dir() {
        return dir.join(name).symlink_metadata().is_ok();
    }
    // A linked work tree names its git directory. An unreadable one is left to git.
    match crate::files::read_named(&dir, LINK_BYTES_MAX) {
        Ok(text) => match String::from_utf8_lossy(&text)
            .trim_end()
            .strip_prefix("gitdir: ")
        {
            Some(elsewhere) => top.join(elsewhere).join(name).symlink_metadata().is_ok(),
            None => true,
        },
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// Maximum size of the file that names a git directory.
const LINK_BYTES_MAX: u64 = 64 * 1024;

/// Finishes or rolls back an update during which the process died. Idempotent.
///
/// # Errors
/// git or the disk failed.
pub async fn recover(scratch: &Scratch, update: &Update) -> Result<RecoveryOutcome, GitError> {
    let mark = inode_of(&scratch.repo().new_index(update))?;
    let found = Interrupted::read(scratch, update).await?;
    // A save of the user that is found there goes back first, so that it is not overwritten.
    settle_strays(
        scratch,
        &found.listed,
        (&update.before, None),
        (&update.after, None),
    )
    .await?;
    match mark {
        Some(mark) => {
            let is_locked = inode_of(&scratch.repo().lock())? == Some(mark);
            found.resume(is_locked).await
        }
        None => found.end_without_index().await,
    }
}

/// An update during which the process died.
struct Interrupted<'a> {
    scratch: &'a Scratch,
    update: &'a Update,
    /// The commit of the ref that the update moves.
    now: Option<String>,
    /// Whether the update has moved its ref.
    is_at_after: bool,
    /// The files that it replaces.
    listed: Vec<DiffEntry>,
}

impl<'a> Interrupted<'a> {
    async fn read(scratch: &'a Scratch, update: &'a Update) -> Result<Self, GitError> {
        let now = match &update.git_ref {
            Some(git_ref) => scratch.repo().commit_of(git_ref).await?,
            None => None,
        };
        Ok(Self {
            scratch,
            update,
            now,
            is_at_after: has_moved_ref(scratch, update).await?,
            listed: scratch.list(&update.before, &update.after).await?,
        })
    }

    /// Ends an update without a prepared index: it had not started, or only its end was not
    /// recorded.
    async fn end_without_index(&self) -> Result<RecoveryOutcome, GitError> {
        self.scratch.repo().remove_new_index(self.update)?;
        let is_done = self.is_at_after
            || (self.update.git_ref.is_none() && self.has_index_of(&self.update.after).await?);
        Ok(outcome(is_done))
    }

    /// Finishes or rolls back an update with a prepared index. `is_locked`: it holds the lock of
    /// the index.
    async fn resume(&self, is_locked: bool) -> Result<RecoveryOutcome, GitError> {
        let update = self.update;
        let is_checked_out = is_checked_out(self.scratch, update).await?;
        if is_locked && !self.is_moved() && is_checked_out {
            return self.finish().await;
        }
        // The index is replaced last. All later changes, also of the ref, are the user's.
        if !is_locked && self.has_index_of(&update.after).await? {
            self.scratch.repo().remove_new_index(update)?;
            return Ok(outcome(self.is_at_after || update.git_ref.is_none()));
        }
        let has_old_index = is_locked || self.has_index_of(&update.before).await?;
        if has_old_index && !self.is_at_after {
            // Restores the files that the update had replaced.
            replace_files(self.scratch, &self.listed, &update.after, &update.before).await?;
        } else if has_old_index
            && !is_locked
            && is_checked_out
            && self.now.as_deref() == Some(update.after.as_str())
            && self.has_written_files().await?
        {
            lock(self.scratch, update, &self.listed).await?;
            replace_index(self.scratch.repo(), update)?;
            return Ok(RecoveryOutcome::Finished);
        }
        unlock(self.scratch.repo(), update)?;
        Ok(outcome(self.is_at_after))
    }

    /// Returns whether the branch was moved meanwhile, so that the prepared update does not apply
    /// any more.
    fn is_moved(&self) -> bool {
        self.update.git_ref.is_some()
            && !self.is_at_after
            && self.now.as_deref() != Some(self.update.before.as_str())
    }

    async fn finish(&self) -> Result<RecoveryOutcome, GitError> {
        let Self {
            scratch,
            update,
            listed,
            ..
        } = self;
        // Files that were replaced already are not as in `before`, and stay.
        replace_files(scratch, listed, &update.before, &update.after).await?;
        move_ref(scratch, update).await?;
        replace_index(scratch.repo(), update)?;
        Ok(RecoveryOutcome::Finished)
    }

    async fn has_index_of(&self, commit: &str) -> Result<bool, GitError> {
        self.scratch.is_index_at(commit, &self.listed).await
    }

    /// Returns whether files are not in their older state, although the update has moved its ref
    /// and its lock is gone: the user removed the lock, or restored the older state. All files were
    /// written before the ref moved.
    async fn has_written_files(&self) -> Result<bool, GitError> {
        let files: Vec<DiffEntry> = self
            .listed
            .iter()
            .filter(|listed| is_file(listed))
            .cloned()
            .collect();
        let changed = changed_since(self.scratch, &files, &self.update.before).await?;
        Ok(!changed.is_empty())
    }
}

fn outcome(is_done: bool) -> RecoveryOutcome {
    if is_done {
        RecoveryOutcome::Finished
    } else {
        RecoveryOutcome::Undone
    }
}

/// Returns whether HEAD still names the ref that the update moves, if it moves one.
async fn is_checked_out(scratch: &Scratch, update: &Update) -> Result<bool, GitError> {
    let Some(git_ref) = &update.git_ref else {
        return Ok(true);
    };
    let head = scratch.repo().checked_out().await?;
    Ok(head.is_some_and(|head| head.branch.as_deref().unwrap_or("HEAD") == git_ref))
}

/// Restores the files after a failure.
pub(super) async fn roll_back(scratch: &Scratch, update: &Update, cause: GitError) -> GitError {
    let back = async {
        let listed = scratch.list(&update.before, &update.after).await?;
        settle_strays(
            scratch,
            &listed,
            (&update.before, None),
            (&update.after, None),
        )
        .await?;
        replace_files(scratch, &listed, &update.after, &update.before).await?;
        unlock(scratch.repo(), update)
    };
    match back.await {
        Ok(()) => cause,
        Err(error) => {
            tracing::error!(%error, "the files of an interrupted merge cannot be restored yet");
            GitError::PartlyApplied {
                cause: cause.to_string(),
                error: error.to_string(),
            }
        }
    }
}

/// Restores the listed files to their state in `to` if they are as in `from`. The others were
/// changed by the user and stay.
pub(super) async fn replace_files(
    scratch: &Scratch,
    listed: &[DiffEntry],
    from: &str,
    to: &str,
) -> Result<(), GitError> {
    let wanted = scratch.list(from, to).await?;
    let paths: HashSet<&[u8]> = listed.iter().map(|listed| listed.path.as_slice()).collect();
    let wanted: Vec<DiffEntry> = wanted
        .iter()
        .filter(|listed| is_file(listed))
        .filter(|listed| paths.contains(listed.path.as_slice()))
        .cloned()
        .collect();
    // This notes the states of the files before they are compared, so that a save in between is
    // detected when the file is replaced.
    let mut restore = Restore::of(scratch, wanted.clone(), to, None, &Stamps::default()).await?;
    let differing = changed_since(scratch, &wanted, from).await?;
    restore.retain(|listed| !differing.contains(&listed.path));
    let restored = restore.apply_blocking()?;
    if !restored.left_alone.is_empty() {
        tracing::warn!(files = %MergeRefusal::of_left_alone(&restored.left_alone), "the user has saved files while a merge was recovered");
    }
    Ok(())
}

/// Returns whether neither state is a nested repository.
fn is_file(listed: &DiffEntry) -> bool {
    [&listed.from_mode, &listed.to_mode]
        .iter()
        .all(|mode| mode.as_deref() != Some(GITLINK))
}

/// Returns the listed files that are not in their older state, which is that in `from`.
async fn changed_since(
    scratch: &Scratch,
    listed: &[DiffEntry],
    from: &str,
) -> Result<HashSet<Vec<u8>>, GitError> {
    let mut differing = scratch.differing(listed, from).await?;
    // git compares only the files that `from` contains.
    let is_there = |path: &[u8]| {
        scratch
            .tree()
            .join(as_path(path))
            .symlink_metadata()
            .is_ok_and(|meta| !meta.is_dir())
    };
    let added = listed
        .iter()
        .filter(|listed| listed.from_mode.is_none() && is_there(&listed.path));
    differing.extend(added.map(|listed| listed.path.clone()));
    Ok(differing)
}
