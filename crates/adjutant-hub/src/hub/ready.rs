//! The report to the process that starts a hub: whether the hub is ready, or why it is not.

use crate::process::ReadyPipe;
use std::cell::RefCell;

thread_local! {
    /// The starter's pipe, until the result was written to it.
    static READY: RefCell<Option<ReadyPipe>> = const { RefCell::new(None) };
}

/// Keeps the starter's pipe until the result is known.
pub(super) fn keep_pipe(pipe: Option<ReadyPipe>) {
    READY.with(|cell| cell.replace(pipe));
}

/// Reports to the starter once. Returns whether there was a starter to report to.
pub(super) fn report_ready(message: &str) -> bool {
    let Some(pipe) = READY.with(|cell| cell.borrow_mut().take()) else {
        return false;
    };
    if let Err(error) = pipe.report(message) {
        tracing::debug!(%error, "the starter has exited");
    }
    true
}
