//! A git directory of our own, with an index of its own, over the objects of a repository.

use super::call::Call;
use super::contents::Contents;
use super::copied::copied_files;
use super::repo::is_regular;
use super::whole::index_of;
use super::{GitError, Repo};
use crate::files;
use adjutant_core::Isolation;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    /// Paths from the top of the tree that are never kept where they are untracked.
    excluded: Vec<PathBuf>,
    /// The tree is a workspace.
    workspace: Option<WorkspaceTree>,
    /// What is known of the index. A lock, because calls share the directory; it is never held over one.
    contents: Mutex<Option<Contents>>,
    /// Where the index comes from. A lock for the same reason.
    origin: Mutex<IndexOrigin>,
}

/// Where the index of a scratch directory comes from.
#[derive(Debug, Clone, Default)]
struct IndexOrigin {
    /// The user's index when it was copied.
    user_index: IndexStamp,
    /// The snapshot that keeps every object in it.
    snapshot: Option<String>,
}

/// Tells one state of an index file from another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexStamp(Option<[i64; 5]>);

impl IndexStamp {
    pub fn of(path: &Path) -> Self {
        let meta = path.symlink_metadata().ok();
        Self(meta.map(|meta| [meta.ino().cast_signed(), meta.size().cast_signed(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec()]))
    }
}

/// What a scratch directory has to know of the workspace that it looks at.
#[derive(Debug, Clone)]
pub(super) struct WorkspaceTree {
    pub isolation: Isolation,
    /// The commit that it was made from.
    pub base: String,
    /// An index of Adjutant's, from the newest snapshot. The workspace's own is not used: it can name objects that are
    /// only in the workspace.
    index: PathBuf,
    /// Adjutant's home, below which no link is followed.
    pub home: PathBuf,
    pub path: PathBuf,
    pub is_there: bool,
}

/// A workspace as its run has it on record.
#[derive(Debug, Clone, Copy)]
pub struct WorkspacePlace<'a> {
    pub isolation: Isolation,
    /// The commit of the repository that it was made from.
    pub base: &'a str,
    pub path: &'a Path,
    /// Identifies the boot of the machine.
    pub boot: &'a str,
}

/// Takes every attribute away that changes content or merges. It wins over those of the tree, also in a git that is older than
/// `GIT_ATTR_SOURCE` (2.41).
const NO_ATTRIBUTES: &str = "* -text !crlf !eol !working-tree-encoding -ident -filter !merge !diff !conflict-marker-size !whitespace\n";

