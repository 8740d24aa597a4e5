//! Sends the logs of ended attempts to the hub, which keeps them.
//!
//! A file in the attempt's directory records that the hub has them. Until then they are sent again:
//! while this process lives, and each time the runner joins.

use super::places::{Key, all, place};
use super::uplink::{CallFailure, PAUSE, PAUSE_MAX, Uplink, is_passing};
use crate::config::Home;
use crate::failpoint::failpoint;
use crate::files;
use crate::logs::kept::AttemptLogs;
use crate::protocol::{
    AttemptDir, LogBytes, LogBytesStored, LogFileDigest, LogFilesStored, PostLogFiles,
};
use crate::view::{ErrorView, codes};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// How long the end of an attempt is held back for its logs. They are sent afterwards if that is
/// not enough.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);
/// How many attempts have their logs sent at a time.
const SENT_AT_A_TIME: usize = 2;
/// How many bytes are sent at once.
const PART_BYTES: u64 = 512 * 1024;

/// The logs that are being sent.
pub(super) struct Uploads {
    home: Home,
    uplink: Arc<Uplink>,
    sending: Mutex<BTreeSet<Key>>,
    /// Notified when the logs of an attempt have been sent or refused.
    ended: Notify,
    places: Semaphore,
    tasks: Mutex<JoinSet<()>>,
}

impl Uploads {
    pub(super) fn new(home: Home, uplink: Arc<Uplink>) -> Self {
        let (sending, ended, tasks) = Default::default();
        Self {
            home,
            uplink,
            sending,
            ended,
            places: Semaphore::new(SENT_AT_A_TIME),
            tasks,
        }
    }

