//! Replaces, creates and removes files of the user, next to programs of the user that save the same
//! files. The only module that does.
//!
//! ```text
//!  look       the name has the state that the caller has seen: stamp, then content
//!  write      the new file beside it, complete and synced
//!  exchange   the two names, in one step
//!  look       at what came out: the state that was seen, and open for writing in no program
//!  remove     what came out; or swap back, if it was something else
//! ```
//! A new file takes a name only if it is free. A file to remove is renamed first, and looked at
//! under its new name. If the user saves again before the swap back, both files stay, the older one
//! under another name. A file that a killed process has left under a temporary name is settled
//! later ([`Slot::settle`]): it can be a file of the user.
//!
//! Where a file system cannot exchange names, the last look is directly before the rename
//! ([`FileOutcome::Unguarded`]).

mod replace;
mod state;
mod stray;

#[cfg(test)]
mod tests;

pub use state::{Content, Stamp};
pub use stray::Settled;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, io};

/// A name in an open directory, and the names beside it under which files are made and looked at.
#[derive(Debug)]
pub struct Slot {
    dir: OwnedFd,
    name: OsString,
    /// The name of a complete file: the new one, or one that came out.
    beside: OsString,
    /// The name of a file that is still being written.
    unfinished: OsString,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutcome {
    Done,
    /// Done without an exchange, which the file system does not support.
    Unguarded,
    LeftAlone(LeftAlone),
}

/// Why a file was left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was saved, created, removed or replaced meanwhile.
    Changed,
    /// A program has it open for writing.
    InUse,
}

/// A file that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftAlone {
    pub cause: Cause,
    /// The name beside it of an older save, if there were two.
    pub kept_as: Option<OsString>,
}

impl From<Cause> for LeftAlone {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            kept_as: None,
        }
    }
}

impl From<Cause> for FileOutcome {
    fn from(cause: Cause) -> Self {
        Self::LeftAlone(cause.into())
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Changed => f.write_str("changed meanwhile")?,
            Cause::InUse => f.write_str("a program has it open for writing")?,
        }
        match &self.kept_as {
            Some(name) => write!(f, ", an earlier save is kept as {}", name.to_string_lossy()),
            None => Ok(()),
        }
    }
}

impl Slot {
    /// Names a file in an open directory. `path` identifies the file in its tree, so that a later
    /// process finds what a killed one left.
    #[must_use]
    pub fn new(dir: OwnedFd, name: &OsStr, path: &Path) -> Self {
        Self::with_temporary(
            dir,
            name,
            &format!(".adj-{:016x}", fnv(path.as_os_str().as_bytes())),
        )
    }

    /// The same with another temporary name.
    #[must_use]
    pub fn with_temporary(dir: OwnedFd, name: &OsStr, temporary: &str) -> Self {
        Self {
            dir,
            name: name.to_owned(),
            beside: temporary.into(),
            unfinished: format!("{temporary}.new").into(),
        }
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames a file to a free name. Returns false if the name is taken.
    fn rename_to_free(&self, from: &OsStr, to: &OsStr) -> io::Result<bool> {
        match rustix::fs::renameat_with(&self.dir, from, &self.dir, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => return Ok(false),
            Err(error) if is_unsupported(error) => {}
            Err(error) => return Err(error.into()),
        }
        // A link takes only a free name, too.
        match rustix::fs::linkat(&self.dir, from, &self.dir, to, AtFlags::empty()) {
            Ok(()) => return self.unlink(from).map(|()| true),
            Err(Errno::EXIST) => return Ok(false),
            Err(error)
                if is_unsupported(error) || error == Errno::PERM || error == Errno::MLINK => {}
            Err(error) => return Err(error.into()),
        }
        if Stamp::at(&self.dir, to)?.is_some() {
            return Ok(false);
        }
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to).map(|()| true)?)
    }

    /// Opens a regular file of the directory for reading.
    fn open(&self, name: &OsStr) -> io::Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.dir, name, flags, Mode::empty())?.into())
    }
}

/// Returns whether the file system does not know a kind of rename or link.
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Returns the FNV-1a hash of a path.
fn fnv(path: &[u8]) -> u64 {
    path.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
