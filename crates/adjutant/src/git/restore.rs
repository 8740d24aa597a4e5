//! Bringing a tree to the state of a commit, file by file: each is replaced by a rename, so that it has the old content
//! or the new one whenever the process dies. What was not read into a snapshot before is never overwritten.

use super::diff::Listed;
use super::{GitError, Scratch, TakenSnapshot};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

const GITLINK: &str = "160000";
const LINK: &str = "120000";
const PROGRAM: &str = "100755";

/// What was done to a tree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Files that were written or removed, from the top of the tree.
    pub files: Vec<String>,
    /// Entries of other repositories, which are left alone.
    pub skipped: Vec<String>,
}

/// A restore with everything that it needs of git.
#[derive(Debug)]
pub struct Restore {
    tree: PathBuf,
    /// The new content of files, below this directory.
    stage: PathBuf,
    listed: Vec<Listed>,
    skipped: Vec<String>,
}

/// Prepares to bring the tree from the state of a snapshot that was just taken to that of a commit. The tree is not changed.
///
/// # Errors
/// A file is in the way that the snapshot does not have, or git or the disk failed.
pub async fn prepare_restore(scratch: &Scratch, now: &TakenSnapshot, to: &str) -> Result<Restore, GitError> {
    let (links, listed): (Vec<Listed>, Vec<Listed>) = scratch
        .list(&now.snapshot.commit, to)
        .await?
        .into_iter()
        .partition(|listed| [&listed.from_mode, &listed.to_mode].contains(&&Some(GITLINK.to_owned())));
    refuse_unsaved(scratch.tree(), now, &listed)?;
    let stage = scratch.stage();
    export(scratch, to, &listed, &stage).await?;
    let skipped = links.iter().map(|link| lossy(&link.path)).collect();
    Ok(Restore { tree: scratch.tree().to_owned(), stage, listed, skipped })
}

