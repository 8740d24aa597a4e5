//! Reading and replacing a client's file. A link is followed to a regular file of the user, and
//! stays. A file is replaced only if nobody has changed it since it was read
//! ([`crate::user_files`]), and keeps its mode and group.

use crate::files;
use crate::user_files::{FileOutcome, LeftAlone, Slot, Stamp};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The end of a backup's name.
pub(crate) const BACKUP_END: &str = ".adj-backup";
/// The mode of a new file of the user. A new file of a project has the default mode.
const USER_MODE: u32 = 0o600;
const PROJECT_MODE: u32 = 0o666;

/// Why a file cannot be used. It is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path} is not a regular file")]
    NotRegular { path: PathBuf },
    #[error("{path} is a link to nothing")]
    Dangling { path: PathBuf },
    #[error("{path} belongs to another user (uid {uid})")]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{path} is read-only")]
    ReadOnly { path: PathBuf },
    #[error("{path} is not UTF-8 text")]
    NotText { path: PathBuf },
    #[error("{path} was changed meanwhile")]
    Changed { path: PathBuf },
    #[error("{path}: {left}")]
    LeftAlone { path: PathBuf, left: LeftAlone },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// A client's file as it was read.
#[derive(Debug)]
pub struct ClientFile {
    /// The path that the client uses.
    pub path: PathBuf,
    /// The file itself, if the path is a link.
    pub target: PathBuf,
    /// `None`: it does not exist.
    pub text: Option<String>,
    mode: u32,
    gid: Option<u32>,
}

impl ClientFile {
    /// Reads a file that may be replaced. A missing file can be created.
    ///
    /// # Errors
    /// It cannot be read, or must not be replaced.
    pub fn read(path: &Path, is_project: bool) -> Result<Self, FileError> {
        let io_error = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_ok() =>
            {
                return Err(FileError::Dangling {
                    path: path.to_owned(),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                check_directory(path, is_project)?;
                let mode = if is_project { PROJECT_MODE } else { USER_MODE };
                return Ok(Self {
                    path: path.to_owned(),
                    target: path.to_owned(),
                    text: None,
                    mode,
                    gid: None,
                });
            }
            Err(error) => return Err(io_error(error)),
        };
        let meta = target.metadata().map_err(io_error)?;
        if !meta.is_file() {
            return Err(FileError::NotRegular { path: target });
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(FileError::Foreign {
                path: target,
                uid: meta.uid(),
            });
        }
        if meta.mode() & 0o200 == 0 {
            return Err(FileError::ReadOnly { path: target });
        }
        check_directory(&target, is_project)?;
        let text = read_text(&target)?;
        Ok(Self {
            path: path.to_owned(),
            target,
            text: Some(text),
            mode: meta.mode() & 0o7777,
            gid: Some(meta.gid()),
        })
    }

    /// Returns whether the path is a link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.path.is_symlink()
    }

    /// Returns the path of the backup.
    #[must_use]
    pub(crate) fn backup_path(&self) -> PathBuf {
        let mut name = self.target.clone().into_os_string();
        name.push(BACKUP_END);
        name.into()
    }

    /// Reads the backup, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn backup(&self) -> Result<Option<String>, FileError> {
        let path = self.backup_path();
        match path.symlink_metadata() {
            Ok(_) => read_text(&path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::Io { path, source }),
        }
    }

    /// Writes the backup: the file as it was read.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn back_up(&self) -> Result<(), FileError> {
        let Some(text) = &self.text else {
            return Ok(());
        };
        let path = self.backup_path();
        self.replace(&path, stamp_of(&path)?, text)
    }

    /// Removes the backup.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_backup(&self) -> Result<(), FileError> {
        remove(&self.backup_path())
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// It was changed since it was read, or cannot be written. It is then unchanged.
    pub fn write(&self, text: &str) -> Result<(), FileError> {
        if let Some(dir) = self.target.parent() {
            std::fs::create_dir_all(dir).map_err(|source| FileError::Io {
                path: dir.to_owned(),
                source,
            })?;
        }
        let seen = self.check_unchanged()?;
        self.replace(&self.target, seen, text)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// It was changed since it was read, or cannot be removed.
    pub fn remove(&self) -> Result<(), FileError> {
        let seen = self.check_unchanged()?;
        let slot = slot(&self.target).map_err(|source| FileError::Io {
            path: self.target.clone(),
            source,
        })?;
        settled(&self.target, slot.remove(seen))
    }

    /// Checks that the file is as it was read. Returns its stamp, which is older than what was
    /// compared.
    fn check_unchanged(&self) -> Result<Option<Stamp>, FileError> {
        let seen = stamp_of(&self.target)?;
        let is_same = match (&self.text, self.target.symlink_metadata()) {
            (None, Err(error)) => error.kind() == io::ErrorKind::NotFound,
            (Some(text), Ok(_)) => read_text(&self.target)? == *text,
            (None, Ok(_)) | (Some(_), Err(_)) => false,
        };
        if is_same {
            Ok(seen)
        } else {
            Err(FileError::Changed {
                path: self.target.clone(),
            })
        }
    }

    /// Replaces a file that has this stamp. A program that saves it meanwhile is not overwritten.
    fn replace(&self, path: &Path, seen: Option<Stamp>, text: &str) -> Result<(), FileError> {
        let io_error = |source| FileError::Io {
            path: path.to_owned(),
            source,
        };
        let slot = slot(path).map_err(io_error)?;
        let mode = if self.gid.is_some() {
            USER_MODE
        } else {
            self.mode
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = |dir: BorrowedFd<'_>, name: &OsStr| {
            let file = rustix::fs::openat(dir, name, flags, files::mode(mode))?;
            self.fill(&File::from(file), text)
        };
        settled(path, slot.replace(seen, make))
    }

    fn fill(&self, mut file: &File, text: &str) -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        if let Some(gid) = self.gid {
            if file.metadata()?.gid() != gid {
                std::os::unix::fs::fchown(file, None, Some(gid))?;
            }
            file.set_permissions(Permissions::from_mode(self.mode))?;
        }
        file.sync_all()
    }
}

