//! Leadership of a store that several hubs share. Only the leader writes; the others are standby
//! hubs and pass calls to it.
//!
//! The leader asks the database several times a second whether it still holds the lock. It answers
//! calls only while the last confirmation is fresh, because a process that was suspended does not
//! know that another hub has taken over. A confirmation expires before another hub may take over.

use super::db::{Connection, Error, postgres};
use super::error::Problem;
use super::{ConfirmedNote, Store, StoreError};
use crate::clock;
use crate::config::PostgresAddress;
use crate::trace::RepeatedFailures;
pub use postgres::lead::{LeaderAddress, LeaderStatus};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot, watch};

/// How long a hub trusts a confirmation, counted from when it asked for it.
const CONFIRMED_FOR_MS: i64 = 3_000;
/// A leader without a confirmation for this long becomes a standby hub.
const UNCONFIRMED_MAX_MS: i64 = 10_000;

/// Minimum time between two heartbeats, even if calls request more.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The state of the leader.
pub struct Lead {
    address: PostgresAddress,
    note: Arc<ConfirmedNote>,
    state: Mutex<State>,
    /// Counts the heartbeats that were answered.
    heartbeats: watch::Sender<u64>,
    lost: watch::Sender<bool>,
    /// The store cannot be led by this hub, however often it tries.
    is_refused: AtomicBool,
    /// Notified when no session holds the lock.
    without_session: Notify,
    heartbeat_thread: Mutex<Option<Thread>>,
}

struct State {
    /// The session that holds the lock, until the store is opened with it.
    session: Option<postgres::PgConnection>,
    /// The process that serves the session which writes.
    writer: i64,
    /// The epoch of this leadership. `None`: the store is not open yet.
    epoch: Option<i64>,
    own: LeaderAddress,
    /// Changes with `own`.
    generation: u64,
    /// When the last confirmation was asked for, in milliseconds since the boot.
    confirmed_at: i64,
    /// The hashes of the tokens of the standby hubs.
    token_hashes: HashSet<String>,
    has_ended: bool,
}

impl std::fmt::Debug for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lead")
            .field("address", &self.address.to_string())
            .finish_non_exhaustive()
    }
}

/// Waits for leadership and follows the leader. Returns the status of the leader, and the receiver
/// of the lead.
///
/// # Errors
/// No thread can be started.
pub fn stand_by(
    note: &Arc<ConfirmedNote>,
    address: &PostgresAddress,
    name: &str,
    token_hash: &str,
) -> std::io::Result<(watch::Receiver<LeaderStatus>, LeadReceiver)> {
    let (statuses, seen) = watch::channel(LeaderStatus::NoLeader);
    let (won, lead) = oneshot::channel();
    note.begin();
    let (note, own_note) = (Arc::clone(note), Arc::clone(note));
    let (waiting, hash, own) = (
        address.clone(),
        token_hash.to_owned(),
        LeaderAddress {
            name: name.to_owned(),
            ..LeaderAddress::default()
        },
    );
    std::thread::Builder::new()
        .name("leader lock".to_owned())
        .spawn(move || {
            let session = postgres::lead::wait_for_lock(&waiting, &hash, &own_note)
                .map_err(StoreError::of_opening);
            let lead = session.and_then(|session| Lead::begin(waiting, session, own, own_note));
            if won.send(lead).is_err() {
                tracing::debug!("the hub has ended while it waited for leadership");
            }
        })?;
    let watched = address.clone();
    std::thread::Builder::new()
        .name("leader".to_owned())
        .spawn(move || {
            postgres::lead::watch_leader(&watched, &note, |status| statuses.send(status).is_ok())
        })?;
    Ok((seen, lead))
}

/// Receives the lead when this hub has become the leader.
pub(crate) type LeadReceiver = oneshot::Receiver<Result<Arc<Lead>, StoreError>>;

/// Ends the calling task if its runtime has ended while it waited for the server: such a task may
/// not start a timer.
pub async fn ends_with_runtime() {
    tokio::task::yield_now().await;
}

