//! An additional work tree of the user's repository, registered there, with the base checked out as
//! a detached HEAD.

use super::{NewWorkTree, NewWorkspace, copy_info};
use crate::files;
use crate::files::remove_dir as remove;
use crate::git::{GitError, Repo};
use std::path::{Path, PathBuf};

/// Registers a work tree at the path of the workspace, without files yet.
pub(super) async fn make<'a>(
    repo: &'a Repo,
    new: &NewWorkspace<'_>,
) -> Result<NewWorkTree<'a>, GitError> {
    unregister(repo, new.path).await?;
    // The files are written later, through a git directory that configures no filter.
    let call = repo
        .of_refs(&["worktree", "add", "--quiet", "--no-checkout", "--detach"])
        .arg(new.path)
        .arg(new.base);
    call.umask(Some(new.umask)).output().await?;
    let own = repo
        .git
        .call(new.path, &["rev-parse", "--absolute-git-dir"])
        .output()
        .await?;
    let index = PathBuf::from(String::from_utf8_lossy(&own).trim_end()).join("index");
    let dir = new.path.parent().unwrap_or(new.path).join(".git-dir");
    remove(&dir).map_err(GitError::file(&dir))?;
    files::make_dirs(new.home, &dir).map_err(GitError::file(&dir))?;
    let format = format!("--object-format={}", repo.object_format);
    repo.git
        .call(&dir, &["init", "--quiet", "--bare", "--template=", &format])
        .arg(&dir)
        .output()
        .await?;
    copy_info(repo, &dir)?;
    let made = NewWorkTree {
        repo,
        top: new.path.to_owned(),
        dir,
        index,
        umask: new.umask,
    };
    Ok(made)
}

/// Removes the registration of a work tree whose directory does not exist any more.
pub(super) async fn unregister(repo: &Repo, path: &Path) -> Result<(), GitError> {
    let listed = repo
        .of_refs(&["worktree", "list", "--porcelain", "-z"])
        .output()
        .await?;
    // Git registers a work tree under its path without symbolic links.
    for path in [path.to_owned(), without_links(path)] {
        let line = [b"worktree ", path.as_os_str().as_encoded_bytes()].concat();
        if listed.split(|byte| *byte == 0).any(|field| field == line) {
            // A second --force removes a locked work tree, too.
            return repo
                .of_refs(&["worktree", "remove", "--force", "--force"])
                .arg(path)
                .output()
                .await
                .map(drop);
        }
    }
    Ok(())
}

/// Resolves symbolic links in the existing part of a path.
fn without_links(path: &Path) -> PathBuf {
    let resolved = path
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    match resolved {
        Some((above, real)) => path
            .strip_prefix(above)
            .map_or_else(|_| path.to_owned(), |rest| real.join(rest)),
        None => path.to_owned(),
    }
}
