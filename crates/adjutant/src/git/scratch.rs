//! A git directory of our own, with an index of its own, over the objects of a repository.

use super::call::Call;
use super::repo::is_regular;
use super::{GitError, Repo};
use crate::files;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A git directory without configuration, hooks, attributes or excludes, whose objects are a repository's. Dropping it
/// removes it.
#[derive(Debug)]
pub struct Scratch {
    repo: Repo,
    /// The work tree that it looks at: the repository's own, or a workspace.
    tree: PathBuf,
    dir: PathBuf,
    /// Where Adjutant's home lies in the tree, if it does: that is never kept.
    home: Option<PathBuf>,
}

impl Scratch {
    /// Makes one in `dir`, below `home`, for the repository's own work tree.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn new(repo: Repo, home: &Path, dir: &Path) -> Result<Self, GitError> {
        remove(dir).map_err(GitError::file(dir))?;
        files::make_dirs(home, dir).map_err(GitError::file(dir))?;
        let home = home.canonicalize().map_err(GitError::file(home))?.strip_prefix(&repo.top).map(Path::to_owned).ok();
        let scratch = Self { tree: repo.top.clone(), repo, dir: dir.to_owned(), home };
        let format = format!("--object-format={}", scratch.repo.object_format);
        scratch.repo.git.call(dir, &["init", "--quiet", "--bare", "--template=", &format]).arg(dir).output().await?;
        Ok(scratch)
    }

    /// Gives it a copy of the user's index, so that files that have not changed need not be read. It keeps one that it has.
    pub(super) async fn prepare_index(&self) -> Result<(), GitError> {
        // A call that was killed leaves its lock.
        for lock in ["index.lock", "index.export.lock"] {
            match fs::remove_file(self.dir.join(lock)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::File { path: self.dir.join(lock), error }),
                _ => {}
            }
        }
        let (from, to) = (self.repo.dir.join("index"), self.index());
        if to.exists() || !is_regular(&from) {
            return Ok(());
        }
        copy_index(&from, &to).map_err(GitError::file(from))?;
        self.read_marked_files().await
    }

    /// Has the index look at files that the user has marked as not to be looked at, where they exist.
    async fn read_marked_files(&self) -> Result<(), GitError> {
        // A copy that cannot be read is built again later.
        let Ok(listed) = self.call(&["ls-files", "-z", "-v"]).output().await else { return Ok(()) };
        let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
        for entry in listed.split(|byte| *byte == 0) {
            let [tag, b' ', path @ ..] = entry else { continue };
            let is_there = || self.tree.join(OsStr::from_bytes(path)).symlink_metadata().is_ok();
            // In lower case: assume-unchanged.
            if tag.is_ascii_lowercase() {
                unchanged.extend_from_slice(path);
                unchanged.push(0);
            }
            if tag.eq_ignore_ascii_case(&b'S') && is_there() {
                skipped.extend_from_slice(path);
                skipped.push(0);
            }
        }
        for (option, paths) in [("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)] {
            if !paths.is_empty() {
                self.call(&["update-index", "-z", option, "--stdin"]).input(paths).output().await?;
            }
        }
        Ok(())
    }

    /// Returns the repository whose objects it uses.
    #[must_use]
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Returns the work tree that it looks at.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns where Adjutant's home lies in the tree, if it does.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// Returns a directory beside the index, for files on their way into the tree.
    pub(super) fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }

    /// Starts a call on it. Content is kept and restored to the byte: no attribute changes it.
    pub(super) fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        self.call_with_attributes(args).env("GIT_ATTR_SOURCE", self.repo.empty_tree())
    }

    /// Starts a call that sees the attributes of the tree.
    pub(super) fn call_with_attributes<'a>(&'a self, args: &[&str]) -> Call<'a> {
        self.repo
            .git
            .call(&self.tree, args)
            .env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.tree)
            .env("GIT_INDEX_FILE", self.index())
            .env("GIT_OBJECT_DIRECTORY", self.repo.common.join("objects"))
            .settings(&self.repo.settings)
    }

    /// Starts a call that sees no work tree and no attributes. New objects go to the repository if `is_kept`, else to the
    /// scratch directory.
    pub(super) fn tree_less_call<'a>(&'a self, args: &[&str], is_kept: bool) -> Call<'a> {
        let objects = self.repo.common.join("objects");
        let call = self.repo.git.call(&self.dir, args).env("GIT_DIR", &self.dir).env("GIT_ATTR_SOURCE", self.repo.empty_tree());
        let call = call.settings(&self.repo.settings);
        if is_kept {
            return call.env("GIT_OBJECT_DIRECTORY", objects);
        }
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&objects))
    }

    /// Starts with another index: that of a commit, or an empty one.
    pub(super) async fn reset_index(&self, to: Option<&str>) -> Result<(), GitError> {
        match fs::remove_file(self.index()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::File { path: self.index(), error }),
            _ => {}
        }
        match to {
            Some(commit) => self.call(&["read-tree", commit]).output().await.map(drop),
            None => self.call(&["read-tree", "--empty"]).output().await.map(drop),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.dir) {
            tracing::warn!(%error, dir = %self.dir.display(), "a git directory of Adjutant cannot be removed");
        }
    }
}

/// Quotes a path for a list that is separated by colons.
fn quoted(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Copies an index with its time: git compares that with the times of files to tell which it must read.
fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = File::create(to)?;
    io::copy(&mut from, &mut to)?;
    let modified = from.metadata()?.modified()?;
    to.set_times(fs::FileTimes::new().set_modified(modified))
}
