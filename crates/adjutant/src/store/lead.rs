//! Leading a store that several hubs share. Exactly one of them leads and writes; the others stand by and pass calls to it.
//!
//! A hub that leads confirms this several times a second. It answers calls only while its last confirmation is fresh, because a hub
//! that was stopped for a while cannot know otherwise that another one has taken over. The confirmation expires before another hub
//! may take over.

use super::db::postgres;
use super::db::{Connection, Error};
use super::{Store, StoreError};
use crate::clock;
use crate::config::PostgresAddress;
pub use postgres::lead::{LeaderAddress, Sighting};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot, watch};

/// How long a hub trusts a confirmation, counted from when it asked for it.
const CONFIRMED_FOR_MS: i64 = 3_000;
/// A hub without a confirmation for this long stands by again.
const UNCONFIRMED_MAX_MS: i64 = 10_000;

/// The shortest time between two beats, however many calls ask for one.
const BEAT_EVERY_MIN: Duration = Duration::from_millis(100);

/// The state of a hub that leads.
pub struct Lead {
    address: PostgresAddress,
    state: Mutex<State>,
    /// Counts the beats that were answered.
    beats: watch::Sender<u64>,
    lost: watch::Sender<bool>,
    /// Notified when no session holds the lock.
    without_session: Notify,
    beating: Mutex<Option<Thread>>,
}

struct State {
    /// The session that holds the lock, until the store is opened with it.
    session: Option<postgres::Connection>,
    /// The process that serves the session which writes.
    writer: i64,
    /// Of the lead. `None`: the store is not open yet.
    epoch: Option<i64>,
    own: LeaderAddress,
    /// Changes with `own`.
    generation: u64,
    /// When the last confirmation was asked for, in milliseconds since the boot.
    confirmed_at: i64,
    /// The hashes of the tokens of the hubs that stand by.
    token_hashes: HashSet<String>,
    has_ended: bool,
}

impl std::fmt::Debug for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lead").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}

/// Follows the hub that leads while this one waits in line. Returns what is known of it, and where the lead arrives.
///
/// # Errors
/// No thread can be started.
pub fn stand_by(address: &PostgresAddress, name: &str, token_hash: &str) -> std::io::Result<(watch::Receiver<Sighting>, LeadReceiver)> {
    let (sightings, seen) = watch::channel(Sighting::Nobody);
    let (won, lead) = oneshot::channel();
    let (in_line, hash, own) = (address.clone(), token_hash.to_owned(), LeaderAddress { name: name.to_owned(), ..LeaderAddress::default() });
    std::thread::Builder::new().name("in line".to_owned()).spawn(move || {
        let session = postgres::lead::wait_in_line(&in_line, &hash).map_err(StoreError::of_opening);
        let lead = session.and_then(|session| Lead::begin(in_line, session, own));
        if won.send(lead).is_err() {
            tracing::debug!("the hub has ended while it stood by");
        }
    })?;
    let watched = address.clone();
    std::thread::Builder::new()
        .name("leader".to_owned())
        .spawn(move || postgres::lead::watch_leader(&watched, |sighting| sightings.send(sighting).is_ok()))?;
    Ok((seen, lead))
}

/// Receives the lead when this hub has won it.
pub type LeadReceiver = oneshot::Receiver<Result<Arc<Lead>, StoreError>>;

/// Ends the calling task if its runtime has ended while it waited for the server: such a task may not start a timer.
pub async fn ends_with_runtime() {
    tokio::task::yield_now().await;
}

