//! The durable state, as operations of the domain. Only the hub's process opens it, or a copy while
//! no hub runs.
//!
//! All writes go through one thread, which commits waiting calls as a group: one transaction with a
//! savepoint for each call, acknowledged once the commit is on disk. Reads use separate
//! connections. Waiters subscribe and are notified after the commit.

mod attention;
mod budgets;
mod chats;
mod confirmed;
mod conflicts;
mod copy;
mod credentials;
mod db;
mod eras;
mod error;
mod events;
mod flows;
mod grants;
mod handover;
mod ids;
mod keys;
mod lead;
mod ledger;
mod merges;
mod messages;
mod migrations;
mod open;
mod peers;
mod place;
mod policies_in_effect;
mod queue;
mod queue_counts;
mod records;
mod repository_policies;
mod requests;
mod runs;
mod search;
mod stats;
mod steady;
mod subject;
mod tasks;
mod tokens;
mod tree_work;
mod trusted;
mod tx;
mod undos;
mod wake_ups;
mod webhooks;
mod workspaces;
mod writer;

#[cfg(test)]
mod conformance;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::print_stderr, reason = "the output of tests")]
pub mod testing;

pub use attention::{
    can_set_notified, silent_after_report, stopped_below, stopped_runs, underway_runs,
    unknown_ends, unknown_ends_beyond, unnotified_bad_ends,
};
pub use budgets::{
    BudgetRow, ModelTotals, announce_usage_stated, budgets_of, check_budget_left, due_time_budgets,
    gate_usage_of, has_budgets, has_grown, is_usage_awaited, is_usage_stated, next_time_budget,
    raise_budgets, stated_budgets, unfinished_below, unfinished_runs_below,
};
pub(crate) use chats::chats_of_others;
pub use chats::{
    Export, Imported, Mention, NewChat, NewEntry, NewTurn, ParticipantRow, Stats, Turn, TurnState,
    Turns, agents_in, asked_by, board_entries, board_size, boards, branches_of, changes_of,
    chat_by_id, chat_by_pair, chats_newest, entries_after, entries_before, entries_changed,
    entries_last, entry_by_id, entry_by_key, entry_by_seq, export_of, hops_behind, member, members,
    mentions_of, newest_mention, newest_mention_elsewhere, newest_summary, next_turns, open_turns,
    open_turns_below, participant_count, past_author, peer_speakers, pinned_entries, reply_of,
    stats_of, turn_by_id, turn_of_run, turns_running, turns_to_answer, unread, unread_before,
};
pub use confirmed::ConfirmedNote;
pub use conflicts::{
    Comparison, ConflictFile, ConflictingRun, Sibling, changed_count, compared, conflicts_of, pair,
    siblings_of,
};
pub use copy::{Copied, CopiedTable, CopyError, Progress, copy};
pub use credentials::{DispatchEnv, KeptCredentials};
pub use eras::{
    Era, Position, entries_beyond, era_that_lost, eras, position_in_chat, position_in_events,
};
pub use error::StoreError;
pub use events::{
    Event, EventSubject, append as append_event, changed_runs, events_after, has_event, last_seq,
    last_stop, signals_of,
};
pub use flows::NewRun;
pub use grants::{Grant, NewGrant, answers_by_rules, grant_by_no, grants};
pub use handover::{open_request, settled_request};
pub use keys::{KEYS_KEPT_MS, Key, is_key_stored, is_key_used, stored_reply};
pub use lead::{Lead, LeaderAddress, LeaderStatus, ends_with_runtime, stand_by};
pub use ledger::{
    Announced, OverlapChange, OverlappingRun, announced_by, announcing_in, other_announcing_runs,
    overlaps_of,
};
pub use merges::{Merge, last_merges, merges_of, merges_under_way, resolved_below, resolved_by};
pub use messages::{
    Message, NoteReceipt, QUEUED_MAX, delivered_messages, has_capacity_for_message,
    has_queued_messages, has_unread_notes, messages_by_id, queued_messages, receipts_of,
};
pub use peers::{
    Followed, FollowedPage, OutgoingPost, OutgoingState, Peer, RemoteEntry, RemoteHub, Share,
    followed_chat, followed_chats, followed_remote, has_followed, next_post, own_key, peer_by_id,
    peer_by_name, peer_by_token, peers, posts_of, share_for, shared_with, shares_of,
    unfinished_posts, waiting_posts,
};
pub use queue::{
    AfterRow, ConfiguredPool, Held, MemoryNeeds, PoolRow, Pools, QueueHead, QuotaWindowRow,
    SlotsUsed, StartTarget, UsageLimitRow, WaitedRun, after_for_retry, after_of, announce_next,
    launch_candidates, live_times, measured_times, newest_follower, next_limit_end, next_to_start,
    pool_rows, queued_up_to, quota_windows, slots_used, usage_limits, waited_runs,
};
pub use queue_counts::PoolCounts;
pub use records::chat::{Chat, ChatEntry, ChatLink, Member, Revision};
pub use records::request::{Group, Request};
pub use records::run::{FenceState, RetryingSince, Run, Usage};
pub use repository_policies::repository_policies_of;
pub use requests::{
    NewRequest, RequestsOf, WaitingRequest, has_requests, newest_approvals, newest_of, open_below,
    request_by_id, request_by_no, requests_of, requests_page, requests_together, undelivered_of,
    unread_of, unsettled_of, waiting_requests,
};
pub use runs::{
    AlternativeAgent, AttemptRow, Counts, EndRow, FinishedPosition, HostLease, HostedAttempt,
    LiveInDir, MORE_COUNTED_MAX, Page, RUNNER_UNWRITABLE, RunInput, RunParts, RunTerms,
    acceptance_of, attempt_row, beside, children_of, counts, current_host, due_estimates,
    due_stopped, failed_starts, fruitless_attempts, has_scheduled_work, hosted_attempts, hosts_of,
    is_attempt_between, is_queue_longer, is_usage_of_last_call, last_host, later_runs_in,
    left_on_runner, live_around, live_by_host, live_in_dir, live_runs, mean_costs,
    newest_run_names, next_until, old_finished, paused_by_pressure, permissions_of, ports_of,
    queued_with_alternatives, report_of, run_by_id, run_by_ref, run_input, run_parts, run_terms,
    runner_name, runs_before, runs_beside, runs_newest, runs_using_directory, signals_since,
    times_limited, tree_size, unreadable_blocks, untried_agents, working_around, working_in,
};
pub use search::{
    Backlog, FoundText, Hit, MARK_BEGIN, MARK_END, Query, Source, has_unindexed_entries, search,
    search_backlog,
};
pub use stats::{RunStats, StatsQuery, run_stats, tree_totals};
pub use tasks::{Task, task_by_id};
pub use tokens::{
    NewToken, PageSecrets, Token, is_token_valid, token_by_hash, token_by_name, token_by_resume,
    tokens,
};
pub use tree_work::{DueTreeWork, due_tree_work};
pub use trusted::{has_trusted, is_trusted};
pub use tx::Tx;
pub use undos::{Undo, interrupted_undo, runs_with_interrupted_undo, undos_under_way};
pub use wake_ups::{Subscription, Topic, WakeUps};
pub use webhooks::{
    Delivery, OutboxState, has_deliveries, has_later_delivery, next_delivery, outbox,
};
pub use workspaces::{
    NewWorkspace, Workspace, all_workspaces, discarded_workspaces, unfinished_in, workspace_around,
    workspace_of,
};

