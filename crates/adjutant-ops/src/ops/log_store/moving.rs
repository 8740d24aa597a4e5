//! Moves the logs of one attempt to the log store.
//!
//! Each step can be repeated. The order makes every crash harmless: the objects, their index, a
//! check of both, the record in the home, and only then the removal of the files.

use crate::config::Home;
use crate::failpoint::failpoint;
use crate::files;
use crate::hub_client::random_hex;
use crate::logs::kept::AttemptLogs;
use crate::logs::stored::{INDEX, INDEX_BYTES_MAX, MovedLogs, StoredLogs, object_name, place};
use crate::objects::{ObjectError, Objects, PART_BYTES};
use crate::ops::AttemptId;
use crate::protocol::LogFileDigest;
use adjutant_core::hex;
use adjutant_core::units::duration;
use sha2::{Digest, Sha256};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinError;

/// How long a check of the log store may take. Shorter than a client waits for a reply.
const TRY_MAX: Duration = Duration::from_secs(8);
/// The prefix of the objects of checks.
const CHECK_PREFIX: &str = "adj-check";

/// Why the log store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogStoreError {
    #[error("{address}: {problem}")]
    Opening { address: String, problem: String },
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error("{address}: {source}")]
    Objects {
        address: String,
        source: ObjectError,
    },
    #[error("{step}: {source}")]
    Check {
        step: &'static str,
        source: ObjectError,
    },
    #[error("an object that was stored is not there")]
    NotThere,
    #[error("no reply in {}", duration::of(TRY_MAX))]
    NoReply,
}

impl LogStoreError {
    /// Returns an error of the objects at their address.
    pub(super) fn of(objects: &Objects) -> impl Fn(ObjectError) -> Self {
        move |source| Self::Objects {
            address: objects.address().to_string(),
            source,
        }
    }
}

/// Why the logs of an attempt were not moved.
#[derive(Debug, thiserror::Error)]
pub enum NotMoved {
    /// The log store or the store cannot be reached or refuses, or the disk is full. A retry can
    /// succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The files of the attempt cannot be moved.
    #[error("{0}")]
    Files(String),
}

