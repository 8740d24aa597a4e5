//! Deadlines of runs.

use crate::store::StoreError;
use crate::store::db::{Connection, row, select};
use crate::store::records::run::{Run, list};
use adjutant_core::{RunId, SteadyTime, StopReason};

/// Returns whether the hub has work without being called: a run that is live, queued, or stopped
/// until a vendor's limit or the machine's shortage of memory ends, or a request that will expire.
///
/// # Errors
/// A failure of the store.
pub fn has_scheduled_work(connection: &Connection) -> Result<bool, StoreError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM runs WHERE state IN ('starting', 'running', 'stopping'))
        OR EXISTS (SELECT 1 FROM runs WHERE state = 'queued')
        OR EXISTS (SELECT 1 FROM runs WHERE state = 'stopped' AND stop_reason IN (?1, ?2, ?3))
        OR EXISTS (SELECT 1 FROM requests WHERE status = 'pending')";
    Ok(connection.prepare_cached(sql)?.read_row(
        [
            StopReason::RateLimited,
            StopReason::Overloaded,
            StopReason::MemoryPressure,
        ]
        .map(StopReason::word),
    )?)
}

/// Reads the runs that were paused because the machine was short of memory, the oldest first.
///
/// # Errors
/// A failure of the store.
pub fn paused_by_pressure(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    list(
        connection,
        "WHERE state = 'stopped' AND stop_reason = ?1 ORDER BY no LIMIT 500",
        [StopReason::MemoryPressure.word()],
    )
}

/// Returns the next deadline.
///
/// # Errors
/// A failure of the store.
pub fn next_until(connection: &Connection) -> Result<Option<SteadyTime>, StoreError> {
    let due: Option<i64> = connection
        .prepare_cached(
            "SELECT min(at) FROM (SELECT min(expires_at) AS at FROM requests INDEXED BY requests_inbox WHERE status = 'pending'
             UNION ALL SELECT min(until_at) FROM runs WHERE state = 'stopped'
             UNION ALL SELECT min(active_since + estimate_ms - active_ms) FROM runs
               WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL) AS deadlines",
        )?
        .read_row([])?;
    Ok(due.map(SteadyTime))
}

row! {
    /// What follows for a run without another call.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::store) struct Outlook {
        /// When a run that works exceeds its estimate.
        pub(in crate::store) estimate_due: Option<SteadyTime> =
            "CASE WHEN state = 'running' AND overdue_seq IS NULL THEN active_since + estimate_ms - active_ms END",
        /// Whether it is stopped without an open blocking request.
        pub(in crate::store) waits_for_nothing: bool =
            "state = 'stopped' AND blocking_pending = 0 AND holding = 0",
    }
}

/// Reads what follows for a run. One statement, because an answer needs all of it.
pub(in crate::store) fn outlook(
    connection: &Connection,
    run: RunId,
) -> Result<Option<Outlook>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Outlook, "FROM runs WHERE id = ?1"))?
        .find_row([run.to_string()])?)
}

/// Reads stopped runs whose deadline has passed.
///
/// # Errors
/// A failure of the store.
pub fn due_stopped(connection: &Connection, now: SteadyTime) -> Result<Vec<Run>, StoreError> {
    list(
        connection,
        "WHERE state = 'stopped' AND until_at <= ?1 LIMIT 500",
        [now.0],
    )
}

/// Reads runs that exceed their estimate without an event about it.
///
/// # Errors
/// A failure of the store.
pub fn due_estimates(connection: &Connection, now: SteadyTime) -> Result<Vec<Run>, StoreError> {
    let rest = "WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL
        AND active_since + estimate_ms - active_ms <= ?1 LIMIT 500";
    list(connection, rest, [now.0])
}