impl Lead {
    fn begin(
        address: PostgresAddress,
        session: postgres::PgConnection,
        own: LeaderAddress,
        note: Arc<ConfirmedNote>,
    ) -> Result<Arc<Self>, StoreError> {
        let state = State {
            writer: i64::from(session.backend()),
            session: Some(session),
            epoch: None,
            own,
            generation: 0,
            confirmed_at: clock::reading().since_boot_ms,
            token_hashes: HashSet::new(),
            has_ended: false,
        };
        let (heartbeats, lost) = (watch::Sender::new(0), watch::Sender::new(false));
        let lead = Arc::new(Self {
            address,
            note,
            state: Mutex::new(state),
            heartbeats,
            lost,
            is_refused: AtomicBool::new(false),
            without_session: Notify::new(),
            heartbeat_thread: Mutex::default(),
        });
        let sending = Arc::clone(&lead);
        let thread = std::thread::Builder::new()
            .name("lead".to_owned())
            .spawn(move || sending.send_heartbeats())
            .map_err(|error| StoreError::Unreachable(Problem::of(error)))?;
        *lead
            .heartbeat_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(thread.thread().clone());
        Ok(lead)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the session that writes: the one that holds the lock, or one that replaces it.
    pub(super) fn writable(
        &self,
        replaced: Option<&postgres::open::Replaced>,
    ) -> Result<Connection, Error> {
        let (session, own) = {
            let mut state = self.state();
            (state.session.take(), state.own.clone())
        };
        let opened = match (session, replaced) {
            (Some(session), _) => own
                .to_json()
                .and_then(|own| postgres::open::begin_lead(session, Some(&own), &self.note)),
            (None, replaced @ Some(_)) => {
                postgres::open::writable(&self.address, replaced, &self.note)
            }
            (None, None) => Err(postgres::open::taken_over()),
        };
        match opened {
            Ok(session) => {
                let mut state = self.state();
                (state.writer, state.epoch) = (i64::from(session.backend()), session.epoch());
                drop(state);
                Ok(session.into())
            }
            Err(error) => {
                if !matches!(error, Error::Lost(_)) {
                    if !matches!(error, Error::TakenOver(_)) {
                        self.is_refused.store(true, Ordering::SeqCst);
                    }
                    self.lose(&error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Returns whether opening the store failed for a reason that does not pass.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::SeqCst)
    }

    /// The store that is led.
    #[must_use]
    pub fn address(&self) -> &PostgresAddress {
        &self.address
    }

    /// The note of what is confirmed.
    pub(super) fn note(&self) -> &Arc<ConfirmedNote> {
        &self.note
    }

    /// Returns whether this hub has just confirmed that it is the leader.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        !*self.lost.borrow()
            && clock::reading()
                .since_boot_ms
                .saturating_sub(self.state().confirmed_at)
                < CONFIRMED_FOR_MS
    }

    /// Waits until leadership is confirmed, for a limited time. Returns whether it is.
    pub async fn confirmed_within(&self, limit: Duration) -> bool {
        if self.is_confirmed() {
            return true;
        }
        if *self.lost.borrow() {
            ends_with_runtime().await;
            return false;
        }
        let mut heartbeats = self.heartbeats.subscribe();
        let wait = async {
            while !self.is_confirmed() {
                if heartbeats.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok() && self.is_confirmed()
    }

    /// Waits until another hub is the leader, or this one cannot confirm that it is.
    pub async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        if lost.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn lose(&self, why: &str) {
        if !self.lost.send_replace(true) {
            tracing::warn!(why, "this hub is no longer the leader");
        }
    }

    /// Keeps a session that writes, until leadership is lost: without one, another hub can take
    /// over.
    pub async fn keep_session(&self, store: &Store) {
        loop {
            self.without_session.notified().await;
            if let Err(error) = store.write(|_| Ok(())).await {
                tracing::debug!(%error, "there is no session that writes");
            }
        }
    }

    /// Announces the address of this hub to the others.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn announce(
        &self,
        store: &Store,
        url: Option<String>,
        fingerprint: Option<String>,
    ) -> Result<(), StoreError> {
        let own = LeaderAddress {
            name: self.state().own.name.clone(),
            url,
            fingerprint,
        };
        let json = own.to_json()?;
        store
            .write(move |tx| {
                Ok(tx
                    .connection()
                    .execute("UPDATE hub SET leader = ?1", [json])?)
            })
            .await?;
        {
            let mut state = self.state();
            state.own = own;
            state.generation += 1;
        }
        self.send_heartbeat_now();
        Ok(())
    }

    /// Returns whether a token is that of a standby hub.
    pub async fn is_token_of_hub(&self, token_hash: &str) -> bool {
        // Before the lookup, so that a heartbeat that is answered in between counts.
        let mut heartbeats = self.heartbeats.subscribe();
        if self.knows_token(token_hash) {
            return true;
        }
        // It may have come since the last heartbeat.
        self.send_heartbeat_now();
        let next = tokio::time::timeout(
            Duration::from_millis(CONFIRMED_FOR_MS.unsigned_abs()),
            heartbeats.changed(),
        )
        .await;
        matches!(next, Ok(Ok(()))) && self.knows_token(token_hash)
    }

    fn knows_token(&self, token_hash: &str) -> bool {
        self.state().token_hashes.contains(token_hash)
    }

    fn send_heartbeat_now(&self) {
        if let Some(thread) = &*self
            .heartbeat_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
        {
            thread.unpark();
        }
    }

    /// Ends the notifications. The session that holds the lock is closed with the store.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.send_heartbeat_now();
    }

    fn send_heartbeats(&self) {
        let mut session: Option<postgres::lead::Heartbeat> = None;
        let mut failures = RepeatedFailures::default();
        loop {
            if self.state().has_ended || *self.lost.borrow() {
                return;
            }
            // Before the question: if this process is suspended until it reads the reply, the
            // confirmation is outdated. The clock since boot also counts a suspended machine.
            let (began, asked_at) = (Instant::now(), clock::reading().since_boot_ms);
            match self.ask(&mut session) {
                Ok(reply) => {
                    failures.clear();
                    if let Some(why) = self.receive(reply, asked_at) {
                        self.lose(why);
                        return;
                    }
                    self.heartbeats.send_modify(|heartbeats| *heartbeats += 1);
                }
                Err(error) => {
                    if let Some(times) = failures.note(&error.to_string(), began) {
                        tracing::warn!(%error, times, "leadership cannot be confirmed");
                    }
                    session = None;
                }
            }
            if self.is_unconfirmed() {
                self.lose("it could not be confirmed");
                return;
            }
            std::thread::park_timeout(postgres::lead::HEARTBEAT_INTERVAL);
            // Each unknown token asks for a heartbeat. Without this pause, callers could send the
            // server a query for each of their calls.
            std::thread::sleep(HEARTBEAT_INTERVAL_MIN.saturating_sub(began.elapsed()));
        }
    }

    /// Sends one heartbeat, over a session that is made if there is none.
    fn ask(
        &self,
        session: &mut Option<postgres::lead::Heartbeat>,
    ) -> Result<postgres::lead::HeartbeatReply, Error> {
        let (writer, generation) = {
            let state = self.state();
            (state.writer, state.generation)
        };
        let confirmed = self.note.for_hubs();
        match session {
            Some(open) => open.send(writer, generation, &confirmed),
            None => postgres::lead::Heartbeat::connect(&self.address)
                .and_then(|open| session.insert(open).send(writer, generation, &confirmed)),
        }
    }

    /// Applies the reply to a heartbeat. Returns why this hub is no longer the leader.
    fn receive(
        &self,
        reply: postgres::lead::HeartbeatReply,
        asked_at: i64,
    ) -> Option<&'static str> {
        let mut state = self.state();
        state.token_hashes = reply.token_hashes.into_iter().collect();
        if reply.holder == Some(state.writer) {
            state.confirmed_at = asked_at;
        }
        let has_begun = state.epoch.is_some() && self.note.has_lead();
        let is_over = state
            .epoch
            .zip(reply.epoch)
            .is_some_and(|(own, current)| own != current);
        drop(state);
        if is_over {
            return Some("another hub is the leader");
        }
        // What standby hubs know from a former leader.
        if has_begun && reply.is_missing {
            reply
                .known_to_others
                .iter()
                .for_each(|known| self.note.learn(known));
            self.note.note_gone_back();
            return Some("the database was set back");
        }
        if reply.holder.is_none() {
            self.without_session.notify_one();
        }
        None
    }

    /// Returns whether the last confirmation is too old for a leader.
    fn is_unconfirmed(&self) -> bool {
        let age_ms = clock::reading()
            .since_boot_ms
            .saturating_sub(self.state().confirmed_at);
        age_ms > UNCONFIRMED_MAX_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answered_heartbeats_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let address = format!("postgres://adj@/adj?host={}", dir.path().display());
        let lead = Lead {
            address: address.parse().expect("an address"),
            note: ConfirmedNote::in_memory(),
            state: Mutex::new(State {
                session: None,
                writer: 1,
                epoch: None,
                own: LeaderAddress::default(),
                generation: 0,
                // It expires before the second heartbeat.
                confirmed_at: clock::reading().since_boot_ms - UNCONFIRMED_MAX_MS + 200,
                token_hashes: HashSet::new(),
                has_ended: false,
            }),
            heartbeats: watch::Sender::new(0),
            lost: watch::Sender::new(false),
            is_refused: AtomicBool::new(false),
            without_session: Notify::new(),
            heartbeat_thread: Mutex::default(),
        };
        lead.send_heartbeats();
        assert_eq!((*lead.heartbeats.borrow(), *lead.lost.borrow()), (0, true));
    }
}