/// Most of the list of commits at which a shallow history ends, in bytes.
const SHALLOW_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl Scratch {
    /// Makes one in `dir`, below `home`, for the repository's own work tree.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn new(repo: Repo, home: &Path, dir: &Path) -> Result<Self, GitError> {
        remove(dir).map_err(GitError::file(dir))?;
        files::make_dirs(home, dir).map_err(GitError::file(dir))?;
        let home = home.canonicalize().map_err(GitError::file(home))?.strip_prefix(&repo.top).map(Path::to_owned).ok();
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

    /// Makes one in `dir`, below `home`, for a workspace of the repository. If the workspace is gone, it looks at an empty
    /// tree.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn of_workspace(repo: Repo, place: WorkspacePlace<'_>, home: &Path, dir: &Path) -> Result<Self, GitError> {
        let WorkspacePlace { isolation, base, path, boot } = place;
        remove(dir).map_err(GitError::file(dir))?;
        let stage = dir.join("stage");
        files::make_dirs(home, &stage).map_err(GitError::file(dir))?;
        let is_there = super::whole::is_whole(home, path, boot);
        let tree = if is_there { path.to_owned() } else { stage };
        let workspace =
            WorkspaceTree { isolation, base: base.to_owned(), index: index_of(path), home: home.to_owned(), path: path.to_owned(), is_there };
        // They can be secrets: no snapshot has them.
        let excluded = copied_files(home, path)?.copied.into_iter().map(PathBuf::from).collect();
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
        self.repo.git.call(&self.dir, &["init", "--quiet", "--bare", "--template=", &format]).arg(&self.dir).output().await?;
        let text = self.text_dir();
        let copy = || {
            for dir in ["objects", "refs"] {
                fs::create_dir_all(text.join(dir))?;
            }
            for file in ["HEAD", "config"] {
                fs::copy(self.dir.join(file), text.join(file))?;
            }
            // Where history ends: without it, git takes missing parents for damage or finds no common ancestor.
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

    /// Tells whether the next snapshot of the tree can use it too: nothing of the repository has changed that it has copied.
    #[must_use]
    pub fn is_current(&self, repo: &Repo, place: Option<&WorkspacePlace<'_>>) -> bool {
        let is_same_tree = match (&self.workspace, place) {
            (None, None) => self.origin().user_index == IndexStamp::of(&self.repo.dir.join("index")),
            (Some(known), Some(WorkspacePlace { isolation, base, path, boot })) => {
                (known.isolation, known.base.as_str(), known.path.as_path(), known.is_there) == (*isolation, base, *path, true)
                    && super::whole::is_whole(&known.home, path, boot)
            }
            _ => false,
        };
        is_same_tree && self.repo == *repo
    }

    /// Returns the commit of the snapshot that keeps every object in the index. Others could have been removed by git.
    pub(super) fn index_snapshot(&self) -> Option<String> {
        self.origin().snapshot
    }

    fn origin(&self) -> IndexOrigin {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_origin(&self, origin: IndexOrigin) {
        *self.origin.lock().unwrap_or_else(PoisonError::into_inner) = origin;
    }

    /// Tells whether the tree is a workspace.
    #[must_use]
    pub fn is_of_workspace(&self) -> bool {
        self.workspace.is_some()
    }

    /// Tells whether the tree is there: a workspace can have been removed.
    #[must_use]
    pub fn has_tree(&self) -> bool {
        self.check_tree().is_ok()
    }

    /// Refuses a workspace that is not there.
    pub(super) fn check_tree(&self) -> Result<(), GitError> {
        match &self.workspace {
            Some(workspace) if !workspace.is_there => Err(GitError::NoWorkspace(workspace.path.clone())),
            _ => Ok(()),
        }
    }

    /// Returns the commit that the tree was made from. `None`: there is none yet.
    ///
    /// # Errors
    /// git failed.
    pub async fn base(&self) -> Result<Option<String>, GitError> {
        match &self.workspace {
            Some(workspace) => Ok(Some(workspace.base.clone())),
            None => self.repo.head().await,
        }
    }

    /// Gives it a copy of the user's index, so that files that have not changed need not be read. It keeps one that it has.
    /// `last` is the newest snapshot, or the commit that the tree was made from.
    pub(super) async fn prepare_index(&self, last: Option<&str>) -> Result<(), GitError> {
        // A call that was killed leaves its lock.
        for lock in ["index.lock", "index.export.lock"] {
            match fs::remove_file(self.dir.join(lock)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::File { path: self.dir.join(lock), error }),
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
        self.set_origin(IndexOrigin { user_index: IndexStamp::of(&from), snapshot: None });
        if !is_regular(&from) {
            return Ok(());
        }
        File::open(&from).and_then(|file| copy_index(file, &to)).map_err(GitError::file(from))?;
        self.read_marked_files().await
    }

    /// Keeps the index for the next snapshot, and for the next scratch directory of the workspace, once `snapshot` has every
    /// object in it.
    pub(super) fn keep_index(&self, snapshot: &str) -> Result<(), GitError> {
        self.set_origin(IndexOrigin { snapshot: Some(snapshot.to_owned()), ..self.origin() });
        let Some(WorkspaceTree { index, home, .. }) = &self.workspace else { return Ok(()) };
        save_index(home, &self.index(), index).map_err(GitError::file(index))
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

    /// Leaves out untracked files at these paths.
    #[must_use]
    pub fn without(mut self, paths: &[String]) -> Self {
        self.excluded.extend(paths.iter().map(PathBuf::from));
        self
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

    /// Returns the paths that are left out where they are untracked.
    pub(super) fn excluded(&self) -> &[PathBuf] {
        &self.excluded
    }

    /// Returns where Adjutant's home lies in the tree, if it does.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Returns a git directory like this one in which the attributes of the tree count.
    fn text_dir(&self) -> PathBuf {
        self.dir.join("text")
    }

    /// Returns the git directory of Adjutant's.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    /// Returns a directory beside the index, for files on their way into the tree.
    pub(super) fn stage(&self) -> PathBuf {
        self.dir.join("stage")
    }

    /// Starts a call on it. No attribute and no setting changes content.
    pub(super) fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let plain = [("core.autocrlf".to_owned(), "false".to_owned())];
        self.call_with_attributes(args).env("GIT_DIR", &self.dir).env("GIT_ATTR_SOURCE", self.repo.empty_tree()).settings(&plain)
    }

    /// Starts a call that changes text as the attributes of a commit or tree say. It runs no filter.
    pub(super) fn text_call<'a>(&'a self, args: &[&str], attributes: &str) -> Call<'a> {
        self.call_with_attributes(args).env("GIT_ATTR_SOURCE", attributes)
    }

    /// Starts a call that sees the attributes of the tree.
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

    /// Makes a commit of a tree, by Adjutant. `date`: in seconds since the epoch, if not now.
    pub(super) async fn commit_own(&self, tree: &str, parents: &[&str], message: String, date: Option<i64>) -> Result<String, GitError> {
        let mut call = self.call(&["commit-tree", tree, "-F", "-"]).input(message.into_bytes());
        for parent in parents {
            call = call.arg("-p").arg(parent);
        }
        for who in ["AUTHOR", "COMMITTER"] {
            call = call.env(&format!("GIT_{who}_NAME"), "Adjutant").env(&format!("GIT_{who}_EMAIL"), "adjutant@localhost");
            if let Some(date) = date {
                call = call.env(&format!("GIT_{who}_DATE"), format!("@{date} +0000"));
            }
        }
        call.line().await
    }

    /// Returns what is known of the index.
    pub(super) fn cached_contents(&self) -> Option<Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets what is known of the index. `None`: it is listed again.
    pub(super) fn cache_contents(&self, contents: Option<Contents>) {
        *self.contents.lock().unwrap_or_else(PoisonError::into_inner) = contents;
    }

    /// Removes the index, so that the next call prepares another one.
    pub(super) fn discard_index(&self) -> Result<(), GitError> {
        self.cache_contents(None);
        self.set_origin(IndexOrigin { snapshot: None, ..self.origin() });
        match fs::remove_file(self.index()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::File { path: self.index(), error }),
            _ => Ok(()),
        }
    }

    /// Starts with another index: that of a commit, or an empty one.
    pub(super) async fn reset_index(&self, to: Option<&str>) -> Result<(), GitError> {
        self.discard_index()?;
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

/// Puts a copy of an index at `to`, below `home`, in one step.
pub(super) fn save_index(home: &Path, from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension(format!("new-{}", std::process::id()));
    let mut copy = files::replace(home, &new)?;
    let mut from = File::open(from)?;
    io::copy(&mut from, &mut copy)?;
    copy.set_times(fs::FileTimes::new().set_modified(from.metadata()?.modified()?))?;
    drop(copy);
    fs::rename(new, to)
}

/// Copies an index with its time: git compares that with the times of files to tell which it must read.
pub(super) fn copy_index(mut from: File, to: &Path) -> io::Result<()> {
    let mut to = File::create(to)?;
    io::copy(&mut from, &mut to)?;
    let modified = from.metadata()?.modified()?;
    to.set_times(fs::FileTimes::new().set_modified(modified))
}
