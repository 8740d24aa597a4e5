//! Waits for the end of processes that need not be children, without polling.

use super::{lock, system};
use rustix::process::Pid;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// Waits until the lock is free.
///
/// # Errors
/// The lock cannot be examined.
pub async fn released(base: &Path, path: &Path) -> io::Result<()> {
    while lock::is_held(base, path)? {
        let Some(pid) = lock::written_pid(base, path)? else {
            return released_blocking(base.to_owned(), path.to_owned()).await;
        };
        let watched = match system::watch_process(pid) {
            Ok(fd) => fd,
            // The lock has another holder now, or its pid is not written yet.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                return released_blocking(base.to_owned(), path.to_owned()).await;
            }
            Err(error) => return Err(error),
        };
        // Another process may have had the pid when it was opened, but not if the holder still has
        // the lock, because then it was alive all the time.
        if lock::is_held(base, path)? && lock::written_pid(base, path)? == Some(pid) {
            ended(watched).await?;
            if lock::is_held(base, path)? {
                return released_blocking(base.to_owned(), path.to_owned()).await;
            }
        }
    }
    Ok(())
}

/// Waits until the process of the pidfd has ended.
///
/// # Errors
/// The descriptor cannot be watched.
#[expect(
    unsafe_code,
    reason = "the safe form is deprecated for types that do not own their descriptor"
)]
pub async fn ended(pidfd: OwnedFd) -> io::Result<()> {
    // SAFETY: an `OwnedFd` is one descriptor, open for as long as it lives.
    let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }
        .map_err(io::Error::other)?;
    watched.readable().await?.retain_ready();
    Ok(())
}

/// Waits until there is no process with this pid.
///
/// # Errors
/// It cannot be watched.
pub async fn exited(pid: Pid) -> io::Result<()> {
    match system::watch_process(pid) {
        Ok(pidfd) => ended(pidfd).await,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        Err(error) => Err(error),
    }
}

/// How often a directory is checked if it cannot be watched.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);
/// Size of the buffer for events of the kernel, in bytes.
#[cfg(target_os = "linux")]
const NOTIFICATION_BYTES: usize = 4096;

/// Reports when an entry of a directory, or the directory itself, is opened, removed, renamed or
/// replaced.
#[derive(Debug)]
pub struct EntryWatch {
    /// `None`: it cannot be watched.
    #[cfg(target_os = "linux")]
    fd: Option<AsyncFd<OwnedFd>>,
}

#[cfg(target_os = "linux")]
impl EntryWatch {
    /// Watches a directory from here on.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let fd = Self::open(dir).inspect_err(
            |error| tracing::warn!(%error, dir = %dir.display(), "a directory cannot be watched"),
        );
        Self { fd: fd.ok() }
    }

    #[expect(
        deprecated,
        reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
    )]
    fn open(dir: &Path) -> io::Result<AsyncFd<OwnedFd>> {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let of_entries =
            WatchFlags::OPEN | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        add_watch(
            &fd,
            dir,
            of_entries | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR,
        )?;
        AsyncFd::new(fd)
    }

    /// Waits for a change. Returns whether the entry of this name may have been opened.
    pub async fn changed(&self, name: &OsStr) -> bool {
        use rustix::fs::inotify::{ReadFlags, Reader};
        let Some(fd) = &self.fd else {
            tokio::time::sleep(FALLBACK_INTERVAL).await;
            return true;
        };
        match fd.readable().await {
            Ok(mut ready) => {
                let mut buffer = [std::mem::MaybeUninit::uninit(); NOTIFICATION_BYTES];
                let mut reader = Reader::new(fd.get_ref(), &mut buffer);
                let mut is_opened = false;
                // Until the kernel has none left: it notifies of new events only, and those that
                // are left would be noticed with the next one.
                while let Ok(event) = reader.next() {
                    let is_named = event
                        .file_name()
                        .is_some_and(|named| named.to_bytes() == name.as_bytes());
                    // After an overflow, the event of this entry may be among the lost ones.
                    is_opened |= (is_named && event.events().contains(ReadFlags::OPEN))
                        || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                }
                ready.clear_ready();
                is_opened
            }
            Err(error) => {
                tracing::debug!(%error, "a directory cannot be watched");
                tokio::time::sleep(FALLBACK_INTERVAL).await;
                true
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl EntryWatch {
    #[must_use]
    pub fn new(_dir: &Path) -> Self {
        Self {}
    }

    pub async fn changed(&self, _name: &OsStr) -> bool {
        tokio::time::sleep(FALLBACK_INTERVAL).await;
        true
    }
}

/// Does the same as [`released`] with a blocked thread, if the pid is not known. It is a thread
/// outside the runtime's pool, at most one for each attempt, because it may block as long as a run
/// lives. It is not awaited when the process exits.
async fn released_blocking(base: PathBuf, path: PathBuf) -> io::Result<()> {
    let (sender, free) = oneshot::channel();
    std::thread::Builder::new()
        .name("lock".to_owned())
        .spawn(move || {
            if sender.send(lock::wait_free_blocking(&base, &path)).is_err() {
                tracing::debug!("the wait for a lock was abandoned");
            }
        })?;
    free.await.map_err(io::Error::other)?
}
