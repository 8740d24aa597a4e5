//! Writing into a work tree: the directories around a file, and its content, mode and type.

use super::GitError;
use super::paths::as_path;
use crate::failpoint;
use crate::process::hygiene;
use crate::user_files::{Cause, Content, FileOutcome, Settled, Slot, Stamp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

pub(super) const LINK: &str = "120000";
const PROGRAM: &str = "100755";

/// An open tree, below which no symbolic link is followed.
pub(super) struct WorkTree {
    path: PathBuf,
    top: OwnedFd,
    /// The directories whose entries have changed, which are not synced yet.
    unsynced: BTreeSet<PathBuf>,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::RDONLY);

impl WorkTree {
    pub(super) fn open(path: &Path) -> Result<Self, GitError> {
        let top = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(io::Error::from);
        Ok(Self {
            path: path.to_owned(),
            top: top.map_err(GitError::file(path))?,
            unsynced: BTreeSet::new(),
        })
    }

    /// Removes a file that has this stamp, and its parent directories that become empty.
    pub(super) fn remove(
        &mut self,
        path: &[u8],
        seen: Option<Stamp>,
    ) -> Result<FileOutcome, GitError> {
        let path = as_path(path);
        self.remove_entry(path, seen)
            .map_err(GitError::file(self.path.join(path)))
    }

    fn remove_entry(&mut self, path: &Path, seen: Option<Stamp>) -> io::Result<FileOutcome> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut open = vec![self.top.try_clone()?];
        for dir in &dirs {
            let above = open.last().ok_or(Errno::INVAL)?;
            match rustix::fs::openat(above, *dir, DIRECTORY, Mode::empty()) {
                Ok(below) => open.push(below),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(FileOutcome::Done),
                Err(error) => return Err(error.into()),
            }
        }
        let parent = open.last().ok_or(Errno::INVAL)?.try_clone()?;
        let outcome = Slot::new(parent, &name, path).remove(seen)?;
        self.note_change(path);
        for ((dir, above), inside) in dirs
            .iter()
            .zip(&open)
            .zip(
                path.ancestors()
                    .skip(1)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .skip(1),
            )
            .rev()
        {
            // The directory is not empty.
            if rustix::fs::unlinkat(above, *dir, AtFlags::REMOVEDIR).is_err() {
                break;
            }
            self.note_change(inside);
        }
        Ok(outcome)
    }

    /// Replaces a file or link that has this stamp with the staged one.
    pub(super) fn write(
        &mut self,
        path: &[u8],
        mode: &str,
        stage: &Path,
        seen: Option<Stamp>,
    ) -> Result<FileOutcome, GitError> {
        let path = as_path(path);
        self.write_entry(path, mode, &stage.join(path), seen)
            .map_err(GitError::file(self.path.join(path)))
    }

    fn write_entry(
        &mut self,
        path: &Path,
        mode: &str,
        staged: &Path,
        seen: Option<Stamp>,
    ) -> io::Result<FileOutcome> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut parent = self.top.try_clone()?;
        let mut at = PathBuf::new();
        for dir in &dirs {
            at.push(dir);
            let is_new = match rustix::fs::mkdirat(&parent, *dir, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            parent = match rustix::fs::openat(&parent, *dir, DIRECTORY, Mode::empty()) {
                Ok(below) => below,
                // A file or a link was put there meanwhile.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Cause::Changed.into()),
                Err(error) => return Err(error.into()),
            };
            if is_new {
                rustix::fs::fchmod(&parent, Mode::from_raw_mode(new_mode(0o777)))?;
                self.note_change(&at);
            }
        }
        let seen = match seen.filter(Stamp::is_directory) {
            None => seen,
            Some(_) => match rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => None,
                // It is not empty, or something else.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                    return Ok(Cause::Changed.into());
                }
                Err(error) => return Err(error.into()),
            },
        };
        let rights = seen.map(|stamp| stamp.mode());
        let outcome = Slot::new(parent, &name, path)
            .replace(seen, |dir, name| put(dir, name, mode, staged, rights))?;
        self.note_change(path);
        Ok(outcome)
    }

    /// Settles what a killed process has left beside a file. `known` reads the contents that are
    /// not the user's, if something was left.
    pub(super) fn settle(&mut self, path: &[u8], known: &[Content]) -> Result<Settled, GitError> {
        let path = as_path(path);
        let Some(slot) = self.slot(path)? else {
            return Ok(Settled::Clean);
        };
        self.note_change(path);
        slot.settle(known)
            .map_err(GitError::file(self.path.join(path)))
    }

    /// Returns whether a killed process has left a complete file beside this one.
    pub(super) fn has_stray(&self, path: &[u8]) -> Result<bool, GitError> {
        let path = as_path(path);
        match self.slot(path)? {
            Some(slot) => slot
                .has_stray()
                .map_err(GitError::file(self.path.join(path))),
            None => Ok(false),
        }
    }

    /// `None`: its directory does not exist.
    fn slot(&self, path: &Path) -> Result<Option<Slot>, GitError> {
        let Some((dirs, name)) = parts(path) else {
            return Ok(None);
        };
        let open = || -> io::Result<Option<OwnedFd>> {
            let mut parent = self.top.try_clone()?;
            for dir in &dirs {
                parent = match rustix::fs::openat(&parent, *dir, DIRECTORY, Mode::empty()) {
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    opened => opened?,
                };
            }
            Ok(Some(parent))
        };
        let parent = open().map_err(GitError::file(self.path.join(path)))?;
        Ok(parent.map(|parent| Slot::new(parent, &name, path)))
    }

    fn note_change(&mut self, path: &Path) {
        self.unsynced
            .insert(path.parent().unwrap_or(Path::new("")).to_owned());
    }

    /// Syncs every directory whose entries have changed.
    pub(super) fn sync(&mut self) -> Result<(), GitError> {
        if failpoint::is_unsynced() {
            return Ok(());
        }
        for dir in std::mem::take(&mut self.unsynced) {
            sync_directory(&self.path.join(dir))?;
        }
        Ok(())
    }
}

