//! One transaction: the connection, the time, and which subscriptions to notify once it is durable.

use super::{Request, StoreError, Topic};
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{Moment, SteadyTime, Time};
use rusqlite::{CachedStatement, Connection};
use std::sync::Arc;

/// What a durable transaction means for those who wait.
pub(super) struct News {
    pub topics: Vec<Topic>,
    pub settled: Vec<Arc<Request>>,
    /// The earliest deadline that it sets.
    pub due: Option<SteadyTime>,
}

/// A transaction under way. Everything in it has the same time.
pub struct Tx<'a> {
    connection: &'a Connection,
    now: Moment,
    topics: Vec<Topic>,
    /// Requests that were answered and retrieved for calls that wait for them.
    settled: Vec<Arc<Request>>,
    /// The earliest deadline that it sets.
    due: Option<SteadyTime>,
    /// It is the only call of its transaction.
    alone: bool,
    /// It can be undone without the others of its transaction.
    has_savepoint: bool,
    /// When what is being recorded happened, if that was before `now`.
    happened_at: Option<Time>,
    /// The signal whose effects are being recorded.
    signal: Option<(&'static str, &'static str)>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(connection: &'a Connection, now: Moment, alone: bool) -> Self {
        Self { connection, now, topics: Vec::new(), settled: Vec::new(), due: None, alone, has_savepoint: false, happened_at: None, signal: None }
    }

    /// Makes it possible to refuse after something was written. To be called before that, by work
    /// that [`super::Store::write_checked`] runs.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn may_refuse_late(&mut self) -> Result<(), StoreError> {
        Ok(self.savepoint()?)
    }

    pub(super) fn savepoint(&mut self) -> rusqlite::Result<()> {
        if !self.alone && !self.has_savepoint {
            self.connection.prepare_cached("SAVEPOINT call")?.execute([])?;
            self.has_savepoint = true;
        }
        Ok(())
    }

    pub(super) fn has_savepoint(&self) -> bool {
        self.has_savepoint
    }

    /// Returns the connection, for the reads that are shared with those outside transactions.
    #[must_use]
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Returns the wall-clock time: for what is shown.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now.wall
    }

    /// Returns the time by which deadlines count.
    #[must_use]
    pub fn steady(&self) -> SteadyTime {
        self.now.steady
    }

    /// Returns the transaction's time on both clocks.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.now
    }

    /// Returns the deadline that is meant by a time of the wall clock.
    #[must_use]
    pub fn steady_at(&self, wall: Time) -> SteadyTime {
        self.now.steady.plus_ms(wall.0.saturating_sub(self.now.wall.0))
    }

    /// Dates what `work` records: it happened at `at`, before the hub learned of it.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn dated<T>(&mut self, at: Time, work: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let before = self.happened_at.replace(at.min(self.now.wall));
        let done = work(self);
        self.happened_at = before;
        done
    }

    /// Returns when what is being recorded happened: now, except within [`Tx::dated`].
    #[must_use]
    pub fn happened_at(&self) -> Time {
        self.happened_at.unwrap_or(self.now.wall)
    }

    /// Notifies a topic after the commit.
    pub fn notify(&mut self, topic: Topic) {
        self.topics.push(topic);
    }

    /// Wakes the keeper of deadlines by then.
    pub(super) fn wake_by(&mut self, due: SteadyTime) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Marks the events that `work` appends as effects of a signal, and by what it came.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn as_signal<T>(
        &mut self,
        kind: Option<SignalKind>,
        source: Source,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = self.signal.replace((kind.map_or("", SignalKind::tag), source.word()));
        let done = work(self);
        self.signal = before;
        done
    }

    pub(super) fn signal(&self) -> Option<(&'static str, &'static str)> {
        self.signal
    }

    /// Passes the answer to a request to the call that waits for it, once it is durable.
    pub(super) fn deliver_settled(&mut self, request: &Request) {
        self.settled.push(Arc::new(request.clone()));
    }

    /// Returns what is to be done once the transaction is durable.
    pub(super) fn into_news(self) -> News {
        News { topics: self.topics, settled: self.settled, due: self.due }
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>, StoreError> {
        Ok(self.connection.prepare_cached(sql)?)
    }
}
