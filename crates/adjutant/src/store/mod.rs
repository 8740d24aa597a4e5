//! The durable state, in the domain's verbs. Only the hub's process opens it.
//!
//! All writes go through one thread, which puts all waiting calls into one transaction (a
//! savepoint each) and acknowledges after the commit is on the disk: group commit. Reads have
//! connections of their own. Waiters subscribe, and are notified after the commit.

mod attention;
mod chats;
mod credentials;
mod delegations;
mod error;
mod events;
mod handover;
mod ids;
mod keys;
mod messages;
mod open;
mod requests;
mod runs;
mod search;
mod steady;
mod subject;
mod tasks;
mod trusted;
mod tx;
mod wake_ups;
mod webhooks;
mod workspaces;
mod writer;

#[cfg(test)]
mod conformance;

pub use attention::{stopped_below, stopped_runs, underway_runs, unknown_ends, unknown_ends_beyond, unnotified_bad_ends};
pub use chats::{
    Chat, ChatEntry, Export, Imported, Member, Mention, NewChat, NewEntry, NewTurn, Revision, Stats, Turn, TurnState, agents_in, asked_by,
    branches_of, changes_of, chat_by_id, chat_by_pair, chats_newest, chats_of_others, entries_after, entries_before, entries_changed, entries_last,
    entry_by_id, entry_by_key, entry_by_seq, export_of, hops_behind, member, members, mentions_of, newest_mention, newest_summary, next_turns,
    open_turns, open_turns_below, participant_count, past_author, pinned_entries, revisions_of, stats_of, turn_by_id, turn_of_run, turns_running,
    turns_to_answer, unread, unread_before,
};
pub use credentials::{DispatchEnv, KeptCredentials};
pub use delegations::{children_of, open_below, tree_size};
pub use error::StoreError;
pub use events::{Event, append as append_event, changed_runs, events_after, last_seq, last_stop, signals_of};
pub use handover::{open_request, settled_request};
pub use keys::{KEYS_KEPT_MS, Key, is_key_used};
pub use messages::{Message, delivered_messages, has_queued_messages, messages_by_id, queued_messages};
pub use requests::{
    Group, NewRequest, Request, RequestsOf, newest_of, request_by_id, request_by_no, requests_of, requests_page, requests_together, undelivered_of,
    unread_of, unsettled_of,
};
pub use runs::{
    AttemptRow, Counts, EndRow, FINISHED_PAGE, NewRun, Page, RetryingSince, Run, RunInput, Usage, acceptance_of, attempt_row, beside, counts,
    due_estimates, due_stopped, fruitless_attempts, is_attempt_between, is_usage_of_last_call, is_work_ahead, live_around, live_in_dir, live_runs,
    next_queued, next_until, old_finished, permissions_of, queue_place, report_of, run_by_id, run_by_ref, run_input, runs_newest, taken_by,
    times_limited, working_in,
};
pub use search::{Backlog, Found, Hit, MARK_BEGIN, MARK_END, Query, Source, has_unindexed_entries, search, search_backlog};
pub use tasks::{Task, task_by_id};
pub use trusted::is_trusted;
pub use tx::Tx;
pub use wake_ups::{Subscription, Topic, WakeUps};
pub use webhooks::{Delivery, OutboxState, has_deliveries, next_delivery, outbox};
pub use workspaces::{NewWorkspace, Workspace, workspace_around, workspace_of};

use crate::config::Home;
pub use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most connections that serve reads at once. Each keeps the schema and its pages, so all but the
/// first are opened when they are needed.
const READERS_MAX: usize = 2;

/// How many steps of a statement lie between two looks at its deadline.
const DEADLINE_LOOKS_OPS: i32 = 2_000;

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    home: Home,
    writer: writer::Writer,
    /// `None` once the store is closed.
    readers: Mutex<Option<Readers>>,
    free: std::sync::Condvar,
    wake_ups: Arc<WakeUps>,
    credential_files: Arc<credentials::CredentialFiles>,
}

struct Readers {
    /// Those that nobody reads with.
    idle: Vec<Connection>,
    /// With those that a caller does.
    open: usize,
}

