//! One writer at a time: group commit.

use super::error::is_full;
use super::steady::Saved;
use super::{Bells, Request, StoreError, Topic, Tx, open};
use crate::clock;
use crate::config::Home;
use crate::failpoint::failpoint;
use adjutant_core::SteadyTime;
use rusqlite::Connection;
use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, oneshot};

/// Most calls that share one commit.
const BATCH_MAX: usize = 128;
/// Most calls that wait for the writer; beyond it callers wait for a place.
const QUEUE_MAX: usize = 4096;

/// One call that waits for the writer.
trait Job: Send {
    /// Tells whether it may refuse after it has written, without saying so by itself.
    fn may_refuse_late(&self) -> bool;
    /// Runs within the transaction and says how to reply once the commit's fate is known.
    fn run(self: Box<Self>, tx: &mut Tx<'_>) -> Done;
    /// Replies that nothing was done.
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
        let Self { work, may_refuse_late: _, reply } = *self;
        match std::panic::catch_unwind(AssertUnwindSafe(|| work(tx))) {
            Ok(Ok(value)) => Done::Keep(Box::new(move |fate| answer(reply, fate.map(|()| value)))),
            Ok(Err(error)) => Done::Undo(refusal(reply, error)),
            Err(_) => Done::Undo(refusal(reply, StoreError::Sql("a bug in adj broke this transaction off".to_owned()))),
        }
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        answer(self.reply, Err(error));
    }
}

/// Tells a caller what became of its call.
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

enum Done {
    /// To be committed; the reply follows the commit.
    Keep(Reply),
    /// To be rolled back. What it was refused for may be an earlier call of the same batch, so this
    /// reply follows the commit too.
    Undo(Reply),
}

/// Makes the reply to a call that was refused, if what it saw is committed.
fn refusal<T: Send + 'static>(reply: oneshot::Sender<Result<T, StoreError>>, error: StoreError) -> Reply {
    Box::new(move |fate| answer(reply, fate.and(Err(error))))
}

/// Commits calls in groups. A call that finds nobody writing commits itself, on its caller's thread: that saves two
/// changes of threads. Calls that arrive meanwhile form a group, which the writer's own thread commits.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Calls that share one commit.
type Batch = Vec<Box<dyn Job>>;

struct Shared {
    home: Home,
    bells: Arc<Bells>,
    queue: Mutex<Queue>,
    /// Notified when the writer's thread may have something to do.
    work: Condvar,
    /// One for each call that may still queue.
    places: Semaphore,
}

struct Queue {
    jobs: VecDeque<Box<dyn Job>>,
    /// `None` while somebody writes.
    disk: Option<Disk>,
    /// The last commit was of a group, so the next one probably is.
    is_crowded: bool,
    is_closed: bool,
}

/// What a commit needs; whoever has it writes.
struct Disk {
    /// `None` after a commit that failed: it is opened again.
    connection: Option<Connection>,
    saved: Saved,
}

impl Writer {
    pub(super) fn start(home: Home, connection: Connection, bells: Arc<Bells>) -> Result<Self, StoreError> {
        let disk = Disk { connection: Some(connection), saved: Saved::default() };
        let queue = Queue { jobs: VecDeque::new(), disk: Some(disk), is_crowded: false, is_closed: false };
        let shared = Arc::new(Shared { home, bells, queue: Mutex::new(queue), work: Condvar::new(), places: Semaphore::new(QUEUE_MAX) });
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || {
                while let Some((turn, batch)) = serving.next_group() {
                    turn.commit(batch);
                }
            })
            .map_err(|error| StoreError::Sql(error.to_string()))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Runs a call and returns once its commit is durable. May block its thread for one commit: one call at a time
    /// does, and none while groups are committed.
    pub(super) async fn run<T, F>(&self, may_refuse_late: bool, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, mut replied) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Call { work, may_refuse_late, reply });
        let place = self.shared.places.acquire().await.map_err(|_| StoreError::Closed)?;
        if let Some((turn, batch)) = self.shared.queue_or_take_turn(job)? {
            drop(place);
            if turn.commit(batch) {
                // They would have to wait for whatever this call does next on this thread.
                tokio::task::yield_now().await;
            }
            return replied.try_recv().map_err(|_| StoreError::Closed)?;
        }
        place.forget();
        replied.await.map_err(|_| StoreError::Closed)?
    }

    /// Queues a call that nobody waits for. It is dropped when the queue is full.
    pub(super) fn run_later<F>(&self, work: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Call { work, may_refuse_late: true, reply });
        let queued = self.shared.places.try_acquire().is_ok_and(|place| {
            let queued = self.shared.queue(job);
            if queued {
                place.forget();
            }
            queued
        });
        if !queued {
            tracing::debug!("a write that nobody waits for was dropped");
        }
    }

    pub(super) fn stop(&self) {
        self.shared.queue_state().is_closed = true;
        self.shared.places.close();
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
    }
}

