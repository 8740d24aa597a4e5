//! The leader among hubs that share a store: the hub whose session holds the session lock. The
//! others wait for the lock.
//!
//! The leader notifies the others several times a second over a session of its own. After a
//! silence, another hub ends the session that holds the lock: a stopped process keeps its
//! connections. The epoch in each transaction prevents later writes of that hub.

use super::history::history;
use super::open::{
    LOCK_CLASS, SCHEMA_ID, connect, connect_to_write, lock_within, refuse_unreleased, until_reached,
};
use super::{Error, PgConnection, Result};
use crate::config::PostgresAddress;
use crate::store::confirmed::{ConfirmedNote, of_text, to_text};
use crate::store::db::ValueRef;
use crate::trace::RepeatedFailures;
use adjutant_core::confirmed::Confirmed;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How often the leader notifies the others.
pub(in crate::store) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long the server may take for a statement of a heartbeat. A confirmation that took longer
/// would have expired.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// After a silence of this length, another hub takes over. Longer than a hub trusts its last
/// confirmation ([`super::super::super::lead`]).
const SILENCE_MAX: Duration = Duration::from_millis(3_500);
/// How long a hub waits for the lock at a time. In between, it detects a lost connection.
const LOCK_WAIT_MS: u32 = 15_000;
/// How long it waits at a time before the store has its tables, in which this hub enters its token.
const FIRST_LOCK_WAIT_MS: u32 = 1_100;
/// A wait that fails earlier was refused.
const LOCK_WAIT_MIN: Duration = Duration::from_secs(1);

/// 1 if the store has its tables, else 0.
const HAS_TABLES: &str = "SELECT (to_regclass('hubs') IS NOT NULL)::int";

/// The leader, as it describes itself to the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderAddress {
    /// The name of its machine.
    pub name: String,
    /// The base address at which it serves HTTP. `None`: it does not listen, so nothing can be
    /// passed to it.
    pub url: Option<String>,
    /// The SHA-256 of the public key of its certificate, in hexadecimal.
    pub fingerprint: Option<String>,
}

impl LeaderAddress {
    pub(in crate::store) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::Other(error.to_string()))
    }
}

/// What a standby hub knows of the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderStatus {
    /// There is no leader at the moment.
    NoLeader,
    /// The server cannot be used, for this reason.
    Unreachable(String),
    Leader(LeaderAddress),
    /// A hub that does not share the store uses it.
    Unshared(String),
}

