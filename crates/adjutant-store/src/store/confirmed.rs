//! What a database on a server has confirmed, kept in the home of each hub and of each runner (see
//! [`adjutant_core::confirmed`]).
//!
//! A hub notes each commit before its callers get their replies, without waiting for the disk: the
//! note outlives the process, and after a power failure it is at most a second or some thousand
//! numbers old.

use crate::config::Home;
use crate::files;
use adjutant_core::confirmed::{Confirmed, History, Reached, UNSYNCED_NUMBERS_MAX};
use adjutant_core::hex;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The size of one of the copies in the file: one is on disk, one is being flushed, and one is
/// written.
const COPY_BYTES: u64 = 8 * 1024;
const COPIES: u64 = 3;
/// Length of the digest before each copy, in hexadecimal digits.
const DIGEST_DIGITS: usize = 16;
/// The longest time for which a note is not on disk.
const UNSYNCED_MAX: Duration = Duration::from_secs(1);
/// Separates the use of the store's secret from others.
const PURPOSE: &[u8] = b"adj confirmed\n";
const STATEMENT_BYTES_MAX: usize = 8 * 1024;

/// The text form, in the file and between hubs.
#[derive(Serialize, Deserialize)]
struct Text {
    store: String,
    era: i64,
    leads: Vec<(String, i64, i64)>,
    numbers: BTreeMap<String, i64>,
}

pub(super) fn to_text(confirmed: &Confirmed) -> String {
    let Confirmed {
        store,
        era,
        leads,
        numbers,
    } = confirmed.clone();
    let leads = leads
        .into_iter()
        .map(|(id, Reached { epoch, transaction })| (id, epoch, transaction))
        .collect();
    serde_json::to_string(&Text {
        store,
        era,
        leads,
        numbers,
    })
    .expect("strings and numbers are JSON")
}

pub(super) fn of_text(text: &str) -> Option<Confirmed> {
    let Text {
        store,
        era,
        leads,
        numbers,
    } = serde_json::from_str(text).ok()?;
    let leads = leads
        .into_iter()
        .map(|(id, epoch, transaction)| (id, Reached { epoch, transaction }))
        .collect();
    Some(Confirmed {
        store,
        era,
        leads,
        numbers,
    })
}

/// What others may know as the identity of a store. The secret itself signs what is given to
/// runners.
pub(super) fn identity_of(secret: &str) -> String {
    hex(&Sha256::digest(secret)[..16])
}

/// A hub's note of what is confirmed.
#[derive(Debug)]
pub struct ConfirmedNote {
    state: Mutex<State>,
    /// Held while the note is written to disk, for which nobody else waits.
    flushing: Mutex<()>,
    /// Whether the database has gone back.
    gone_back: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    confirmed: Confirmed,
    /// The store's secret. Empty: no database was opened yet.
    secret: String,
    /// The lead of this hub. Empty: it has none.
    lead: String,
    file: Option<Arc<File>>,
    /// The copy that is written.
    copy: u64,
    /// The copy that is on disk.
    synced_copy: u64,
    /// What is on disk.
    synced: Confirmed,
    /// The last note could not be written, which was logged.
    has_failed: bool,
    /// The same for the disk.
    has_sync_failed: bool,
    /// When the first note was written that is not on disk. `None`: all is.
    unsynced_since: Option<Instant>,
    /// The thread that writes notes to disk later.
    syncing: Option<Thread>,
}

impl ConfirmedNote {
    /// Opens the note of a home. A note that cannot be written is kept in memory only.
    #[must_use]
    pub fn open(home: &Home) -> Arc<Self> {
        let opened = files::open_or_create(&home.dir, &home.confirmed()).and_then(|file| {
            // The disk may be full later.
            rustix::fs::fallocate(
                &file,
                rustix::fs::FallocateFlags::empty(),
                0,
                COPIES * COPY_BYTES,
            )
            .or_else(|error| match error {
                rustix::io::Errno::OPNOTSUPP => Ok(()),
                error => Err(error),
            })?;
            Ok(file)
        });
        let opened = opened.inspect_err(|error| {
            tracing::warn!(%error, "what is confirmed cannot be noted, so a database that is set back while this hub does not run is not noticed");
        });
        let file = opened.ok();
        let mut confirmed = Confirmed::default();
        let mut newest = 0;
        for at in 0..COPIES {
            // The newest copy continues the others.
            if let Some(found) = file.as_ref().and_then(|file| read_copy(file, at)) {
                if confirmed.store.is_empty()
                    || found.era > confirmed.era
                    || found.numbers_since(&confirmed) > 0
                {
                    newest = at;
                }
                confirmed.learn(&found);
            }
        }
        Self::with(file, confirmed, newest)
    }

