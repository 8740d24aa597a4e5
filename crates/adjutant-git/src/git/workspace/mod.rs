//! Creates and removes the workspace of a run.
//!
//! ```text
//!  <workspaces>/<run>/.new     a clone that is being created
//!                    /<name>   the workspace
//!                    /.copied  the list of files copied from the user's work tree
//!                    /.index, /.unsynced   whether it is complete, see `git::whole`
//!             /<run>.torn-<n>   a renamed workspace that a power loss may have torn; removed with the run if that is forced
//! ```
//! No program that the user's repository configures is run. Only settings that are data are copied.

mod clone;
mod copy;
mod worktree;

use super::call::Call;
use super::index_file::save_index;
use super::repo::is_regular;
use super::whole::{is_made, is_whole, mark_unsynced};
use super::{Continued, GitError, Repo, own_refs, pin_base};
use crate::failpoint::failpoint;
use crate::files;
use crate::files::remove_dir as remove;
use adjutant_core::{Isolation, RunId};
use rustix::fs::Mode;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// Timeout for writing the files of a workspace.
const CHECKOUT_MAX: Duration = Duration::from_secs(600);

/// Maximum number of processes that write the files of one workspace, and the minimum number of
/// files for more than one process.
const WORKERS_MAX: usize = 4;
const WORKERS_FILES_MIN: usize = 200;

/// Maximum size of a file that is copied from the repository's git directory, in bytes.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Maximum number of renamed workspaces of a run.
const TORN_MAX: u32 = 1_000;

/// A workspace to create.
#[derive(Debug, Clone)]
pub struct NewWorkspace<'a> {
    pub isolation: Isolation,
    pub run: RunId,
    pub run_name: &'a str,
    pub base: &'a str,
    /// The user's branch that names the commit.
    pub branch: Option<&'a str>,
    /// The user's uncommitted changes with which it starts, see [`super::capture_changes`].
    pub changes: Option<&'a str>,
    /// The state of the run on another machine, with which it starts instead.
    pub continued: Option<&'a Continued>,
    /// The run has worked on another machine since an existing workspace was used, so that is set
    /// aside.
    pub is_moved: bool,
    /// Files to copy from the user's work tree, from the top.
    pub copy: &'a [String],
    /// The top of the workspace, below `home`.
    pub path: &'a Path,
    pub home: &'a Path,
    /// Identifies the boot of the machine.
    pub boot: &'a str,
    /// The run's working directory in the workspace.
    pub cwd: &'a Path,
    /// The umask for its files and directories.
    pub umask: Mode,
}

