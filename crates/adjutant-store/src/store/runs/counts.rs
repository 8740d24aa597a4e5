//! Counts of runs.

use crate::store::StoreError;
use crate::store::db::Connection;

/// Counts of live runs and requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub live: u64,
    /// Live runs that are held by a child, to which they lend their slot.
    pub lent: u64,
    pub pending_requests: u64,
}

/// Counts live runs and open requests.
///
/// # Errors
/// A failure of the store.
pub fn counts(connection: &Connection) -> Result<Counts, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let count: i64 = connection.prepare_cached(sql)?.read_row([])?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    Ok(Counts {
        live: count(
            "SELECT count(*) FROM runs WHERE state IN ('starting', 'running', 'stopping')",
        )?,
        lent: count(
            "SELECT count(*) FROM runs WHERE holding > 0 AND state IN ('starting', 'running', 'stopping')",
        )?,
        pending_requests: count("SELECT count(*) FROM requests WHERE status = 'pending'")?,
    })
}

/// Returns whether more runs than this are queued.
///
/// # Errors
/// A failure of the store.
pub fn is_queue_longer(connection: &Connection, than: u32) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT 1 FROM runs INDEXED BY runs_queue WHERE state = 'queued' LIMIT 1 OFFSET ?1",
        )?
        .exists([than])?)
}