    fn sending(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to send the logs of an attempt that has ended, unless the hub has them.
    pub(super) fn begin(self: &Arc<Self>, key: &str) {
        let Some((dir, run_id, attempt)) = place(&self.home, key) else {
            return;
        };
        if is_recorded(&dir) || !self.sending().insert(key.to_owned()) {
            return;
        }
        let (uploads, key) = (Arc::clone(self), key.to_owned());
        let logs = AttemptLogs {
            home: self.home.dir.clone(),
            run_id,
            attempt,
        };
        let task = async move {
            uploads.send(&key, logs, &dir).await;
            uploads.sending().remove(&key);
            uploads.ended.notify_waiters();
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task.boxed());
    }

    /// Sends the logs of an attempt, and waits for a limited time until the hub has them.
    pub(crate) async fn begin_and_wait(self: &Arc<Self>, key: &str) {
        self.begin(key);
        let sent = self.until(|sending| !sending.contains(key));
        if tokio::time::timeout(WAIT_MAX, sent).await.is_err() {
            tracing::info!(
                attempt = key,
                "the attempt ends before the hub has its logs"
            );
        }
    }

    /// Waits until no logs are being sent.
    pub(super) async fn none_left(&self) {
        self.until(BTreeSet::is_empty).await;
    }

    async fn until(&self, is_so: impl Fn(&BTreeSet<Key>) -> bool) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if is_so(&self.sending()) {
                return;
            }
            ended.await;
        }
    }

    /// As [`Self::begin_and_wait`], if the supervisor of the attempt has finished its logs.
    pub(crate) async fn begin_if_finished(self: &Arc<Self>, key: &str) {
        let Some((_, run_id, attempt)) = place(&self.home, key) else {
            return;
        };
        let logs = AttemptLogs {
            home: self.home.dir.clone(),
            run_id,
            attempt,
        };
        match tokio::task::spawn_blocking(move || logs.are_finished()).await {
            Ok(Ok(true)) => self.begin_and_wait(key).await,
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(attempt = key, %error, "logs cannot be read"),
            Err(error) => {
                tracing::error!(attempt = key, %error, "a task that reads logs has failed")
            }
        }
    }

    /// Begins to send all logs of ended attempts that the hub does not have.
    pub(crate) async fn begin_all(self: &Arc<Self>) {
        let home = self.home.clone();
        match tokio::task::spawn_blocking(move || unsent(&home)).await {
            Ok(unsent) => unsent.iter().for_each(|key| self.begin(key)),
            Err(error) => tracing::error!(%error, "the logs to send cannot be listed"),
        }
    }

    async fn send(&self, key: &str, logs: AttemptLogs, dir: &AttemptDir) {
        let mut pause = PAUSE;
        loop {
            let Ok(place) = self.places.acquire().await else {
                return;
            };
            let sent = self.send_once(key, &logs).await;
            drop(place);
            match sent {
                Ok(()) => break tracing::info!(attempt = key, "the hub has its logs"),
                Err(CallFailure::Refused(error))
                    if matches!(error.code.as_str(), codes::NOT_ALLOWED | codes::NOT_FOUND) =>
                {
                    break tracing::info!(attempt = key, %error, "the hub does not want its logs");
                }
                // They are sent again when the runner joins.
                Err(CallFailure::Refused(error)) if !is_passing(&error) => {
                    return tracing::warn!(attempt = key, %error, "its logs cannot be sent until the runner joins again");
                }
                Err(failure) => {
                    tracing::debug!(attempt = key, %failure, "logs cannot be sent yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        match files::create_new(dir.home(), &dir.logs_sent()) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                tracing::warn!(attempt = key, %error, "it cannot be recorded that the hub has its logs")
            }
        }
    }

    /// Sends what the hub lacks. Returns when it has everything.
    async fn send_once(&self, key: &str, logs: &AttemptLogs) -> Result<(), CallFailure> {
        let reading = logs.clone();
        let listed = blocking(move || reading.list()).await?;
        let call = PostLogFiles {
            attempt: key.to_owned(),
            files: listed.clone(),
        };
        loop {
            let stored: LogFilesStored = self
                .uplink
                .call_with_bytes("/runner/log-files", &call, &[])
                .await?;
            if stored.is_complete {
                return Ok(());
            }
            if stored.bytes.len() != listed.len() {
                return Err(CallFailure::NoReply(
                    "the hub answers for other files".to_owned(),
                ));
            }
            let mut has_sent = false;
            for (file, mut at) in listed.iter().zip(stored.bytes) {
                while at < file.bytes {
                    at = self.send_part(key, logs, file, at).await?;
                    has_sent = true;
                }
            }
            if !has_sent {
                return Err(CallFailure::NoReply(
                    "the hub lacks a file without bytes".to_owned(),
                ));
            }
        }
    }

    /// Sends bytes of a file from a position. Returns the position from which on the hub lacks it.
    async fn send_part(
        &self,
        key: &str,
        logs: &AttemptLogs,
        file: &LogFileDigest,
        at: u64,
    ) -> Result<u64, CallFailure> {
        let (reading, wanted) = (logs.clone(), file.clone());
        let bytes = blocking(move || reading.read(&wanted, at, PART_BYTES)).await?;
        let line = LogBytes {
            attempt: key.to_owned(),
            file: file.name,
            at,
        };
        let stored: LogBytesStored = self
            .uplink
            .call_with_bytes("/runner/log-bytes", &line, &bytes)
            .await?;
        failpoint!("logs.part_sent");
        if stored.bytes > at && stored.bytes <= file.bytes {
            return Ok(stored.bytes);
        }
        Err(CallFailure::NoReply(format!(
            "the hub has {} bytes of a file with {}",
            stored.bytes, file.bytes
        )))
    }
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, CallFailure> {
    let read = tokio::task::spawn_blocking(read)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| {
        CallFailure::Refused(ErrorView {
            code: codes::INVALID.to_owned(),
            message: format!("its logs cannot be read: {error}"),
            hint: None,
        })
    })
}

/// Returns whether the hub has the logs of an attempt, or does not want them.
fn is_recorded(dir: &AttemptDir) -> bool {
    matches!(files::look(dir.home(), &dir.logs_sent()), Ok(Some(_)))
}

/// Lists the ended attempts whose logs the hub does not have.
fn unsent(home: &Home) -> Vec<Key> {
    let is_unsent = |key: &Key| {
        place(home, key).is_some_and(|(dir, ..)| {
            matches!(files::look(dir.home(), &dir.reported()), Ok(Some(_))) && !is_recorded(&dir)
        })
    };
    all(home).filter(is_unsent).collect()
}
