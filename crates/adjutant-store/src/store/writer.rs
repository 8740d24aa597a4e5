//! The writer thread, which commits calls in groups.

use super::db::postgres::open::Replaced;
use super::db::{Connection, Error};
use super::error::Problem;
use super::place::Access;
use super::queue_counts::{QueueChanges, QueueCounts};
use super::steady::Saved;
use super::{Request, StoreError, Topic, Tx, WakeUps};
use crate::clock;
use crate::failpoint::{self, failpoint};
use adjutant_core::SteadyTime;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Maximum number of calls in one commit.
const BATCH_MAX: usize = 128;
/// After a commit of this many calls, the next one lets further callers arrive first.
const CROWD_MIN: usize = 8;
/// Maximum number of queued calls. Beyond it, callers wait for space in the queue.
const QUEUE_MAX: usize = 4096;

/// What a commit changes in memory.
pub(super) struct AfterCommit {
    pub wake_ups: Arc<WakeUps>,
    pub queue: Arc<QueueCounts>,
}

/// One queued call.
trait Job: Send {
    /// Returns whether the call may fail after it has written, without announcing it.
    fn may_refuse_late(&self) -> bool;
    /// Runs within the transaction. Returns how to reply once the result of the commit is known.
    fn run(self: Box<Self>, tx: &mut Tx<'_>) -> Done;
    /// Replies with an error; nothing was done.
    fn refuse(self: Box<Self>, error: StoreError);
}

struct Call<T, F> {
    work: F,
    may_refuse_late: bool,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send,
{
    fn may_refuse_late(&self) -> bool {
        self.may_refuse_late
    }

    fn run(self: Box<Self>, tx: &mut Tx<'_>) -> Done {
        let Self {
            work,
            may_refuse_late: _,
            reply,
        } = *self;
        match std::panic::catch_unwind(AssertUnwindSafe(|| work(tx))) {
            Ok(Ok(value)) => Done::Keep(Box::new(move |fate| answer(reply, fate.map(|()| value)))),
            Ok(Err(error)) => Done::Undo(refusal(reply, error)),
            Err(_) => Done::Undo(refusal(
                reply,
                StoreError::Sql("a bug in adj aborted this transaction".into()),
            )),
        }
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        answer(self.reply, Err(error));
    }
}

/// Sends the result of a call to its caller.
type WriteReply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

enum Done {
    /// Commit. The reply follows the commit.
    Keep(WriteReply),
    /// Roll back. The refusal may rest on an earlier call of the same batch, so this reply also
    /// follows the commit.
    Undo(WriteReply),
}

/// Creates the reply to a refused call, sent if the state that it saw is committed.
fn refusal<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    error: StoreError,
) -> WriteReply {
    Box::new(move |fate| answer(reply, fate.and(Err(error))))
}

pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::SyncSender<Box<dyn Job>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(
        access: Arc<Access>,
        connection: Connection,
        shared: AfterCommit,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || serve(&access, connection, &queue, &shared))
            .map_err(|error| StoreError::Sql(Problem::of(error)))?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) async fn run<T, F>(&self, may_refuse_late: bool, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, replied) = oneshot::channel();
        self.enqueue(Box::new(Call {
            work,
            may_refuse_late,
            reply,
        }))
        .await?;
        replied.await.map_err(|_| StoreError::Closed)?
    }

    /// Queues a call, after waiting for space in the queue. Not part of [`Self::run`], which is
    /// generic and compiled for each use.
    async fn enqueue(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or(StoreError::Closed)?;
        match jobs.try_send(job) {
            Ok(()) => Ok(()),
            Err(mpsc::TrySendError::Disconnected(_)) => Err(StoreError::Closed),
            Err(mpsc::TrySendError::Full(job)) => {
                tokio::task::spawn_blocking(move || jobs.send(job))
                    .await
                    .map_err(|_| StoreError::Closed)?
                    .map_err(|_| StoreError::Closed)
            }
        }
    }

    /// Queues a call without a waiting caller. It is dropped if the queue is full.
    pub(super) fn queue_unawaited<F>(&self, work: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Call {
            work,
            may_refuse_late: true,
            reply,
        });
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if jobs.is_none_or(|jobs| jobs.try_send(job).is_err()) {
            tracing::debug!("the queue is full: a write without a waiting caller was dropped");
        }
    }

    /// Rejects further calls, without waiting for the queued ones.
    pub(super) fn abandon(&self) {
        drop(
            self.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }

    pub(super) fn stop(&self) {
        self.abandon();
        if let Some(thread) = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

/// Replies to a caller. If it no longer waits, the call is still committed or rolled back.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("a caller stopped waiting before its reply");
    }
}