use crate::config::Home;
use crate::trace::RepeatedFailures;
pub use db::Connection;
pub use db::sqlite::version as sqlite_version;
use place::Access;
pub use place::StoreLocation;
pub use policies_in_effect::{
    PoliciesInEffect, has_live_runs, policies_in_effect, source_in_effect,
};
use queue_counts::QueueCounts;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::RuntimeFlavor;
use writer::AfterCommit;

/// Maximum number of connections that serve reads from a file. Each caches the schema and pages, so
/// all but the first are opened on demand.
const READERS_MAX: usize = 2;
/// The same for a server, whose replies each connection waits for.
const SERVER_READERS_MAX: usize = 8;
/// How long a read waits for a connection that is not lost as soon as it is made, and how long it
/// pauses before it makes another.
const BEGIN_READ_MAX: Duration = Duration::from_secs(10);
const BEGIN_READ_PAUSE: Duration = Duration::from_millis(20);

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    home: Home,
    access: Arc<Access>,
    writer: writer::Writer,
    /// They change only while the store is opened.
    eras: Vec<Era>,
    has_begun_era: bool,
    /// `None` once the store is closed.
    readers: Mutex<Option<Readers>>,
    is_abandoned: AtomicBool,
    free: std::sync::Condvar,
    wake_ups: Arc<WakeUps>,
    queue: Arc<QueueCounts>,
    credential_files: Arc<credentials::CredentialFiles>,
}

