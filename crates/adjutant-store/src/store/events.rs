//! The append-only event history.

use super::ids::run_id;
use super::{StoreError, Topic, Tx};
use crate::store::db::{self, Connection, Record, params, row, select};
use crate::store::webhooks::{add_deliveries, add_deliveries_of_pool};
use adjutant_core::{
    EventKind, EventSeq, PoolName, Principal, RequestId, RunId, StopReason, Time, shorten,
};

/// Longest text of an event and of a run's task, in characters.
const LINE_CHARS_MAX: usize = 200;

/// Maximum number of pool events that are kept, the newest.
const POOL_EVENTS_MAX: u32 = 10_000;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventSubject {
    Run { id: RunId, name: String },
    Pool(String),
}

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    pub seq: EventSeq,
    pub at: Time,
    pub kind: EventKind,
    pub about: EventSubject,
    pub request: Option<RequestId>,
    pub by: String,
    pub text: String,
    /// The type of the signal that caused the event, and how it was sent: `tool` or `block`.
    pub signal: Option<String>,
    pub source: Option<String>,
}

/// Appends one event, moves the run's cursor to it and notifies the run's subscriptions.
///
/// # Errors
/// A failure of the store.
pub fn append(
    tx: &mut Tx<'_>,
    kind: EventKind,
    run: RunId,
    owner: &str,
    request: Option<RequestId>,
    by: &str,
    text: &str,
) -> Result<EventSeq, StoreError> {
    let seq = tx.prepare("INSERT INTO events (at, kind, run, request, by, text, signal, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?.insert(
        "seq",
        params![
            tx.happened_at().0,
            kind.word(),
            run.to_string(),
            request.map(|id| id.to_string()),
            by,
            text,
            tx.signal().map(|(signal, _)| signal),
            tx.signal().map(|(_, source)| source)
        ],
    )?;
    let seq = EventSeq(seq);
    add_deliveries(tx, seq, kind)?;
    tx.notify(Topic::Run(run));
    if kind.changes_orders() {
        tx.notify(Topic::Orders(run));
    }
    tx.notify(Topic::Owner(owner.to_owned()));
    tx.notify(Topic::All);
    tx.notify(Topic::Outbox);
    Ok(seq)
}

/// Appends an event of a pool to the history.
///
/// # Errors
/// A failure of the store.
pub(crate) fn append_of_pool(
    tx: &mut Tx<'_>,
    kind: EventKind,
    pool: &PoolName,
    by: &Principal,
    text: &str,
) -> Result<(), StoreError> {
    // The same sequence as that of the events of runs.
    if tx
        .prepare("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'events'")?
        .execute([])?
        == 0
    {
        tx.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 1)")?
            .run([])?;
    }
    let seq = last_seq(tx.connection())?;
    tx.prepare(
        "INSERT INTO pool_events (seq, at, kind, pool, by, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .run(params![
        seq.0,
        tx.now().0,
        kind.word(),
        pool.as_str(),
        by.to_string(),
        text
    ])?;
    tx.prepare("DELETE FROM pool_events WHERE seq <= (SELECT seq FROM pool_events ORDER BY seq DESC LIMIT 1 OFFSET ?1)")?.run([POOL_EVENTS_MAX])?;
    add_deliveries_of_pool(tx, seq, kind)?;
    tx.notify(Topic::All);
    tx.notify(Topic::Outbox);
    Ok(())
}

/// Reads up to `limit` events after `after` that `who` may see, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn events_after(
    connection: &Connection,
    who: &Principal,
    run: Option<RunId>,
    after: EventSeq,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let one_run = match (who, run) {
        (_, Some(run)) => Some(run),
        (Principal::Run(run), None) => Some(*run),
        (Principal::Person | Principal::Client(_), None) => None,
    };
    let mut events = match (one_run, who) {
        (Some(run), _) => list(
            connection,
            "e.run = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3",
            params![run.to_string(), after.0, limit],
        )?,
        (None, Principal::Client(_)) => list(
            connection,
            "r.owner = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3",
            params![who.to_string(), after.0, limit],
        )?,
        (None, _) => list(
            connection,
            "e.seq > ?1 ORDER BY e.seq LIMIT ?2",
            params![after.0, limit],
        )?,
    };
    if one_run.is_none() && *who == Principal::Person {
        events.extend(pool_events_after(connection, after, limit)?);
        events.sort_by_key(|event| event.seq);
        events.truncate(limit as usize);
    }
    Ok(events)
}

row! {
    /// An event of a pool.
    struct PoolEventRow {
        seq: EventSeq,
        at: Time,
        kind: String,
        pool: String,
        by: String,
        text: String,
    }
}

