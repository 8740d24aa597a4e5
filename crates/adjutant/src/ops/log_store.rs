//! The log store: moves the logs of ended attempts there, finds them, and removes them with their runs.
//!
//! Each step can be repeated. The order makes every crash harmless: the objects, their index, a check of both, the record in the home, and
//! only then the removal of the files. What a hub has not done is found again by the files that are left.

use super::{AttemptId, OpError, Ops};
use crate::config::LogStoreAddress;
use crate::failpoint::failpoint;
use crate::files;
use crate::link::LogFile;
use crate::logs::kept::AttemptLogs;
use crate::logs::stored::{INDEX, INDEX_BYTES_MAX, StoredAttempt, StoredLogs, object_name, place};
use crate::named_locks::NamedLocks;
use crate::objects::{ObjectError, Objects, PART_BYTES};
use crate::store::{Run, attempt_row};
use adjutant_core::{AttemptNo, RunId};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many indexes are remembered, so that the next page of a log needs no request for them.
const INDEXES_MAX: usize = 256;

/// The state of the log store in this process. Clones share it.
#[derive(Debug, Default, Clone)]
pub(super) struct LogStore(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// `None`: logs stay in the home.
    address: Option<LogStoreAddress>,
    opened: Mutex<Option<Objects>>,
    /// The indexes that were read.
    indexes: Mutex<BTreeMap<String, Arc<StoredAttempt>>>,
    /// Why logs could not be moved the last time.
    problem: Mutex<Option<String>>,
    /// The attempts whose logs are to be moved.
    due: Mutex<BTreeSet<AttemptId>>,
    /// Notified when there is another one.
    added: Notify,
    /// Held by name while logs of a run are moved or removed.
    runs: NamedLocks,
    /// The runs whose logs were removed.
    removed: Mutex<BTreeSet<RunId>>,
}

impl LogStore {
    pub fn new(address: Option<LogStoreAddress>) -> Self {
        Self(Arc::new(State { address, ..State::default() }))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why the logs of an attempt were not moved.
#[derive(Debug, thiserror::Error)]
pub enum NotMoved {
    /// The log store or the store is away or refuses, or the disk is full. Another try can succeed.
    #[error("{0}")]
    Away(String),
    /// The files of the attempt cannot be moved.
    #[error("{0}")]
    Files(String),
}

impl From<ObjectError> for NotMoved {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Source(error) => Self::from(error),
            error => Self::Away(error.to_string()),
        }
    }
}

impl From<io::Error> for NotMoved {
    fn from(error: io::Error) -> Self {
        if files::is_shortage(&error) { Self::Away(error.to_string()) } else { Self::Files(error.to_string()) }
    }
}

impl Ops {
    /// Returns whether logs of ended attempts are moved.
    #[must_use]
    pub fn has_log_store(&self) -> bool {
        self.log_store.0.address.is_some()
    }

    /// Returns the log store. `None`: there is none.
    async fn objects(&self) -> Result<Option<Objects>, String> {
        let state = Arc::clone(&self.log_store.0);
        let Some(address) = state.address.clone() else { return Ok(None) };
        if let Some(opened) = locked(&state.opened).clone() {
            return Ok(Some(opened));
        }
        let shown = address.to_string();
        let opened = tokio::task::spawn_blocking(move || Objects::open(&address)).await.map_err(|error| error.to_string())?;
        let opened = opened.map_err(|problem| format!("{shown}: {problem}"))?;
        *locked(&state.opened) = Some(opened.clone());
        Ok(Some(opened))
    }

    /// Notes whether the log store works.
    pub fn set_log_store_problem(&self, problem: Option<String>) {
        *locked(&self.log_store.0.problem) = problem;
    }

    /// Returns why logs cannot be moved at present.
    #[must_use]
    pub fn log_store_problem(&self) -> Option<String> {
        let problem = locked(&self.log_store.0.problem).clone()?;
        Some(format!("logs cannot be moved to the log store and stay here: {problem}"))
    }

    /// Notes that the logs of an attempt are complete in the home.
    pub fn note_complete_logs(&self, id: AttemptId) {
        if self.has_log_store() {
            locked(&self.log_store.0.due).insert(id);
            self.log_store.0.added.notify_one();
        }
    }

