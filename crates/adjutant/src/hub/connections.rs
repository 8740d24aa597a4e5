//! Counting connections, so that an idle hub can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(super) struct Connections {
    open: AtomicUsize,
    /// Rung whenever the number changes.
    changed: Notify,
}

impl Connections {
    /// Counts one connection for as long as what is returned lives.
    pub(super) fn opened(self: &Arc<Self>) -> Counted {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
        Counted(Arc::clone(self))
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Counted(Arc<Connections>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}
