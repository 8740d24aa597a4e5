//! Notices changes of files in directories, without polling.

use std::io;
use std::path::Path;

/// Reports changes in watched directories. What has changed is not reported.
#[derive(Debug)]
pub struct FileEvents(sys::Events);

impl FileEvents {
    /// Begins to watch no directory.
    ///
    /// # Errors
    /// The kernel watches no more directories, or the system is not supported yet.
    pub fn new() -> io::Result<Self> {
        sys::Events::new().map(Self)
    }

    /// Watches a directory, which is not followed if it is a link: new names in it, and writes to
    /// its files.
    ///
    /// # Errors
    /// It does not exist, or the kernel watches no more.
    pub fn watch_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.watch_dir(dir)
    }

    /// Watches a directory for entries that are renamed into it.
    ///
    /// # Errors
    /// As [`Self::watch_dir`].
    pub fn watch_arrivals(&self, dir: &Path) -> io::Result<()> {
        self.0.watch_arrivals(dir)
    }

    /// Waits for a change.
    pub async fn changed(&self) {
        self.0.changed().await;
    }
}

#[cfg(target_os = "linux")]
mod sys {
    use rustix::fs::inotify;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use tokio::io::unix::AsyncFd;

    /// Space for events of the kernel, in bytes. Their content is ignored.
    const EVENTS_BYTES: usize = 4096;

    #[derive(Debug)]
    pub(super) struct Events(AsyncFd<OwnedFd>);

    impl Events {
        #[expect(
            deprecated,
            reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
        )]
        pub(super) fn new() -> io::Result<Self> {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            Ok(Self(AsyncFd::new(inotify::init(flags)?)?))
        }

        pub(super) fn watch_dir(&self, dir: &Path) -> io::Result<()> {
            let flags = inotify::WatchFlags::CREATE
                | inotify::WatchFlags::MOVED_TO
                | inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::ONLYDIR
                | inotify::WatchFlags::DONT_FOLLOW;
            inotify::add_watch(self.0.get_ref(), dir, flags)?;
            Ok(())
        }

        pub(super) fn watch_arrivals(&self, dir: &Path) -> io::Result<()> {
            inotify::add_watch(self.0.get_ref(), dir, inotify::WatchFlags::MOVED_TO)?;
            Ok(())
        }

        pub(super) async fn changed(&self) {
            let Ok(mut ready) = self.0.readable().await else {
                return std::future::pending().await;
            };
            let mut space = [MaybeUninit::uninit(); EVENTS_BYTES];
            let mut events = inotify::Reader::new(self.0.get_ref(), &mut space);
            while events.next().is_ok() {}
            ready.clear_ready();
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod sys {
    use super::super::Unsupported;
    use std::io;
    use std::path::Path;

    #[derive(Debug)]
    pub(super) struct Events;

    impl Events {
        pub(super) fn new() -> io::Result<Self> {
            Err(Unsupported::FileEvents.into())
        }

        pub(super) fn watch_dir(&self, _dir: &Path) -> io::Result<()> {
            Err(Unsupported::FileEvents.into())
        }

        pub(super) fn watch_arrivals(&self, _dir: &Path) -> io::Result<()> {
            Err(Unsupported::FileEvents.into())
        }

        pub(super) async fn changed(&self) {
            std::future::pending().await
        }
    }
}
