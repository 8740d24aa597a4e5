//! The new index of an update. It is the lock of the user's index until it replaces the index.

use super::Update;
use super::index::{index_info, remove_file};
use crate::failpoint::failpoint;
use crate::git::diff::DiffEntry;
use crate::git::refusal::MergeRefusal;
use crate::git::{GitError, Repo, Scratch};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

impl Repo {
    pub(super) fn lock(&self) -> PathBuf {
        self.dir.join("index.lock")
    }

    /// Returns the second name of an update's new index.
    pub(super) fn new_index(&self, update: &Update) -> PathBuf {
        self.dir.join(format!("adjutant-{}.index", update.name))
    }

    /// Removes the second name, and the lock file that a killed git left for it.
    pub(super) fn remove_new_index(&self, update: &Update) -> Result<(), GitError> {
        remove_file(
            &self
                .dir
                .join(format!("adjutant-{}.index.lock", update.name)),
        )?;
        remove_file(&self.new_index(update))
    }
}

/// Creates the new index, and links it as the lock of the user's index.
pub(super) async fn lock(
    scratch: &Scratch,
    update: &Update,
    listed: &[DiffEntry],
) -> Result<(), GitError> {
    let (repo, new_index) = (scratch.repo(), scratch.repo().new_index(update));
    repo.remove_new_index(update)?;
    let index = repo.dir.join("index");
    // The copy is made without the lock, because only a complete index can become the lock. `apply`
    // compares the user's index with the prepared one once it has the lock.
    match fs::copy(&index, &new_index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        copied => drop(copied.map_err(GitError::file(&index))?),
    }
    let entries = index_info(repo, listed, true);
    let call = scratch
        .call(&["update-index", "-z", "--index-info"])
        .env("GIT_INDEX_FILE", &new_index);
    call.input(entries).output().await?;
    // A link fails if the user's git has the lock, and leaves the second name by which a later
    // process recognises a lock of this update.
    match fs::hard_link(&new_index, repo.lock()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(MergeRefusal::Locked(repo.lock().display().to_string()).into())
        }
        linked => linked.map_err(GitError::file(repo.lock())),
    }
}

/// Returns the inode of a file. `None`: it does not exist.
pub(super) fn inode_of(path: &Path) -> Result<Option<u64>, GitError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(found.map_err(GitError::file(path))?.ino())),
    }
}

/// Removes the lock if the update created it, and the new index.
pub(super) fn unlock(repo: &Repo, update: &Update) -> Result<(), GitError> {
    let (new_index, lock) = (repo.new_index(update), repo.lock());
    let locked = inode_of(&lock)?;
    // The user may have removed the lock since, and their git may have taken it.
    if locked.is_some() && locked == inode_of(&new_index)? {
        // The lock goes before its second name. A process that dies in between would otherwise
        // leave a lock that no recovery recognises, and that blocks the user's git.
        remove_file(&lock)?;
    }
    repo.remove_new_index(update)?;
    repo.sync_index()
}

/// Replaces the user's index with the new one.
pub(super) fn replace_index(repo: &Repo, update: &Update) -> Result<(), GitError> {
    // The second name goes last: as long as it exists, recovery looks for the rest of the update.
    fs::rename(repo.lock(), repo.dir.join("index")).map_err(GitError::file(repo.lock()))?;
    failpoint!("merge.after_index");
    repo.remove_new_index(update)?;
    repo.sync_index()
}

/// Moves the ref if it has not changed. A ref that already names the new commit stays.
pub(super) async fn move_ref(scratch: &Scratch, update: &Update) -> Result<(), GitError> {
    let (Some(git_ref), repo) = (&update.git_ref, scratch.repo()) else {
        return Ok(());
    };
    if has_moved_ref(scratch, update).await? {
        return Ok(());
    }
    let call = repo.of_refs(&[
        "update-ref",
        "--no-deref",
        "-m",
        &update.reason,
        "--end-of-options",
        git_ref,
        &update.after,
        &update.before,
    ]);
    match update.who.as_committer(call).output().await {
        // A call that timed out may have moved the ref.
        Err(_) if has_moved_ref(scratch, update).await? => {}
        moved => drop(moved?),
    }
    // Before the index says that the update is complete.
    repo.sync_ref(git_ref)?;
    failpoint!("merge.after_ref");
    Ok(())
}

/// Returns whether the ref names the new commit, or a commit that the user has made on top of it.
pub(super) async fn has_moved_ref(scratch: &Scratch, update: &Update) -> Result<bool, GitError> {
    let Some(git_ref) = &update.git_ref else {
        return Ok(false);
    };
    match scratch.repo().commit_of(git_ref).await? {
        Some(now) => Ok(now == update.after || scratch.is_ancestor(&update.after, &now).await?),
        None => Ok(false),
    }
}