fn serve(
    access: &Access,
    connection: Connection,
    queue: &mpsc::Receiver<Box<dyn Job>>,
    shared: &AfterCommit,
) {
    let mut session = Session {
        access,
        shared,
        replaced: connection.replaced(),
        connection: Some(connection),
        saved: Saved::default(),
    };
    let mut batch = Vec::with_capacity(BATCH_MAX);
    // The number of calls in the last commit.
    let mut last = 0;
    while let Some(first) = next(queue, session.connection.as_ref()) {
        batch.push(first);
        take_waiting(queue, &mut batch);
        // There are many callers. A larger group writes fewer log pages for each of them.
        if last >= CROWD_MIN && batch.len() < last {
            std::thread::yield_now();
            take_waiting(queue, &mut batch);
        }
        last = batch.len();
        session.run(&mut batch);
    }
}

/// The writer's connection, which is replaced after a failure.
struct Session<'a> {
    access: &'a Access,
    shared: &'a AfterCommit,
    /// `None`: it has to be opened again.
    connection: Option<Connection>,
    /// What a new session needs to know of the lost one.
    replaced: Option<Replaced>,
    saved: Saved,
}

impl Session<'_> {
    /// Runs a batch, and gives each call its reply.
    fn run(&mut self, batch: &mut Vec<Box<dyn Job>>) {
        let done = match self.open() {
            Ok(open) => {
                let open = self.connection.insert(open);
                commit(open, &mut self.saved, batch, self.shared)
            }
            Err(error) => {
                // This is logged where the hub stops being the leader.
                if !matches!(error, StoreError::Closed) {
                    tracing::error!(%error, "the store cannot be reopened");
                }
                refuse_unopened(batch, error);
                Committed::Broken
            }
        };
        self.replaced = self
            .connection
            .as_ref()
            .and_then(Connection::replaced)
            .or(self.replaced.take());
        if !matches!(done, Committed::Healthy) {
            self.saved.forget();
            // After a failed commit, the connection's state is unknown.
            self.connection = None;
        }
        if let Committed::Undecided(outcome, problem) = done {
            self.settle(outcome, problem);
        }
    }

    /// Takes the open connection, or opens another.
    fn open(&mut self) -> Result<Connection, StoreError> {
        match self.connection.take() {
            Some(open) => Ok(open),
            None => {
                let reopened = self.access.writable(self.replaced.as_ref())?;
                // A commit with an unknown outcome may have left the counts in memory wrong.
                self.shared.queue.count(&reopened)?;
                Ok(reopened)
            }
        }
    }

    /// Finds out the outcome of a commit during which the connection was lost: the server may have
    /// committed before, and a new session knows.
    fn settle(&mut self, outcome: BatchOutcome, problem: String) {
        match self.access.writable(self.replaced.as_ref()) {
            Ok(reopened) => {
                // The new session has the session lock, so the old one has ended, and no commit of
                // it can follow.
                let is_committed = reopened.last_transaction()
                    == self.replaced.as_ref().map(|lost| lost.transaction);
                tracing::warn!(
                    problem,
                    is_committed,
                    "the connection was lost during a commit"
                );
                if is_committed {
                    reopened.note_confirmed();
                }
                outcome.publish(
                    if is_committed {
                        Ok(())
                    } else {
                        Err(Error::Lost(problem))
                    },
                    self.shared,
                );
                self.connection = Some(reopened);
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot be reopened");
                // If another hub has taken over, it knows whether the calls were committed when
                // they are repeated with their keys.
                let is_closed = matches!(error, StoreError::Closed);
                outcome.fail(|| {
                    if is_closed {
                        StoreError::Closed
                    } else {
                        StoreError::Unknown(problem.as_str().into())
                    }
                });
            }
        }
    }
}

