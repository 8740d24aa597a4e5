//! The requests of a gate that have not ended, with what each may use. The hub reserves that, so
//! that parallel requests do not use a budget together that each of them has found unused.

use super::tally::Tally;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many bytes of a request count as a token.
const BYTES_IN_TOKEN: u64 = 4;
/// How many tokens a response is expected to have at most.
const OUTPUT_TOKENS: u64 = 32_000;

/// A request that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequest {
    pub no: u64,
    /// The tokens that it may use.
    pub tokens: u64,
    pub has_begun: bool,
}

/// The open requests of a gate.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    next_no: AtomicU64,
    // All connections update this, also when they are dropped. Never held across an await.
    open: Mutex<BTreeMap<u64, OpenRequest>>,
}

/// Keeps a request open until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard {
    requests: Arc<OpenRequests>,
    tally: Arc<Tally>,
    pub(super) no: u64,
}

impl OpenRequests {
    /// Adds a request whose body has this length. `None`: its length is not known, so it may use
    /// anything.
    pub(super) fn add(
        self: &Arc<Self>,
        tally: &Arc<Tally>,
        body_bytes: Option<u64>,
    ) -> RequestGuard {
        let no = self.next_no.fetch_add(1, Ordering::Relaxed);
        let tokens = body_bytes.map_or(u64::MAX, |bytes| {
            (bytes / BYTES_IN_TOKEN).saturating_add(OUTPUT_TOKENS)
        });
        self.change(|open| {
            open.insert(
                no,
                OpenRequest {
                    no,
                    tokens,
                    has_begun: false,
                },
            )
        });
        RequestGuard {
            requests: Arc::clone(self),
            tally: Arc::clone(tally),
            no,
        }
    }

    /// Returns the number of the next request, and the requests before it that have not ended.
    pub(super) fn open(&self) -> (u64, Vec<OpenRequest>) {
        // In this order: every request with a lower number that the hub can know is in the list, or
        // has ended.
        let next_no = self.next_no.load(Ordering::Relaxed);
        (
            next_no,
            self.change(|open| open.values().copied().collect()),
        )
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, OpenRequest>) -> T) -> T {
        change(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RequestGuard {
    pub(super) fn note_begun(&self) {
        self.requests.change(|open| {
            if let Some(request) = open.get_mut(&self.no) {
                request.has_begun = true;
            }
        });
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.requests.change(|open| open.remove(&self.no));
        self.tally.note_end();
    }
}
