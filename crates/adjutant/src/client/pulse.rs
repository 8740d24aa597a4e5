//! Signs of life of an agent: its output and its calls. Instead of a stream of events, a reader asks since when the
//! agent has been silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct Pulse {
    began: Instant,
    /// The last sign, in milliseconds since `began`.
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
    /// Records a sign of life.
    pub fn beat(&self) {
        self.last_ms.store(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.next_sign.notify_one();
    }

    /// Records a call, which is active until the returned guard is dropped.
    #[must_use]
    pub fn call(self: &Arc<Self>) -> ActiveCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.beat();
        ActiveCall(Arc::clone(self))
    }

    /// Returns the time of the last sign, or `None` while a call is active, since the agent then waits for Adjutant.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        let last = self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed) == 0).then_some(last)
    }

    /// Waits for the next sign. Returns at once if there was one since the last call of this function.
    pub async fn next_sign(&self) {
        self.next_sign.notified().await;
    }
}

/// Guard of an active call.
#[derive(Debug)]
pub struct ActiveCall(Arc<Pulse>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.beat();
    }
}