/// Refuses the calls of a batch because the store cannot be opened.
fn refuse_unopened(batch: &mut Vec<Box<dyn Job>>, error: StoreError) {
    let (is_closed, is_full) = (
        matches!(error, StoreError::Closed),
        matches!(error, StoreError::Full),
    );
    let problem = match error {
        StoreError::Unreachable(problem) => problem,
        error => Problem::of(error),
    };
    for job in batch.drain(..) {
        job.refuse(match (is_closed, is_full) {
            (true, _) => StoreError::Closed,
            (_, true) => StoreError::Full,
            _ => StoreError::Unreachable(problem.clone()),
        });
    }
}

/// Adds the queued calls to a batch, until it is full.
fn take_waiting(queue: &mpsc::Receiver<Box<dyn Job>>, batch: &mut Vec<Box<dyn Job>>) {
    while batch.len() < BATCH_MAX {
        match queue.try_recv() {
            Ok(job) => batch.push(job),
            Err(_) => break,
        }
    }
}

/// Waits for the next call. Does maintenance before, if it is due.
fn next(
    queue: &mpsc::Receiver<Box<dyn Job>>,
    connection: Option<&Connection>,
) -> Option<Box<dyn Job>> {
    let waiting = queue.try_recv();
    if let Some(connection) = connection {
        connection.maintain(waiting.is_err());
    }
    match waiting {
        Ok(job) => Some(job),
        Err(mpsc::TryRecvError::Empty) => queue.recv().ok(),
        Err(mpsc::TryRecvError::Disconnected) => None,
    }
}

/// The end of a batch.
enum Committed {
    /// The connection can be used further.
    Healthy,
    /// Everyone has a reply. The connection cannot be used further.
    Broken,
    /// The connection was lost during the commit. Nobody has a reply.
    Undecided(BatchOutcome, String),
}

impl Committed {
    fn of(is_healthy: bool) -> Self {
        if is_healthy {
            Self::Healthy
        } else {
            Self::Broken
        }
    }
}

/// What a batch does once it is known whether it was committed.
#[derive(Default)]
struct BatchOutcome {
    replies: Vec<WriteReply>,
    topics: HashSet<Topic>,
    settled: Vec<Arc<Request>>,
    due: Option<SteadyTime>,
    queue: QueueChanges,
}

impl BatchOutcome {
    /// Replies to everyone, after notifying subscribers of a commit.
    fn publish(self, committed: Result<(), Error>, shared: &AfterCommit) {
        let (
            Self {
                replies,
                topics,
                settled,
                due,
                queue: changes,
            },
            AfterCommit { wake_ups, queue },
        ) = (self, shared);
        if committed.is_ok() {
            // Before the wake-ups: the scheduler looks at these counts first, and makes no
            // transaction if no run is queued.
            queue.apply(changes);
            settled
                .iter()
                .for_each(|request| wake_ups.deliver_settled(request));
            wake_ups.notify(&topics);
            if let Some(due) = due {
                wake_ups.notify_deadline(clock::until(due));
            }
        }
        for reply in replies {
            reply(committed.as_ref().copied().map_err(error_of));
        }
    }

    /// Replies with an error to everyone: the outcome is not known.
    fn fail(self, error: impl Fn() -> StoreError) {
        for reply in self.replies {
            reply(Err(error()));
        }
    }
}