    /// Finds the logs in the home that were not moved, or whose files were not all removed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn find_unmoved_logs(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(self.home.logs_dir())? {
            let name = entry?.file_name();
            if let Some(id) = name.to_str().and_then(attempt_of) {
                locked(&self.log_store.0.due).insert(id);
            }
        }
        self.log_store.0.added.notify_one();
        Ok(())
    }

    /// Waits until logs are to be moved, and takes their attempt.
    pub async fn next_unmoved_logs(&self) -> AttemptId {
        loop {
            let first = locked(&self.log_store.0.due).pop_first();
            match first {
                Some(id) => return id,
                None => self.log_store.0.added.notified().await,
            }
        }
    }

    /// Checks that the log store can be opened. It is not asked.
    ///
    /// # Errors
    /// Its credentials cannot be used.
    pub async fn check_log_store(&self) -> Result<(), String> {
        match self.objects().await {
            Ok(_) => Ok(()),
            // The file system may be mounted later.
            Err(problem) if matches!(self.log_store.0.address, Some(LogStoreAddress::Directory(_))) => {
                tracing::warn!(problem, "logs cannot be moved to the log store");
                self.set_log_store_problem(Some(problem));
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    /// Moves the logs of an attempt to the log store. It has ended and has no process. May be repeated.
    ///
    /// # Errors
    /// They were not moved, or not completely.
    pub async fn move_logs(&self, id: AttemptId) -> Result<(), NotMoved> {
        let Some(objects) = self.objects().await.map_err(NotMoved::Away)? else { return Ok(()) };
        let _only = self.log_store.0.runs.lock(&id.run.to_string()).await;
        if locked(&self.log_store.0.removed).contains(&id.run) {
            return Ok(());
        }
        let logs = AttemptLogs { home: self.home.dir.clone(), run_id: id.run.to_string(), attempt: id.n.0 };
        let reading = logs.clone();
        let stored = match blocking(move || reading.moved()).await? {
            Some(stored) => stored,
            None => {
                let reading = logs.clone();
                let stored = blocking(move || StoredLogs::of(&reading)).await?;
                upload(&objects, &logs, &stored).await?;
                let (recording, record) = (logs.clone(), stored.clone());
                blocking(move || recording.set_moved(&record)).await?;
                failpoint!("logs.moved");
                stored
            }
        };
        blocking(move || logs.remove_moved(&stored)).await?;
        tracing::info!(attempt = %id, "its logs are in the log store");
        Ok(())
    }

    /// Returns whether an attempt has ended and its logs are in the home, all of them if it was on a runner.
    ///
    /// # Errors
    /// A failure of the store or the disk.
    pub async fn has_ended_logs(&self, id: AttemptId) -> Result<bool, NotMoved> {
        let row = self.store.read(|connection| attempt_row(connection, id.run, id.n)).map_err(|error| NotMoved::Away(error.to_string()))?;
        let Some(row) = row else { return Ok(false) };
        if row.host.is_none() {
            // If its supervisor has died, the attempt has no end of its own.
            return self.is_settled(id).map_err(|error| NotMoved::Away(error.to_string()));
        }
        let logs = AttemptLogs { home: self.home.dir.clone(), run_id: id.run.to_string(), attempt: id.n.0 };
        Ok(blocking(move || logs.are_kept()).await?)
    }

    /// Returns the logs of an attempt in the log store. `None`: they are in the home or at a runner.
    pub(super) async fn stored_logs(&self, run: &Run, logs: &AttemptLogs, host: Option<&str>) -> Result<Option<Arc<StoredAttempt>>, OpError> {
        let away = |problem: String| OpError::LogStore { run: run.name.clone(), problem };
        let failed = |error: io::Error| OpError::Io(error.to_string());
        let place = place(&logs.run_id, logs.attempt);
        if let Some(found) = locked(&self.log_store.0.indexes).get(&place) {
            return Ok(Some(Arc::clone(found)));
        }
        let moved = logs.moved().map_err(failed)?;
        if moved.is_some() && !self.has_log_store() {
            return Err(away("the configuration has no log_store".to_owned()));
        }
        if !self.has_log_store() {
            return Ok(None);
        }
        // The logs of another machine may have been moved by another hub.
        let is_moved = moved.is_some();
        let id = AttemptId { run: run.id, n: AttemptNo(logs.attempt) };
        if !is_moved && (host.is_none() || logs.are_kept().map_err(failed)? || !self.is_settled(id)?) {
            return Ok(None);
        }
        let found = async {
            let Some(objects) = self.objects().await? else { return Ok(None) };
            let index = match moved {
                Some(moved) => Some(moved),
                None => read_index(&objects, &place).await.map_err(|error| format!("{}: {error}", objects.address()))?,
            };
            Ok(index.map(|logs| Arc::new(StoredAttempt { objects, place: place.clone(), logs })))
        };
        match found.await {
            Ok(Some(found)) => {
                let mut indexes = locked(&self.log_store.0.indexes);
                if indexes.len() >= INDEXES_MAX {
                    indexes.clear();
                }
                indexes.insert(place, Arc::clone(&found));
                Ok(Some(found))
            }
            Ok(None) => Ok(None),
            // The runner may have it.
            Err(problem) if !is_moved && host.is_some_and(|host| self.runners.is_connected(host)) => {
                tracing::warn!(run = run.name, problem, "the log store cannot be read");
                Ok(None)
            }
            Err(problem) => Err(away(problem)),
        }
    }

    /// Removes the logs of a run from the log store. They are not moved again. May be repeated.
    ///
    /// # Errors
    /// Some may be left.
    pub(super) async fn remove_stored_logs(&self, run: RunId) -> Result<(), String> {
        let Some(objects) = self.objects().await? else { return Ok(()) };
        let id = run.to_string();
        let _only = self.log_store.0.runs.lock(&id).await;
        locked(&self.log_store.0.removed).insert(run);
        locked(&self.log_store.0.due).retain(|due| due.run != run);
        let failed = |error: ObjectError| format!("{}: {error}", objects.address());
        let mut names: Vec<String> = objects.list(&id).await.map_err(failed)?.into_keys().collect();
        // Without its index, the rest of an attempt counts as not stored.
        names.sort_by_key(|name| !name.ends_with(INDEX));
        for name in names {
            objects.delete(&format!("{id}/{name}")).await.map_err(failed)?;
        }
        locked(&self.log_store.0.indexes).retain(|place, _| !place.starts_with(&id));
        Ok(())
    }
}

/// Returns the attempt of a file `<run-id>.log` or `<run-id>.<attempt>.log`.
fn attempt_of(name: &str) -> Option<AttemptId> {
    let stem = name.strip_suffix(".log")?;
    let (run, attempt) = stem.split_once('.').unwrap_or((stem, "1"));
    AttemptId::parse(&format!("{run}/{attempt}"))
}

async fn read_index(objects: &Objects, place: &str) -> Result<Option<StoredLogs>, ObjectError> {
    let bytes = objects.get(&format!("{place}/{INDEX}"), INDEX_BYTES_MAX).await?;
    let parse = |bytes: Vec<u8>| StoredLogs::parse(&bytes).ok_or_else(|| ObjectError::Failed(format!("{place}/{INDEX} is not what this hub writes")));
    bytes.map(parse).transpose()
}

/// Stores the objects that are missing, then their index, and checks that all are there.
async fn upload(objects: &Objects, logs: &AttemptLogs, stored: &StoredLogs) -> Result<(), NotMoved> {
    let place = place(&logs.run_id, logs.attempt);
    let found = objects.list(&place).await?;
    for file in stored.with_objects() {
        let name = object_name(file);
        if found.get(&name) != Some(&file.bytes) {
            upload_file(objects, &format!("{place}/{name}"), logs, file).await?;
            failpoint!("logs.object_stored");
        }
    }
    let index = serde_json::to_vec(stored).map_err(io::Error::other)?;
    objects.put(&format!("{place}/{INDEX}"), index).await?;
    failpoint!("logs.index_stored");
    let found = objects.list(&place).await?;
    let lacks = stored.with_objects().find(|file| found.get(&object_name(file)) != Some(&file.bytes));
    match lacks {
        Some(file) => Err(NotMoved::Away(format!("the object {place}/{} was stored and is not there", object_name(file)))),
        None if read_index(objects, &place).await?.as_ref() != Some(stored) => {
            Err(NotMoved::Away(format!("{place}/{INDEX} was stored and is not there")))
        }
        None => Ok(()),
    }
}

async fn upload_file(objects: &Objects, name: &str, logs: &AttemptLogs, file: &LogFile) -> Result<(), NotMoved> {
    let sending = Arc::new(Mutex::new((0_u64, Sha256::new())));
    let next = || {
        let (logs, file, sending) = (logs.clone(), file.clone(), Arc::clone(&sending));
        blocking(move || {
            let mut sending = locked(&sending);
            let (at, hash) = &mut *sending;
            if *at == file.bytes {
                return Ok(None);
            }
            let part = logs.read(&file, *at, PART_BYTES as u64)?;
            *at += part.len() as u64;
            hash.update(&part);
            // The last part completes the object, which its name says to have this hash.
            let digest = || hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            if *at == file.bytes && digest() != file.sha256 {
                return Err(io::Error::other("a file of the logs has changed after the attempt's end"));
            }
            Ok(Some(part))
        })
    };
    if file.bytes <= PART_BYTES as u64 {
        return Ok(objects.put(name, next().await?.unwrap_or_default()).await?);
    }
    Ok(objects.put_parts(name, next).await?)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
