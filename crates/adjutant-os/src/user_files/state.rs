//! One state of a file: which file it is, and what is in it.

use super::Slot;
use rustix::fs::{AtFlags, FileType, RawMode, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many bytes are read at a time.
const READ_BYTES: usize = 64 * 1024;

/// Identifies one state of a file without reading it. Does not follow a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    file: FileStamp,
    /// Renaming a file changes it, too.
    changed: [i64; 2],
}

/// The part of a stamp that a rename keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp([i64; 8]);

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The SHA-256 hash of a regular file.
    Hash([u8; 32]),
    Link(Vec<u8>),
    /// Not readable for this user.
    Unreadable,
    Directory,
    /// A FIFO, a socket or a device.
    Special,
}

/// One state of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub file: FileStamp,
    pub content: Content,
}

impl Stamp {
    /// Returns the stamp of a path. `None`: there is no file.
    ///
    /// # Errors
    /// The file system reports an error.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        found(rustix::fs::lstat(path))
    }

    pub(super) fn at(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<Self>> {
        found(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn of_open(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    fn from_stat(stat: &Stat) -> Self {
        let mode = stat.st_mode;
        let identity = [
            number(stat.st_dev),
            number(stat.st_ino),
            number(mode),
            number(stat.st_uid),
            number(stat.st_gid),
        ];
        let [dev, ino, mode, uid, gid] = identity;
        let file = FileStamp([
            dev,
            ino,
            mode,
            uid,
            gid,
            number(stat.st_size),
            number(stat.st_mtime),
            number(stat.st_mtime_nsec),
        ]);
        Self {
            file,
            changed: [number(stat.st_ctime), number(stat.st_ctime_nsec)],
        }
    }

    /// Returns the mode of the file, with its type.
    #[must_use]
    pub fn mode(&self) -> RawMode {
        // It was one.
        RawMode::try_from(self.file.0[2]).unwrap_or_default()
    }

    /// Returns whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode()) == FileType::Directory
    }
}

/// Widens a field of `stat`, whose types differ between systems. A stamp is only compared.
fn number(field: impl TryInto<i64>) -> i64 {
    field.try_into().unwrap_or(i64::MAX)
}

fn found(stat: Result<Stat, Errno>) -> io::Result<Option<Stamp>> {
    match stat {
        Ok(stat) => Ok(Some(Stamp::from_stat(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Content {
    /// Reads a file outside the user's tree.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        if path.is_symlink() {
            return Ok(Self::Link(
                std::fs::read_link(path)?
                    .into_os_string()
                    .into_encoded_bytes(),
            ));
        }
        hash(&File::open(path)?).map(Self::Hash)
    }
}

impl Slot {
    /// Reads the state of a name. `None`: there is no file. The stamp is as old as the content: a
    /// file that changes while it is read has another stamp afterwards.
    pub(super) fn state(&self, name: &OsStr) -> io::Result<Option<(Stamp, State)>> {
        let Some(stamp) = Stamp::at(&self.dir, name)? else {
            return Ok(None);
        };
        let content = match FileType::from_raw_mode(stamp.mode()) {
            FileType::Directory => Content::Directory,
            FileType::Symlink => match rustix::fs::readlinkat(&self.dir, name, Vec::new()) {
                Ok(target) => Content::Link(target.into_bytes()),
                Err(Errno::NOENT) => return Ok(None),
                // It has become something else.
                Err(Errno::INVAL) => Content::Special,
                Err(error) => return Err(error.into()),
            },
            FileType::RegularFile => match self.open(name) {
                // Another file may have got the name since its stamp was read.
                Ok(file) if Stamp::of_open(&file)? == stamp => Content::Hash(hash(&file)?),
                Ok(_) => Content::Special,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    Content::Unreadable
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    Content::Special
                }
                Err(error) => return Err(error),
            },
            _ => Content::Special,
        };
        Ok(Some((
            stamp,
            State {
                file: stamp.file,
                content,
            },
        )))
    }

    /// Returns whether a program has the file with this name open for writing. `None`: unknown.
    pub(super) fn has_writer(&self, name: &OsStr) -> Option<bool> {
        let stamp = Stamp::at(&self.dir, name).ok()??;
        if FileType::from_raw_mode(stamp.mode()) != FileType::RegularFile {
            return None;
        }
        crate::process::writers::has_writer(&self.open(name).ok()?)
    }
}

fn hash(mut file: &File) -> io::Result<[u8; 32]> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(&buffer[..count]),
        }
    }
}

impl State {
    /// Returns whether this is the same file with the same content, perhaps under another name.
    pub(super) fn is(&self, found: Option<&(Stamp, Self)>) -> bool {
        found.is_some_and(|(_, state)| state == self && self.content != Content::Special)
    }
}

/// A name of the user, for messages.
pub(super) fn shown(name: &OsStr) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name.as_bytes())
}
