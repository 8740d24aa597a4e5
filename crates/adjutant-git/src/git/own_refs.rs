//! Refs that only Adjutant writes: those below `refs/adjutant/`.

use super::call::error_text;
use super::{GitError, Repo};
use crate::process::tool::Output;
use std::time::Duration;

/// A call that changes a ref holds its lock for less than this time, for which git waits
/// (`core.filesRefLockTimeout`). Should one take longer and lose its lock, one of two calls of
/// Adjutant for the same run fails, and nothing of the user's is affected.
const LOCK_HELD_MAX: Duration = Duration::from_secs(10);

/// Makes one of Adjutant's own refs name a commit, whatever it has named before.
pub(super) async fn set(repo: &Repo, name: &str, commit: &str) -> Result<(), GitError> {
    let ran = update(repo, name, &[commit]).await?;
    if ran.exit_code == Some(0) {
        Ok(())
    } else {
        Err(GitError::Failed {
            command: "update-ref".to_owned(),
            why: error_text(&ran),
        })
    }
}

/// Makes one of Adjutant's own refs name a commit. `values`: the commit, and the one that it has to
/// name before. A call that was killed can have left the lock of the ref, for which git waits in
/// vain.
pub(super) async fn update(repo: &Repo, name: &str, values: &[&str]) -> Result<Output, GitError> {
    let args = [&["update-ref", "--no-deref", name], values].concat();
    remove_left_lock(repo, name);
    let ran = repo.of_refs(&args).run().await?;
    if ran.exit_code == Some(0) || !remove_left_lock(repo, name) {
        return Ok(ran);
    }
    repo.of_refs(&args).run().await
}

/// Removes the lock of one of Adjutant's own refs if a killed call has left it. Returns whether it
/// did.
pub(super) fn remove_left_lock(repo: &Repo, name: &str) -> bool {
    let lock = repo.common.join(format!("{name}.lock"));
    let age = lock
        .symlink_metadata()
        .and_then(|lock| lock.modified())
        .ok()
        .and_then(|created| created.elapsed().ok());
    if !name.starts_with("refs/adjutant/") || age.is_none_or(|age| age < LOCK_HELD_MAX) {
        return false;
    }
    match std::fs::remove_file(&lock) {
        Ok(()) => {
            tracing::warn!(lock = %lock.display(), "removed the lock of a ref that a killed call had left");
            true
        }
        Err(error) => {
            tracing::warn!(lock = %lock.display(), %error, "the lock of a ref that a killed call has left cannot be removed");
            false
        }
    }
}