/// The condition of the rows of `pg_locks` that are the held session lock.
fn held_lock() -> String {
    format!(
        "l.locktype = 'advisory' AND l.granted AND l.classid = {LOCK_CLASS} AND l.objid = {SCHEMA_ID}::bigint
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
}

fn channel(connection: &PgConnection) -> Result<String> {
    Ok(format!(
        "adj_lead_{}",
        connection.number(&format!("SELECT {SCHEMA_ID}::bigint"))?
    ))
}

/// Waits for the session lock, as long as it takes, and returns the session that holds it.
/// `token_hash`: see the table `hubs`.
///
/// # Errors
/// The database cannot be used. A database that this process has used before is waited for: it may
/// be replaced, for instance by an earlier dump of itself, and is missing or incomplete until then.
pub(in crate::store) fn wait_for_lock(
    address: &PostgresAddress,
    token_hash: &str,
    note: &ConfirmedNote,
) -> Result<PgConnection> {
    let (mut failures, mut has_used) = (RepeatedFailures::default(), note.has_led());
    loop {
        let entered = until_reached(|| connect_to_write(address)).map(|connection| {
            let waited = wait_with(&connection, token_hash, note);
            has_used |= matches!(waited, Err(Error::Lost(_)));
            waited.map(|()| connection)
        });
        match entered {
            Ok(Ok(connection)) => return Ok(connection),
            // It has been reported.
            Err(Error::Lost(_)) => continue,
            Ok(Err(error)) | Err(error) if !has_used => return Err(error),
            Ok(Err(error)) | Err(error) => {
                let problem = error.to_string();
                if let Some(times) = failures.note(&problem, Instant::now()) {
                    tracing::warn!(problem, times, "this hub cannot wait for leadership");
                }
            }
        }
        // An administrator may end sessions as fast as they begin.
        std::thread::park_timeout(HEARTBEAT_INTERVAL);
    }
}

fn wait_with(connection: &PgConnection, token_hash: &str, note: &ConfirmedNote) -> Result<()> {
    let mut is_entered = false;
    loop {
        // A new database has no schema until its first hub leads.
        if !is_entered && connection.number(HAS_TABLES)? == 1 {
            refuse_unreleased(connection)?;
            // The server uses process ids again, and the leader accepts the token of each row whose
            // id is in use. So rows of sessions that have ended are removed.
            connection
                .prepare("DELETE FROM hubs WHERE backend NOT IN (SELECT pid FROM pg_stat_activity)")
                .execute([])?;
            let own = i64::from(connection.backend);
            connection
                .prepare(
                    "INSERT INTO hubs (backend, token_hash, confirmed) VALUES (?1, ?2, ?3)
                     ON CONFLICT (backend) DO UPDATE SET token_hash = ?2, confirmed = ?3",
                )
                .execute(crate::store::db::params![
                    own,
                    token_hash,
                    to_text(&note.known())
                ])?;
            is_entered = true;
        }
        let began = Instant::now();
        match lock_within(
            connection,
            if is_entered {
                LOCK_WAIT_MS
            } else {
                FIRST_LOCK_WAIT_MS
            },
        ) {
            Ok(()) => return Ok(()),
            Err(error @ Error::Lost(_)) => return Err(error),
            Err(error) if began.elapsed() < LOCK_WAIT_MIN => return Err(error),
            Err(_) => {}
        }
    }
}

/// Reads what the hubs on standby know to be confirmed.
pub(in crate::store) fn known_to_others(connection: &PgConnection) -> Result<Vec<Confirmed>> {
    let mut statement = connection.prepare("SELECT confirmed FROM hubs JOIN pg_stat_activity ON pid = backend WHERE confirmed IS NOT NULL");
    let mut rows = statement.query([])?;
    let mut known = Vec::new();
    while let Some(row) = rows.next() {
        known.extend(of_text(&text(row.value(0)?)));
    }
    Ok(known)
}

/// The session in which the leader sends its heartbeats.
pub(in crate::store) struct Heartbeat {
    connection: PgConnection,
    channel: String,
}

/// The result of a heartbeat.
#[derive(Debug, Default)]
pub(in crate::store) struct HeartbeatReply {
    /// The process that serves the session which holds the lock.
    pub(in crate::store) holder: Option<i64>,
    /// The epoch of the store. `None`: it has no schema yet.
    pub(in crate::store) epoch: Option<i64>,
    /// The hashes of the tokens of the standby hubs.
    pub(in crate::store) token_hashes: Vec<String>,
    /// What standby hubs know to be confirmed, and whether the database lacks something of it.
    pub(in crate::store) known_to_others: Vec<Confirmed>,
    pub(in crate::store) is_missing: bool,
}

impl Heartbeat {
    pub(in crate::store) fn connect(address: &PostgresAddress) -> Result<Self> {
        let connection = connect(address)?;
        connection.session.set_reply_within(HEARTBEAT_TIMEOUT);
        let channel = channel(&connection)?;
        Ok(Self {
            connection,
            channel,
        })
    }

    /// Notifies the other hubs. `generation` changes with the description of this hub. `confirmed`:
    /// what it has confirmed, as JSON.
    pub(in crate::store) fn send(
        &self,
        holder: i64,
        generation: u64,
        confirmed: &str,
    ) -> Result<HeartbeatReply> {
        let sql = format!(
            "SELECT (SELECT l.pid::bigint FROM pg_locks l WHERE {}), pg_notify(?1, ?2)::text",
            held_lock()
        );
        let mut statement = self.connection.prepare(&sql);
        let mut rows = statement.query(crate::store::db::params![
            self.channel,
            format!("{holder} {generation} {confirmed}")
        ])?;
        let holder = match rows.next().ok_or(Error::NoRows)?.value(0)? {
            ValueRef::Integer(pid) => Some(pid),
            _ => None,
        };
        // The first heartbeats are sent before a new store has its schema.
        if self.connection.number(HAS_TABLES)? == 0 {
            return Ok(HeartbeatReply {
                holder,
                ..HeartbeatReply::default()
            });
        }
        let mut statement = self.connection.prepare(
            "SELECT token_hash, confirmed FROM hubs JOIN pg_stat_activity ON pid = backend",
        );
        let mut rows = statement.query([])?;
        let (mut token_hashes, mut known_to_others) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next() {
            token_hashes.push(text(row.value(0)?));
            known_to_others.extend(of_text(&text(row.value(1)?)));
        }
        // Most of the time, nobody knows more than the leader.
        let is_missing = !known_to_others.is_empty() && {
            let (history, _) = history(&self.connection)?;
            known_to_others
                .iter()
                .any(|known| known.is_missing_in(&history))
        };
        let epoch = Some(self.connection.number("SELECT epoch FROM hub")?);
        Ok(HeartbeatReply {
            holder,
            epoch,
            token_hashes,
            known_to_others,
            is_missing,
        })
    }
}

fn text(value: ValueRef<'_>) -> String {
    if let ValueRef::Text(text) = value {
        String::from_utf8_lossy(text).into_owned()
    } else {
        String::new()
    }
}

/// Follows the leader until `report` returns `false`, and takes the lock away from one that is
/// silent.
pub(in crate::store) fn watch_leader(
    address: &PostgresAddress,
    note: &ConfirmedNote,
    mut report: impl FnMut(LeaderStatus) -> bool,
) {
    let mut failures = RepeatedFailures::default();
    loop {
        let ended = match connect(address) {
            Ok(connection) => watch_with(&connection, note, &mut report),
            Err(error) => Err(error),
        };
        let problem = match ended {
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        if let Some(times) = failures.note(&problem, Instant::now()) {
            tracing::warn!(problem, times, "the leader cannot be followed");
        }
        if !report(LeaderStatus::Unreachable(problem)) {
            return;
        }
        // A refused connection is retried after a while, because nothing notifies of a change.
        std::thread::park_timeout(HEARTBEAT_INTERVAL);
    }
}

fn watch_with(
    connection: &PgConnection,
    note: &ConfirmedNote,
    report: &mut impl FnMut(LeaderStatus) -> bool,
) -> Result<()> {
    // Before the first query, so that a notification between the query and the wait is received.
    connection.run(&format!("LISTEN {}", channel(connection)?))?;
    if connection.number(HAS_TABLES)? > 0 {
        note.follow(&history(connection)?.0);
    }
    let mut received: Option<String> = None;
    // The holder of the lock at the last notification or query, and the time of that.
    let mut holder = current_holder(connection)?;
    let mut since = Instant::now();
    if !report(leader_status(connection)?) {
        return Ok(());
    }
    loop {
        match connection.notification(since + SILENCE_MAX)? {
            Some(heartbeat) => {
                since = Instant::now();
                let mut parts = heartbeat.splitn(3, ' ');
                let (pid, generation) = (
                    parts.next().unwrap_or_default(),
                    parts.next().unwrap_or_default(),
                );
                holder = pid.parse().ok();
                if let Some(confirmed) = parts.next().and_then(of_text) {
                    note.learn_from_leader(&confirmed);
                }
                let leader = format!("{pid} {generation}");
                let is_new = received.as_ref() != Some(&leader);
                received = Some(leader);
                if !report(if is_new {
                    leader_status(connection)?
                } else {
                    continue;
                }) {
                    return Ok(());
                }
            }
            None => {
                let current = current_holder(connection)?;
                // A hub that got the lock since has the whole time for its first heartbeat.
                if let (Some(silent), true) = (current, current == holder) {
                    end_session(connection, silent)?;
                }
                (holder, since, received) = (current, Instant::now(), None);
                if !report(leader_status(connection)?) {
                    return Ok(());
                }
            }
        }
    }
}

fn current_holder(connection: &PgConnection) -> Result<Option<i64>> {
    match connection.number(&format!(
        "SELECT l.pid::bigint FROM pg_locks l WHERE {}",
        held_lock()
    )) {
        Ok(pid) => Ok(Some(pid)),
        Err(Error::NoRows) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends the session of a hub that shares the store, so that the next waiting hub gets the lock.
fn end_session(connection: &PgConnection, holder: i64) -> Result<()> {
    // A hub that does not share the store sends no heartbeats, so its silence means nothing.
    if !matches!(leader_status(connection)?, LeaderStatus::Leader(_)) {
        return Ok(());
    }
    tracing::warn!(
        holder,
        silent_ms = SILENCE_MAX.as_millis(),
        "the leader is silent: its session is ended"
    );
    // Only while it has the lock: the session may have ended since, and its process id may belong
    // to another one.
    let ended = format!(
        "SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l WHERE l.pid = {holder} AND {}",
        held_lock()
    );
    connection.number(&ended).map(|_| ())
}

fn leader_status(connection: &PgConnection) -> Result<LeaderStatus> {
    let Some(holder) = current_holder(connection)? else {
        return Ok(LeaderStatus::NoLeader);
    };
    let has_column = "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('hub') AND attname = 'leader'";
    if connection.number(has_column)? > 0 {
        let mut statement = connection.prepare("SELECT leader FROM hub");
        let mut rows = statement.query([])?;
        if let Some(row) = rows.next()
            && let ValueRef::Text(json) = row.value(0)?
        {
            return serde_json::from_slice(json)
                .map(LeaderStatus::Leader)
                .map_err(|error| Error::Other(error.to_string()));
        }
    }
    let mut statement =
        connection.prepare("SELECT application_name FROM pg_stat_activity WHERE pid = ?1");
    let mut rows = statement.query([holder])?;
    Ok(match rows.next() {
        Some(row) => LeaderStatus::Unshared(text(row.value(0)?)),
        None => LeaderStatus::NoLeader,
    })
}
