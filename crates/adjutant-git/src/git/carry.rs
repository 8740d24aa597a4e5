//! Stores the user's uncommitted changes as commits, for a workspace that starts with them.

use super::snapshot::{read_tree, write_tree};
use super::{GitError, Scratch};

/// Stores the differences of the user's index and tree from a commit: a commit of all files that
/// are not ignored, on top of a commit of the index. The user's index and tree do not change.
/// `None`: there is no difference.
///
/// # Errors
/// There are unresolved conflicts, or git failed.
pub async fn capture_changes(scratch: &Scratch, base: &str) -> Result<Option<String>, GitError> {
    scratch.prepare_index(Some(base)).await?;
    if !scratch
        .call(&["ls-files", "-z", "--unmerged"])
        .output()
        .await?
        .is_empty()
    {
        return Err(GitError::unusable(
            scratch.tree(),
            "it has unresolved conflicts, which cannot be carried into a workspace",
        ));
    }
    let staged = write_tree(scratch).await?;
    let read = read_tree(scratch, None).await?;
    if let Some((path, why)) = read.left_out.first() {
        let path = String::from_utf8_lossy(path).into_owned();
        return Err(GitError::unusable(
            scratch.tree(),
            format!(
                "{path:?} cannot be carried into a workspace ({why}): move it away or ignore it"
            ),
        ));
    }
    if let Some((path, why)) = scratch.unsaved_in_repositories().await?.first() {
        let path = String::from_utf8_lossy(path).into_owned();
        return Err(GitError::unusable(
            scratch.tree(),
            format!(
                "{path:?} cannot be carried into a workspace ({why}): commit or stash it there"
            ),
        ));
    }
    let all = write_tree(scratch).await?;
    let committed = scratch
        .call(&[
            "rev-parse",
            "--verify",
            "--end-of-options",
            &format!("{base}^{{tree}}"),
        ])
        .line()
        .await?;
    if staged == committed && all == committed {
        return Ok(None);
    }
    let index = scratch
        .commit_own(
            &staged,
            &[base],
            "Adjutant: staged changes\n".to_owned(),
            None,
        )
        .await?;
    scratch
        .commit_own(
            &all,
            &[&index],
            "Adjutant: uncommitted changes\n".to_owned(),
            None,
        )
        .await
        .map(Some)
}

/// Writes the current state of the work tree as a tree object, and returns it. No ref names it.
///
/// # Errors
/// git failed.
pub async fn present_tree(scratch: &Scratch) -> Result<String, GitError> {
    scratch
        .prepare_index(scratch.base().await?.as_deref())
        .await?;
    read_tree(scratch, None).await?;
    write_tree(scratch).await
}