impl PoolEventRow {
    fn event(self) -> Result<Event, StoreError> {
        let Self {
            seq,
            at,
            kind,
            pool,
            by,
            text,
        } = self;
        Ok(Event {
            seq,
            at,
            kind: EventKind::from_word(&kind).ok_or_else(|| corrupt(seq, &kind))?,
            about: EventSubject::Pool(pool),
            request: None,
            by,
            text,
            signal: None,
            source: None,
        })
    }
}

fn corrupt(event: EventSeq, what: &str) -> StoreError {
    StoreError::Corrupt(format!("event {}: {what}", event.0))
}

fn pool_events_after(
    connection: &Connection,
    after: EventSeq,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let rows: Vec<PoolEventRow> = connection
        .prepare_cached(select!(
            PoolEventRow,
            "FROM pool_events WHERE seq > ?1 ORDER BY seq LIMIT ?2"
        ))?
        .read_rows(params![after.0, limit])?;
    rows.into_iter().map(PoolEventRow::event).collect()
}

/// Returns whether a run has an event of a kind.
///
/// # Errors
/// A failure of the store.
pub fn has_event(connection: &Connection, run: RunId, kind: EventKind) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM events WHERE run = ?1 AND kind = ?2)";
    Ok(connection
        .prepare_cached(sql)?
        .read_row([run.to_string().as_str(), kind.word()])?)
}

/// Reads the newest `limit` events caused by a run's signals, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn signals_of(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Event>, StoreError> {
    let mut events = list(
        connection,
        "e.run = ?1 AND e.signal IS NOT NULL ORDER BY e.seq DESC LIMIT ?2",
        params![run.to_string(), limit],
    )?;
    events.reverse();
    Ok(events)
}

row! {
    /// An event of a run.
    struct EventRow as e {
        seq: EventSeq,
        at: Time,
        kind: String,
        run: String,
        run_name: String = "r.name",
        request: Option<String>,
        by: String,
        text: String,
        signal: Option<String>,
        source: Option<String>,
    }
}

impl EventRow {
    fn event(self) -> Result<Event, StoreError> {
        let Self {
            seq,
            at,
            kind,
            run,
            run_name,
            request,
            by,
            text,
            signal,
            source,
        } = self;
        let request = match request {
            Some(id) => Some(RequestId::parse(&id).map_err(|_| corrupt(seq, &id))?),
            None => None,
        };
        Ok(Event {
            seq,
            at,
            kind: EventKind::from_word(&kind).ok_or_else(|| corrupt(seq, &kind))?,
            about: EventSubject::Run {
                id: RunId::parse(&run).map_err(|_| corrupt(seq, &run))?,
                name: run_name,
            },
            request,
            by,
            text,
            signal,
            source,
        })
    }
}

/// Reads events of runs. `rest` follows `WHERE`.
fn list(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Event>, StoreError> {
    let sql = EventRow::select(&format!(
        "FROM events e CROSS JOIN runs r ON r.id = e.run WHERE {rest}"
    ));
    let rows: Vec<EventRow> = connection.prepare_cached(&sql)?.read_rows(values)?;
    rows.into_iter().map(EventRow::event).collect()
}

/// Returns why a run stopped last, if the event's text is a plain stop reason.
///
/// # Errors
/// A failure of the store.
pub fn last_stop(connection: &Connection, run: RunId) -> Result<Option<StopReason>, StoreError> {
    let text: Option<String> = connection
        .prepare_cached(
            "SELECT text FROM events WHERE run = ?1 AND kind = ?2 ORDER BY seq DESC LIMIT 1",
        )?
        .find_row(params![run.to_string(), EventKind::RunStopped.word()])?;
    Ok(text.as_deref().and_then(StopReason::from_word))
}

/// Returns the newest position of the history.
///
/// # Errors
/// A failure of the store.
pub fn last_seq(connection: &Connection) -> Result<EventSeq, StoreError> {
    // The sequence table keeps the position even after the newest events were removed.
    let seq: Option<i64> = connection
        .prepare_cached("SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'")?
        .read_row([])?;
    Ok(EventSeq(seq.unwrap_or(0)))
}

/// Returns the runs with events after `after`, and the newest position.
///
/// # Errors
/// A failure of the store.
pub fn changed_runs(
    connection: &Connection,
    after: EventSeq,
) -> Result<(Vec<RunId>, EventSeq), StoreError> {
    let last = last_seq(connection)?;
    let runs: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT run FROM events WHERE seq > ?1")?
        .read_rows([after.0])?;
    Ok((
        runs.iter()
            .map(|run| run_id(run))
            .collect::<Result<_, _>>()?,
        last,
    ))
}

/// Returns the first line of a text that is not blank, shortened and without control characters.
pub(super) fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("");
    shorten::to_chars(line, LINE_CHARS_MAX).replace(char::is_control, "")
}