impl Shared {
    fn queue_state(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the call was queued for the writer's thread.
    fn queue(&self, job: Box<dyn Job>) -> bool {
        let mut queue = self.queue_state();
        if queue.is_closed {
            return false;
        }
        queue.jobs.push_back(job);
        let is_idle = queue.disk.is_some();
        drop(queue);
        if is_idle {
            self.work.notify_one();
        }
        true
    }

    /// Returns the turn to write where nobody else writes or waits to; queues the call otherwise.
    fn queue_or_take_turn(&self, job: Box<dyn Job>) -> Result<Option<(Turn<'_>, Batch)>, StoreError> {
        let mut queue = self.queue_state();
        if queue.is_closed {
            return Err(StoreError::Closed);
        }
        if !queue.is_crowded
            && queue.jobs.is_empty()
            && let Some(disk) = queue.disk.take()
        {
            return Ok(Some((Turn { shared: self, disk: Some(disk), jobs: 1 }, vec![job])));
        }
        queue.jobs.push_back(job);
        let is_idle = queue.disk.is_some();
        drop(queue);
        if is_idle {
            self.work.notify_one();
        }
        Ok(None)
    }

    /// Waits for calls and for the turn to write them. `None`: the store is closed, and everything is written.
    fn next_group(&self) -> Option<(Turn<'_>, Batch)> {
        let mut queue = self.queue_state();
        loop {
            if queue.jobs.is_empty() {
                if queue.is_closed && queue.disk.is_some() {
                    // The files are closed with it.
                    queue.disk = None;
                    return None;
                }
            } else if let Some(disk) = queue.disk.take() {
                let jobs = queue.jobs.len().min(BATCH_MAX);
                let batch = queue.jobs.drain(..jobs).collect();
                drop(queue);
                self.places.add_permits(jobs);
                return Some((Turn { shared: self, disk: Some(disk), jobs }, batch));
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The right to write. Given back when it is dropped.
struct Turn<'a> {
    shared: &'a Shared,
    /// `None` once it has been given back.
    disk: Option<Disk>,
    jobs: usize,
}

impl Turn<'_> {
    /// Commits calls. Returns whether that has woken somebody.
    fn commit(mut self, mut batch: Batch) -> bool {
        self.disk.as_mut().is_some_and(|disk| disk.commit(&self.shared.home, &mut batch, &self.shared.bells))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue_state();
        queue.is_crowded = self.jobs > 1;
        queue.disk = self.disk.take();
        if std::thread::panicking() {
            // A defect. Nobody waits for a reply that would never come, and nothing half done is committed.
            queue.is_closed = true;
            queue.jobs.clear();
            queue.disk = Some(Disk { connection: None, saved: Saved::default() });
            self.shared.places.close();
        }
        let has_work = !queue.jobs.is_empty() || queue.is_closed;
        drop(queue);
        if has_work {
            self.shared.work.notify_one();
        }
    }
}

impl Disk {
    /// Commits calls. Returns whether that has woken somebody.
    fn commit(&mut self, home: &Home, batch: &mut Batch, bells: &Bells) -> bool {
        if self.connection.is_none() {
            match open::writable(home) {
                Ok(reopened) => self.connection = Some(reopened),
                Err(error) => tracing::error!(%error, "the store cannot be opened again"),
            }
        }
        let mut has_woken = false;
        let healthy = match &self.connection {
            Some(open) => commit(open, &mut self.saved, batch, bells, &mut has_woken),
            None => {
                for job in batch.drain(..) {
                    job.refuse(StoreError::Sql("the store cannot be opened".to_owned()));
                }
                false
            }
        };
        if !healthy {
            self.saved.forget();
            // After a failed commit nothing about this connection can be relied on.
            self.connection = None;
        }
        has_woken
    }
}

/// Replies to a caller. One that stopped waiting needs no reply: the call is durable or undone all
/// the same.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    if reply.send(value).is_err() {
        tracing::debug!("a caller went away before its reply");
    }
}

/// Runs a batch in one transaction. Returns whether the connection is still to be trusted. `has_woken` tells whether
/// somebody waited for it.
fn commit(connection: &Connection, saved: &mut Saved, batch: &mut Batch, bells: &Bells, has_woken: &mut bool) -> bool {
    if let Err(error) = step(connection, "BEGIN IMMEDIATE") {
        let full = is_full(&error);
        tracing::error!(%error, "no transaction");
        for job in batch.drain(..) {
            job.refuse(error_of(&error));
        }
        return full;
    }
    if let Err(error) = saved.keep_up(connection) {
        // The time that deadlines count is kept in memory meanwhile.
        tracing::error!(%error, "the clock cannot be stored");
    }
    let mut replies: Vec<Reply> = Vec::with_capacity(batch.len());
    let mut rung: HashSet<Topic> = HashSet::new();
    let mut settled: Vec<Arc<Request>> = Vec::new();
    let mut due: Option<SteadyTime> = None;
    let mut broken: Option<rusqlite::Error> = None;
    // A call that has the transaction for itself is undone with it.
    let alone = batch.len() == 1;
    for job in batch.drain(..) {
        if let Some(error) = &broken {
            job.refuse(error_of(error));
            continue;
        }
        let mut tx = Tx::new(connection, clock::moment(), alone);
        if job.may_refuse_late()
            && let Err(error) = tx.savepoint()
        {
            job.refuse(error_of(&error));
            broken = Some(error);
            continue;
        }
        let changes = connection.total_changes();
        let done = job.run(&mut tx);
        let has_savepoint = tx.has_savepoint();
        match done {
            Done::Keep(reply) => {
                let news = tx.into_news();
                rung.extend(news.topics);
                settled.extend(news.settled);
                due = [due, news.due].into_iter().flatten().min();
                replies.push(reply);
                broken = if has_savepoint { step(connection, "RELEASE call").err() } else { None };
            }
            Done::Undo(reply) => {
                replies.push(reply);
                broken = match connection.is_autocommit() {
                    // A full disk makes SQLite roll the whole transaction back by itself.
                    true => Some(disk_full()),
                    false if has_savepoint => step(connection, "ROLLBACK TO call").and_then(|()| step(connection, "RELEASE call")).err(),
                    false if connection.total_changes() == changes => None,
                    false if alone => return undo(connection, replies),
                    false => Some(refused_late()),
                };
            }
        }
    }
    if let Some(error) = broken {
        tracing::error!(%error, "transaction broken off");
        for reply in replies {
            reply(Err(error_of(&error)));
        }
        return roll_back(connection) && is_full(&error);
    }
    failpoint!("store.before_commit");
    match step(connection, "COMMIT") {
        Ok(()) => {
            failpoint!("store.after_commit");
            settled.iter().for_each(|request| bells.hand_settled(request));
            *has_woken = bells.ring(&rung);
            if let Some(due) = due {
                bells.look_within(clock::until(due));
            }
            for reply in replies {
                reply(Ok(()));
            }
            true
        }
        Err(error) if is_full(&error) => {
            tracing::error!(%error, "disk full");
            for reply in replies {
                reply(Err(StoreError::Full));
            }
            roll_back(connection)
        }
        Err(error) => {
            tracing::error!(%error, "commit failed");
            for reply in replies {
                reply(Err(StoreError::Unknown(error.to_string())));
            }
            false
        }
    }
}

fn step(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn error_of(error: &rusqlite::Error) -> StoreError {
    if is_full(error) { StoreError::Full } else { StoreError::Sql(error.to_string()) }
}

fn disk_full() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None)
}

