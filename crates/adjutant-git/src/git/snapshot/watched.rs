//! The last observed state of a live run's tree, and the parents of snapshots.

use super::refs::snapshots;
use super::{NewSnapshot, Snapshot};
use crate::git::{GitError, Scratch, own_refs};
use adjutant_core::RunId;

/// Returns the ref of the last observed state of a live run's tree.
fn watch_ref(run: RunId) -> String {
    format!("refs/adjutant/{run}/now")
}

/// Stores the current state of a live run's tree as a commit on top of its newest snapshot. The
/// next one replaces it. `None`: the state is stored already.
pub(super) async fn watch_commit(
    scratch: &Scratch,
    run: RunId,
    tree: &str,
    head: Option<&str>,
    message: String,
) -> Result<Option<String>, GitError> {
    let git_ref = watch_ref(run);
    if let Some(known) = scratch.repo().commit_of(&git_ref).await?
        && scratch.tree_of(&known).await? == tree
        && parent_of(scratch, &known).await?.as_deref() == head
    {
        return Ok(None);
    }
    let parents: Vec<&str> = head.into_iter().collect();
    let commit = scratch.commit_own(tree, &parents, message, None).await?;
    own_refs::set(scratch.repo(), &git_ref, &commit).await?;
    Ok(Some(commit))
}

/// Removes the last observed state of a live run's tree. Returns whether there was one.
pub(super) async fn forget_watched(scratch: &Scratch, run: RunId) -> Result<bool, GitError> {
    let git_ref = watch_ref(run);
    let Some(known) = scratch.repo().commit_of(&git_ref).await? else {
        return Ok(false);
    };
    own_refs::remove_left_lock(scratch.repo(), &git_ref);
    scratch
        .repo()
        .of_refs(&["update-ref", "--no-deref", "-d", &git_ref, &known])
        .output()
        .await?;
    Ok(true)
}

pub(super) fn watched_snapshot(
    new: &NewSnapshot,
    commit: String,
    tree: String,
    left_out: Vec<String>,
) -> Snapshot {
    Snapshot {
        n: 0,
        commit,
        tree,
        at_ms: new.at.0,
        cause: Some(new.cause),
        attempt: Some(new.attempt),
        left_out,
        bytes: None,
    }
}

/// Returns the commit that was checked out when the first snapshot of a run was taken.
///
/// # Errors
/// git failed.
pub async fn head_before(scratch: &Scratch, first: &Snapshot) -> Result<Option<String>, GitError> {
    Ok(parent_of(scratch, &first.commit)
        .await?
        .filter(|parent| first.bytes.as_ref() != Some(parent)))
}

async fn parent_of(scratch: &Scratch, commit: &str) -> Result<Option<String>, GitError> {
    let line = scratch
        .call(&[
            "rev-list",
            "--parents",
            "--max-count=1",
            "--end-of-options",
            commit,
        ])
        .line()
        .await?;
    Ok(line.split(' ').nth(1).map(str::to_owned))
}

/// Returns the newest known state of a run's tree: its last snapshot, or a state observed since
/// then while the agent works.
///
/// # Errors
/// git failed.
pub async fn newest_state(scratch: &Scratch, run: RunId) -> Result<Option<String>, GitError> {
    let Some(last) = snapshots(scratch.repo(), run).await?.pop() else {
        return Ok(None);
    };
    let watched = scratch.repo().commit_of(&watch_ref(run)).await?;
    if let Some(watched) = watched
        && parent_of(scratch, &watched).await?.as_deref() == Some(&last.commit)
    {
        return Ok(Some(watched));
    }
    Ok(Some(last.commit))
}
