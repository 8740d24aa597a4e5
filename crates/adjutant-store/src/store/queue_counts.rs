//! The numbers of queued runs. They are in memory, so that reading them costs the same however many
//! are queued: the queue is counted when the store is opened, and each committed transaction adds
//! its changes.

use crate::store::StoreError;
use crate::store::db::Connection;
use crate::store::records::run::Run;
use adjutant_core::RunState;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The queued runs of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolCounts {
    pub queued: u64,
    /// Queued runs that wait for other runs.
    pub after: u64,
}

/// The queued runs by pool, and by whether they wait for other runs.
type Numbers = BTreeMap<(String, bool), i64>;

/// What a transaction changes in the numbers of queued runs.
#[derive(Debug, Default)]
pub(in crate::store) struct QueueChanges(Numbers);

impl QueueChanges {
    /// Notes in which state a run is. `count`: 1 after a change, -1 before it, with the run as it
    /// is stored.
    pub(in crate::store) fn note(&mut self, run: &Run, state: RunState, count: i64) {
        if state == RunState::Queued {
            *self
                .0
                .entry((run.pool.clone(), run.after_open > 0))
                .or_default() += count;
        }
    }

    /// Adds the changes of another transaction.
    pub(in crate::store) fn extend(&mut self, other: Self) {
        add_all(&mut self.0, other.0);
    }
}

fn add_all(numbers: &mut Numbers, changes: Numbers) {
    for (key, change) in changes {
        *numbers.entry(key).or_default() += change;
    }
}

/// The committed numbers of queued runs.
#[derive(Debug, Default)]
pub(in crate::store) struct QueueCounts(Mutex<Numbers>);

impl QueueCounts {
    /// Counts the queued runs, because the store was opened or it is not known which changes were
    /// committed.
    ///
    /// # Errors
    /// A failure of the store.
    pub(in crate::store) fn count(&self, connection: &Connection) -> Result<(), StoreError> {
        let numbers = counted(connection)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = numbers;
        Ok(())
    }

    /// Adds the changes of a committed transaction.
    pub(in crate::store) fn apply(&self, QueueChanges(changes): QueueChanges) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        add_all(&mut numbers, changes);
        numbers.retain(|_, number| *number != 0);
    }

    /// Returns the numbers of each pool that has queued runs.
    pub(in crate::store) fn by_pool(&self) -> BTreeMap<String, PoolCounts> {
        let mut by_pool = BTreeMap::<String, PoolCounts>::new();
        for ((pool, is_after), number) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            let number = u64::try_from(*number).unwrap_or(0);
            let counts = by_pool.entry(pool.clone()).or_default();
            counts.queued += number;
            counts.after += if *is_after { number } else { 0 };
        }
        by_pool
    }
}

fn counted(connection: &Connection) -> Result<Numbers, StoreError> {
    let sql = "SELECT pool, after_open > 0, count(*) FROM runs INDEXED BY runs_queue WHERE state = 'queued' GROUP BY 1, 2";
    Ok(connection.prepare_cached(sql)?.read_rows([])?)
}
