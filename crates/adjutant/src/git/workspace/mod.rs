//! Making the workspace of a run, and removing it.
//!
//! ```text
//!  <workspaces>/<run>/.new     a clone while it is made
//!                    /<name>   the workspace
//!                    /.index   Adjutant's index of it, there once it is whole
//! ```
//! Nothing that the user's repository configures is run, and of its settings only those are copied that are data.

mod clone;
mod worktree;

use super::call::Call;
use super::repo::is_regular;
use super::scratch::{index_of, save_index};
use super::{GitError, Repo, pin_base};
use crate::failpoint::failpoint;
use crate::files;
use adjutant_core::{Isolation, RunId};
use rustix::fs::Mode;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long writing the files of a workspace may take.
const CHECKOUT_MAX: Duration = Duration::from_secs(600);

/// Most of a file that is copied from the git directory of the repository, in bytes.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A workspace to be made.
#[derive(Debug, Clone)]
pub struct NewWorkspace<'a> {
    pub isolation: Isolation,
    pub run: RunId,
    pub run_name: &'a str,
    pub base: &'a str,
    /// The branch of the user's that the commit is on.
    pub branch: Option<&'a str>,
    /// The uncommitted changes of the user's that it starts with, see [`super::capture_changes`].
    pub changes: Option<&'a str>,
    /// The top of the workspace, below `home`.
    pub path: &'a Path,
    pub home: &'a Path,
    /// The directory in it that the run works in.
    pub cwd: &'a Path,
    /// Of its files and directories.
    pub umask: Mode,
}

/// Makes a workspace with the files of the base. A whole one that is there is kept; the rest of one that was not finished is
/// removed.
///
/// # Errors
/// The base is gone, git or the disk failed. There is no whole workspace then.
pub async fn make_workspace(repo: &Repo, new: &NewWorkspace<'_>) -> Result<(), GitError> {
    let NewWorkspace { home, path, .. } = *new;
    pin_base(repo, new.run, new.base, new.changes).await?;
    let index = index_of(path);
    let is_there = files::open_dir(home, path).is_ok();
    if is_there && index.symlink_metadata().is_ok() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    if is_there {
        remove_workspace(Some(repo), new.isolation, home, path).await?;
    }
    files::make_dirs(home, parent).map_err(GitError::file(parent))?;
    failpoint!("workspace.before_clone");
    match new.isolation {
        Isolation::None => return Ok(()),
        Isolation::Clone => {
            let unfinished = parent.join(".new");
            remove(&unfinished).map_err(GitError::file(&unfinished))?;
            let made = clone::make(repo, new, &unfinished).await?;
            made.check_out(new).await?;
            failpoint!("workspace.before_rename");
            fs::rename(&unfinished, path).map_err(GitError::file(path))?;
        }
        Isolation::Worktree => {
            let made = worktree::make(repo, new).await?;
            made.check_out(new).await?;
            failpoint!("workspace.before_rename");
        }
    }
    let ready = parent.join(".index-ready");
    files::rename(home, &ready, ".index".as_ref()).map_err(GitError::file(ready))?;
    files::sync_dirs(home, parent).map_err(GitError::file(parent))?;
    failpoint!("workspace.after_rename");
    Ok(())
}

/// Removes a workspace. It is moved away first, so that no snapshot is taken of a part. Without its repository, a work tree stays
/// registered there.
///
/// # Errors
/// git or the disk failed; the rest is removed by the next call.
pub async fn remove_workspace(repo: Option<&Repo>, isolation: Isolation, home: &Path, path: &Path) -> Result<(), GitError> {
    let parent = path.parent().unwrap_or(path);
    let failed = |error| GitError::File { path: path.to_owned(), error };
    let gone = parent.join(".gone");
    remove(&gone).map_err(failed)?;
    match files::rename(home, path, ".gone".as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Git removes the registration of a work tree whatever state its directory was in, once that is not there.
    if isolation == Isolation::Worktree
        && let Some(repo) = repo
    {
        worktree::unregister(repo, path).await?;
    }
    let parent = parent.to_owned();
    let removed = tokio::task::spawn_blocking(move || remove(&parent)).await;
    removed.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives a git directory what the user's has beside its configuration, as far as it says which files a work tree has.
fn copy_info(repo: &Repo, to: &Path) -> Result<(), GitError> {
    for (from, name) in [(&repo.common, "info/exclude"), (&repo.dir, "info/sparse-checkout"), (&repo.common, "shallow")] {
        let (from, to) = (from.join(name), to.join(name));
        if is_regular(&from) {
            let copied = files::read_named(&from, COPIED_BYTES_MAX).map_err(GitError::file(&from))?;
            fs::create_dir_all(to.parent().unwrap_or(&to)).and_then(|()| fs::write(&to, copied)).map_err(GitError::file(to))?;
        }
    }
    Ok(())
}

/// A work tree without files yet.
struct Made<'a> {
    repo: &'a Repo,
    top: PathBuf,
    /// A git directory whose configuration is Adjutant's.
    dir: PathBuf,
    index: PathBuf,
    umask: Mode,
}

impl Made<'_> {
    fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let call = self.repo.git.call(&self.top, args).env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", &self.top);
        let objects = self.repo.common.join("objects");
        call.env("GIT_INDEX_FILE", &self.index).env("GIT_OBJECT_DIRECTORY", objects).settings(&self.repo.settings).umask(Some(self.umask))
    }

    /// Writes the files of the base, or those with the user's changes, and puts Adjutant's index of them beside the place of
    /// the workspace. Attributes of the tree count as data: a filter that they name is not run.
    async fn check_out(&self, new: &NewWorkspace<'_>) -> Result<(), GitError> {
        let files_of = new.changes.unwrap_or(new.base);
        self.call(&["read-tree", "--reset", "-u", "--end-of-options", files_of]).limit(CHECKOUT_MAX).output().await?;
        let below = new.cwd.strip_prefix(new.path).unwrap_or("".as_ref());
        files::make_dirs(new.home, &self.top.join(below)).map_err(GitError::file(new.cwd))?;
        let ready = new.path.parent().unwrap_or(new.path).join(".index-ready");
        save_index(new.home, &self.index, &ready).map_err(GitError::file(&ready))?;
        if let Some(changes) = new.changes {
            // What was staged is, and the rest is not.
            self.call(&["read-tree", "--reset", "--end-of-options", &format!("{changes}^")]).output().await?;
        }
        Ok(())
    }
}