struct Readers {
    /// Connections that are not in use.
    idle: Vec<Connection>,
    /// The number of open connections, including those in use.
    open: usize,
}

fn readers_max(access: &Access) -> usize {
    if access.home().is_some() {
        READERS_MAX
    } else {
        SERVER_READERS_MAX
    }
}

impl Readers {
    /// Takes an idle connection or opens another. `None`: the caller must wait for one.
    fn take(&mut self, access: &Access) -> Option<Connection> {
        if self.idle.is_empty() && self.open < readers_max(access) {
            match access.read_only() {
                Ok(connection) => {
                    self.open += 1;
                    return Some(connection);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot open another connection for reads; they share the open ones")
                }
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
    /// Opens the store in the home's file. See [`Store::open_at`].
    ///
    /// # Errors
    /// Those of [`Store::open_at`].
    pub fn open(home: &Home) -> Result<Self, StoreError> {
        Self::open_at(home, StoreLocation::Home(home.clone()))
    }

    /// Opens the store of a home, creating or migrating it. The caller holds the home's lock.
    /// Credentials are in the home, wherever the database is.
    ///
    /// # Errors
    /// The disk is full even after releasing the reserved space, the database is newer than this
    /// binary, or it is not a store; its server cannot be reached, or another hub uses it.
    pub fn open_at(home: &Home, place: StoreLocation) -> Result<Self, StoreError> {
        let note = match place {
            StoreLocation::Home(_) => ConfirmedNote::in_memory(),
            StoreLocation::Postgres(_) => ConfirmedNote::open(home),
        };
        Self::open_with(home, place, &note)
    }

    /// Opens the store like [`Store::open_at`], with a note that the process keeps while the store
    /// is opened again.
    ///
    /// # Errors
    /// Those of [`Store::open_at`].
    pub fn open_with(
        home: &Home,
        place: StoreLocation,
        note: &Arc<ConfirmedNote>,
    ) -> Result<Self, StoreError> {
        note.begin();
        Self::open_from(home, Access::Place(place, Arc::clone(note)))
    }

    /// Opens the store that several hubs share, while this hub is the leader. No credentials are
    /// kept, because the next leader would not have them.
    ///
    /// # Errors
    /// Those of [`Store::open_at`], or another hub is the leader by now.
    pub fn open_shared(home: &Home, lead: Arc<Lead>) -> Result<Self, StoreError> {
        Self::open_from(home, Access::Lead(lead))
    }

    fn open_from(home: &Home, access: Access) -> Result<Self, StoreError> {
        let (wake_ups, queue, access) = (
            Arc::<WakeUps>::default(),
            Arc::<QueueCounts>::default(),
            Arc::new(access),
        );
        let connection = access.writable(None)?;
        steady::begin(&connection)?;
        let has_begun_era = match access.note() {
            Some(note) => begin_era_if_set_back(&connection, note)?,
            None => false,
        };
        let eras = eras(&connection)?;
        queue.count(&connection)?;
        let readers = Readers {
            idle: vec![access.read_only()?],
            open: 1,
        };
        let writer = writer::Writer::start(
            Arc::clone(&access),
            connection,
            AfterCommit {
                wake_ups: Arc::clone(&wake_ups),
                queue: Arc::clone(&queue),
            },
        )?;
        let (readers, free, credential_files) = (
            Mutex::new(Some(readers)),
            std::sync::Condvar::new(),
            credentials::CredentialFiles::new(home),
        );
        let is_abandoned = AtomicBool::new(false);
        Ok(Self(Arc::new(Inner {
            home: home.clone(),
            access,
            writer,
            eras,
            has_begun_era,
            readers,
            is_abandoned,
            free,
            wake_ups,
            queue,
            credential_files,
        })))
    }

    /// Returns the eras that began because the database was set back, oldest first.
    #[must_use]
    pub fn eras(&self) -> &[Era] {
        &self.0.eras
    }

    /// Returns whether an era has begun while this store was opened.
    #[must_use]
    pub fn has_begun_era(&self) -> bool {
        self.0.has_begun_era
    }

    /// Waits until the database turns out to have been set back. The store is then opened again.
    pub async fn gone_back(&self) {
        match self.0.access.note() {
            Some(note) => note.gone_back().await,
            None => std::future::pending().await,
        }
    }

    /// Returns what a runner keeps of what the store has confirmed. `None`: the store is a file.
    #[must_use]
    pub fn statement_for_runner(&self) -> Option<String> {
        self.0.access.note()?.for_runner()
    }

    /// Compares what a runner knows with the database. If that lacks something of it, the store is
    /// opened again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn compare_statement(&self, statement: &str) -> Result<(), StoreError> {
        let Some(note) = self.0.access.note() else {
            return Ok(());
        };
        let Some(known) = note.of_runner(statement) else {
            tracing::debug!("a runner knows something of another store");
            return Ok(());
        };
        if self.read(|connection| Ok(known.is_missing_in(&connection.history()?.0)))? {
            note.learn(&known);
            note.note_gone_back();
        }
        Ok(())
    }

    /// Returns whether the store is on a server.
    #[must_use]
    pub fn is_on_server(&self) -> bool {
        self.0.access.home().is_none()
    }

    /// Returns the name of the engine.
    #[must_use]
    pub fn engine_name(&self) -> &'static str {
        if self.is_on_server() {
            "PostgreSQL"
        } else {
            "SQLite"
        }
    }

    /// Returns whether other hubs share this store.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(*self.0.access, Access::Lead(_))
    }