    /// Makes a note that ends with its process, for a database that nobody else uses.
    #[must_use]
    pub fn in_memory() -> Arc<Self> {
        Self::with(None, Confirmed::default(), 0)
    }

    /// `newest`: the copy that is on disk.
    fn with(file: Option<File>, confirmed: Confirmed, newest: u64) -> Arc<Self> {
        let state = State {
            synced: confirmed.clone(),
            confirmed,
            secret: String::new(),
            lead: String::new(),
            file: file.map(Arc::new),
            // Not over the newest copy, which a power failure would tear while it is written.
            copy: (newest + 1) % COPIES,
            synced_copy: newest,
            has_failed: false,
            has_sync_failed: false,
            unsynced_since: None,
            syncing: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            flushing: Mutex::default(),
            gone_back: watch::Sender::new(false),
        })
    }

    /// Begins to be used for a store that is opened again.
    pub(super) fn begin(&self) {
        self.gone_back.send_replace(false);
        self.state().lead.clear();
    }

    /// Returns whether the store is open and its era has begun.
    pub(super) fn has_lead(&self) -> bool {
        !self.state().lead.is_empty()
    }

    /// Returns whether this process has led in a database.
    pub(super) fn has_led(&self) -> bool {
        !self.state().secret.is_empty()
    }

    /// Waits until the note is on disk.
    fn sync(&self) {
        let _only = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, flushed, written) = {
            let mut state = self.state();
            // Before the sync: a note that is written during it may not be part of it, and needs
            // another one.
            state.unsynced_since = None;
            let Some(file) = state.file.clone() else {
                return;
            };
            let flushed = state.copy;
            state.copy = other_copy(flushed, state.synced_copy);
            (file, flushed, state.confirmed.clone())
        };
        let done = file.sync_data();
        let mut state = self.state();
        match done {
            Ok(()) => {
                (state.synced, state.synced_copy) = (written, flushed);
                state.has_sync_failed = false;
            }
            Err(error) => {
                // The note is not on disk, so it needs another sync. It is written again, since the
                // kernel may have dropped what it could not write.
                state.write();
                state.unsynced_since.get_or_insert_with(Instant::now);
                if let Some(thread) = &state.syncing {
                    thread.unpark();
                }
                if !std::mem::replace(&mut state.has_sync_failed, true) {
                    tracing::warn!(%error, "what is confirmed cannot be written to disk");
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is confirmed.
    pub(super) fn known(&self) -> Confirmed {
        self.state().confirmed.clone()
    }

    /// Continues with an opened database, whose era may be a new one.
    pub(super) fn enter(&self, history: &History, secret: &str, lead: Option<&str>) {
        let mut state = self.state();
        state.confirmed.enter(&history.store, history.era);
        secret.clone_into(&mut state.secret);
        if let Some(lead) = lead {
            lead.clone_into(&mut state.lead);
        }
        state.write();
        drop(state);
        self.sync();
    }

    /// Continues with the database of a leader, unless it lacks what is known.
    pub(super) fn follow(&self, history: &History) {
        let mut state = self.state();
        if state.confirmed.store != history.store
            || state.confirmed.era < history.era && !state.confirmed.is_missing_in(history)
        {
            state.confirmed.enter(&history.store, history.era);
            state.write();
        }
    }

    /// Notes a transaction that the database has confirmed, and the last numbers of tables.
    pub(super) fn note(
        self: &Arc<Self>,
        lead: &str,
        reached: Reached,
        numbers: impl IntoIterator<Item = (String, i64)>,
    ) {
        let mut state = self.state();
        state.confirmed.note(lead, reached, numbers);
        state.write();
        if state.confirmed.numbers_since(&state.synced) >= UNSYNCED_NUMBERS_MAX {
            drop(state);
            self.sync();
        } else if state.unsynced_since.is_none() || state.syncing.is_none() {
            state.unsynced_since.get_or_insert_with(Instant::now);
            self.sync_later(&mut state);
        }
    }

    /// Learns what another hub or a runner knows.
    pub(super) fn learn(&self, other: &Confirmed) {
        let mut state = self.state();
        if other.store != state.confirmed.store && !state.confirmed.store.is_empty() {
            return;
        }
        state.confirmed.learn(other);
        state.write();
        drop(state);
        self.sync();
    }

    /// Learns what the leader says. The note reaches the disk later, because the leader says
    /// something several times a second.
    pub(super) fn learn_from_leader(&self, other: &Confirmed) {
        let mut state = self.state();
        let before = state.confirmed.clone();
        if other.store == before.store || before.store.is_empty() {
            state.confirmed.learn(other);
            if state.confirmed != before {
                state.write();
            }
        }
        if state.confirmed.numbers_since(&state.synced) >= UNSYNCED_NUMBERS_MAX {
            drop(state);
            self.sync();
        }
    }

    /// Records that the database has gone back, so that the hub starts again.
    pub(super) fn note_gone_back(&self) {
        if !self.gone_back.send_replace(true) {
            tracing::error!(
                "the database was set back: it lacks transactions that were confirmed. The hub starts again, with a new era"
            );
        }
    }

    /// Waits until the database has gone back.
    pub async fn gone_back(&self) {
        let mut gone_back = self.gone_back.subscribe();
        if gone_back.wait_for(|gone_back| *gone_back).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns what this hub's lead has confirmed, as JSON for other hubs.
    pub(super) fn for_hubs(&self) -> String {
        let state = self.state();
        to_text(&state.confirmed.of_lead(&state.lead))
    }

    /// Returns the same with a signature, for a runner, which keeps it and shows it when it joins.
    /// `None`: the store is a file.
    #[must_use]
    pub(crate) fn for_runner(&self) -> Option<String> {
        let state = self.state();
        if state.secret.is_empty() {
            return None;
        }
        let text = to_text(&state.confirmed.of_lead(&state.lead));
        let mac = signature(&state.secret, &text).finalize().into_bytes();
        Some(format!("{}.{text}", hex(mac)))
    }

    /// Reads what a hub of this store gave to a runner. `None`: it comes from elsewhere.
    pub(super) fn of_runner(&self, statement: &str) -> Option<Confirmed> {
        if statement.len() > STATEMENT_BYTES_MAX {
            return None;
        }
        let (mac, text) = statement.split_once('.')?;
        let digits = mac.as_bytes();
        let mac: Option<Vec<u8>> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        signature(&self.state().secret, text)
            .verify_slice(&mac?)
            .ok()?;
        of_text(text)
    }

    /// Writes notes to disk after a while, from a thread of its own.
    fn sync_later(self: &Arc<Self>, state: &mut State) {
        if let Some(thread) = &state.syncing {
            thread.unpark();
            return;
        }
        let weak = Arc::downgrade(self);
        match std::thread::Builder::new()
            .name("confirmed".to_owned())
            .spawn(move || sync_notes(&weak))
        {
            Ok(thread) => state.syncing = Some(thread.thread().clone()),
            Err(error) => {
                if !std::mem::replace(&mut state.has_sync_failed, true) {
                    tracing::warn!(%error, "what is confirmed reaches the disk later");
                }
            }
        }
    }
}

impl Drop for ConfirmedNote {
    fn drop(&mut self) {
        if self.state().unsynced_since.is_some() {
            self.sync();
        }
        if let Some(thread) = &self.state().syncing {
            thread.unpark();
        }
    }
}

/// Writes the notes of a hub to disk, each at most a second after it was written. Ends with the
/// hub's part that leads.
fn sync_notes(note: &Weak<ConfirmedNote>) {
    loop {
        // This thread must not keep the note alive while it waits: dropping the note makes the last
        // sync.
        let Some(known) = note.upgrade() else { return };
        let since = known.state().unsynced_since;
        match since.map(|since| UNSYNCED_MAX.saturating_sub(since.elapsed())) {
            Some(Duration::ZERO) => known.sync(),
            Some(left) => {
                drop(known);
                std::thread::park_timeout(left);
            }
            None => {
                drop(known);
                std::thread::park();
            }
        }
    }
}

/// Returns the copy to write next: neither the one that is being flushed nor the one on disk.
fn other_copy(flushed: u64, synced: u64) -> u64 {
    (0..COPIES)
        .find(|copy| ![flushed, synced].contains(copy))
        .expect("there are three copies")
}

impl State {
    /// Writes the note without waiting for the disk.
    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        let text = to_text(&self.confirmed);
        let line = format!("{} {text}\n", digest_of(&text));
        let written = if line.len() as u64 > COPY_BYTES {
            Err(io::Error::other(format!(
                "{} bytes are too many",
                line.len()
            )))
        } else {
            file.write_all_at(line.as_bytes(), self.copy * COPY_BYTES)
        };
        match written {
            Ok(()) => self.has_failed = false,
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => {
                tracing::warn!(%error, "what is confirmed cannot be noted")
            }
            Err(_) => {}
        }
    }
}

fn digest_of(text: &str) -> String {
    hex(&Sha256::digest(text)[..DIGEST_DIGITS / 2])
}

/// Reads a copy. `None`: there is none, or the machine stopped while it was written.
fn read_copy(file: &File, copy: u64) -> Option<Confirmed> {
    let mut bytes = vec![0; usize::try_from(COPY_BYTES).ok()?];
    let mut read = 0;
    loop {
        match file.read_at(&mut bytes[read..], copy * COPY_BYTES + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let end = bytes[..read].iter().position(|byte| *byte == b'\n')?;
    let (digest, text) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
    if digest == digest_of(text) {
        of_text(text)
    } else {
        None
    }
}

fn signature(secret: &str, text: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key may have any length");
    mac.update(PURPOSE);
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(era: i64, last: i64) -> History {
        let led = adjutant_core::confirmed::Led {
            epoch: 1,
            id: "lead".to_owned(),
            last,
        };
        History {
            store: identity_of("secret"),
            era,
            leads: vec![led],
            ..History::default()
        }
    }

    fn noted(home: &Home, transactions: std::ops::RangeInclusive<i64>) -> Arc<ConfirmedNote> {
        let note = ConfirmedNote::open(home);
        note.enter(&history(0, *transactions.end()), "secret", Some("lead"));
        for transaction in transactions {
            note.note(
                "lead",
                Reached {
                    epoch: 1,
                    transaction,
                },
                [("events".to_owned(), transaction * 10)],
            );
        }
        note
    }

    #[test]
    fn note_outlives_its_hub_and_a_torn_copy() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(dir.path()).expect("a home");
        // As if it were killed.
        std::mem::forget(noted(&home, 1..=7));
        let again = ConfirmedNote::open(&home);
        assert!(
            !again.known().is_missing_in(&history(0, 7))
                && again.known().is_missing_in(&history(0, 6))
        );
        assert_eq!(again.known().numbers["events"], 70);
        drop(again);
        let note = noted(&home, 8..=9);
        // The machine stops: the copy that is being written is torn.
        let newest = note.state().copy * COPY_BYTES;
        std::mem::forget(note);
        let file = File::options()
            .write(true)
            .open(home.confirmed())
            .expect("a file");
        file.write_all_at(b"7", newest + 40).expect("written");
        let again = ConfirmedNote::open(&home);
        assert!(
            again.known().is_missing_in(&history(0, 6))
                && !again.known().is_missing_in(&history(0, 9))
        );
    }

    #[test]
    fn failed_sync_is_repeated_and_spares_the_copy_on_disk() {
        // A device that accepts writes, but no sync.
        let device = File::options()
            .write(true)
            .open("/dev/null")
            .expect("a device");
        let note = ConfirmedNote::with(Some(device), Confirmed::default(), 0);
        let reached = Reached {
            epoch: 1,
            transaction: 1,
        };
        {
            let mut state = note.state();
            state.confirmed.enter(&identity_of("secret"), 0);
            state
                .confirmed
                .note("lead", reached, [("events".to_owned(), 10)]);
        }
        for _ in 0..4 {
            note.sync();
            let state = note.state();
            assert!(state.unsynced_since.is_some() && state.synced == Confirmed::default());
            assert!(state.copy != state.synced_copy && state.synced_copy == 0);
        }
    }

    #[test]
    fn only_what_a_hub_of_the_store_has_signed_is_believed() {
        let dirs = [
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        ];
        let [note, other] =
            [&dirs[0], &dirs[1]].map(|dir| noted(&Home::at(dir.path()).expect("a home"), 1..=3));
        let statement = note.for_runner().expect("a statement");
        assert_eq!(other.of_runner(&statement), Some(note.known()));
        let forged = statement.replace("[[\"lead\",1,3]]", "[[\"lead\",1,9]]");
        assert!(forged != statement && other.of_runner(&forged).is_none());
        other.enter(&history(0, 3), "another secret", None);
        assert!(
            other.of_runner(&statement).is_none()
                && other.of_runner("").is_none()
                && other.of_runner("zz.x").is_none()
        );
    }
}
