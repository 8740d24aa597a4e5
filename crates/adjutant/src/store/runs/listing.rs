//! Lists of runs.

use super::row::list;
use super::run::Run;
use crate::store::StoreError;
use crate::store::db::{Connection, params};
use adjutant_core::{Principal, SteadyTime};

/// A page of runs, and the number of further ones.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub more: u64,
}

/// Maximum number of finished runs in a page.
pub const FINISHED_PAGE: u32 = 50;

/// Reads up to `limit` runs of an owner (`None`: of all owners), newest first, only unfinished ones unless `all`.
///
/// # Errors
/// A failure of the store.
pub fn runs_newest(connection: &Connection, owner: Option<&Principal>, all: bool, limit: u32) -> Result<Page, StoreError> {
    let state = if all { "TRUE" } else { "state <> 'finished'" };
    let owner = owner.map(ToString::to_string);
    let (condition, owner) = match &owner {
        Some(owner) => (format!("{state} AND owner = ?1"), owner.as_str()),
        None => (format!("{state} AND ?1 = ''"), ""),
    };
    let runs = list(connection, &format!("WHERE {condition} ORDER BY no DESC LIMIT ?2"), params![owner, limit])?;
    let more = if runs.len() < limit as usize {
        0
    } else {
        let total: i64 = connection.prepare_cached(&format!("SELECT count(*) FROM runs WHERE {condition}"))?.query_row([owner], |row| row.get(0))?;
        u64::try_from(total).unwrap_or(0).saturating_sub(runs.len() as u64)
    };
    Ok(Page { runs, more })
}

/// Reads every run that may have a live attempt.
///
/// # Errors
/// A failure of the store.
pub fn live_runs(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state IN ('starting', 'running', 'stopping') ORDER BY no", [])
}

/// Reads runs that finished before `before`, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn old_finished(connection: &Connection, before: SteadyTime, limit: u32) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state = 'finished' AND settled_at < ?1 ORDER BY settled_at LIMIT ?2", params![before.0, limit])
}