/// Runs a batch in one transaction.
fn commit(
    connection: &Connection,
    saved: &mut Saved,
    batch: &mut Vec<Box<dyn Job>>,
    shared: &AfterCommit,
) -> Committed {
    if let Err(error) = connection.begin_write() {
        tracing::error!(%error, "a transaction cannot be opened");
        for job in batch.drain(..) {
            job.refuse(error_of(&error));
        }
        return Committed::of(matches!(error, Error::Full));
    }
    super::webhooks::announce_wanted(connection);
    if let Err(error) = saved.advance(connection) {
        // Until it can be stored, the clock is kept in memory.
        tracing::error!(%error, "the clock cannot be stored");
    }
    let mut transaction = Transaction {
        connection,
        changes_before: connection.total_changes(),
        is_alone: batch.len() == 1,
        outcome: BatchOutcome {
            replies: Vec::with_capacity(batch.len()),
            ..BatchOutcome::default()
        },
        state: TransactionState::Open,
    };
    for job in batch.drain(..) {
        transaction.run(job);
    }
    transaction.end(saved, shared)
}

/// A transaction in which the calls of a batch run.
struct Transaction<'c> {
    connection: &'c Connection,
    /// How many rows the connection had changed before the calls.
    changes_before: u64,
    /// A call that is alone in the transaction is rolled back with it.
    is_alone: bool,
    outcome: BatchOutcome,
    state: TransactionState,
}

enum TransactionState {
    /// What the calls have written can be committed.
    Open,
    /// Its only call has refused.
    Refused,
    /// Nothing can be committed.
    Broken(Error),
}

impl Transaction<'_> {
    fn run(&mut self, job: Box<dyn Job>) {
        if let TransactionState::Broken(error) = &self.state {
            return job.refuse(error_of(error));
        }
        let mut tx = Tx::new(self.connection, clock::moment(), self.is_alone);
        if job.may_refuse_late()
            && let Err(error) = tx.savepoint()
        {
            job.refuse(error_of(&error));
            self.state = TransactionState::Broken(error);
            return;
        }
        let changes = self.connection.total_changes();
        self.state = match job.run(&mut tx) {
            Done::Keep(reply) => {
                self.outcome.replies.push(reply);
                self.keep(tx)
            }
            Done::Undo(reply) => {
                self.outcome.replies.push(reply);
                let has_written = self.connection.total_changes() != changes;
                self.undo(tx.has_savepoint(), has_written)
            }
        };
    }

    /// Keeps what a call has written.
    fn keep(&mut self, tx: Tx<'_>) -> TransactionState {
        // The server may have ended the session since the call's last statement.
        if self.connection.is_lost() {
            return TransactionState::Broken(lost_connection());
        }
        // The call has ignored an error, after which the engine keeps nothing of the transaction.
        if self.connection.failure().is_some() {
            return TransactionState::Broken(late_refusal());
        }
        let has_savepoint = tx.has_savepoint();
        let notifications = tx.into_notifications();
        let outcome = &mut self.outcome;
        outcome.topics.extend(notifications.topics);
        outcome.settled.extend(notifications.settled);
        outcome.due = [outcome.due, notifications.due].into_iter().flatten().min();
        outcome.queue.extend(notifications.queue);
        if has_savepoint {
            TransactionState::of(self.connection.release_savepoint())
        } else {
            TransactionState::Open
        }
    }

    /// Undoes what a call that has refused has written.
    fn undo(&self, has_savepoint: bool, has_written: bool) -> TransactionState {
        let connection = self.connection;
        if connection.is_lost() {
            return TransactionState::Broken(lost_connection());
        }
        // If the disk is full, SQLite rolls back the whole transaction by itself.
        if !connection.is_in_transaction() {
            return TransactionState::Broken(Error::Full);
        }
        if has_savepoint {
            return TransactionState::of(connection.roll_back_to_savepoint());
        }
        if !has_written && connection.failure().is_none() {
            return TransactionState::Open;
        }
        if self.is_alone {
            return TransactionState::Refused;
        }
        TransactionState::Broken(connection.failure().unwrap_or_else(late_refusal))
    }

    /// Commits what the calls have written, and replies to them.
    fn end(self, saved: &mut Saved, shared: &AfterCommit) -> Committed {
        let Self {
            connection,
            changes_before,
            outcome,
            state,
            ..
        } = self;
        match state {
            TransactionState::Open => {}
            TransactionState::Refused => {
                return Committed::of(undo(connection, outcome.replies));
            }
            TransactionState::Broken(error) => {
                tracing::error!(%error, "transaction aborted");
                outcome.fail(|| error_of(&error));
                return Committed::of(roll_back(connection) && matches!(error, Error::Full));
            }
        }
        failpoint!("store.before_commit");
        let committed = if failpoint::is_disk_full() {
            Err(Error::Full)
        } else {
            connection.commit()
        };
        match committed {
            Ok(()) => {
                failpoint!("store.after_commit");
                outcome.publish(Ok(()), shared);
                Committed::Healthy
            }
            Err(Error::Lost(problem)) => Committed::Undecided(outcome, problem),
            Err(error) if connection.has_rolled_back(&error) => {
                tracing::error!(%error, "not committed");
                // If the disk is full, calls that only read, such as repeated ones, lose nothing:
                // what could not be written is the clock.
                let has_read_only =
                    matches!(error, Error::Full) && connection.total_changes() == changes_before;
                let is_healthy = roll_back(connection);
                saved.forget();
                outcome.publish(if has_read_only { Ok(()) } else { Err(error) }, shared);
                Committed::of(is_healthy)
            }
            Err(error) => {
                tracing::error!(%error, "commit failed");
                outcome.fail(|| StoreError::Unknown(Problem::of(error.clone())));
                Committed::Broken
            }
        }
    }
}