impl Readers {
    /// Takes one that is idle, or opens another. `None`: one has to be waited for.
    fn take(&mut self, home: &Home) -> Option<Connection> {
        if self.idle.is_empty() && self.open < READERS_MAX {
            match open::read_only(home) {
                Ok(connection) => {
                    self.open += 1;
                    return Some(connection);
                }
                Err(error) => tracing::warn!(%error, "reads share the connections that there are"),
            }
        }
        self.idle.pop()
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens the home's store, making or migrating it. The caller holds the home's lock.
    ///
    /// # Errors
    /// The disk is full beyond help, the file is newer than this binary, or is no store.
    pub fn open(home: &Home) -> Result<Self, StoreError> {
        let wake_ups = Arc::new(WakeUps::default());
        let connection = open::writable(home)?;
        steady::begin(&connection)?;
        let readers = Readers { idle: vec![open::read_only(home)?], open: 1 };
        let writer = writer::Writer::start(home.clone(), connection, Arc::clone(&wake_ups))?;
        let (readers, free, credential_files) = (Mutex::new(Some(readers)), std::sync::Condvar::new(), credentials::CredentialFiles::new(home));
        Ok(Self(Arc::new(Inner { home: home.clone(), writer, readers, free, wake_ups, credential_files })))
    }

    /// Runs one transaction and returns when it is durable. What `work` returns as an error leaves
    /// no trace.
    ///
    /// # Errors
    /// What `work` refused, or a failure of the disk.
    pub async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.writer.run(true, work).await
    }

