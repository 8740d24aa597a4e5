//! Locks with names. A lock exists only while a task holds it or waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;

type Locks = Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>;

/// Locks by name. Clones share them.
#[derive(Debug, Default, Clone)]
pub struct NamedLocks(Arc<Locks>);

/// Holds a lock until it is dropped.
#[derive(Debug)]
pub struct NamedLock {
    guard: Option<OwnedMutexGuard<()>>,
    locks: Arc<Locks>,
}

impl NamedLocks {
    /// Waits until nobody else holds the lock with this name.
    pub async fn lock(&self, name: &str) -> NamedLock {
        let lock = Arc::clone(
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name.to_owned())
                .or_default(),
        );
        NamedLock {
            guard: Some(lock.lock_owned().await),
            locks: Arc::clone(&self.0),
        }
    }
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, lock| Arc::strong_count(lock) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn one_name_is_locked_once_and_forgotten() {
        let locks = NamedLocks::default();
        let first = locks.lock("a").await;
        let second = locks.lock("a");
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none(), "it is held");
        drop(
            locks
                .lock("b")
                .now_or_never()
                .expect("another name is free"),
        );
        drop(first);
        drop(second.await);
        assert!(locks.0.lock().expect("not poisoned").is_empty());
    }
}
