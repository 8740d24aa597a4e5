//! The base commit of a run's workspace.
//!
//! ```text
//!  refs/adjutant/<run id>/base                 keeps the base if its branch is moved or removed
//!                        /resolved/<run id>    the run's changes that another run received to resolve conflicts
//! ```

use super::call::error_text;
use super::{Git, GitError, Repo, Scratch, own_refs, snapshots};
use adjutant_core::RunId;
use std::path::Path;

/// The state of a repository from which a workspace is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub commit: String,
    /// The checked-out branch. `None`: HEAD is detached.
    pub branch: Option<String>,
}

/// Finds the repository around a directory, and its checked-out commit.
///
/// # Errors
/// There is no repository that git can use, or it has no commit.
pub async fn find_base(git: &Git, cwd: &Path) -> Result<(Repo, Base), GitError> {
    let repo = match Repo::find(git, cwd).await {
        Err(GitError::NotARepository(cwd)) if is_bare(&cwd) => return Err(GitError::Bare(cwd)),
        found => found?,
    };
    let commit = repo
        .head()
        .await?
        .ok_or_else(|| GitError::NoCommit(repo.top.clone()))?;
    let ran = repo
        .of_refs(&["symbolic-ref", "--quiet", "HEAD"])
        .run()
        .await?;
    let name = String::from_utf8_lossy(&ran.output);
    let branch = name
        .trim_end()
        .strip_prefix("refs/heads/")
        .map(str::to_owned)
        .filter(|_| ran.exit_code == Some(0));
    Ok((repo, Base { commit, branch }))
}

fn is_bare(dir: &Path) -> bool {
    dir.ancestors().any(|dir| {
        dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
    })
}

/// Creates the refs that keep the base of a run and the user's changes with which it starts.
/// Existing refs stay.
///
/// # Errors
/// git failed, or the commit does not exist any more.
pub async fn pin_base(
    repo: &Repo,
    run: RunId,
    base: &str,
    changes: Option<&str>,
) -> Result<(), GitError> {
    pin(repo, &format!("refs/adjutant/{run}/base"), base).await?;
    match changes {
        Some(changes) => pin(repo, &format!("refs/adjutant/{run}/changes"), changes).await,
        None => Ok(()),
    }
}

/// Makes the ref that keeps the base of a run name another commit, before a workspace is made from
/// it.
///
/// # Errors
/// git failed, or the commit does not exist any more.
pub async fn move_base(repo: &Repo, run: RunId, base: &str) -> Result<(), GitError> {
    own_refs::set(repo, &format!("refs/adjutant/{run}/base"), base).await
}

/// Creates the ref that keeps the commit of a run's changes for another run that resolves their
/// conflicts.
///
/// # Errors
/// git failed.
pub async fn pin_resolved(
    repo: &Repo,
    run: RunId,
    by: RunId,
    commit: &str,
) -> Result<(), GitError> {
    pin(repo, &resolved_ref(run, by), commit).await
}

/// Returns the number of the newest snapshot of a run that contains the changes which another run
/// received to resolve conflicts.
///
/// # Errors
/// git failed.
pub async fn resolved_snapshot(
    scratch: &Scratch,
    run: RunId,
    by: RunId,
) -> Result<Option<u32>, GitError> {
    let Some(commit) = scratch.repo().commit_of(&resolved_ref(run, by)).await? else {
        return Ok(None);
    };
    let tree = scratch.tree_of(&commit).await?;
    Ok(snapshots(scratch.repo(), run)
        .await?
        .iter()
        .rev()
        .find(|snapshot| snapshot.tree == tree)
        .map(|snapshot| snapshot.n))
}

fn resolved_ref(run: RunId, by: RunId) -> String {
    format!("refs/adjutant/{run}/resolved/{by}")
}

pub(super) async fn pin(repo: &Repo, name: &str, commit: &str) -> Result<(), GitError> {
    let ran = own_refs::update(repo, name, &[commit, &repo.zero()]).await?;
    if ran.exit_code == Some(0) {
        return repo.sync_refs([name]);
    }
    let pinned = repo
        .of_refs(&[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &format!("{name}^{{commit}}"),
        ])
        .run()
        .await?;
    if pinned.exit_code == Some(0) && String::from_utf8_lossy(&pinned.output).trim_end() == commit {
        return Ok(());
    }
    let known = repo
        .of_refs(&["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .run()
        .await?;
    match known.exit_code {
        Some(0) => Err(GitError::Failed {
            command: "update-ref".to_owned(),
            why: error_text(&ran),
        }),
        _ => Err(GitError::NoBase {
            repository: repo.top.clone(),
            commit: commit.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{commit, in_repository};
    use std::time::Duration;

    /// The hub and the supervisor of the first attempt both pin the base of a run. On a slow disk,
    /// one of them holds the lock for longer than git's default timeout.
    #[test]
    fn pinning_waits_for_another_that_holds_the_lock() {
        in_repository(async |scratch| {
            let base = commit(scratch, &[("a", b"a\n")]).await;
            let run = RunId::new(adjutant_core::Time(1), [1; 10]);
            let lock = scratch
                .repo()
                .common
                .join(format!("refs/adjutant/{run}/base.lock"));
            std::fs::create_dir_all(lock.parent().expect("a parent")).expect("a directory");
            std::fs::write(&lock, "").expect("a lock");
            let held = async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                std::fs::remove_file(&lock).expect("the lock is released");
            };
            let (pinned, ()) = tokio::join!(pin_base(scratch.repo(), run, &base, None), held);
            pinned.expect("it is pinned");
        });
    }

    #[test]
    fn lock_that_a_killed_call_has_left_is_removed() {
        in_repository(async |scratch| {
            let (first, second) = (
                commit(scratch, &[("a", b"a\n")]).await,
                commit(scratch, &[("a", b"b\n")]).await,
            );
            let (repo, run) = (scratch.repo(), RunId::new(adjutant_core::Time(1), [1; 10]));
            let lock = repo.common.join(format!("refs/adjutant/{run}/base.lock"));
            let leave = || {
                std::fs::create_dir_all(lock.parent().expect("a parent")).expect("a directory");
                let left = std::fs::File::create(&lock).expect("a lock");
                left.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(60))
                    .expect("an old lock");
            };
            let name = format!("refs/adjutant/{run}/base");
            let base = || repo.commit_of(&name);
            leave();
            pin_base(repo, run, &first, None)
                .await
                .expect("it is pinned");
            assert_eq!(
                base().await.expect("a ref").as_deref(),
                Some(first.as_str())
            );
            leave();
            move_base(repo, run, &second).await.expect("it is moved");
            assert_eq!(
                base().await.expect("a ref").as_deref(),
                Some(second.as_str())
            );
            leave();
            crate::git::remove_all(repo, run)
                .await
                .expect("it is removed");
            assert_eq!(base().await.expect("no ref"), None);
        });
    }
}
