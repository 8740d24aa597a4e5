//! The files with the tokens that peers have issued for this hub.

use crate::config::Home;
use crate::files;
use crate::ops::{OpError, random};
use crate::store::{Store, peers};
use adjutant_core::hex;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024;

/// Why the token for a peer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error("the token for the peer cannot be read ({}: {source}): add the peer again", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token for the peer is unusable ({}): add the peer again", path.display())]
    NotText { path: PathBuf },
}

/// The files with tokens for peers. Clones share the lock.
#[derive(Debug, Clone)]
pub(super) struct PeerSecrets {
    store: Store,
    home: Arc<Home>,
    changing: Arc<Mutex<()>>,
}

/// The right to add and remove files: another call's sweep must not find a file before its peer.
pub(super) struct SecretChanges<'a> {
    secrets: &'a PeerSecrets,
    _changing: MutexGuard<'a, ()>,
}

impl PeerSecrets {
    pub(super) fn new(store: Store, home: Arc<Home>) -> Self {
        Self {
            store,
            home,
            changing: Arc::default(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.peers_dir().join(name)
    }

    /// Waits until no other call changes files.
    pub(super) async fn change(&self) -> SecretChanges<'_> {
        SecretChanges {
            secrets: self,
            _changing: self.changing.lock().await,
        }
    }

    /// Reads a token.
    pub(super) async fn read(&self, name: &str) -> Result<String, SecretError> {
        let path = self.path(name);
        let (home, read_path) = (self.home.dir.clone(), path.clone());
        let read = move || files::read(&home, &read_path, FILE_BYTES_MAX);
        let read = tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other);
        match read.and_then(|read| read) {
            Ok(bytes) => String::from_utf8(bytes).map_err(|_| SecretError::NotText { path }),
            Err(source) => Err(SecretError::Unreadable { path, source }),
        }
    }
}

impl SecretChanges<'_> {
    /// Writes a token to a new file, durably, and returns its name.
    pub(super) async fn write(&self, token: String) -> Result<String, OpError> {
        let name = hex(random::<16>());
        let (home, path) = (self.secrets.home.dir.clone(), self.secrets.path(&name));
        let write = move || {
            let dir = path.parent().unwrap_or(&home);
            files::make_dirs(&home, dir)?;
            let mut file = files::create_new(&home, &path)?;
            file.write_all(token.as_bytes())?;
            file.sync_all()?;
            files::sync_dirs(&home, dir)
        };
        let written: io::Result<()> = tokio::task::spawn_blocking(write)
            .await
            .map_err(io::Error::other)
            .and_then(|written| written);
        written.map_err(|error| {
            OpError::Io(format!("the token of the peer cannot be stored: {error}"))
        })?;
        Ok(name)
    }

    /// Removes the files of peers that were removed or have another token.
    pub(super) async fn sweep(&self) {
        let in_use = self.secrets.store.read(peers).map(|peers| {
            peers
                .into_iter()
                .filter_map(|peer| peer.remote)
                .map(|remote| remote.secret)
                .collect()
        });
        let in_use: Vec<String> = match in_use {
            Ok(in_use) => in_use,
            Err(error) => return tracing::warn!(%error, "unused tokens of peers stay in the home"),
        };
        let dir = self.secrets.home.peers_dir();
        let sweep = move || {
            let entries = match std::fs::read_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if in_use.iter().all(|name| entry.file_name() != name.as_str()) {
                    std::fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        let swept: io::Result<()> = tokio::task::spawn_blocking(sweep)
            .await
            .map_err(io::Error::other)
            .and_then(|swept| swept);
        if let Err(error) = swept {
            tracing::warn!(%error, "unused tokens of peers stay in the home");
        }
    }
}
