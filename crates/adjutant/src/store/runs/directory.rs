//! Runs that share a directory.

use super::row::list;
use super::run::Run;
use crate::store::StoreError;
use crate::store::db::{Connection, params};
use crate::store::ids::run_id;
use adjutant_core::RunId;

/// Reads the names of other live runs in the directory of a run.
///
/// # Errors
/// A failure of the store.
pub fn live_in_dir(connection: &Connection, run: RunId) -> Result<Vec<String>, StoreError> {
    // With the directory as a parameter, a call could not announce the read before it has the run.
    let sql = "SELECT name FROM runs WHERE cwd = (SELECT cwd FROM runs WHERE id = ?1) AND id <> ?1 AND state IN ('starting', 'running', 'stopping')
        ORDER BY no LIMIT 20";
    Ok(connection.prepare_cached(sql)?.query_map([run.to_string()], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Reads the names of other live runs in a directory, its parents or its subdirectories.
///
/// # Errors
/// A failure of the store.
pub fn live_around(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE id <> ?2 AND state IN ('starting', 'running', 'stopping')
             AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/' OR substr(?1, 1, length(cwd) + 1) = cwd || '/') ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the names of other runs that use a directory or are queued to. A run that is held by its child does not
/// count.
///
/// # Errors
/// A failure of the store.
pub fn runs_using_directory(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the names of runs that had an attempt in or around a run's directory at the same time.
///
/// # Errors
/// A failure of the store.
pub fn beside(connection: &Connection, run: &Run) -> Result<Vec<String>, StoreError> {
    Ok(runs_beside(connection, run)?.into_iter().map(|run| run.name).collect())
}

/// Lists runs that had an attempt in or around a run's directory at the same time.
///
/// # Errors
/// A failure of the store.
pub fn runs_beside(connection: &Connection, run: &Run) -> Result<Vec<Run>, StoreError> {
    let sql = "WHERE id <> ?1
               AND (cwd = ?2 OR substr(cwd, 1, length(?2) + 1) = ?2 || '/' OR substr(?2, 1, length(cwd) + 1) = cwd || '/')
               AND EXISTS (SELECT 1 FROM attempts a, attempts m WHERE a.run = runs.id AND m.run = ?1 AND a.started_at IS NOT NULL AND m.started_at IS NOT NULL
                           AND (m.ended_at IS NULL OR a.started_at <= m.ended_at) AND (a.ended_at IS NULL OR a.ended_at >= m.started_at))
               ORDER BY no LIMIT 20";
    list(connection, sql, params![run.id.to_string(), run.cwd])
}

/// Reads the ids and names of other runs that use a directory, including queued runs of chat turns. A run that is
/// held by its child does not count.
///
/// # Errors
/// A failure of the store.
pub fn working_in(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<(RunId, String)>, StoreError> {
    let found: Vec<(String, String)> = connection
        .prepare_cached(
            "SELECT id, name FROM runs r WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             AND (state <> 'queued' OR EXISTS (SELECT 1 FROM chat_turns t WHERE t.run = r.id)) ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    found.into_iter().map(|(id, name)| Ok((run_id(&id)?, name))).collect()
}

/// Lists other runs that work or have worked in a workspace, without those that its own run has delegated to, the oldest first.
///
/// # Errors
/// A failure of the store.
pub fn later_runs_in(connection: &Connection, path: &str, of: RunId, max: u32) -> Result<Vec<Run>, StoreError> {
    let sql = "WHERE id <> ?2 AND parent IS DISTINCT FROM ?2 AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/') ORDER BY no LIMIT ?3";
    list(connection, sql, params![path, of.to_string(), max])
}
