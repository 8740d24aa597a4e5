//! The logs of attempts on runners, which the hub keeps in its home: one task at a time stores those
//! of an attempt, and none does while runs are removed with their logs.

use crate::named_locks::{NamedLock, NamedLocks};
use std::sync::Arc;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, RwLockWriteGuard};

/// The locks of the kept logs. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptLogs {
    /// Held for writing while runs are removed with their logs, and for reading while logs of
    /// runners are stored.
    all: Arc<RwLock<()>>,
    /// One for each attempt whose logs are stored.
    attempts: NamedLocks,
}

/// The right to store the logs of an attempt.
#[derive(Debug)]
pub(super) struct AttemptLock {
    _attempt: NamedLock,
    _all: OwnedRwLockReadGuard<()>,
}

impl KeptLogs {
    /// Waits until no other task stores logs of this attempt, and no run is removed.
    pub(super) async fn lock(&self, attempt: &str) -> AttemptLock {
        AttemptLock {
            _attempt: self.attempts.lock(attempt).await,
            _all: Arc::clone(&self.all).read_owned().await,
        }
    }

    /// Waits until no logs are stored. None are while the result is held.
    pub(super) async fn lock_all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}