    /// Returns what of an environment is kept.
    fn kept(&self, mut env: BTreeMap<String, String>) -> BTreeMap<String, String> {
        if self.is_shared() {
            env.retain(|name, _| !crate::config::is_stored_as_credential(name));
        }
        env
    }

    /// Runs one transaction and returns when it is durable. If `work` returns an error, nothing is
    /// changed.
    ///
    /// # Errors
    /// The error of `work`, or a failure of the disk.
    pub async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.writer.run(true, work).await
    }

    /// Like [`Store::write`] but cheaper, for work that fails only before its first write, or calls
    /// [`Tx::may_refuse_late`] first. If the work breaks this promise, all calls in the same
    /// transaction fail.
    ///
    /// # Errors
    /// The error of `work`, or a failure of the disk.
    pub async fn write_checked<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.0.writer.run(false, work).await
    }

    /// Runs one transaction like [`Store::write`]. If the disk is full, the reserved space is
    /// released and the transaction retried once. For calls that stop a run.
    ///
    /// # Errors
    /// The error of `work`, or a failure of the disk.
    pub async fn write_using_reserved_space<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        match self.write(work.clone()).await {
            Err(StoreError::Full) if self.0.access.home().is_some() => {
                tracing::error!("the disk is full: releasing the reserved space to stop a run");
                let home = self.0.home.clone();
                let given_up =
                    tokio::task::spawn_blocking(move || open::release_reserved_space(&home))
                        .await
                        .map_err(|_| StoreError::Closed)?;
                if let Err(error) = given_up {
                    // Another call may already have released it.
                    tracing::warn!(%error, "the reserved space could not be released");
                }
                self.write(work).await
            }
            result => result,
        }
    }

    /// Reserves space again after [`Store::write_using_reserved_space`] has used it, if the disk
    /// has room.
    pub fn reserve_space(&self) {
        if let Some(home) = self.0.access.home() {
            open::reserve_space(home);
        }
    }

    /// Returns free pages of the database to the file system, a few in each transaction, so that no
    /// call waits long. PostgreSQL does so itself.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn release_free_pages(&self) -> Result<(), StoreError> {
        if self.is_on_server() {
            return Ok(());
        }
        while self
            .write(|tx| open::release_free_pages(tx.connection()))
            .await?
        {}
        Ok(())
    }

    /// Queues a transaction that is not awaited and may be lost. Only for conveniences, such as how
    /// far a participant has read.
    pub fn write_later<F>(&self, work: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    {
        self.0.writer.queue_unawaited(work);
    }

    /// Runs reads on a separate connection, on a snapshot of what was committed when they began.
    ///
    /// # Errors
    /// The error of `work`, a failure of the store, or the store is closed.
    pub fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.apart(|| self.begin_read(None)?.read(work))
    }

    /// Runs work that may wait for a server, so that a thread of the runtime serves other tasks
    /// meanwhile. Ends the calling task if the store was abandoned meanwhile: its runtime may have
    /// ended too, and then the task would panic at its next timer.
    fn apart<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_of_runtime = || {
            tokio::runtime::Handle::try_current()
                .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
        };
        if !(self.is_on_server() && is_of_runtime()) {
            return work();
        }
        let done = tokio::task::block_in_place(work);
        if self.0.is_abandoned.load(Ordering::SeqCst) {
            // Prints nothing: it is an abort, which tasks that do not read get at their next wait.
            std::panic::resume_unwind(Box::new("the store is abandoned"));
        }
        done
    }

    /// Runs reads with a deadline, at which the running statement fails with
    /// [`StoreError::Interrupted`]. Blocks the thread.
    ///
    /// # Errors
    /// The error of `work`, or a failure of the store.
    pub fn read_until<T>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lent = self.begin_read(Some(deadline))?;
        let result = lent.read(work);
        lent.limit(None)?;
        result
    }

    /// Borrows a connection and begins to read. A connection that was lost while it was idle is
    /// replaced.
    fn begin_read(&self, deadline: Option<Instant>) -> Result<PooledConnection<'_>, StoreError> {
        let until = Instant::now() + BEGIN_READ_MAX;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let (mut lost, mut failures) = (0, RepeatedFailures::default());
        loop {
            // Those that were idle may all be lost. An administrator may end others as fast as they
            // are made.
            if lost > readers_max(&self.0.access) {
                std::thread::park_timeout(BEGIN_READ_PAUSE);
            }
            let mut lent = self.borrow_connection()?;
            lent.limit(deadline)?;
            match lent.connection().begin_read() {
                Ok(()) => return Ok(lent),
                Err(db::Error::Lost(problem)) if Instant::now() < until => {
                    if let Some(times) = failures.note(&problem, Instant::now()) {
                        tracing::info!(
                            problem,
                            times,
                            "a connection for reads was lost; another follows"
                        );
                    }
                    lost += 1;
                }
                Err(db::Error::Lost(_)) => {
                    return Err(StoreError::Unreachable(
                        "connections end as soon as they are made".into(),
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn borrow_connection(&self) -> Result<PooledConnection<'_>, StoreError> {
        let mut readers = self
            .0
            .readers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let connection = loop {
            let open = readers.as_mut().ok_or(StoreError::Closed)?;
            if open.open == 0 {
                // All of them were lost. The first one is opened here, because only its error is
                // reported.
                open.open = 1;
                drop(readers);
                return Ok(PooledConnection {
                    store: &self.0,
                    connection: Some(self.first_connection()?),
                });
            }
            match open.take(&self.0.access) {
                Some(connection) => break connection,
                None => {
                    readers = self
                        .0
                        .free
                        .wait(readers)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        };
        Ok(PooledConnection {
            store: &self.0,
            connection: Some(connection),
        })
    }

    /// Opens a connection that counts as open already.
    fn first_connection(&self) -> Result<Connection, StoreError> {
        self.0.access.read_only().inspect_err(|_| {
            if let Some(readers) = self
                .0
                .readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
            {
                readers.open -= 1;
            }
            self.0.free.notify_one();
        })
    }

    /// Moves the credentials of an environment into a file next to the database, for a transaction
    /// that will refer to them. Durable when it returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn save_credentials(
        &self,
        env: BTreeMap<String, String>,
    ) -> Result<KeptCredentials, StoreError> {
        let (credential_files, env) = (Arc::clone(&self.0.credential_files), self.kept(env));
        Self::blocking(move || {
            credential_files
                .save(env)
                .and_then(|mut kept| kept.sync().map(|()| kept))
                .map_err(StoreError::from_io)
        })
        .await
    }

    /// Like [`Store::save_credentials`], for credentials that may remain unused: they become
    /// durable with [`Store::resolve_credentials`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stage_credentials(
        &self,
        env: BTreeMap<String, String>,
    ) -> Result<KeptCredentials, StoreError> {
        Arc::clone(&self.0.credential_files)
            .save(self.kept(env))
            .map_err(StoreError::from_io)
    }

    /// Makes kept credentials durable if the store refers to them, and removes them otherwise.
    ///
    /// # Errors
    /// A failure of the store or of the disk.
    pub async fn resolve_credentials(&self, mut kept: KeptCredentials) -> Result<(), StoreError> {
        let Some(id) = kept.id().map(ToOwned::to_owned) else {
            return Ok(());
        };
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
    /// The file is missing or cannot be read.
    pub async fn credentials(
        &self,
        env: &DispatchEnv,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        let (credential_files, env) = (Arc::clone(&self.0.credential_files), env.clone());
        Self::blocking(move || credential_files.read(&env).map_err(StoreError::from_io)).await
    }

    /// Stores the variables that a dispatcher sets for a run, all of them like credentials. Durable
    /// when it returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn save_variables(
        &self,
        variables: BTreeMap<String, String>,
    ) -> Result<KeptCredentials, StoreError> {
        let credential_files = Arc::clone(&self.0.credential_files);
        Self::blocking(move || {
            credential_files
                .save_all(BTreeMap::new(), variables)
                .and_then(|mut kept| kept.sync().map(|()| kept))
                .map_err(StoreError::from_io)
        })
        .await
    }

    /// Reads the variables of the file that a run refers to.
    ///
    /// # Errors
    /// The file is missing or cannot be read.
    pub async fn variables(
        &self,
        file: Option<&str>,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        self.credentials(&DispatchEnv::new(
            BTreeMap::new(),
            file.map(ToOwned::to_owned),
        ))
        .await
    }

    /// Removes credentials that no run or turn needs any more.
    ///
    /// # Errors
    /// A failure of the store, or a file cannot be removed.
    pub async fn sweep_credentials(&self) -> Result<(), StoreError> {
        let store = self.clone();
        Self::blocking(move || {
            store
                .0
                .credential_files
                .sweep(|| store.read(credentials::in_use))
        })
        .await
    }

    async fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| StoreError::Closed)?
    }

    /// Returns the numbers of queued runs of each pool that has some, as of the newest commit.
    #[must_use]
    pub fn queued_by_pool(&self) -> BTreeMap<String, PoolCounts> {
        self.0.queue.by_pool()
    }

    /// Returns the number of queued runs, as of the newest commit.
    #[must_use]
    pub fn queued_runs(&self) -> u64 {
        self.0
            .queue
            .by_pool()
            .values()
            .map(|counts| counts.queued)
            .sum()
    }

    /// Returns the subscriptions that commits notify.
    #[must_use]
    pub fn wake_ups(&self) -> &Arc<WakeUps> {
        &self.0.wake_ups
    }

    /// Rejects new writes, and ends the tasks that read from a server. Unlike [`Store::close`], it
    /// does not wait for the queued writes, which end when the server answers.
    pub fn abandon(&self) {
        self.0.is_abandoned.store(true, Ordering::SeqCst);
        self.0.writer.abandon();
        drop(
            self.0
                .readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.0.free.notify_all();
    }

    /// Rejects new writes, completes the queued ones and closes the files.
    pub fn close(&self) {
        self.0.writer.stop();
        drop(
            self.0
                .readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        self.0.free.notify_all();
    }
}

/// Begins an era if the database lacks what was confirmed, before anything else is written. Returns
/// whether it does.
fn begin_era_if_set_back(
    connection: &Connection,
    note: &ConfirmedNote,
) -> Result<bool, StoreError> {
    for known in connection.known_to_others()? {
        note.learn(&known);
    }
    let known = note.known();
    let (mut history, secret) = connection.history()?;
    let is_set_back = known.is_missing_in(&history);
    if is_set_back {
        connection.begin_write()?;
        let era = eras::begin(&Tx::new(connection, crate::clock::moment(), true), &known)?;
        connection.commit()?;
        history.era = era.number;
        tracing::error!(
            era = era.number,
            "the database was set back, for instance to an older dump or to a replica that lacked the last transactions: what was \
             confirmed since is lost, and numbers go on above those that were given out"
        );
    }
    note.enter(&history, &secret, connection.lead());
    Ok(is_set_back)
}

/// A guard that returns a connection to the pool, even if the read panics.
struct PooledConnection<'a> {
    store: &'a Inner,
    connection: Option<Connection>,
}

impl PooledConnection<'_> {
    fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = work(self.connection());
        self.connection().end_read()?;
        result
    }

    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("present until dropped")
    }

    /// Sets or clears the deadline at which statements are interrupted.
    fn limit(&mut self, deadline: Option<Instant>) -> Result<(), StoreError> {
        Ok(self
            .connection
            .as_mut()
            .expect("present until dropped")
            .set_deadline(deadline)?)
    }
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // A read that panicked leaves its snapshot open.
            if connection.is_in_transaction()
                && !connection.is_lost()
                && let Err(error) = connection.roll_back()
            {
                tracing::error!(%error, "a read cannot be ended");
            }
            if let Some(readers) = self
                .store
                .readers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
            {
                if connection.is_lost() {
                    readers.open -= 1;
                } else {
                    readers.idle.push(connection);
                }
            }
            self.store.free.notify_one();
        }
    }
}
