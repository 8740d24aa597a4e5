//! Guards the home: a removed socket is created again, and a hub whose home or lock was removed
//! ends.

use crate::config::Home;
use crate::process::Lock;
use crate::process::watch::EntryWatch;
use crate::{files, sock};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

/// How long the removal of a home may take from its files to the directory itself.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Why a hub lost its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The directory was removed, so nothing can be stored any more.
    Removed,
    /// The lock file was removed, replaced or moved away, so another hub may serve the home.
    Unlocked,
}

/// The hub's socket file, and the channel for the listener of a new one.
#[derive(Debug)]
pub(super) struct Socket {
    home: Home,
    identity: (u64, u64),
    renewed: mpsc::Sender<UnixListener>,
}

impl Socket {
    /// Opens the home's socket. Returns it with its first listener, and a channel for the listeners
    /// that replace it.
    pub(super) fn bind(
        home: &Home,
    ) -> io::Result<(Self, UnixListener, mpsc::Receiver<UnixListener>)> {
        let listener = sock::bind(&home.socket())?;
        let (renewed, listeners) = mpsc::channel(1);
        Ok((
            Self {
                identity: identity(home)?,
                home: home.clone(),
                renewed,
            },
            listener,
            listeners,
        ))
    }

    /// Returns whether the file at the socket's path is still this socket.
    fn is_in_place(&self) -> bool {
        identity(&self.home).is_ok_and(|identity| identity == self.identity)
    }

    async fn renew(&mut self) -> io::Result<()> {
        let listener = sock::bind(&self.home.socket())?;
        self.identity = identity(&self.home)?;
        self.renewed.send(listener).await.map_err(io::Error::other)
    }

    /// Removes the socket unless another hub has replaced it.
    pub(super) fn remove(&self) {
        if self.is_in_place()
            && let Err(error) = std::fs::remove_file(self.home.socket())
        {
            tracing::debug!(%error, "the socket cannot be removed");
        }
    }
}

fn identity(home: &Home) -> io::Result<(u64, u64)> {
    home.socket()
        .symlink_metadata()
        .map(|meta| (meta.dev(), meta.ino()))
}

/// Keeps the socket in place. Returns when the hub loses its home.
///
/// A removed socket is created again only when a command looks for it, which opens the start lock.
/// Created earlier, it would make the removal of the whole home fail, because the directory would
/// not be empty.
pub(super) async fn watch(home: &Home, lock: &Lock, socket: &mut Socket) -> Lost {
    let watch = EntryWatch::new(&home.dir);
    let start_lock = home.start_lock();
    let name = start_lock.file_name().unwrap_or_default();
    let mut is_missed = true;
    loop {
        if !files::is_same(&home.dir, &home.hub_lock(), lock) {
            return find_loss(home, lock, &watch).await;
        }
        if is_missed && !socket.is_in_place() {
            match socket.renew().await {
                Ok(()) => tracing::warn!("the socket was removed and has been created again"),
                Err(error) => {
                    tracing::error!(%error, "the socket was removed and cannot be created again")
                }
            }
        }
        is_missed = watch.changed(name).await;
    }
}

async fn find_loss(home: &Home, lock: &Lock, watch: &EntryWatch) -> Lost {
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    // A home that was moved took its lock file with it.
    if !lock.is_removed() {
        return Lost::Unlocked;
    }
    let removed = async {
        while is_there(&home.dir) && !is_there(&home.hub_lock()) {
            watch.changed(OsStr::new("")).await;
        }
    };
    if tokio::time::timeout(REMOVAL_TIME_MAX, removed)
        .await
        .is_err()
    {
        tracing::debug!("the lock was removed, but its home still exists");
    }
    if is_there(&home.dir) {
        Lost::Unlocked
    } else {
        Lost::Removed
    }
}
