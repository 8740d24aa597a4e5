//! The log store: moves the logs of ended attempts there, finds them, and removes them with their
//! runs.
//!
//! The next hub finds logs that were not moved by their files in the home.

mod moving;
mod queue;

pub use moving::LogStoreError;
pub use moving::attempts_with_logs;
pub(crate) use moving::move_attempt;
pub use moving::remove_run;
pub use moving::store_attempt;
pub use moving::try_objects;
pub use moving::{NotMoved, remove_files};
pub use queue::AttemptToMove;

use super::attempt_id::AttemptId;
use super::error::OpError;
use super::runner_sessions::Sessions;
use crate::config::{Home, LogStoreAddress};
use crate::logs::kept::AttemptLogs;
use crate::logs::stored::{StoredAttempt, place};
use crate::named_locks::NamedLocks;
use crate::objects::Objects;
use crate::store::{Run, Store, attempt_row};
use adjutant_core::{AttemptNo, RunId};
use moving::{blocking, read_index};
use queue::MoveQueue;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many indexes are remembered, so that the next page of a log needs no request for them.
const INDEXES_MAX: usize = 256;

/// The log store of a home. Clones share its state in this process.
#[derive(Debug, Clone)]
pub struct LogStore {
    store: Store,
    home: Arc<Home>,
    state: Arc<State>,
}

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
    due: MoveQueue,
    /// Held by name while logs of a run are moved or removed.
    runs: NamedLocks,
    /// The runs whose logs were removed.
    removed: Mutex<BTreeSet<RunId>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LogStore {
    /// `address`: where logs of ended attempts are moved. `None`: they stay in the home.
    pub(super) fn new(store: Store, home: Arc<Home>, address: Option<LogStoreAddress>) -> Self {
        Self {
            store,
            home,
            state: Arc::new(State {
                address,
                ..State::default()
            }),
        }
    }

    /// Returns whether logs of ended attempts are moved.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.state.address.is_some()
    }

    /// Returns the log store. `None`: there is none.
    async fn objects(&self) -> Result<Option<Objects>, LogStoreError> {
        let state = Arc::clone(&self.state);
        let Some(address) = state.address.clone() else {
            return Ok(None);
        };
        if let Some(opened) = locked(&state.opened).clone() {
            return Ok(Some(opened));
        }
        let shown = address.to_string();
        let opened = tokio::task::spawn_blocking(move || Objects::open(&address)).await?;
        let opened = opened.map_err(|problem| LogStoreError::Opening {
            address: shown,
            problem: problem.to_string(),
        })?;
        *locked(&state.opened) = Some(opened.clone());
        Ok(Some(opened))
    }

    /// Notes whether the log store works.
    pub fn set_problem(&self, problem: Option<String>) {
        *locked(&self.state.problem) = problem;
    }

    /// Returns why logs cannot be moved at present.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let problem = locked(&self.state.problem).clone()?;
        Some(format!(
            "logs cannot be moved to the log store and stay here: {problem}"
        ))
    }

    /// Notes that the logs of an attempt are complete in the home.
    pub fn note_complete(&self, id: AttemptId) {
        if self.is_configured() {
            self.state.due.add(id);
        }
    }

    /// Finds the logs in the home that were not moved, or whose files were not all removed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn find_unmoved(&self) -> io::Result<()> {
        attempts_with_logs(&self.home)?
            .into_iter()
            .for_each(|id| self.state.due.add(id));
        Ok(())
    }

    /// Waits until logs are to be moved, and takes their attempt. Only one task may wait.
    pub async fn next_unmoved(&self) -> AttemptToMove {
        self.state.due.next().await
    }

    /// Checks that the log store can be opened, without a request to it.
    ///
    /// # Errors
    /// Its credentials cannot be used.
    pub async fn check(&self) -> Result<(), LogStoreError> {
        match self.objects().await {
            Ok(_) => Ok(()),
            // The file system may be mounted later.
            Err(problem) if matches!(self.state.address, Some(LogStoreAddress::Directory(_))) => {
                let problem = problem.to_string();
                tracing::warn!(problem, "logs cannot be moved to the log store");
                self.set_problem(Some(problem));
                Ok(())
            }
            Err(problem) => Err(problem),
        }
    }

    /// Checks with requests whether the log store works. Returns its address, and the error.
    /// `None`: there is none.
    pub async fn try_out(&self) -> Option<(String, Result<(), LogStoreError>)> {
        let address = self.state.address.as_ref()?.to_string();
        let tried = match self.objects().await {
            Ok(Some(objects)) => try_objects(&objects).await,
            Ok(None) => Ok(()),
            Err(problem) => Err(problem),
        };
        Some((address, tried))
    }

    /// Moves the logs of an attempt to the log store. It has ended and has no process. May be
    /// repeated.
    ///
    /// # Errors
    /// They were not moved, or not completely.
    pub async fn move_logs(&self, id: AttemptId) -> Result<(), NotMoved> {
        let Some(objects) = self.objects().await? else {
            return Ok(());
        };
        let _only = self.state.runs.lock(&id.run.to_string()).await;
        if locked(&self.state.removed).contains(&id.run) {
            return Ok(());
        }
        let logs = AttemptLogs {
            home: self.home.dir.clone(),
            run_id: id.run.to_string(),
            attempt: id.n.0,
        };
        move_attempt(&objects, logs).await
    }

    /// Returns whether an attempt has ended and its logs are in the home, all of them if it was on
    /// a runner.
    ///
    /// # Errors
    /// A failure of the store or the disk.
    pub async fn has_ended_logs(&self, id: AttemptId) -> Result<bool, NotMoved> {
        let row = self
            .store
            .read(|connection| attempt_row(connection, id.run, id.n))
            .map_err(|error| NotMoved::Unavailable(error.to_string()))?;
        let Some(row) = row else { return Ok(false) };
        if row.host.is_none() {
            // If its supervisor has died, the attempt has no end of its own.
            return id
                .is_settled(&self.store)
                .map_err(|error| NotMoved::Unavailable(error.to_string()));
        }
        let logs = AttemptLogs {
            home: self.home.dir.clone(),
            run_id: id.run.to_string(),
            attempt: id.n.0,
        };
        Ok(blocking(move || logs.are_kept()).await?)
    }

    /// Returns the logs of an attempt in the log store. `None`: they are in the home or at a
    /// runner. `host`: the runner of the attempt.
    pub(super) async fn stored(
        &self,
        run: &Run,
        logs: &AttemptLogs,
        host: Option<&str>,
        runners: &Sessions,
    ) -> Result<Option<Arc<StoredAttempt>>, OpError> {
        let away = |problem: String| OpError::LogStore {
            run: run.name.clone(),
            problem,
        };
        let failed = |error: io::Error| OpError::Io(error.to_string());
        let place = place(&logs.run_id, logs.attempt);
        if let Some(found) = locked(&self.state.indexes).get(&place) {
            return Ok(Some(Arc::clone(found)));
        }
        let moved = logs.moved().map_err(failed)?;
        if let Some(moved) = moved.as_ref().filter(|_| !self.is_configured()) {
            return Err(away(format!(
                "the configuration has no log_store; they were moved to {}",
                moved.address
            )));
        }
        if !self.is_configured() {
            return Ok(None);
        }
        // The logs of another machine may have been moved by another hub.
        let is_moved = moved.is_some();
        let id = AttemptId {
            run: run.id,
            n: AttemptNo(logs.attempt),
        };
        if !is_moved
            && (host.is_none()
                || logs.are_kept().map_err(failed)?
                || !id.is_settled(&self.store)?)
        {
            return Ok(None);
        }
        let found = async {
            let Some(objects) = self.objects().await? else {
                return Ok(None);
            };
            let index = match moved {
                Some(moved) => Some((moved.logs, Some(moved.address))),
                None => read_index(&objects, &place)
                    .await
                    .map_err(LogStoreError::of(&objects))?
                    .map(|logs| (logs, None)),
            };
            Ok::<_, LogStoreError>(index.map(|(logs, moved_to)| {
                Arc::new(StoredAttempt {
                    objects,
                    place: place.clone(),
                    moved_to,
                    logs,
                })
            }))
        };
        match found.await {
            Ok(Some(found)) => {
                let mut indexes = locked(&self.state.indexes);
                if indexes.len() >= INDEXES_MAX {
                    indexes.clear();
                }
                indexes.insert(place, Arc::clone(&found));
                Ok(Some(found))
            }
            Ok(None) => Ok(None),
            // The runner may have it.
            Err(problem) if !is_moved && host.is_some_and(|host| runners.is_connected(host)) => {
                let problem = problem.to_string();
                tracing::warn!(run = run.name, problem, "the log store cannot be read");
                Ok(None)
            }
            Err(problem) => Err(away(problem.to_string())),
        }
    }

    /// Removes the logs of a run from the log store. They are not moved again. May be repeated.
    ///
    /// # Errors
    /// Some may be left.
    pub(super) async fn remove(&self, run: RunId) -> Result<(), String> {
        let failed = |error: LogStoreError| error.to_string();
        let Some(objects) = self.objects().await.map_err(failed)? else {
            return Ok(());
        };
        let id = run.to_string();
        let _only = self.state.runs.lock(&id).await;
        locked(&self.state.removed).insert(run);
        self.state.due.forget(run);
        remove_run(&objects, &id).await.map_err(failed)?;
        locked(&self.state.indexes).retain(|place, _| !place.starts_with(&id));
        Ok(())
    }
}
