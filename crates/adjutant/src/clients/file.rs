//! Reading and replacing a client's file. A link is followed to a regular file of the user, and stays. A file is replaced
//! by a rename, and keeps its mode and group.

use crate::files;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The end of a backup's name.
pub const BACKUP_END: &str = ".adj-backup";
/// How many names are tried for a temporary file.
const TRIES_MAX: u32 = 32;
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
        let io_error = |source| FileError::Io { path: path.to_owned(), source };
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_ok() => {
                return Err(FileError::Dangling { path: path.to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                check_directory(path, is_project)?;
                let mode = if is_project { PROJECT_MODE } else { USER_MODE };
                return Ok(Self { path: path.to_owned(), target: path.to_owned(), text: None, mode, gid: None });
            }
            Err(error) => return Err(io_error(error)),
        };
        let meta = target.metadata().map_err(io_error)?;
        if !meta.is_file() {
            return Err(FileError::NotRegular { path: target });
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(FileError::Foreign { path: target, uid: meta.uid() });
        }
        if meta.mode() & 0o200 == 0 {
            return Err(FileError::ReadOnly { path: target });
        }
        check_directory(&target, is_project)?;
        let text = read_text(&target)?;
        Ok(Self { path: path.to_owned(), target, text: Some(text), mode: meta.mode() & 0o7777, gid: Some(meta.gid()) })
    }

    /// Returns whether the path is a link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.path.is_symlink()
    }

    /// Returns the path of the backup.
    #[must_use]
    pub fn backup_path(&self) -> PathBuf {
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
    pub fn back_up(&self) -> Result<(), FileError> {
        let Some(text) = &self.text else { return Ok(()) };
        self.replace(&self.backup_path(), text)
    }

    /// Removes the backup.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_backup(&self) -> Result<(), FileError> {
        remove(&self.backup_path())
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// It was changed since it was read, or cannot be written. It is then unchanged.
    pub fn write(&self, text: &str) -> Result<(), FileError> {
        if let Some(dir) = self.target.parent() {
            std::fs::create_dir_all(dir).map_err(|source| FileError::Io { path: dir.to_owned(), source })?;
        }
        self.check_unchanged()?;
        self.replace(&self.target, text)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// It was changed since it was read, or cannot be removed.
    pub fn remove(&self) -> Result<(), FileError> {
        self.check_unchanged()?;
        remove(&self.target)
    }

    fn check_unchanged(&self) -> Result<(), FileError> {
        let is_same = match (&self.text, self.target.symlink_metadata()) {
            (None, Err(error)) => error.kind() == io::ErrorKind::NotFound,
            (Some(text), Ok(_)) => read_text(&self.target)? == *text,
            (None, Ok(_)) | (Some(_), Err(_)) => false,
        };
        if is_same { Ok(()) } else { Err(FileError::Changed { path: self.target.clone() }) }
    }

    /// Replaces a file beside the target by a rename.
    fn replace(&self, path: &Path, text: &str) -> Result<(), FileError> {
        let io_error = |source| FileError::Io { path: path.to_owned(), source };
        let (temporary, file) = create_beside(path, if self.gid.is_some() { USER_MODE } else { self.mode }).map_err(io_error)?;
        let written = self.fill(&file, text).and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            remove(&temporary)?;
        }
        written.map_err(io_error)?;
        let dir = path.parent().unwrap_or(path);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error)
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

/// Creates a file beside another.
fn create_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{tries}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES_MAX => tries += 1,
            created => return created.map(|file| (name.into(), file)),
        }
    }
}

fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FileError::Io { path: path.to_owned(), source }),
        _ => Ok(()),
    }
}

fn read_text(path: &Path) -> Result<String, FileError> {
    let bytes = files::read_named(path, FILE_BYTES_MAX).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
}

/// Checks that a file can be created beside this one. A file below another user's home would be useless to that user, who cannot change
/// it; the directory of a project can belong to a group.
fn check_directory(file: &Path, is_project: bool) -> Result<(), FileError> {
    let Some(dir) = file.ancestors().skip(1).find(|dir| dir.exists()) else { return Ok(()) };
    let uid = dir.metadata().map_err(|source| FileError::Io { path: dir.to_owned(), source })?.uid();
    if !is_project && uid != rustix::process::geteuid().as_raw() {
        return Err(FileError::Foreign { path: dir.to_owned(), uid });
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).map_err(|_| FileError::ReadOnly { path: dir.to_owned() })
}