/// What was promised not to happen; a defect.
fn refused_late() -> rusqlite::Error {
    let told = "a call refused after it had written, and could not be undone alone".to_owned();
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT), Some(told))
}

/// Rolls the transaction of one call back and tells it so. Returns whether that worked.
fn undo(connection: &Connection, replies: Vec<Reply>) -> bool {
    let undone = roll_back(connection);
    for reply in replies {
        reply(if undone { Ok(()) } else { Err(StoreError::Unknown("a refused call could not be undone".to_owned())) });
    }
    undone
}

/// Leaves the transaction. Returns whether that worked.
fn roll_back(connection: &Connection) -> bool {
    if connection.is_autocommit() {
        return true;
    }
    match connection.execute_batch("ROLLBACK") {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "no rollback");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::{AnsweredBy, Denied, Principal};

    fn call<T: Send + 'static>(
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, replied) = oneshot::channel();
        (Box::new(Call { work, may_refuse_late: true, reply }), replied)
    }

    /// A call that promises to refuse before it writes.
    fn checked<T: Send + 'static>(
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, replied) = oneshot::channel();
        (Box::new(Call { work, may_refuse_late: false, reply }), replied)
    }

    fn insert(number: i64) -> impl FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static {
        move |tx| Ok(tx.connection().execute("INSERT INTO a VALUES (?1)", [number]).map(|_| ())?)
    }

    fn insert_and_refuse(number: i64) -> impl FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static {
        move |tx| insert(number)(tx).and_then(|()| refused(tx))
    }

    fn numbers(connection: &Connection) -> Vec<i64> {
        let mut found = connection.prepare("SELECT id FROM a ORDER BY id").expect("a statement");
        found.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("numbers")
    }

    #[test]
    fn refused_call_does_not_affect_its_batch() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE a (id INTEGER PRIMARY KEY)").expect("a table");
        let bells = Bells::default();
        // Alone: the transaction is the call's.
        for (job, mut reply) in [
            call(insert_and_refuse(1)),
            checked(insert_and_refuse(2)),
            checked(|tx| {
                tx.may_refuse_late()?;
                insert_and_refuse(3)(tx)
            }),
        ] {
            assert!(commit(&connection, &mut Saved::default(), &mut vec![job], &bells, &mut false));
            assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
        }
        assert!(numbers(&connection).is_empty());
        // Among others: with a savepoint, with one of its own, and before it wrote.
        let (first, mut first_reply) = checked(insert(4));
        let (late, mut late_reply) = call(insert_and_refuse(5));
        let (own, mut own_reply) = checked(|tx| {
            tx.may_refuse_late()?;
            insert_and_refuse(6)(tx)
        });
        let (early, mut early_reply) = checked(refused);
        let (last, mut last_reply) = call(insert(7));
        assert!(commit(&connection, &mut Saved::default(), &mut vec![first, late, own, early, last], &bells, &mut false));
        assert!(matches!((first_reply.try_recv(), last_reply.try_recv()), (Ok(Ok(())), Ok(Ok(())))));
        for reply in [&mut late_reply, &mut own_reply, &mut early_reply] {
            assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
        }
        assert_eq!(numbers(&connection), [4, 7]);
    }

    #[test]
    fn call_that_writes_before_refusing_fails_its_batch() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE a (id INTEGER PRIMARY KEY)").expect("a table");
        let (first, mut first_reply) = checked(insert(1));
        let (second, mut second_reply) = checked(insert_and_refuse(2));
        let (third, mut third_reply) = checked(insert(3));
        assert!(!commit(&connection, &mut Saved::default(), &mut vec![first, second, third], &Bells::default(), &mut false));
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
        let connection = Connection::open_in_memory().expect("a database");
        let tables = "PRAGMA foreign_keys = ON; CREATE TABLE a (id INTEGER PRIMARY KEY);
                      CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)";
        connection.execute_batch(tables).expect("tables");
        let bells = Bells::default();
        // A reference to nothing is found out by the commit.
        let (first, mut first_reply) = call(|tx| Ok(tx.connection().execute("INSERT INTO b VALUES (1)", []).map(|_| ())?));
        let (second, mut second_reply) = call(refused);
        assert!(!commit(&connection, &mut Saved::default(), &mut vec![first, second], &bells, &mut false));
        assert!(matches!(first_reply.try_recv(), Ok(Err(StoreError::Unknown(_)))));
        assert!(matches!(second_reply.try_recv(), Ok(Err(StoreError::Unknown(_)))));

        assert!(roll_back(&connection));
        let (alone, mut reply) = call(refused);
        assert!(commit(&connection, &mut Saved::default(), &mut vec![alone], &bells, &mut false));
        assert!(matches!(reply.try_recv(), Ok(Err(StoreError::Denied(_)))));
    }
}
