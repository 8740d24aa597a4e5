//! The files with the tokens that peers have issued for this hub.

use crate::files;
use crate::ops::{OpError, Ops, random};
use crate::store::peers;
use std::io::{self, Write};
use std::path::PathBuf;

/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024;

impl Ops {
    fn peer_secret(&self, name: &str) -> PathBuf {
        self.home.peers_dir().join(name)
    }

    /// Writes a token to a new file, durably, and returns its name.
    pub(super) async fn write_peer_secret(&self, token: String) -> Result<String, OpError> {
        let name: String = random::<16>()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (home, path) = (self.home.dir.clone(), self.peer_secret(&name));
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

    /// Reads a token. The error is a message for people.
    pub(super) async fn read_peer_secret(&self, name: &str) -> Result<String, String> {
        let (home, path) = (self.home.dir.clone(), self.peer_secret(name));
        let shown = path.display().to_string();
        let read = tokio::task::spawn_blocking(move || files::read(&home, &path, FILE_BYTES_MAX))
            .await
            .map_err(io::Error::other);
        let bytes = read.and_then(|read| read).map_err(|error| {
            format!("the token for the peer cannot be read ({shown}: {error}): add the peer again")
        })?;
        String::from_utf8(bytes).map_err(|_| {
            format!("the token for the peer is unusable ({shown}): add the peer again")
        })
    }

    /// Removes the files of peers that were removed or have another token.
    pub(crate) async fn sweep_peer_secrets(&self) {
        let _changing = self.peer_secrets.lock().await;
        self.sweep_unused_secrets().await;
    }

    /// Like [`Ops::sweep_peer_secrets`], for a caller that holds the lock.
    pub(super) async fn sweep_unused_secrets(&self) {
        let in_use = self.store.read(peers).map(|peers| {
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
        let dir = self.home.peers_dir();
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