impl Restore {
    /// Returns how many files will be written or removed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.listed.len()
    }

    /// Changes the tree. Files that git ignores stay. After a failure or a crash, a restore can be prepared and applied again.
    ///
    /// # Errors
    /// The disk failed.
    pub fn apply_blocking(self) -> Result<Restored, GitError> {
        let Self { tree, stage, listed, skipped } = self;
        let mut restored = Restored { files: Vec::new(), skipped };
        let tree = Tree::open(&tree)?;
        // Removals first: a directory can take the place of a file, and a file that of a directory.
        for gone in listed.iter().filter(|listed| listed.to_mode.is_none()) {
            tree.remove(&gone.path)?;
            restored.files.push(lossy(&gone.path));
        }
        for listed in &listed {
            let Some(mode) = &listed.to_mode else { continue };
            tree.write(&listed.path, mode, &stage)?;
            restored.files.push(lossy(&listed.path));
        }
        restored.files.sort_unstable();
        Ok(restored)
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Refuses to overwrite what the snapshot does not have.
fn refuse_unsaved(top: &Path, now: &TakenSnapshot, listed: &[Listed]) -> Result<(), GitError> {
    let is_in_the_way = |listed: &&Listed| {
        now.unsaved.contains(&listed.path)
            || (listed.from_mode.is_none() && top.join(OsStr::from_bytes(&listed.path)).symlink_metadata().is_ok_and(|meta| !meta.is_dir()))
    };
    let in_the_way: Vec<String> = listed.iter().filter(is_in_the_way).take(10).map(|listed| lossy(&listed.path)).collect();
    if in_the_way.is_empty() {
        return Ok(());
    }
    let why = format!(
        "these files would be overwritten and are not kept anywhere (ignored by git, or too large): {}; move them away first",
        in_the_way.join(", ")
    );
    Err(GitError::unusable(top, why))
}

/// Writes the new content of the listed paths below `stage`.
async fn export(scratch: &Scratch, commit: &str, listed: &[Listed], stage: &Path) -> Result<(), GitError> {
    let mut wanted = Vec::new();
    for listed in listed.iter().filter(|listed| listed.to_mode.is_some()) {
        wanted.extend_from_slice(&listed.path);
        wanted.push(0);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(stage).map_err(GitError::file(stage))?;
    let index = scratch.index().with_extension("export");
    scratch.call(&["read-tree"]).arg(commit).env("GIT_INDEX_FILE", &index).output().await?;
    let mut prefix = OsString::from("--prefix=");
    prefix.push(stage);
    prefix.push("/");
    let call = scratch.call(&["checkout-index", "--force", "-z", "--stdin"]).arg(prefix);
    call.env("GIT_INDEX_FILE", &index).input(wanted).output().await.map(drop)
}

/// An open tree, below which no link is followed.
struct Tree {
    path: PathBuf,
    top: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Tree {
    fn open(path: &Path) -> Result<Self, GitError> {
        let top = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
        Ok(Self { path: path.to_owned(), top: top.map_err(GitError::file(path))? })
    }

    fn remove(&self, path: &[u8]) -> Result<(), GitError> {
        let full = self.path.join(OsStr::from_bytes(path));
        match self.remove_entry(Path::new(OsStr::from_bytes(path))) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) | Ok(()) => Ok(()),
            Err(error) => Err(GitError::File { path: full, error: error.into() }),
        }
    }

    /// Removes a file, and the directories above it that it leaves empty.
    fn remove_entry(&self, path: &Path) -> Result<(), Errno> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut open = vec![self.top.try_clone().map_err(|_| Errno::MFILE)?];
        for dir in &dirs {
            let above = open.last().ok_or(Errno::INVAL)?;
            let below = rustix::fs::openat(above, *dir, DIRECTORY, Mode::empty())?;
            open.push(below);
        }
        rustix::fs::unlinkat(open.last().ok_or(Errno::INVAL)?, &name, AtFlags::empty())?;
        for (dir, above) in dirs.iter().zip(&open).rev() {
            // Something else is in it.
            if rustix::fs::unlinkat(above, *dir, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, path: &[u8], mode: &str, stage: &Path) -> Result<(), GitError> {
        let path = Path::new(OsStr::from_bytes(path));
        self.write_entry(path, mode, &stage.join(path)).map_err(GitError::file(self.path.join(path)))
    }

    /// Puts a staged file or link in its place.
    fn write_entry(&self, path: &Path, mode: &str, staged: &Path) -> io::Result<()> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut parent = self.top.try_clone()?;
        for dir in &dirs {
            match rustix::fs::mkdirat(&parent, *dir, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            parent = rustix::fs::openat(&parent, *dir, DIRECTORY, Mode::empty())?;
        }
        let mut temporary = OsString::from(".adj-new-");
        temporary.push(&name);
        match rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if mode == LINK {
            let target = fs::read_link(staged)?.into_os_string().into_vec();
            rustix::fs::symlinkat(OsStr::from_bytes(&target), &parent, &temporary)?;
        } else {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut to = File::from(rustix::fs::openat(&parent, &temporary, flags, Mode::from_raw_mode(0o600))?);
            io::copy(&mut File::open(staged)?, &mut to)?;
            rustix::fs::fchmod(&to, Mode::from_raw_mode(if mode == PROGRAM { 0o755 } else { 0o644 }))?;
            to.sync_all()?;
        }
        // An empty directory in the way goes; one with ignored files in it does not.
        if let Ok(stat) = rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        {
            rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR)?;
        }
        rustix::fs::renameat(&parent, &temporary, &parent, &name)?;
        Ok(())
    }
}

/// Splits a path of git into its directories and its name. `None`: it leaves the tree, or names a git directory.
fn parts(path: &Path) -> Option<(Vec<&OsStr>, OsString)> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.eq_ignore_ascii_case(".git") => names.push(name),
            _ => return None,
        }
    }
    let name = names.pop()?.to_owned();
    Some((names, name))
}