    /// The same for work that refuses before it writes anything, or calls [`Tx::may_refuse_late`]
    /// first: it is cheaper. Should it break that promise, all calls that share its transaction fail too.
    ///
    /// # Errors
    /// What `work` refused, or a failure of the disk.
    pub async fn write_checked<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.writer.run(false, work).await
    }

    /// Runs one transaction like [`Store::write`], also when the disk is full: it then has the room
    /// that was kept free, once. For what ends the use of the disk.
    ///
    /// # Errors
    /// What `work` refused, or a failure of the disk.
    pub async fn write_using_reserved_space<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        match self.write(work.clone()).await {
            Err(StoreError::Full) => {
                tracing::error!("the disk is full: releasing the reserved space to stop a run");
                let home = self.0.home.clone();
                let given_up = tokio::task::spawn_blocking(move || open::release_reserved_space(&home)).await.map_err(|_| StoreError::Closed)?;
                if let Err(error) = given_up {
                    // Another call may have done it.
                    tracing::warn!(%error, "no room was made");
                }
                self.write(work).await
            }
            result => result,
        }
    }

    /// Keeps room free again that was used (see [`Store::write_using_reserved_space`]), if there is some.
    pub fn reserve_space(&self) {
        open::reserve_space(&self.0.home);
    }

    /// Hands in a transaction that nobody waits for and that may be lost: for what is only a
    /// convenience, such as how far a participant has read.
    pub fn write_later<F>(&self, work: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    {
        self.0.writer.run_later(work);
    }

    /// Runs reads on a connection of their own, on what was committed when it began.
    ///
    /// # Errors
    /// What `work` refused, a failure of the store, or that it is closed.
    pub fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.lend()?.read(work)
    }

    /// Runs reads that are broken off at a deadline: a statement under way then fails, and `work`
    /// sees it as [`StoreError::Interrupted`]. Blocks its thread.
    ///
    /// # Errors
    /// What `work` refused, or a failure of the store.
    pub fn read_until<T>(&self, deadline: std::time::Instant, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut lent = self.lend()?;
        lent.limit(Some(deadline))?;
        let result = lent.read(work);
        lent.limit(None)?;
        result
    }

    fn lend(&self) -> Result<PooledConnection<'_>, StoreError> {
        let mut readers = self.0.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = loop {
            match readers.as_mut().ok_or(StoreError::Closed)?.take(&self.0.home) {
                Some(connection) => break connection,
                None => readers = self.0.free.wait(readers).unwrap_or_else(PoisonError::into_inner),
            }
        };
        Ok(PooledConnection { store: &self.0, connection: Some(connection) })
    }

    /// Takes the credentials out of an environment and keeps them beside the store, for a transaction that will
    /// refer to them. Durable when it returns.
    ///
    /// # Errors
    /// Their file cannot be written.
    pub async fn keep_credentials(&self, env: BTreeMap<String, String>) -> Result<KeptCredentials, StoreError> {
        let credential_files = Arc::clone(&self.0.credential_files);
        Self::blocking(move || credential_files.keep(env).and_then(|mut kept| kept.sync().map(|()| kept)).map_err(StoreError::from_io)).await
    }

    /// The same for what may not be referred to: durable once [`Store::settle_credentials`] has found that it is.
    ///
    /// # Errors
    /// Their file cannot be written.
    pub fn hold_credentials(&self, env: BTreeMap<String, String>) -> Result<KeptCredentials, StoreError> {
        Arc::clone(&self.0.credential_files).keep(env).map_err(StoreError::from_io)
    }

    /// Makes kept credentials durable when the store refers to them, and removes them otherwise.
    ///
    /// # Errors
    /// A failure of the store or of the disk.
    pub async fn settle_credentials(&self, mut kept: KeptCredentials) -> Result<(), StoreError> {
        let Some(id) = kept.id().map(ToOwned::to_owned) else { return Ok(()) };
        let store = self.clone();
        Self::blocking(move || {
            let is_used = store.read(credentials::in_use)?.contains(&id);
            if is_used { kept.sync() } else { kept.remove() }.map_err(StoreError::from_io)
        })
        .await
    }

    /// Reads the credentials that an environment refers to.
    ///
    /// # Errors
    /// Their file is gone, or cannot be read.
    pub async fn credentials(&self, env: &DispatchEnv) -> Result<BTreeMap<String, String>, StoreError> {
        let (credential_files, env) = (Arc::clone(&self.0.credential_files), env.clone());
        Self::blocking(move || credential_files.read(&env).map_err(StoreError::from_io)).await
    }

    /// Removes the credentials that no run needs to resume by itself.
    ///
    /// # Errors
    /// A failure of the store, or a file cannot be removed.
    pub async fn sweep_credentials(&self) -> Result<(), StoreError> {
        let store = self.clone();
        Self::blocking(move || store.0.credential_files.sweep(|| store.read(credentials::in_use))).await
    }

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
        tokio::task::spawn_blocking(work).await.map_err(|_| StoreError::Closed)?
    }

    /// Returns the subscriptions that commits notify.
    #[must_use]
    pub fn wake_ups(&self) -> &Arc<WakeUps> {
        &self.0.wake_ups
    }

    /// Takes no more writes, finishes those that wait and closes the files.
    pub fn close(&self) {
        self.0.writer.stop();
        drop(self.0.readers.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.0.free.notify_all();
    }
}

/// Gives a connection back however the read ends.
struct PooledConnection<'a> {
    store: &'a Inner,
    connection: Option<Connection>,
}

impl PooledConnection<'_> {
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.run("BEGIN")?;
        let result = work(self.connection());
        self.run("COMMIT")?;
        result
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("lent until dropped")
    }

    /// Apart from [`Self::read`], of which there is one for each use.
    fn run(&self, sql: &str) -> Result<(), StoreError> {
        self.connection().prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Breaks statements off from an instant on.
    fn limit(&mut self, deadline: Option<std::time::Instant>) -> Result<(), StoreError> {
        let connection = self.connection.as_mut().expect("lent until dropped");
        let handler = deadline.map(|deadline| move || std::time::Instant::now() >= deadline);
        Ok(connection.progress_handler(DEADLINE_LOOKS_OPS, handler)?)
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // A read that panicked has left its snapshot open.
            if !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "a read cannot be ended");
            }
            if let Some(readers) = self.store.readers.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                readers.idle.push(connection);
            }
            self.store.free.notify_one();
        }
    }
}

/// Returns the version of the SQLite in this binary.
#[must_use]
pub fn sqlite_version() -> &'static str {
    rusqlite::version()
}
