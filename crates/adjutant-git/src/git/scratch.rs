//! A git directory made by Adjutant, with its own index, that shares the objects of a repository.

use super::call::Call;
use super::copied::copied_files;
use super::index_file::{IndexStamp, copy_index, save_index};
use super::paths::quote_path;
use super::repo::is_regular;
use super::whole::{index_of, is_made, is_whole};
use super::{GitError, Repo};
use crate::files;
use adjutant_core::Isolation;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A git directory without configuration, hooks, attributes or excludes that shares the objects of
/// a repository. It is removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    repo: Repo,
    /// The work tree to read: the repository's own, or a workspace.
    tree: PathBuf,
    dir: PathBuf,
    /// The path of Adjutant's home in the tree, if it is there. No snapshot contains it.
    home: Option<PathBuf>,
    /// Paths from the top of the tree whose untracked files no snapshot contains.
    excluded: Vec<PathBuf>,
    /// Set if the tree is a workspace.
    workspace: Option<WorkspaceTree>,
    /// Cached properties of the index. A mutex, because calls share the directory; never held
    /// across a call.
    contents: Mutex<Option<Contents>>,
    /// The source of the index. A mutex for the same reason.
    origin: Mutex<IndexOrigin>,
}

/// The source of the index of a scratch directory.
#[derive(Debug, Clone, Default)]
struct IndexOrigin {
    /// The state of the user's index when it was copied.
    user_index: IndexStamp,
    /// The snapshot that keeps every object in the index.
    snapshot: Option<String>,
}

/// The attribute files and nested repositories of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// A tree with the attribute files. `None`: no attribute or setting changes content.
    pub attributes: Option<String>,
    /// Paths and commits of nested repositories.
    pub links: Vec<(Vec<u8>, String)>,
}

/// The workspace that a scratch directory reads.
#[derive(Debug, Clone)]
pub(super) struct WorkspaceTree {
    pub isolation: Isolation,
    /// The commit that the workspace was made from.
    pub base: String,
    /// Adjutant's index, from the newest snapshot. The workspace's own index is not used, because
    /// it can name objects that are only in the workspace.
    index: PathBuf,
    /// Adjutant's home, below which no symbolic link is followed.
    pub home: PathBuf,
    pub path: PathBuf,
    pub is_there: bool,
}

/// The workspace that a run's row records.
#[derive(Debug, Clone, Copy)]
pub struct WorkspacePath<'a> {
    pub isolation: Isolation,
    /// The commit of the repository that the workspace was made from.
    pub base: &'a str,
    pub path: &'a Path,
    /// Identifies the boot of the machine.
    pub boot: &'a str,
}

/// Unsets every attribute that changes content or merges. Overrides those of the tree, also for git
/// older than 2.41, which does not know `GIT_ATTR_SOURCE`.
const NO_ATTRIBUTES: &str = "* -text !crlf !eol !working-tree-encoding -ident -filter !merge !diff !conflict-marker-size !whitespace\n";

