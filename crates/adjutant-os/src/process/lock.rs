//! Liveness by held locks: a process is alive as long as it holds its lock file. The pid in the
//! file is only a hint.
//!
//! A lock belongs to an open file and is passed to a child before the child runs, so the lock of a
//! live process is never free. Lock files are opened by [`files`]: `base` is the home, and anything
//! but a regular file of Adjutant is refused.

use crate::files;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Pid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Largest content of a lock file, a number, in bytes.
const PID_BYTES_MAX: u64 = 1024;

/// A held lock. It is released when this and every copy of its descriptor are closed.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Lock {
    /// Takes the lock. `None`: it is held.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn try_take(base: &Path, path: &Path) -> io::Result<Option<Self>> {
        let fd = OwnedFd::from(files::open_or_create(base, path)?);
        loop {
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Self(fd))),
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(at(path, error)),
            }
            // A holder has an exclusive lock. A check (see `is_held`) has a shared one for an
            // instant, which does not count as held.
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
                Ok(()) => rustix::fs::flock(&fd, FlockOperation::Unlock)
                    .map_err(|error| at(path, error))?,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(at(path, error)),
            }
            std::thread::yield_now();
        }
    }

    /// Takes over the parent's lock if `fd` is that file, otherwise acquires it.
    ///
    /// # Errors
    /// As [`Lock::try_take`].
    pub fn adopt_or_take(
        fd: Option<OwnedFd>,
        base: &Path,
        path: &Path,
    ) -> io::Result<Option<Self>> {
        match fd.filter(|fd| files::is_same(base, path, fd)) {
            None => Self::try_take(base, path),
            Some(fd) => match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => Ok(Some(Self(fd))),
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(error) => Err(at(path, error)),
            },
        }
    }

    /// Returns whether its file was removed, so that nobody can see any more that it is held.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.0).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Writes the holder's pid into the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_pid(&self, pid: Pid) -> io::Result<()> {
        let text = format!("{:<10}\n", pid.as_raw_nonzero());
        Ok(rustix::io::pwrite(&self.0, text.as_bytes(), 0).map(|_| ())?)
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns whether the lock is held. A missing file is not.
///
/// # Errors
/// The file cannot be opened or locked.
pub fn is_held(base: &Path, path: &Path) -> io::Result<bool> {
    let Some(fd) = open(base, path)? else {
        return Ok(false);
    };
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(at(path, error)),
    }
}

/// Returns the pid in the lock file, whether or not the lock is held. `None`: there is none yet.
///
/// # Errors
/// The file cannot be read.
pub fn written_pid(base: &Path, path: &Path) -> io::Result<Option<Pid>> {
    match files::read(base, path, PID_BYTES_MAX) {
        Ok(text) => Ok(String::from_utf8_lossy(&text)
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the pid of the lock's holder. `None`: the lock is free, or the holder has not written
/// its pid yet.
///
/// # Errors
/// The file cannot be read or locked.
pub fn holder_pid(base: &Path, path: &Path) -> io::Result<Option<Pid>> {
    if is_held(base, path)? {
        written_pid(base, path)
    } else {
        Ok(None)
    }
}

/// Blocks the thread until the lock is free.
///
/// # Errors
/// The file cannot be opened or locked.
pub(crate) fn wait_free_blocking(base: &Path, path: &Path) -> io::Result<()> {
    let Some(fd) = open(base, path)? else {
        return Ok(());
    };
    rustix::io::retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::LockShared))
        .map_err(|error| at(path, error))
}

/// Opens a lock file. `None`: there is none.
fn open(base: &Path, path: &Path) -> io::Result<Option<File>> {
    match files::open_writable(base, path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn at(path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_file_is_no_lock() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (base, path) = (dir.path(), dir.path().join("x.lock"));
        std::os::unix::fs::symlink("x.lock", &path).expect("a link");
        for refused in [
            is_held(base, &path).map(drop),
            written_pid(base, &path).map(drop),
            Lock::try_take(base, &path).map(drop),
        ] {
            assert!(files::unusable(&refused.expect_err("refused")).is_some());
        }
    }

    #[test]
    fn lock_of_a_moved_directory_is_there_and_that_of_a_removed_one_is_not() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (base, away) = (dir.path().join("home"), dir.path().join("away"));
        std::fs::create_dir(&base).expect("a directory");
        let lock = Lock::try_take(&base, &base.join("x.lock"))
            .expect("takes")
            .expect("free");
        std::fs::rename(&base, &away).expect("it is moved");
        assert!(!lock.is_removed());
        std::fs::remove_dir_all(&away).expect("it is removed");
        assert!(lock.is_removed());
    }

    #[test]
    fn lock_is_held_until_its_last_descriptor_closes() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (base, path) = (dir.path(), dir.path().join("x.lock"));
        assert!(!is_held(base, &path).expect("looks"));
        let lock = Lock::try_take(base, &path).expect("takes").expect("free");
        lock.write_pid(rustix::process::getpid()).expect("writes");
        assert_eq!(
            holder_pid(base, &path).expect("looks"),
            Some(rustix::process::getpid())
        );
        assert!(Lock::try_take(base, &path).expect("looks").is_none());
        let copy = rustix::io::dup(&lock).expect("copies");
        drop(lock);
        assert!(is_held(base, &path).expect("looks"));
        let lock = Lock::adopt_or_take(Some(copy), base, &path)
            .expect("adopts")
            .expect("ours");
        drop(lock);
        assert!(!is_held(base, &path).expect("looks"));
        assert_eq!(holder_pid(base, &path).expect("looks"), None);
    }
}