impl TransactionState {
    fn of(done: Result<(), Error>) -> Self {
        done.map_or_else(Self::Broken, |()| Self::Open)
    }
}

fn error_of(error: &Error) -> StoreError {
    match error {
        Error::Full => StoreError::Full,
        error @ Error::Lost(problem) => {
            StoreError::Lost(Problem::new(problem.as_str(), error.clone()))
        }
        error => StoreError::Sql(Problem::of(error.clone())),
    }
}

fn lost_connection() -> Error {
    Error::Lost("the connection was lost during the transaction".to_owned())
}

/// The error for a call that broke its promise not to fail late: a defect.
fn late_refusal() -> Error {
    Error::Other(
        "a call refused after it had written, and could not be rolled back separately".to_owned(),
    )
}

/// Rolls back the transaction of one call and replies. Returns whether the rollback worked.
fn undo(connection: &Connection, replies: Vec<WriteReply>) -> bool {
    let undone = roll_back(connection);
    for reply in replies {
        reply(if undone {
            Ok(())
        } else {
            Err(StoreError::Unknown(
                "a refused call could not be undone".into(),
            ))
        });
    }
    undone
}

/// Rolls back the transaction, if any. Returns whether that worked.
fn roll_back(connection: &Connection) -> bool {
    if connection.is_lost() {
        return false;
    }
    if !connection.is_in_transaction() {
        return true;
    }
    match connection.roll_back() {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "rollback failed");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::{AnsweredBy, Denied, Principal};

    fn is_healthy(
        connection: &Connection,
        saved: &mut Saved,
        batch: &mut Vec<Box<dyn Job>>,
        shared: &AfterCommit,
    ) -> bool {
        matches!(commit(connection, saved, batch, shared), Committed::Healthy)
    }

    fn call<T: Send + 'static>(
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, replied) = oneshot::channel();
        (
            Box::new(Call {
                work,
                may_refuse_late: true,
                reply,
            }),
            replied,
        )
    }

    /// A call that promises to fail only before it writes.
    fn checked<T: Send + 'static>(
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, replied) = oneshot::channel();
        (
            Box::new(Call {
                work,
                may_refuse_late: false,
                reply,
            }),
            replied,
        )
    }

    fn insert(number: i64) -> impl FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static {
        move |tx| {
            Ok(tx
                .connection()
                .execute("INSERT INTO a VALUES (?1)", [number])
                .map(|_| ())?)
        }
    }

    fn insert_and_refuse(
        number: i64,
    ) -> impl FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static {
        move |tx| insert(number)(tx).and_then(|()| refused(tx))
    }

    fn numbers(connection: &Connection) -> Vec<i64> {
        let mut found = connection
            .prepare_cached("SELECT id FROM a ORDER BY id")
            .expect("a statement");
        found.read_rows([]).expect("numbers")
    }

    #[test]
    fn refused_call_does_not_affect_its_batch() {
        let connection = Connection::open_in_memory();
        connection
            .execute_batch("CREATE TABLE a (id INTEGER PRIMARY KEY)")
            .expect("a table");
        let shared = AfterCommit {
            wake_ups: Arc::default(),
            queue: Arc::default(),
        };
        // Alone in the transaction.
        for (job, mut reply) in [
            call(insert_and_refuse(1)),
            checked(insert_and_refuse(2)),
            checked(|tx| {
                tx.may_refuse_late()?;
                insert_and_refuse(3)(tx)
            }),
        ] {
            assert!(is_healthy(
                &connection,
                &mut Saved::default(),
                &mut vec![job],
                &shared
            ));
            assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
        }
        assert!(numbers(&connection).is_empty());
        // Among others: with a savepoint, with a savepoint that it requested, and refused before it
        // wrote.
        let (first, mut first_reply) = checked(insert(4));
        let (late, mut late_reply) = call(insert_and_refuse(5));
        let (own, mut own_reply) = checked(|tx| {
            tx.may_refuse_late()?;
            insert_and_refuse(6)(tx)
        });
        let (early, mut early_reply) = checked(refused);
        let (last, mut last_reply) = call(insert(7));
        assert!(is_healthy(
            &connection,
            &mut Saved::default(),
            &mut vec![first, late, own, early, last],
            &shared
        ));
        assert!(matches!(
            (first_reply.try_recv(), last_reply.try_recv()),
            (Ok(Ok(())), Ok(Ok(())))
        ));
        for reply in [&mut late_reply, &mut own_reply, &mut early_reply] {
            assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
        }
        assert_eq!(numbers(&connection), [4, 7]);
    }

    #[test]
    fn call_that_writes_before_refusing_fails_its_batch() {
        let connection = Connection::open_in_memory();
        connection
            .execute_batch("CREATE TABLE a (id INTEGER PRIMARY KEY)")
            .expect("a table");
        let (first, mut first_reply) = checked(insert(1));
        let (second, mut second_reply) = checked(insert_and_refuse(2));
        let (third, mut third_reply) = checked(insert(3));
        assert!(!is_healthy(
            &connection,
            &mut Saved::default(),
            &mut vec![first, second, third],
            &AfterCommit {
                wake_ups: Arc::default(),
                queue: Arc::default()
            }
        ));
        for reply in [&mut first_reply, &mut second_reply, &mut third_reply] {
            assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Sql(_)))));
        }
        assert!(numbers(&connection).is_empty());
    }

    fn refused(_: &mut Tx<'_>) -> Result<(), StoreError> {
        Err(Denied::AnsweredBy(AnsweredBy::Principal(Principal::Person)).into())
    }

    #[test]
    fn refusal_waits_for_the_commit_it_depends_on() {
        let connection = Connection::open_in_memory();
        let tables = "PRAGMA foreign_keys = ON; CREATE TABLE a (id INTEGER PRIMARY KEY);
                      CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)";
        connection.execute_batch(tables).expect("tables");
        let shared = AfterCommit {
            wake_ups: Arc::default(),
            queue: Arc::default(),
        };
        // A deferred foreign key violation is detected at the commit.
        let (first, mut first_reply) = call(|tx| {
            Ok(tx
                .connection()
                .execute("INSERT INTO b VALUES (1)", [])
                .map(|_| ())?)
        });
        let (second, mut second_reply) = call(refused);
        assert!(!is_healthy(
            &connection,
            &mut Saved::default(),
            &mut vec![first, second],
            &shared
        ));
        assert!(matches!(
            first_reply.try_recv(),
            Ok(Err(StoreError::Unknown(_)))
        ));
        assert!(matches!(
            second_reply.try_recv(),
            Ok(Err(StoreError::Unknown(_)))
        ));

        assert!(roll_back(&connection));
        let (alone, mut reply) = call(refused);
        assert!(is_healthy(
            &connection,
            &mut Saved::default(),
            &mut vec![alone],
            &shared
        ));
        assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
    }
}
