//! Notices that a log grows.

use crate::protocol::AttemptDir;
#[cfg(target_os = "linux")]
use rustix::fs::inotify;
#[cfg(target_os = "linux")]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// How often to check for new output if files cannot be watched.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// Size of the buffer for file change notifications, in bytes.
#[cfg(target_os = "linux")]
const NOTIFICATION_BYTES: usize = 4096;

/// Watches a log for growth: the log file, and the segments in the attempt's directory.
pub struct Watch {
    #[cfg(target_os = "linux")]
    fd: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

#[cfg(target_os = "linux")]
impl Watch {
    /// Begins to watch no files.
    #[must_use]
    #[expect(
        deprecated,
        reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
    )]
    pub fn new() -> Self {
        let open = || {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            tokio::io::unix::AsyncFd::new(fd)
        };
        let fd = open().inspect_err(|error| tracing::debug!(%error, "logs cannot be watched"));
        Self { fd: fd.ok() }
    }

    /// Watches the files that exist; files already watched stay watched.
    pub(crate) fn watch_files(&mut self, log: &Path, attempt: &AttemptDir) {
        let Some(fd) = &self.fd else { return };
        let comes = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        let watched = [
            (Some(log), inotify::WatchFlags::MODIFY),
            (
                Some(attempt.0.as_path()),
                comes | inotify::WatchFlags::MODIFY,
            ),
            (log.parent(), comes),
        ];
        let covers = |(path, flags): (Option<&Path>, _)| match path.map_or(Ok(()), |path| {
            inotify::add_watch(fd.get_ref(), path, flags).map(drop)
        }) {
            Ok(()) | Err(Errno::NOENT) => true,
            Err(error) => {
                tracing::debug!(%error, log = %log.display(), "a log cannot be watched");
                false
            }
        };
        if !watched.into_iter().all(covers) {
            self.fd = None;
        }
    }

    /// Waits until a watched file changes, or for a while if files cannot be watched.
    pub async fn changed(&self) {
        let Some(fd) = &self.fd else {
            return tokio::time::sleep(FALLBACK_INTERVAL).await;
        };
        match fd.readable().await {
            Ok(mut ready) => {
                let mut buffer = [MaybeUninit::uninit(); NOTIFICATION_BYTES];
                let mut reader = inotify::Reader::new(fd.get_ref(), &mut buffer);
                while reader.next().is_ok() {}
                ready.clear_ready();
            }
            Err(error) => {
                tracing::debug!(%error, "logs cannot be watched");
                tokio::time::sleep(FALLBACK_INTERVAL).await;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Watch {
    /// Begins to watch no files.
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }

    pub(crate) fn watch_files(&mut self, _log: &Path, _attempt: &AttemptDir) {}

    /// Waits until a watched file changes, or for a while if files cannot be watched.
    pub async fn changed(&self) {
        tokio::time::sleep(FALLBACK_INTERVAL).await;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}