/// Creates a workspace with the files of the base. A complete workspace is kept; a workspace that a
/// power loss may have torn is renamed; an unfinished one is removed.
///
/// # Errors
/// The base is missing, or git or the disk failed. There is no complete workspace then.
pub async fn make_workspace(repo: &Repo, new: &NewWorkspace<'_>) -> Result<(), GitError> {
    let NewWorkspace { home, path, .. } = *new;
    pin_base(repo, new.run, new.base, new.changes).await?;
    if !new.is_moved && is_whole(home, path, new.boot) {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    if is_made(home, path) {
        move_aside(repo, new, parent).await?;
    }
    // Also removes the files beside an earlier workspace.
    remove_workspace(Some(repo), new.isolation, home, path).await?;
    files::make_dirs(home, parent).map_err(GitError::file(parent))?;
    failpoint!("workspace.before_clone");
    match new.isolation {
        Isolation::None => return Ok(()),
        Isolation::Clone => {
            let unfinished = parent.join(".new");
            remove(&unfinished).map_err(GitError::file(&unfinished))?;
            let made = clone::make(repo, new, &unfinished).await?;
            made.check_out(new).await?;
            copy::copy(&made, new).await?;
            failpoint!("workspace.before_rename");
            fs::rename(&unfinished, path).map_err(GitError::file(path))?;
        }
        Isolation::Worktree => {
            let made = worktree::make(repo, new).await?;
            made.check_out(new).await?;
            copy::copy(&made, new).await?;
            failpoint!("workspace.before_rename");
        }
    }
    mark_unsynced(home, path, new.boot)?;
    let ready = parent.join(".index-ready");
    files::rename(home, &ready, ".index".as_ref()).map_err(GitError::file(ready))?;
    files::sync_dirs(home, parent).map_err(GitError::file(parent))?;
    failpoint!("workspace.after_rename");
    Ok(())
}

/// Renames a workspace in which an agent may have worked, with the files beside it.
async fn move_aside(repo: &Repo, new: &NewWorkspace<'_>, parent: &Path) -> Result<(), GitError> {
    if new.isolation == Isolation::Worktree
        && let Err(error) = pin_head(repo, new).await
    {
        tracing::warn!(%error, workspace = %new.path.display(), "the checked-out commit of a work tree cannot be kept");
    }
    let failed = |error| GitError::File {
        path: parent.to_owned(),
        error,
    };
    let name = parent.file_name().unwrap_or_default().to_string_lossy();
    for n in 1..=TORN_MAX {
        let aside = format!("{name}.torn-{n}");
        let to = parent.with_file_name(&aside);
        if files::look(new.home, &to).map_err(failed)?.is_some() {
            continue;
        }
        files::rename(new.home, parent, aside.as_ref()).map_err(failed)?;
        tracing::warn!(
            run = %new.run,
            moved_to = %to.display(),
            "another workspace is created, because the machine stopped before all files of this one were on disk, or the run has worked elsewhere since"
        );
        return Ok(());
    }
    Err(GitError::unusable(
        new.path,
        format!(
            "{TORN_MAX} damaged workspaces of the run were renamed: remove {}.torn-*",
            parent.display()
        ),
    ))
}

/// Lists the renamed workspaces of the run at `path`.
///
/// # Errors
/// The disk failed.
pub fn torn_workspaces(path: &Path) -> Result<Vec<PathBuf>, GitError> {
    let parent = path.parent().unwrap_or(path);
    let (Some(all), Some(name)) = (parent.parent(), parent.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}.torn-", name.to_string_lossy());
    let is_torn = |name: &str| {
        name.strip_prefix(&prefix)
            .is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let mut found = Vec::new();
    match fs::read_dir(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entries => {
            for entry in entries.map_err(GitError::file(all))? {
                let entry = entry.map_err(GitError::file(all))?;
                found.extend(
                    entry
                        .file_name()
                        .to_str()
                        .is_some_and(is_torn)
                        .then(|| entry.path()),
                );
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes the renamed workspaces of the run at `path`.
///
/// # Errors
/// The disk failed.
pub async fn remove_torn_workspaces(path: &Path) -> Result<(), GitError> {
    let torn = torn_workspaces(path)?;
    let removed = tokio::task::spawn_blocking(move || {
        torn.iter()
            .try_for_each(|dir| remove(dir).map_err(GitError::file(dir)))
    })
    .await;
    removed.unwrap_or_else(|error| {
        Err(GitError::File {
            path: path.to_owned(),
            error: io::Error::other(error),
        })
    })
}

/// Keeps the checked-out commit of a work tree under a ref unless it is the base, because the
/// registration of the work tree will be removed.
async fn pin_head(repo: &Repo, new: &NewWorkspace<'_>) -> Result<(), GitError> {
    let output = repo
        .of_refs(&["worktree", "list", "--porcelain", "-z"])
        .output()
        .await?;
    let listed = String::from_utf8_lossy(&output);
    // Git registers a work tree under its path without symbolic links.
    let real = new.path.canonicalize().map_err(GitError::file(new.path))?;
    let lines = [new.path, real.as_path()].map(|path| format!("worktree {}", path.display()));
    // An empty field ends the entry of a work tree.
    let mut fields = listed
        .split('\0')
        .skip_while(|field| !lines.iter().any(|line| line == field))
        .take_while(|field| !field.is_empty());
    let Some(head) = fields.find_map(|field| field.strip_prefix("HEAD ")) else {
        return Ok(());
    };
    if head == new.base || head == repo.zero() {
        return Ok(());
    }
    let name = format!("refs/adjutant/{}/reflog/{head}", new.run);
    own_refs::set(repo, &name, head).await?;
    repo.sync_refs([name.as_str()])
}

/// Removes a workspace. Renames it first, so that no snapshot is taken of an incomplete tree.
/// Without `repo`, a work tree stays registered in its repository.
///
/// # Errors
/// git or the disk failed. The next call removes the rest.
pub async fn remove_workspace(
    repo: Option<&Repo>,
    isolation: Isolation,
    home: &Path,
    path: &Path,
) -> Result<(), GitError> {
    let parent = path.parent().unwrap_or(path);
    let failed = |error| GitError::File {
        path: path.to_owned(),
        error,
    };
    let gone = parent.join(".gone");
    remove(&gone).map_err(failed)?;
    match files::rename(home, path, ".gone".as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // Git removes the registration of a work tree in any state once its directory does not exist.
    if isolation == Isolation::Worktree
        && let Some(repo) = repo
    {
        worktree::unregister(repo, path).await?;
    }
    let parent = parent.to_owned();
    let removed = tokio::task::spawn_blocking(move || remove(&parent)).await;
    removed
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(failed)
}

/// Copies the ignore patterns of the user and the repository, and the files of the user's git
/// directory, besides its configuration, that determine which files a work tree contains.
fn copy_info(repo: &Repo, to: &Path) -> Result<(), GitError> {
    let write = |name: &str, content: &[u8]| {
        let to = to.join(name);
        fs::create_dir_all(to.parent().unwrap_or(&to))
            .and_then(|()| fs::write(&to, content))
            .map_err(GitError::file(to))
    };
    write("info/exclude", &repo.own_patterns())?;
    for (from, name) in [
        (&repo.dir, "info/sparse-checkout"),
        (&repo.common, "shallow"),
    ] {
        let from = from.join(name);
        if is_regular(&from) {
            write(
                name,
                &files::read_named(&from, COPIED_BYTES_MAX).map_err(GitError::file(&from))?,
            )?;
        }
    }
    Ok(())
}

/// A work tree without files yet.
struct NewWorkTree<'a> {
    repo: &'a Repo,
    top: PathBuf,
    /// A git directory with a configuration written by Adjutant.
    dir: PathBuf,
    index: PathBuf,
    umask: Mode,
}

impl NewWorkTree<'_> {
    fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let call = self
            .repo
            .git
            .call(&self.top, args)
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.top);
        let objects = self.repo.common.join("objects");
        call.env("GIT_INDEX_FILE", &self.index)
            .env("GIT_OBJECT_DIRECTORY", objects)
            .settings(&self.repo.settings)
            .umask(Some(self.umask))
    }

    /// Writes the files of the base, or those with the user's changes, and stores Adjutant's index
    /// of them beside the workspace. Attributes of the tree are data: no filter that they name is
    /// run.
    async fn check_out(&self, new: &NewWorkspace<'_>) -> Result<(), GitError> {
        let files_of = new
            .continued
            .map_or(new.changes.unwrap_or(new.base), |continued| {
                &continued.snapshot
            });
        // Writing files waits for the disk and inflates objects, which benefits from parallel
        // processes.
        let workers = std::thread::available_parallelism()
            .map_or(WORKERS_MAX, |cores| cores.get().clamp(2, WORKERS_MAX));
        let side_by_side = [
            ("checkout.workers", workers),
            ("checkout.thresholdForParallelism", WORKERS_FILES_MIN),
        ];
        let side_by_side = side_by_side.map(|(name, value)| (name.to_owned(), value.to_string()));
        let call = self
            .call(&["read-tree", "--reset", "-u", "--end-of-options", files_of])
            .settings(&side_by_side);
        call.limit(CHECKOUT_MAX).output().await?;
        let below = new.cwd.strip_prefix(new.path).unwrap_or("".as_ref());
        files::make_dirs(new.home, &self.top.join(below)).map_err(GitError::file(new.cwd))?;
        let ready = new.path.parent().unwrap_or(new.path).join(".index-ready");
        save_index(new.home, &self.index, &ready).map_err(GitError::file(&ready))?;
        if let Some(continued) = new.continued {
            let head = continued.head.as_deref().unwrap_or(new.base);
            self.call(&["read-tree", "--reset", "--end-of-options", head])
                .output()
                .await?;
        } else if let Some(changes) = new.changes {
            // Restores the user's index: only staged changes are staged.
            self.call(&[
                "read-tree",
                "--reset",
                "--end-of-options",
                &format!("{changes}^"),
            ])
            .output()
            .await?;
        }
        Ok(())
    }
}
