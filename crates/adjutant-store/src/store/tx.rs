//! One transaction: the connection, the time, and the subscriptions to notify after the commit.

use super::StoreError;
use super::db::{self, Connection, Statement};
use super::queue_counts::QueueChanges;
use super::records::request::Request;
use super::records::run::Run;
use super::wake_ups::Topic;
use adjutant_core::cascade::Step;
use adjutant_core::signal::{SignalKind, Source};
use adjutant_core::{Moment, RunState, SteadyTime, Time};
use std::cell::OnceCell;
use std::sync::Arc;

/// What is notified after the commit of a transaction, and changes in memory.
pub(super) struct Notifications {
    pub topics: Vec<Topic>,
    pub settled: Vec<Arc<Request>>,
    /// The earliest deadline that the transaction sets.
    pub due: Option<SteadyTime>,
    pub queue: QueueChanges,
}

/// A transaction in progress. All its operations have the same time.
pub struct Tx<'a> {
    connection: &'a Connection,
    now: Moment,
    topics: Vec<Topic>,
    /// Requests that were answered and retrieved for waiting calls.
    settled: Vec<Arc<Request>>,
    /// The earliest deadline that the transaction sets.
    due: Option<SteadyTime>,
    /// Whether this call is the only one of the database transaction.
    alone: bool,
    /// Whether this call can be rolled back without the others.
    has_savepoint: bool,
    /// When the recorded event happened, if before `now`.
    happened_at: Option<Time>,
    /// What follows from a change, until the flow takes it.
    steps: Vec<Step>,
    /// What the transaction changes in the numbers of queued runs.
    queue: QueueChanges,
    /// The signal whose effects are recorded.
    signal: Option<(&'static str, &'static str)>,
    /// The kinds of events that receivers of webhooks want, once they are known: a long transaction
    /// on a server drops the reply.
    wanted_events: OnceCell<Vec<String>>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(connection: &'a Connection, now: Moment, alone: bool) -> Self {
        Self {
            connection,
            now,
            topics: Vec::new(),
            settled: Vec::new(),
            due: None,
            alone,
            has_savepoint: false,
            happened_at: None,
            steps: Vec::new(),
            queue: QueueChanges::default(),
            signal: None,
            wanted_events: OnceCell::new(),
        }
    }

    /// Allows work run by [`super::Store::write_checked`] to fail after it has written. Must be
    /// called before the first write.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn may_refuse_late(&mut self) -> Result<(), StoreError> {
        Ok(self.savepoint()?)
    }

    pub(super) fn savepoint(&mut self) -> db::Result<()> {
        if !self.alone && !self.has_savepoint {
            self.connection.savepoint()?;
            self.has_savepoint = true;
        }
        Ok(())
    }

    pub(super) fn has_savepoint(&self) -> bool {
        self.has_savepoint
    }

    /// Returns the connection, for read functions that are also used outside transactions.
    #[must_use]
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    /// Returns the wall-clock time, for display.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now.wall
    }

    /// Returns the steady time, by which deadlines are measured.
    #[must_use]
    pub fn steady(&self) -> SteadyTime {
        self.now.steady
    }

    /// Returns the transaction's time on both clocks.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.now
    }

    /// Converts a wall-clock time to a deadline.
    #[must_use]
    pub fn steady_at(&self, wall: Time) -> SteadyTime {
        self.now
            .steady
            .plus_ms(wall.0.saturating_sub(self.now.wall.0))
    }

    /// Runs `work` with `at` as the time of what it records, because the hub learned of it later.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn dated<T>(
        &mut self,
        at: Time,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = self.happened_at.replace(at.min(self.now.wall));
        let done = work(self);
        self.happened_at = before;
        done
    }

    /// Returns when the recorded event happened: now, except within [`Tx::dated`].
    #[must_use]
    pub fn happened_at(&self) -> Time {
        self.happened_at.unwrap_or(self.now.wall)
    }

    /// Notifies a topic after the commit.
    pub fn notify(&mut self, topic: Topic) {
        self.topics.push(topic);
    }

    /// Names a step that follows from the change that is being made. The flow that makes it works
    /// the step off.
    pub(super) fn then(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Takes the steps that were named.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Notes in which state a run is, for the numbers of queued runs. `count`: 1 after a change, -1
    /// before it, with the run as it is stored.
    pub(super) fn note_queued(&mut self, run: &Run, state: RunState, count: i64) {
        self.queue.note(run, state, count);
    }

    /// Ensures that deadlines are checked at this time at the latest.
    pub(super) fn wake_by(&mut self, due: SteadyTime) {
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Marks the events that `work` appends as effects of a signal, with its source.
    ///
    /// # Errors
    /// The error of `work`.
    pub fn as_signal<T>(
        &mut self,
        kind: Option<SignalKind>,
        source: Source,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let before = self
            .signal
            .replace((kind.map_or("", SignalKind::tag), source.word()));
        let done = work(self);
        self.signal = before;
        done
    }

    pub(super) fn signal(&self) -> Option<(&'static str, &'static str)> {
        self.signal
    }

    /// Returns the kinds of events that the query `known` has read. `None`: it is not known what it
    /// reads.
    pub(super) fn wanted_events(&self, known: &str) -> Option<&[String]> {
        if self.wanted_events.get().is_none()
            && let Some(wanted) = self.connection.known(known)
        {
            return Some(self.wanted_events.get_or_init(|| wanted));
        }
        self.wanted_events.get().map(Vec::as_slice)
    }

    pub(super) fn forget_wanted_events(&mut self) {
        self.wanted_events.take();
    }

    /// Passes a settled request to the call that waits for it, after the commit.
    pub(super) fn deliver_settled(&mut self, request: &Request) {
        self.settled.push(Arc::new(request.clone()));
    }

    /// Returns the wake-ups to perform after the commit.
    pub(super) fn into_notifications(self) -> Notifications {
        debug_assert!(!self.has_steps(), "steps are named within a flow only");
        Notifications {
            topics: self.topics,
            settled: self.settled,
            due: self.due,
            queue: self.queue,
        }
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<Statement<'a>, StoreError> {
        Ok(self.connection.prepare_cached(sql)?)
    }
}