impl Lead {
    fn begin(address: PostgresAddress, session: postgres::Connection, own: LeaderAddress) -> Result<Arc<Self>, StoreError> {
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
        let (beats, lost) = (watch::Sender::new(0), watch::Sender::new(false));
        let lead = Arc::new(Self { address, state: Mutex::new(state), beats, lost, without_session: Notify::new(), beating: Mutex::default() });
        let beating = Arc::clone(&lead);
        let thread =
            std::thread::Builder::new().name("lead".to_owned()).spawn(move || beating.beat()).map_err(|error| StoreError::Away(error.to_string()))?;
        *lead.beating.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.thread().clone());
        Ok(lead)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the session that writes: the one that holds the lock, or one that replaces it.
    pub(super) fn writable(&self, replaced: Option<postgres::open::Replaced>) -> Result<Connection, Error> {
        let (session, own) = {
            let mut state = self.state();
            (state.session.take(), state.own.clone())
        };
        let opened = match (session, replaced) {
            (Some(session), _) => own.to_json().and_then(|own| postgres::open::begin_lead(session, Some(&own))),
            (None, replaced @ Some(_)) => postgres::open::writable(&self.address, replaced),
            (None, None) => Err(Error::Other(postgres::open::TAKEN_OVER.to_owned())),
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
                    self.lose(&error.to_string());
                }
                Err(error)
            }
        }
    }

    /// The store that is led.
    #[must_use]
    pub fn address(&self) -> &PostgresAddress {
        &self.address
    }

    /// Returns whether this hub has confirmed just now that it leads.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        !*self.lost.borrow() && clock::reading().since_boot_ms.saturating_sub(self.state().confirmed_at) < CONFIRMED_FOR_MS
    }

    /// Waits until the lead is confirmed, for a limited time. Returns whether it is.
    pub async fn confirmed_within(&self, limit: Duration) -> bool {
        if self.is_confirmed() {
            return true;
        }
        if *self.lost.borrow() {
            ends_with_runtime().await;
            return false;
        }
        let mut beats = self.beats.subscribe();
        let wait = async {
            while !self.is_confirmed() {
                if beats.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok() && self.is_confirmed()
    }

    /// Waits until another hub leads, or this one cannot confirm that it does.
    pub async fn lost(&self) {
        let mut lost = self.lost.subscribe();
        if lost.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn lose(&self, why: &str) {
        if !self.lost.send_replace(true) {
            tracing::warn!(why, "this hub does not lead any more");
        }
    }

    /// Keeps a session that writes, until the lead is lost: without one, another hub can take over.
    pub async fn keep_session(&self, store: &Store) {
        loop {
            self.without_session.notified().await;
            if let Err(error) = store.write(|_| Ok(())).await {
                tracing::debug!(%error, "there is no session that writes");
            }
        }
    }

    /// Tells the other hubs the address of this one.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn announce(&self, store: &Store, url: Option<String>, fingerprint: Option<String>) -> Result<(), StoreError> {
        let own = LeaderAddress { name: self.state().own.name.clone(), url, fingerprint };
        let json = own.to_json()?;
        store.write(move |tx| Ok(tx.connection().execute("UPDATE hub SET leader = ?1", [json])?)).await?;
        {
            let mut state = self.state();
            state.own = own;
            state.generation += 1;
        }
        self.beat_now();
        Ok(())
    }

    /// Returns whether a token is that of a hub that stands by.
    pub async fn is_token_of_hub(&self, token_hash: &str) -> bool {
        let mut beats = self.beats.subscribe();
        if self.knows_token(token_hash) {
            return true;
        }
        // It may have come since the last beat.
        self.beat_now();
        let next = tokio::time::timeout(Duration::from_millis(CONFIRMED_FOR_MS.unsigned_abs()), beats.changed()).await;
        matches!(next, Ok(Ok(()))) && self.knows_token(token_hash)
    }

    fn knows_token(&self, token_hash: &str) -> bool {
        self.state().token_hashes.contains(token_hash)
    }

    fn beat_now(&self) {
        if let Some(thread) = &*self.beating.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    /// Ends the notifications. The session that holds the lock is closed with the store.
    pub fn end(&self) {
        self.state().has_ended = true;
        self.beat_now();
    }

    fn beat(&self) {
        let mut session: Option<postgres::lead::Beat> = None;
        loop {
            let (writer, generation, has_ended) = {
                let state = self.state();
                (state.writer, state.generation, state.has_ended)
            };
            if has_ended || *self.lost.borrow() {
                return;
            }
            let (began, asked_at) = (Instant::now(), clock::reading().since_boot_ms);
            let beaten = match &session {
                Some(open) => open.beat(writer, generation),
                None => postgres::lead::Beat::connect(&self.address).and_then(|open| session.insert(open).beat(writer, generation)),
            };
            match beaten {
                Ok(pulse) => {
                    let mut state = self.state();
                    state.token_hashes = pulse.token_hashes.into_iter().collect();
                    if pulse.holder == Some(state.writer) {
                        state.confirmed_at = asked_at;
                    }
                    let is_over = state.epoch.zip(pulse.epoch).is_some_and(|(own, current)| own != current);
                    drop(state);
                    if is_over {
                        self.lose("another hub leads");
                        return;
                    }
                    if pulse.holder.is_none() {
                        self.without_session.notify_one();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the lead cannot be confirmed");
                    session = None;
                }
            }
            if clock::reading().since_boot_ms.saturating_sub(self.state().confirmed_at) > UNCONFIRMED_MAX_MS {
                self.lose("it could not be confirmed");
                return;
            }
            self.beats.send_modify(|beats| *beats += 1);
            std::thread::park_timeout(postgres::lead::BEAT_EVERY);
            std::thread::sleep(BEAT_EVERY_MIN.saturating_sub(began.elapsed()));
        }
    }
}
