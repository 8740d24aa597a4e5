//! Credentials in a dispatcher's environment: vendors' keys, tokens and everything else that only
//! some agents receive. They are not in the database, whose free pages and log would retain them,
//! but in separate files with mode 0600. A file is removed as soon as no run or chat turn needs it.
//!
//! A file is durable before the transaction that refers to it. A file without a reference is
//! removed by the next sweep, at the end of an attempt or at the start of a hub.

use super::StoreError;
use crate::config::{Home, is_stored_as_credential};
use crate::files;
use crate::store::db::Connection;
use adjutant_core::hex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum size of a file in bytes, larger than any accepted environment.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a run receives of its dispatcher's environment. Contains no credentials, only a reference
/// to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchEnv {
    #[serde(flatten)]
    variables: BTreeMap<String, String>,
    /// The name of the file with the credentials. The serialized name cannot collide, because a
    /// dispatcher's variables never begin with `ADJ_`.
    #[serde(
        rename = "ADJ_CREDENTIALS",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    credentials: Option<String>,
}

impl DispatchEnv {
    pub(super) fn new(
        mut variables: BTreeMap<String, String>,
        credentials: Option<String>,
    ) -> Self {
        variables.retain(|name, _| !is_stored_as_credential(name));
        Self {
            variables,
            credentials,
        }
    }

    /// Returns the variables that are not credentials.
    #[must_use]
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Returns the search path, or an empty one.
    #[must_use]
    pub fn path(&self) -> &str {
        self.variables.get("PATH").map_or("", String::as_str)
    }
}

/// Credentials for a transaction in progress. Sweeps spare their file until this is dropped, even
/// without a reference.
#[derive(Debug)]
pub struct KeptCredentials {
    pub env: DispatchEnv,
    credential_files: Arc<CredentialFiles>,
    is_durable: bool,
}

impl KeptCredentials {
    /// Returns the name of the file. `None`: there are no credentials.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.env.credentials.as_deref()
    }
}

impl KeptCredentials {
    /// Makes the file durable. Blocks.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(id) = self.id().filter(|_| !self.is_durable) {
            self.credential_files.on_file(id, |path| {
                files::open(self.credential_files.base(), path)?.sync_all()
            })?;
            rustix::fs::fsync(files::open_dir(
                self.credential_files.base(),
                &self.credential_files.dir,
            )?)?;
        }
        self.is_durable = true;
        Ok(())
    }

    /// Removes the file. Blocks.
    pub(super) fn remove(self) -> io::Result<()> {
        let Some(id) = self.id() else { return Ok(()) };
        self.credential_files
            .on_file(id, |path| std::fs::remove_file(path))
    }
}

impl Drop for KeptCredentials {
    fn drop(&mut self) {
        if let Some(id) = &self.env.credentials {
            self.credential_files
                .in_flight
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id);
        }
    }
}

/// The directory of credential files.
#[derive(Debug)]
pub(super) struct CredentialFiles {
    dir: PathBuf,
    in_flight: Mutex<BTreeSet<String>>,
}

impl CredentialFiles {
    pub(super) fn new(home: &Home) -> Arc<Self> {
        Arc::new(Self {
            dir: home.credentials_dir(),
            in_flight: Mutex::default(),
        })
    }

    /// Splits an environment and writes its credentials, if any, to a file. Blocks.
    pub(super) fn save(
        self: Arc<Self>,
        env: BTreeMap<String, String>,
    ) -> io::Result<KeptCredentials> {
        let (secret, plain): (BTreeMap<_, _>, BTreeMap<_, _>) = env
            .into_iter()
            .partition(|(name, _)| is_stored_as_credential(name));
        self.save_all(plain, secret)
    }

