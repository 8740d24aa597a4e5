//! The activity of an agent: its output and its calls. Instead of a stream of events, a reader asks
//! since when the agent has been silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Records the activity of an agent.
#[derive(Debug)]
pub struct AgentActivity {
    began: Instant,
    /// The last activity, in milliseconds since `began`.
    last_ms: AtomicU64,
    calls: AtomicU32,
    next_activity: Notify,
}

impl Default for AgentActivity {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            last_ms: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            next_activity: Notify::new(),
        }
    }
}

impl AgentActivity {
    /// Records activity.
    pub fn record(&self) {
        self.last_ms.store(
            u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.next_activity.notify_one();
    }

    /// Records a call, which is active until the returned guard is dropped.
    #[must_use]
    pub(crate) fn begin_call(self: &Arc<Self>) -> ActiveCall {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.record();
        ActiveCall(Arc::clone(self))
    }

    /// Returns the time of the last activity, or `None` while a call is active, since the agent
    /// then waits for Adjutant.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        let last = self.began + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        (self.calls.load(Ordering::Relaxed) == 0).then_some(last)
    }

    /// Waits for the next activity. Returns at once if there was one since the last call of this
    /// function.
    pub async fn next_activity(&self) {
        self.next_activity.notified().await;
    }
}

/// Guard of an active call.
#[derive(Debug)]
pub(crate) struct ActiveCall(Arc<AgentActivity>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.record();
    }
}
