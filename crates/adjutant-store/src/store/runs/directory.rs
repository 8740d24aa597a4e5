//! Runs that share a directory.

use crate::store::StoreError;
use crate::store::db::{Connection, params};
use crate::store::ids::run_id;
use crate::store::records::run::{Run, list};
use adjutant_core::RunId;

/// Maximum number of other live runs that are named.
const NAMED_MAX: u32 = 20;
/// Maximum number of live runs of a directory that are read. The others are newer.
const LIVE_READ_MAX: u32 = 200;

/// The live runs of one directory, without those on runners, which have it on other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveInDir(Vec<(String, String)>);

impl LiveInDir {
    /// Returns the names of the runs other than this one, the oldest first, and whether there are
    /// more.
    #[must_use]
    pub fn others(&self, run: RunId) -> (Vec<String>, bool) {
        let run = run.to_string();
        let mut others = self
            .0
            .iter()
            .filter(|(id, _)| *id != run)
            .map(|(_, name)| name.clone());
        let named = others.by_ref().take(NAMED_MAX as usize).collect();
        (named, others.next().is_some())
    }
}

/// Reads the live runs in the directory of a run that is not on a runner.
///
/// # Errors
/// A failure of the store.
pub fn live_in_dir(connection: &Connection, run: RunId) -> Result<LiveInDir, StoreError> {
    // With the directory as a parameter, a call could not announce the read before it has the run.
    let sql = "SELECT id, name FROM (SELECT id, name, attempt, no FROM runs INDEXED BY runs_dir WHERE cwd = (SELECT cwd FROM runs WHERE id = ?1)
          AND state IN ('starting', 'running', 'stopping') ORDER BY no LIMIT ?2) AS live
        WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run = live.id AND a.n = live.attempt AND a.host IS NOT NULL) ORDER BY no LIMIT ?3";
    // Enough for the run itself and one that is not named.
    let values = params![run.to_string(), LIVE_READ_MAX, NAMED_MAX + 2];
    Ok(LiveInDir(
        connection.prepare_cached(sql)?.read_rows(values)?,
    ))
}

/// Reads the names of other live runs in a directory, its parents or its subdirectories.
///
/// # Errors
/// A failure of the store.
pub fn live_around(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE id <> ?2 AND state IN ('starting', 'running', 'stopping')
             AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/' OR substr(?1, 1, length(cwd) + 1) = cwd || '/') ORDER BY no LIMIT 20",
        )?
        .read_rows(params![cwd, except.to_string()])?)
}

/// Reads the names of other live runs in a directory, its parents or its subdirectories that work:
/// a run with an open blocking request waits for its answer.
///
/// # Errors
/// A failure of the store.
pub fn working_around(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE id <> ?2 AND state IN ('starting', 'running', 'stopping')
             AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/' OR substr(?1, 1, length(cwd) + 1) = cwd || '/')
             AND NOT EXISTS (SELECT 1 FROM requests q WHERE q.run = runs.id AND q.blocking = 1 AND q.status = 'pending') ORDER BY no LIMIT 20",
        )?
        .read_rows(params![cwd, except.to_string()])?)
}

/// Reads the names of other runs that use a directory or are queued to. A run that is held by its
/// child does not count.
///
/// # Errors
/// A failure of the store.
pub fn runs_using_directory(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             ORDER BY no LIMIT 20",
        )?
        .read_rows(params![cwd, except.to_string()])?)
}

/// Reads the names of runs that had an attempt in or around a run's directory at the same time.
///
/// # Errors
/// A failure of the store.
pub fn beside(connection: &Connection, run: &Run) -> Result<Vec<String>, StoreError> {
    Ok(runs_beside(connection, run)?
        .into_iter()
        .map(|run| run.name)
        .collect())
}

/// Lists runs that worked in or around a run's directory at the same time. A run that waited for an
/// answer during the whole attempt did not.
///
/// # Errors
/// A failure of the store.
pub fn runs_beside(connection: &Connection, run: &Run) -> Result<Vec<Run>, StoreError> {
    let sql = "WHERE id <> ?1
               AND (cwd = ?2 OR substr(cwd, 1, length(?2) + 1) = ?2 || '/' OR substr(?2, 1, length(cwd) + 1) = cwd || '/')
               AND EXISTS (SELECT 1 FROM attempts a, attempts m WHERE a.run = runs.id AND m.run = ?1 AND a.started_at IS NOT NULL AND m.started_at IS NOT NULL
                           AND (m.ended_at IS NULL OR a.started_at <= m.ended_at) AND (a.ended_at IS NULL OR a.ended_at >= m.started_at)
                           AND NOT EXISTS (SELECT 1 FROM requests q WHERE q.run = runs.id AND q.blocking = 1 AND q.asked_at <= m.started_at
                                           AND (q.status = 'pending' OR q.answered_at >= m.ended_at)))
               ORDER BY no LIMIT 20";
    list(connection, sql, params![run.id.to_string(), run.cwd])
}

/// Reads the ids and names of other runs that use a directory, including queued runs of chat turns.
/// A run that is held by its child does not count.
///
/// # Errors
/// A failure of the store.
pub fn working_in(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<Vec<(RunId, String)>, StoreError> {
    let found: Vec<(String, String)> = connection
        .prepare_cached(
            "SELECT id, name FROM runs r WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             AND (state <> 'queued' OR EXISTS (SELECT 1 FROM chat_turns t WHERE t.run = r.id)) ORDER BY no LIMIT 20",
        )?
        .read_rows(params![cwd, except.to_string()])?;
    found
        .into_iter()
        .map(|(id, name)| Ok((run_id(&id)?, name)))
        .collect()
}

/// Lists other runs that work or have worked in a workspace, without those that its own run has
/// delegated to, the oldest first.
///
/// # Errors
/// A failure of the store.
pub fn later_runs_in(
    connection: &Connection,
    path: &str,
    of: RunId,
    max: u32,
) -> Result<Vec<Run>, StoreError> {
    let sql = "WHERE id <> ?2 AND parent IS DISTINCT FROM ?2 AND (cwd = ?1 OR substr(cwd, 1, length(?1) + 1) = ?1 || '/') ORDER BY no LIMIT ?3";
    list(connection, sql, params![path, of.to_string(), max])
}
