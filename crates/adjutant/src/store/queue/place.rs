//! The place of a queued run, and the data to predict when it starts.

use crate::store::db::{self, Connection, params};
use crate::store::{Run, StoreError};
use adjutant_core::SteadyTime;
use adjutant_core::pool::{Ahead, LiveTime};

/// Maximum number of ended runs of a pool whose active times are used, the newest.
const MEASURED_MAX: u32 = 20;
/// Maximum number of ended runs that are searched for those of the pool.
const SEARCHED_RUNS_MAX: u32 = 400;

/// Counts the runs that start before a queued run of its pool.
///
/// # Errors
/// A failure of the store.
pub fn ahead_of(connection: &Connection, run: &Run) -> Result<Ahead, StoreError> {
    let count = |sql: &str, values: &[&dyn db::ToValue]| -> Result<u64, StoreError> {
        let count: i64 = connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let (pool, rank, owner, id) = (&run.pool, run.rank.number(), run.owner.to_string(), run.id.to_string());
    let of_lower_rank = count("SELECT count(*) FROM runs WHERE state = 'queued' AND pool = ?1 AND after_open = 0 AND rank < ?2", &[pool, &rank])?;
    let of_owner = count(
        "SELECT count(*) FROM runs WHERE state = 'queued' AND pool = ?1 AND after_open = 0 AND rank = ?2 AND owner = ?3
           AND no < (SELECT no FROM runs WHERE id = ?4)",
        &[pool, &rank, &owner, &id],
    )?;
    let of_others: Vec<i64> = connection
        .prepare_cached(
            "SELECT count(*) FROM runs WHERE state = 'queued' AND pool = ?1 AND after_open = 0 AND rank = ?2 AND owner <> ?3 GROUP BY owner",
        )?
        .query_map(params![pool, rank, owner], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(Ahead { of_lower_rank, of_owner, of_others: of_others.into_iter().map(|count| u64::try_from(count).unwrap_or(0)).collect() })
}

/// Reads the active times of the newest ended runs of a pool.
///
/// # Errors
/// A failure of the store.
pub fn measured_times(connection: &Connection, pool: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT active_ms FROM (SELECT active_ms, pool, started_at FROM runs INDEXED BY runs_finished WHERE state = 'finished'
         ORDER BY ended_at DESC LIMIT ?2) AS ended WHERE pool = ?1 AND started_at IS NOT NULL LIMIT ?3";
    let times =
        connection.prepare_cached(sql)?.query_map(params![pool, SEARCHED_RUNS_MAX, MEASURED_MAX], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(times)
}

/// Reads the times of the live runs of a pool that occupy a slot.
///
/// # Errors
/// A failure of the store.
pub fn live_times(connection: &Connection, pool: &str, now: SteadyTime) -> Result<Vec<LiveTime>, StoreError> {
    let sql = "SELECT active_ms, active_since, estimate_ms FROM runs INDEXED BY runs_live
         WHERE state IN ('starting', 'running', 'stopping') AND pool = ?1 AND holding = 0";
    let times = connection
        .prepare_cached(sql)?
        .query_map([pool], |row| {
            let since = row.get::<Option<i64>>(1)?.map_or(0, |since| now.ms_since(SteadyTime(since)));
            Ok(LiveTime { active_ms: row.get::<i64>(0)? + since, estimate_ms: row.get(2)? })
        })?
        .collect::<Result<_, _>>()?;
    Ok(times)
}