/// Names a file in its open directory. The temporary name is this process's own, so that two
/// commands never meet there.
fn slot(path: &Path) -> io::Result<Slot> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = File::open(path.parent().unwrap_or(path))?;
    Ok(Slot::with_temporary(
        dir.into(),
        name,
        &format!(".adj-{}-{}", std::process::id(), name.to_string_lossy()),
    ))
}

/// Makes a change of a file durable. A file that was left alone is an error.
fn settled(path: &Path, outcome: io::Result<FileOutcome>) -> Result<(), FileError> {
    let io_error = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    match outcome.map_err(io_error)? {
        FileOutcome::Done | FileOutcome::Unguarded => {
            let dir = path.parent().unwrap_or(path);
            File::open(dir)
                .and_then(|dir| dir.sync_all())
                .map_err(io_error)
        }
        FileOutcome::LeftAlone(left) => Err(FileError::LeftAlone {
            path: path.to_owned(),
            left,
        }),
    }
}

fn stamp_of(path: &Path) -> Result<Option<Stamp>, FileError> {
    Stamp::of(path).map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })
}

fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FileError::Io {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn read_text(path: &Path) -> Result<String, FileError> {
    let bytes = files::read_named(path, FILE_BYTES_MAX).map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|_| FileError::NotText {
        path: path.to_owned(),
    })
}

/// Checks that a file can be created beside this one. A file below another user's home would be
/// useless to that user, who cannot change it; the directory of a project can belong to a group.
fn check_directory(file: &Path, is_project: bool) -> Result<(), FileError> {
    let Some(dir) = file.ancestors().skip(1).find(|dir| dir.exists()) else {
        return Ok(());
    };
    let uid = dir
        .metadata()
        .map_err(|source| FileError::Io {
            path: dir.to_owned(),
            source,
        })?
        .uid();
    if !is_project && uid != rustix::process::geteuid().as_raw() {
        return Err(FileError::Foreign {
            path: dir.to_owned(),
            uid,
        });
    }
    rustix::fs::access(
        dir,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )
    .map_err(|_| FileError::ReadOnly {
        path: dir.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    fn files(dir: &Path) -> BTreeMap<String, String> {
        let entries = std::fs::read_dir(dir).expect("a directory").flatten();
        let read = |path: PathBuf| std::fs::read_to_string(path).expect("a file");
        entries
            .map(|entry| {
                (
                    entry.file_name().to_string_lossy().into_owned(),
                    read(entry.path()),
                )
            })
            .collect()
    }

    #[test]
    fn links_and_modes_are_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, path) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
        std::fs::write(&real, "# x\n").expect("a file");
        std::fs::set_permissions(&real, Permissions::from_mode(0o640)).expect("a mode");
        symlink("real.toml", &path).expect("a link");
        ClientFile::read(&path, false)
            .expect("a file")
            .write("# y\n")
            .expect("written");
        assert!(path.is_symlink());
        let meta = std::fs::metadata(&path).expect("a file");
        assert_eq!(meta.permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_to_string(&real).expect("a file"), "# y\n");
        // A new file is private.
        let path = dir.path().join("new/config.toml");
        ClientFile::read(&path, false)
            .expect("no file")
            .write("# z\n")
            .expect("written");
        assert_eq!(
            std::fs::metadata(&path)
                .expect("a file")
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }

    #[test]
    fn file_saved_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        std::fs::write(&path, "old\n").expect("a file");
        let read = ClientFile::read(&path, false).expect("a file");
        std::fs::write(&path, "saved\n").expect("a file");
        assert!(matches!(
            read.write("new\n"),
            Err(FileError::Changed { .. })
        ));
        assert!(matches!(read.remove(), Err(FileError::Changed { .. })));
        let open = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .expect("a file");
        let read = ClientFile::read(&path, false).expect("a file");
        assert!(
            matches!(read.write("new\n"), Err(FileError::LeftAlone { .. })),
            "a program has it open"
        );
        assert!(matches!(read.remove(), Err(FileError::LeftAlone { .. })));
        drop(open);
        assert_eq!(
            files(dir.path()),
            BTreeMap::from([("config.toml".to_owned(), "saved\n".to_owned())])
        );
        read.write("new\n").expect("written");
        assert_eq!(
            files(dir.path()),
            BTreeMap::from([("config.toml".to_owned(), "new\n".to_owned())])
        );
        let missing = ClientFile::read(&dir.path().join("other"), false).expect("no file");
        std::fs::write(dir.path().join("other"), "created\n").expect("a file");
        assert!(matches!(
            missing.write("new\n"),
            Err(FileError::Changed { .. })
        ));
    }
}
