//! Signs of life of an agent: what it writes, and the calls that it makes. A reader that wants to know
//! whether it has gone silent asks when the silence began; nobody has to count along.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct Pulse {
    began: Instant,
    /// The last sign, in milliseconds since then.
    last_ms: AtomicU64,
    calls: AtomicU32,
    next_sign: Notify,
}

impl Default for Pulse {
    fn default() -> Self {
        Self { began: Instant::now(), last_ms: AtomicU64::new(0), calls: AtomicU32::new(0), next_sign: Notify::new() }
    }
}

impl Pulse {
    /// Notes a sign of life.
    pub fn beat(&self) {
        self.last_ms.store(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.next_sign.notify_one();
    }

    /// Notes a call; it is under way until what this returns is dropped.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> ActiveCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.beat();
        ActiveCall(Arc::clone(self))
    }

    /// Returns when the last sign came. `None`: a call is under way, so that it is our turn.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        let last = self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed) == 0).then_some(last)
    }

    /// Returns when a sign comes, or one has come since this was asked last.
    pub async fn next_sign(&self) {
        self.next_sign.notified().await;
    }
}

/// A call that is being answered.
#[derive(Debug)]
pub struct ActiveCall(Arc<Pulse>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.beat();
    }
}