    /// Writes all of `secret`, if not empty, to a file. Blocks.
    pub(super) fn save_all(
        self: Arc<Self>,
        plain: BTreeMap<String, String>,
        secret: BTreeMap<String, String>,
    ) -> io::Result<KeptCredentials> {
        if secret.is_empty() {
            return Ok(KeptCredentials {
                env: DispatchEnv::new(plain, None),
                credential_files: self,
                is_durable: true,
            });
        }
        let id = new_id();
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.clone());
        let kept = KeptCredentials {
            env: DispatchEnv::new(plain, Some(id.clone())),
            credential_files: Arc::clone(&self),
            is_durable: false,
        };
        self.write(&id, &secret)?;
        Ok(kept)
    }

    fn write(&self, id: &str, secret: &BTreeMap<String, String>) -> io::Result<()> {
        let text = serde_json::to_vec(secret)?;
        self.on_file(id, |path| {
            files::make_dirs(self.base(), &self.dir)?;
            files::create_new(self.base(), path)?.write_all(&text)
        })
    }

    /// Returns the home, below which no symbolic link is followed.
    fn base(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Calls a function with the path of a file; an error names the file.
    fn on_file<T>(&self, id: &str, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let path = self.dir.join(id);
        work(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Reads the credentials that an environment refers to. Blocks.
    pub(super) fn read(&self, env: &DispatchEnv) -> io::Result<BTreeMap<String, String>> {
        let Some(id) = &env.credentials else {
            return Ok(BTreeMap::new());
        };
        let text = self.on_file(id, |path| files::read(self.base(), path, FILE_BYTES_MAX))?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Removes unused files. Blocks.
    pub(super) fn sweep(
        &self,
        used: impl FnOnce() -> Result<BTreeSet<String>, StoreError>,
    ) -> Result<(), StoreError> {
        let files: Vec<String> = match std::fs::read_dir(&self.dir) {
            Ok(entries) => {
                let names =
                    entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
                names
                    .filter_map(Result::transpose)
                    .collect::<Result<_, _>>()
                    .map_err(StoreError::from_io)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(StoreError::from_io(error)),
        };
        if files.is_empty() {
            return Ok(());
        }
        // The order matters: credentials that are no longer in flight are either in the store by
        // now or will never be.
        let in_flight = self
            .in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let used = used()?;
        for id in files
            .iter()
            .filter(|id| !in_flight.contains(*id) && !used.contains(*id))
        {
            match self.on_file(id, |path| std::fs::remove_file(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::from_io(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn new_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
    hex(bytes)
}

/// A run needs its credentials while an attempt is queued or live, while it can resume by itself,
/// and while it has an open delegation, whose child receives them too. A run that must be resumed
/// gets them from the caller that resumes it. The variables that a dispatcher set for a run are
/// needed as long as there is the run.
const IN_USE: &str = "
  WITH needed (run) AS (
    SELECT id FROM runs WHERE state IN ('starting', 'running', 'stopping')
    UNION ALL SELECT id FROM runs WHERE state = 'queued'
    UNION ALL SELECT id FROM runs WHERE state = 'stopped' AND stop_reason <> 'paused'
      AND (stop_reason IN ('parked', 'rate_limited', 'overloaded', 'memory_pressure') OR blocking_pending > 0 OR holding > 0)
    UNION ALL SELECT run FROM requests WHERE status = 'pending' AND kind = 'delegation')
  SELECT json_text_at(i.spec, '$.dispatch_env.ADJ_CREDENTIALS') AS id FROM needed n JOIN run_inputs i ON i.run = n.run
  UNION SELECT json_text_at(env, '$.ADJ_CREDENTIALS') FROM chat_turns WHERE state IN ('queued', 'running')
  UNION SELECT variables FROM run_inputs WHERE variables IS NOT NULL";

/// Reads the names of the credentials that are still needed.
pub(super) fn in_use(connection: &Connection) -> Result<BTreeSet<String>, StoreError> {
    let sql = format!("SELECT id FROM ({IN_USE}) WHERE id IS NOT NULL");
    Ok(connection.prepare_cached(&sql)?.read_rows([])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_never_holds_a_credential_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(dir.path()).expect("a home");
        let credential_files = CredentialFiles::new(&home);
        let env: BTreeMap<String, String> = [
            ("PATH", "/bin"),
            ("ANTHROPIC_API_KEY", "canary-1"),
            ("MY_DB_PASSWORD", "canary-2"),
        ]
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .into();
        let kept = Arc::clone(&credential_files).save(env).expect("it is kept");
        let text = serde_json::to_string(&kept.env).expect("JSON");
        assert!(!text.contains("canary") && text.contains("/bin"), "{text}");
        let again: DispatchEnv = serde_json::from_str(&text).expect("it reads back");
        assert_eq!(again, kept.env);
        let read = credential_files.read(&again).expect("a file");
        assert_eq!(
            read.values().map(String::as_str).collect::<Vec<_>>(),
            ["canary-1", "canary-2"]
        );

        credential_files
            .sweep(|| Ok(BTreeSet::new()))
            .expect("swept");
        assert!(
            credential_files.read(&again).is_ok(),
            "the credentials are in flight"
        );
        drop(kept);
        let id = again.credentials.clone().expect("a name");
        credential_files
            .sweep(|| Ok(BTreeSet::from([id])))
            .expect("swept");
        assert!(credential_files.read(&again).is_ok(), "it is in use");
        credential_files
            .sweep(|| Ok(BTreeSet::new()))
            .expect("swept");
        assert_eq!(
            credential_files.read(&again).map_err(|error| error.kind()),
            Err(io::ErrorKind::NotFound)
        );
    }
}