/// Syncs the entries of a directory. One that was removed has none.
pub(super) fn sync_directory(path: &Path) -> Result<(), GitError> {
    match File::open(path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        opened => opened
            .and_then(|dir| dir.sync_all())
            .map_err(GitError::file(path)),
    }
}

/// Returns the mode that git would give a new directory or file.
fn new_mode(all: RawMode) -> RawMode {
    all & !hygiene::user_umask().as_raw_mode()
}

/// Creates a file or link with the staged content. `before` is the mode of the file to replace.
fn put(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    mode: &str,
    staged: &Path,
    before: Option<RawMode>,
) -> io::Result<()> {
    if mode == LINK {
        let target = fs::read_link(staged)?.into_os_string().into_vec();
        return Ok(rustix::fs::symlinkat(
            OsStr::from_bytes(&target),
            parent,
            name,
        )?);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut to = File::from(rustix::fs::openat(
        parent,
        name,
        flags,
        Mode::from_raw_mode(0o600),
    )?);
    io::copy(&mut File::open(staged)?, &mut to)?;
    // An existing file keeps its permissions.
    let rights = before
        .filter(|before| FileType::from_raw_mode(*before) == FileType::RegularFile)
        .map_or_else(|| new_mode(0o666), |before| before & 0o666);
    let programs = if mode == PROGRAM {
        (rights & 0o444) >> 2
    } else {
        0
    };
    rustix::fs::fchmod(&to, Mode::from_raw_mode(rights | programs))?;
    to.sync_all()
}

/// Splits a path of git into its directories and its name. `None`: the path leaves the tree, or
/// names a git directory.
pub(super) fn parts(path: &Path) -> Option<(Vec<&OsStr>, OsString)> {
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
