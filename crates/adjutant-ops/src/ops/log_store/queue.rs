//! The attempts whose logs are to be moved: in the order of their arrival, at most one of each run
//! at a time.

use crate::ops::AttemptId;
use adjutant_core::RunId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Clones share the queue.
#[derive(Debug, Default, Clone)]
pub(super) struct MoveQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when an attempt may be next.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<AttemptId>,
    /// Those in `waiting`.
    known: BTreeSet<AttemptId>,
    /// The runs of the attempts that were taken and not dropped.
    moving: BTreeSet<RunId>,
}

impl MoveQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an attempt at the end, unless it waits already.
    pub(super) fn add(&self, id: AttemptId) {
        let mut state = self.state();
        if state.known.insert(id) {
            state.waiting.push_back(id);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Removes the attempts of a run that wait.
    pub(super) fn forget(&self, run: RunId) {
        let mut state = self.state();
        state.waiting.retain(|id| id.run != run);
        state.known.retain(|id| id.run != run);
    }

    /// Takes the first attempt of a run without another one that was taken.
    fn take(&self) -> Option<AttemptToMove> {
        let mut state = self.state();
        let at = state
            .waiting
            .iter()
            .position(|id| !state.moving.contains(&id.run))?;
        let id = state.waiting.remove(at)?;
        state.known.remove(&id);
        state.moving.insert(id.run);
        drop(state);
        Some(AttemptToMove {
            id,
            queue: self.clone(),
        })
    }

    /// Waits for an attempt that can be taken. Only one task may wait.
    pub(super) async fn next(&self) -> AttemptToMove {
        loop {
            match self.take() {
                Some(taken) => return taken,
                None => self.0.changed.notified().await,
            }
        }
    }
}

/// An attempt whose logs are being moved. No other of its run is taken until this is dropped.
#[derive(Debug)]
pub struct AttemptToMove {
    pub id: AttemptId,
    queue: MoveQueue,
}

impl Drop for AttemptToMove {
    fn drop(&mut self) {
        self.queue.state().moving.remove(&self.id.run);
        self.queue.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::AttemptNo;
    use futures::FutureExt;

    fn attempt(run: u64, n: u32) -> AttemptId {
        AttemptId {
            run: RunId::parse(&format!("0000000{run}-0000-4000-8000-000000000000")).expect("an id"),
            n: AttemptNo(n),
        }
    }

    #[test]
    fn failed_attempt_waits_behind_the_others() {
        let queue = MoveQueue::default();
        for id in [attempt(1, 1), attempt(2, 1), attempt(1, 1)] {
            queue.add(id);
        }
        let failed = queue.take().expect("an attempt");
        assert_eq!(failed.id, attempt(1, 1));
        queue.add(failed.id);
        drop(failed);
        let order = [(); 2].map(|()| queue.take().expect("an attempt").id);
        assert_eq!(order, [attempt(2, 1), attempt(1, 1)]);
        assert!(queue.take().is_none());
    }

    #[tokio::test]
    async fn run_with_many_attempts_does_not_hold_up_others() {
        let queue = MoveQueue::default();
        for id in [attempt(1, 1), attempt(1, 2), attempt(2, 1)] {
            queue.add(id);
        }
        let (first, other) = (queue.next().await, queue.next().await);
        assert_eq!((first.id, other.id), (attempt(1, 1), attempt(2, 1)));
        let second = queue.next();
        tokio::pin!(second);
        assert!(
            second.as_mut().now_or_never().is_none(),
            "its run is being moved"
        );
        drop(first);
        assert_eq!(second.await.id, attempt(1, 2));
    }
}