impl From<LogStoreError> for NotMoved {
    fn from(error: LogStoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<ObjectError> for NotMoved {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Source(error) => Self::from(error),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<io::Error> for NotMoved {
    fn from(error: io::Error) -> Self {
        if files::is_shortage(&error) {
            Self::Unavailable(error.to_string())
        } else {
            Self::Files(error.to_string())
        }
    }
}

/// Moves the logs of an attempt. It has ended and has no process. May be repeated.
///
/// # Errors
/// They were not moved, or not completely.
pub(crate) async fn move_attempt(objects: &Objects, logs: AttemptLogs) -> Result<(), NotMoved> {
    let moved = store_attempt(objects, &logs).await?;
    remove_files(logs, moved).await
}

/// Stores the logs of an attempt as objects. The files stay. May be repeated.
///
/// # Errors
/// They were not stored, or not completely.
pub async fn store_attempt(objects: &Objects, logs: &AttemptLogs) -> Result<MovedLogs, NotMoved> {
    let reading = logs.clone();
    if let Some(moved) = blocking(move || reading.moved()).await? {
        return Ok(moved);
    }
    let reading = logs.clone();
    let stored = blocking(move || StoredLogs::of(&reading)).await?;
    upload(objects, logs, &stored).await?;
    Ok(MovedLogs {
        address: objects.address().to_string(),
        logs: stored,
    })
}

/// Records that the logs of an attempt are in the log store, and removes the files. May be
/// repeated.
///
/// # Errors
/// Some files are left.
pub async fn remove_files(logs: AttemptLogs, moved: MovedLogs) -> Result<(), NotMoved> {
    let (recording, record) = (logs.clone(), moved.clone());
    blocking(move || {
        if recording.moved()?.is_none() {
            recording.set_moved(&record)
        } else {
            Ok(())
        }
    })
    .await?;
    failpoint!("logs.moved");
    let stored = moved.logs;
    let attempt = format!("{}/{}", logs.run_id, logs.attempt);
    blocking(move || logs.remove_moved(&stored)).await?;
    tracing::info!(attempt, "its logs are in the log store");
    Ok(())
}

/// Removes the objects of a run. May be repeated.
///
/// # Errors
/// Some may be left.
pub async fn remove_run(objects: &Objects, run_id: &str) -> Result<(), LogStoreError> {
    let failed = LogStoreError::of(objects);
    let mut names: Vec<String> = objects
        .list(run_id)
        .await
        .map_err(&failed)?
        .into_keys()
        .collect();
    // Without its index, the rest of an attempt counts as not stored.
    names.sort_by_key(|name| !name.ends_with(INDEX));
    for name in names {
        objects
            .delete(&format!("{run_id}/{name}"))
            .await
            .map_err(&failed)?;
    }
    Ok(())
}

/// Stores a small object, lists, reads and deletes it.
///
/// # Errors
/// One of these has failed or took too long.
pub async fn try_objects(objects: &Objects) -> Result<(), LogStoreError> {
    let name = random_hex::<8>();
    let path = format!("{CHECK_PREFIX}/{name}");
    let bytes = name.clone().into_bytes();
    let tried = async {
        let failed = |step| move |source| LogStoreError::Check { step, source };
        objects
            .put(&path, bytes.clone())
            .await
            .map_err(failed("an object cannot be stored"))?;
        let listed = objects
            .list(CHECK_PREFIX)
            .await
            .map_err(failed("objects cannot be listed"));
        let read = objects
            .get(&path, INDEX_BYTES_MAX)
            .await
            .map_err(failed("an object cannot be read"));
        let deleted = objects
            .delete(&path)
            .await
            .map_err(failed("an object cannot be deleted"));
        let (listed, read, ()) = (listed?, read?, deleted?);
        let is_there = listed.contains_key(&name) && read.as_ref() == Some(&bytes);
        if is_there {
            Ok(())
        } else {
            Err(LogStoreError::NotThere)
        }
    };
    tokio::time::timeout(TRY_MAX, tried)
        .await
        .unwrap_or(Err(LogStoreError::NoReply))
}

/// Lists the attempts with a readable log in a home. Blocks.
///
/// # Errors
/// The directory cannot be read.
pub fn attempts_with_logs(home: &Home) -> io::Result<Vec<AttemptId>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.logs_dir())? {
        found.extend(entry?.file_name().to_str().and_then(attempt_of));
    }
    Ok(found)
}

/// Returns the attempt of a file `<run-id>.log` or `<run-id>.<attempt>.log`.
fn attempt_of(name: &str) -> Option<AttemptId> {
    let stem = name.strip_suffix(".log")?;
    let (run, attempt) = stem.split_once('.').unwrap_or((stem, "1"));
    AttemptId::parse(&format!("{run}/{attempt}"))
}

/// Reads the index of an attempt. `None`: it has none.
pub(super) async fn read_index(
    objects: &Objects,
    place: &str,
) -> Result<Option<StoredLogs>, ObjectError> {
    let bytes = objects
        .get(&format!("{place}/{INDEX}"), INDEX_BYTES_MAX)
        .await?;
    let parse = |bytes: Vec<u8>| {
        StoredLogs::parse(&bytes).ok_or_else(|| {
            ObjectError::Failed(format!("{place}/{INDEX} is not what this hub writes"))
        })
    };
    bytes.map(parse).transpose()
}

/// Stores the objects that are missing, then their index, and checks that all are there.
async fn upload(
    objects: &Objects,
    logs: &AttemptLogs,
    stored: &StoredLogs,
) -> Result<(), NotMoved> {
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
    let lacks = stored
        .with_objects()
        .find(|file| found.get(&object_name(file)) != Some(&file.bytes));
    match lacks {
        Some(file) => Err(NotMoved::Unavailable(format!(
            "the object {place}/{} was stored and is not there",
            object_name(file)
        ))),
        None if read_index(objects, &place).await?.as_ref() != Some(stored) => Err(
            NotMoved::Unavailable(format!("{place}/{INDEX} was stored and is not there")),
        ),
        None => Ok(()),
    }
}

async fn upload_file(
    objects: &Objects,
    name: &str,
    logs: &AttemptLogs,
    file: &LogFileDigest,
) -> Result<(), NotMoved> {
    let sending = Arc::new(Mutex::new((0_u64, Sha256::new())));
    let next = || {
        let (logs, file, sending) = (logs.clone(), file.clone(), Arc::clone(&sending));
        blocking(move || {
            let mut sending = sending.lock().unwrap_or_else(PoisonError::into_inner);
            let (at, hash) = &mut *sending;
            if *at == file.bytes {
                return Ok(None);
            }
            let part = logs.read(&file, *at, PART_BYTES as u64)?;
            *at += part.len() as u64;
            hash.update(&part);
            // The last part completes the object, which its name says to have this hash.
            let digest = || hex(hash.clone().finalize());
            if *at == file.bytes && digest() != file.sha256 {
                return Err(io::Error::other(
                    "a file of the logs has changed after the attempt's end",
                ));
            }
            Ok(Some(part))
        })
    };
    if file.bytes <= PART_BYTES as u64 {
        return Ok(objects.put(name, next().await?.unwrap_or_default()).await?);
    }
    Ok(objects.put_parts(name, next).await?)
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