/// Maximum size of the list of commits at which a shallow history ends, in bytes.
const SHALLOW_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl Scratch {
    /// Creates a scratch directory at `dir`, below `home`, for the repository's own work tree.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn new(repo: Repo, home: &Path, dir: &Path) -> Result<Self, GitError> {
        remove(dir).map_err(GitError::file(dir))?;
        files::make_dirs(home, dir).map_err(GitError::file(dir))?;
        let home = home
            .canonicalize()
            .map_err(GitError::file(home))?
            .strip_prefix(&repo.top)
            .map(Path::to_owned)
            .ok();
        let scratch = Self {
            tree: repo.top.clone(),
            repo,
            dir: dir.to_owned(),
            home,
            excluded: Vec::new(),
            workspace: None,
            contents: Mutex::default(),
            origin: Mutex::default(),
        };
        scratch.init().await?;
        Ok(scratch)
    }

    /// Creates a scratch directory at `dir`, below `home`, for a workspace of the repository. If
    /// the workspace is missing, the tree is empty.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn of_workspace(
        repo: Repo,
        place: WorkspacePath<'_>,
        home: &Path,
        dir: &Path,
    ) -> Result<Self, GitError> {
        let WorkspacePath {
            isolation,
            base,
            path,
            boot,
        } = place;
        remove(dir).map_err(GitError::file(dir))?;
        let stage = dir.join("stage");
        files::make_dirs(home, &stage).map_err(GitError::file(dir))?;
        let is_there = is_whole(home, path, boot);
        let tree = if is_there { path.to_owned() } else { stage };
        let workspace = WorkspaceTree {
            isolation,
            base: base.to_owned(),
            index: index_of(path),
            home: home.to_owned(),
            path: path.to_owned(),
            is_there,
        };
        // Copied files can be secrets: no snapshot contains them.
        let excluded = copied_files(home, path)?
            .copied
            .into_iter()
            .map(PathBuf::from)
            .collect();
        let scratch = Self {
            repo,
            tree,
            dir: dir.to_owned(),
            home: None,
            excluded,
            workspace: Some(workspace),
            contents: Mutex::default(),
            origin: Mutex::default(),
        };
        scratch.init().await?;
        Ok(scratch)
    }

    async fn init(&self) -> Result<(), GitError> {
        let format = format!("--object-format={}", self.repo.object_format);
        self.repo
            .git
            .call(
                &self.dir,
                &["init", "--quiet", "--bare", "--template=", &format],
            )
            .arg(&self.dir)
            .output()
            .await?;
        let text = self.text_dir();
        let copy = || {
            for dir in ["objects", "refs"] {
                fs::create_dir_all(text.join(dir))?;
            }
            for file in ["HEAD", "config"] {
                fs::copy(self.dir.join(file), text.join(file))?;
            }
            // The end of a shallow history. Without it, git reports missing parents as corruption,
            // or finds no common ancestor.
            let shallow = self.repo.common.join("shallow");
            if is_regular(&shallow) {
                let ends = files::read_named(&shallow, SHALLOW_BYTES_MAX)?;
                for dir in [&self.dir, &text] {
                    fs::write(dir.join("shallow"), &ends)?;
                }
            }
            fs::create_dir_all(self.dir.join("info"))?;
            fs::write(self.dir.join("info/attributes"), NO_ATTRIBUTES)
        };
        copy().map_err(GitError::file(&self.dir))
    }

    pub(super) fn workspace(&self) -> Option<&WorkspaceTree> {
        self.workspace.as_ref()
    }

    /// Returns whether the next snapshot of the tree can use this directory: the copied parts of
    /// the repository have not changed.
    #[must_use]
    pub fn is_current(&self, repo: &Repo, place: Option<&WorkspacePath<'_>>) -> bool {
        let is_same_tree = match (&self.workspace, place) {
            (None, None) => {
                self.origin().user_index == IndexStamp::of(&self.repo.dir.join("index"))
            }
            (
                Some(known),
                Some(WorkspacePath {
                    isolation,
                    base,
                    path,
                    boot,
                }),
            ) => {
                (
                    known.isolation,
                    known.base.as_str(),
                    known.path.as_path(),
                    known.is_there,
                ) == (*isolation, base, *path, true)
                    && is_whole(&known.home, path, boot)
            }
            _ => false,
        };
        is_same_tree && self.repo == *repo
    }

    /// Returns the commit of the snapshot that keeps every object in the index. git may have
    /// removed other objects.
    pub(super) fn index_snapshot(&self) -> Option<String> {
        self.origin().snapshot
    }

    fn origin(&self) -> IndexOrigin {
        self.origin
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_origin(&self, origin: IndexOrigin) {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = origin;
    }

    /// Returns whether the tree is a workspace.
    #[must_use]
    pub fn is_of_workspace(&self) -> bool {
        self.workspace.is_some()
    }

    /// Returns whether the tree exists. A workspace may have been removed.
    #[must_use]
    pub fn has_tree(&self) -> bool {
        self.check_tree().is_ok()
    }

    /// Returns whether a power loss may have torn files of the workspace. It counts as missing, but
    /// can contain work of an agent.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.workspace().is_some_and(|workspace| {
            !workspace.is_there && is_made(&workspace.home, &workspace.path)
        })
    }

    /// Returns an error if the workspace does not exist.
    pub(super) fn check_tree(&self) -> Result<(), GitError> {
        match &self.workspace {
            Some(workspace) if !workspace.is_there => {
                Err(GitError::NoWorkspace(workspace.path.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the commit that the tree was made from. `None`: the repository has no commit yet.
    ///
    /// # Errors
    /// git failed.
    pub async fn base(&self) -> Result<Option<String>, GitError> {
        match &self.workspace {
            Some(workspace) => Ok(Some(workspace.base.clone())),
            None => self.repo.head().await,
        }
    }

    /// Copies the user's index, so that unchanged files need not be read. An index that exists is
    /// kept. `last` is the newest snapshot, or the commit that the tree was made from.
    pub(super) async fn prepare_index(&self, last: Option<&str>) -> Result<(), GitError> {
        // A killed call leaves its lock.
        for lock in ["index.lock", "index.export.lock"] {
            match fs::remove_file(self.dir.join(lock)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(GitError::File {
                        path: self.dir.join(lock),
                        error,
                    });
                }
                _ => {}
            }
        }
        let to = self.index();
        if to.exists() {
            return Ok(());
        }
        if let Some(WorkspaceTree { index, home, .. }) = &self.workspace {
            return match files::open(home, index).and_then(|from| copy_index(from, &to)) {
                Ok(()) => self.read_marked_files().await,
                Err(error) => {
                    tracing::debug!(%error, "the index of a workspace is built again");
                    self.reset_index(last).await
                }
            };
        }
        let from = self.repo.dir.join("index");
        self.set_origin(IndexOrigin {
            user_index: IndexStamp::of(&from),
            snapshot: None,
        });
        if !is_regular(&from) {
            return Ok(());
        }
        File::open(&from)
            .and_then(|file| copy_index(file, &to))
            .map_err(GitError::file(from))?;
        self.read_marked_files().await
    }

    /// Keeps the index for the next snapshot and for the next scratch directory of the workspace.
    /// `snapshot` must keep every object in the index.
    pub(super) fn keep_index(&self, snapshot: &str) -> Result<(), GitError> {
        self.set_origin(IndexOrigin {
            snapshot: Some(snapshot.to_owned()),
            ..self.origin()
        });
        let Some(WorkspaceTree { index, home, .. }) = &self.workspace else {
            return Ok(());
        };
        save_index(home, &self.index(), index).map_err(GitError::file(index))
    }

    /// Clears the assume-unchanged and skip-worktree flags of existing files, so that git reads
    /// them.
    async fn read_marked_files(&self) -> Result<(), GitError> {
        // An unreadable copy is rebuilt later.
        let Ok(listed) = self.call(&["ls-files", "-z", "-v"]).output().await else {
            return Ok(());
        };
        let (mut unchanged, mut skipped) = (Vec::new(), Vec::new());
        for entry in listed.split(|byte| *byte == 0) {
            let [tag, b' ', path @ ..] = entry else {
                continue;
            };
            let is_there = || {
                self.tree
                    .join(OsStr::from_bytes(path))
                    .symlink_metadata()
                    .is_ok()
            };
            // A lower-case tag means assume-unchanged.
            if tag.is_ascii_lowercase() {
                unchanged.extend_from_slice(path);
                unchanged.push(0);
            }
            if tag.eq_ignore_ascii_case(&b'S') && is_there() {
                skipped.extend_from_slice(path);
                skipped.push(0);
            }
        }
        for (option, paths) in [
            ("--no-assume-unchanged", unchanged),
            ("--no-skip-worktree", skipped),
        ] {
            if !paths.is_empty() {
                self.call(&["update-index", "-z", option, "--stdin"])
                    .input(paths)
                    .output()
                    .await?;
            }
        }
        Ok(())
    }

    /// Excludes untracked files at these paths.
    #[must_use]
    pub fn without(mut self, paths: &[String]) -> Self {
        self.excluded.extend(paths.iter().map(PathBuf::from));
        self
    }

    /// Returns the repository whose objects this directory shares.
    #[must_use]
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Returns the work tree to read.
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns the paths that were copied into the workspace.
    pub(super) fn copied_paths(&self) -> Vec<String> {
        let copied = self.workspace.iter().flat_map(|_| &self.excluded);
        copied
            .map(|path| path.to_string_lossy().into_owned())
            .collect()
    }

    /// Returns the paths whose untracked files are excluded.
    pub(super) fn excluded(&self) -> &[PathBuf] {
        &self.excluded
    }

    /// Copies the ignore patterns of the user and the repository, and returns the setting that
    /// names the copy. git gives it the precedence of the originals: below the `.gitignore` files
    /// of the tree.
    pub(super) fn pattern_settings(&self) -> Result<[(String, String); 1], GitError> {
        self.copied_patterns("patterns", &self.repo.own_patterns())
    }

    /// The same with these patterns, in a file with this name.
    pub(super) fn copied_patterns(
        &self,
        name: &str,
        patterns: &[u8],
    ) -> Result<[(String, String); 1], GitError> {
        let copy = self.dir.join(name);
        fs::write(&copy, patterns).map_err(GitError::file(&copy))?;
        Ok([("core.excludesFile".to_owned(), copy.display().to_string())])
    }

    /// Returns the path of Adjutant's home in the tree, if it is there.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Returns a second git directory that applies the attributes of the tree.
    fn text_dir(&self) -> PathBuf {
        self.dir.join("text")
    }

    /// Returns the path of this git directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// Returns a directory beside the index in which new files of the tree are staged.
    pub(super) fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }

    /// Builds a call on this directory. No attribute and no setting changes content.
    pub(super) fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let plain = [("core.autocrlf".to_owned(), "false".to_owned())];
        self.call_with_attributes(args)
            .env("GIT_DIR", &self.dir)
            .env("GIT_ATTR_SOURCE", self.repo.empty_tree())
            .settings(&plain)
    }

    /// Builds a call that converts text according to the attributes of a commit or tree. It runs no
    /// filter.
    pub(super) fn text_call<'a>(&'a self, args: &[&str], attributes: &str) -> Call<'a> {
        self.call_with_attributes(args)
            .env("GIT_ATTR_SOURCE", attributes)
    }

    /// Builds a call that reads the attributes of the tree.
    pub(super) fn call_with_attributes<'a>(&'a self, args: &[&str]) -> Call<'a> {
        self.repo
            .git
            .call(&self.tree, args)
            .env("GIT_DIR", self.text_dir())
            .env("GIT_WORK_TREE", &self.tree)
            .env("GIT_INDEX_FILE", self.index())
            .env("GIT_OBJECT_DIRECTORY", self.repo.common.join("objects"))
            .settings(&self.repo.settings)
    }

    /// Builds a call without a work tree and attributes. New objects are written to the repository
    /// if `is_kept`, else to the scratch directory.
    pub(super) fn tree_less_call<'a>(&'a self, args: &[&str], is_kept: bool) -> Call<'a> {
        let objects = self.repo.common.join("objects");
        let call = self
            .repo
            .git
            .call(&self.dir, args)
            .env("GIT_DIR", &self.dir)
            .env("GIT_ATTR_SOURCE", self.repo.empty_tree());
        let call = call.settings(&self.repo.settings);
        if is_kept {
            return call.env("GIT_OBJECT_DIRECTORY", objects);
        }
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(&objects))
    }

    /// Creates a commit of a tree with Adjutant as author. `date`: in seconds since the epoch;
    /// `None`: now.
    pub(super) async fn commit_own(
        &self,
        tree: &str,
        parents: &[&str],
        message: String,
        date: Option<i64>,
    ) -> Result<String, GitError> {
        let mut call = self
            .call(&["commit-tree", tree, "-F", "-"])
            .input(message.into_bytes());
        for parent in parents {
            call = call.arg("-p").arg(parent);
        }
        for who in ["AUTHOR", "COMMITTER"] {
            call = call
                .env(&format!("GIT_{who}_NAME"), "Adjutant")
                .env(&format!("GIT_{who}_EMAIL"), "adjutant@localhost");
            if let Some(date) = date {
                call = call.env(&format!("GIT_{who}_DATE"), format!("@{date} +0000"));
            }
        }
        call.line().await
    }

    /// Returns the cached properties of the index.
    pub(super) fn cached_contents(&self) -> Option<Contents> {
        self.contents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the cached properties of the index. `None`: the next use reads the index again.
    pub(super) fn cache_contents(&self, contents: Option<Contents>) {
        *self.contents.lock().unwrap_or_else(PoisonError::into_inner) = contents;
    }

    /// Removes the index, so that the next snapshot prepares another one.
    pub(super) fn discard_index(&self) -> Result<(), GitError> {
        self.cache_contents(None);
        self.set_origin(IndexOrigin {
            snapshot: None,
            ..self.origin()
        });
        match fs::remove_file(self.index()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::File {
                path: self.index(),
                error,
            }),
            _ => Ok(()),
        }
    }

    /// Replaces the index with that of a commit, or with an empty one.
    pub(super) async fn reset_index(&self, to: Option<&str>) -> Result<(), GitError> {
        self.discard_index()?;
        match to {
            Some(commit) => self.call(&["read-tree", commit]).output().await.map(drop),
            None => self
                .call(&["read-tree", "--empty"])
                .output()
                .await
                .map(drop),
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

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
