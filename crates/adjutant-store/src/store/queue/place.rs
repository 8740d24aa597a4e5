//! The place of a queued run, and the data to predict when it starts.

use crate::store::db::{Connection, params};
use crate::store::{Run, StoreError};
use adjutant_core::SteadyTime;
use adjutant_core::pool::{AHEAD_COUNTED_MAX, Ahead, LiveTime, QueuePosition, queue_place};
use std::collections::BTreeMap;

/// Maximum number of ended runs of a pool whose active times are used, the newest.
const MEASURED_MAX: u32 = 20;
/// Maximum number of ended runs that are searched for those of the pool.
const SEARCHED_RUNS_MAX: u32 = 400;

/// Maximum number of queued runs of a pool that are read to find places.
const READ_MAX: u32 = 10_000;
/// Maximum number of owners and agents of a pool, together with their ranks. Places are not found
/// among more.
const GROUPS_MAX: u32 = 1_000;
/// Of how many owners and agents the runs are read in one round trip to a server.
const GROUPS_AT_ONCE: usize = 32;

/// The first queued runs of a pool, up to a number for each rank, owner and agent. Reading them
/// costs the same however many are queued.
#[derive(Debug, Clone)]
pub struct QueueHead {
    counted_max: u32,
    /// The numbers of runs by rank and owner, ascending. `None`: there are too many owners and
    /// agents.
    first: Option<BTreeMap<(u8, String), Vec<i64>>>,
}

/// Each rank, owner and agent of which a run is queued in the pool `?1`, in the order of the index:
/// three seeks for each.
const GROUPS: &str = "WITH RECURSIVE first (no) AS (
    SELECT (SELECT q.no FROM runs q INDEXED BY runs_queue WHERE q.state = 'queued' AND q.pool = ?1 AND q.after_open = 0
      ORDER BY q.rank, q.owner, q.agent, q.no LIMIT 1)
    UNION ALL
    SELECT coalesce(
      (SELECT q.no FROM runs q INDEXED BY runs_queue WHERE q.state = 'queued' AND q.pool = ?1 AND q.after_open = 0
         AND q.rank = r.rank AND q.owner = r.owner AND q.agent > r.agent ORDER BY q.agent, q.no LIMIT 1),
      (SELECT q.no FROM runs q INDEXED BY runs_queue WHERE q.state = 'queued' AND q.pool = ?1 AND q.after_open = 0
         AND q.rank = r.rank AND q.owner > r.owner ORDER BY q.owner, q.agent, q.no LIMIT 1),
      (SELECT q.no FROM runs q INDEXED BY runs_queue WHERE q.state = 'queued' AND q.pool = ?1 AND q.after_open = 0
         AND q.rank > r.rank ORDER BY q.rank, q.owner, q.agent, q.no LIMIT 1))
    FROM first CROSS JOIN runs r ON r.no = first.no)
  SELECT r.rank, r.owner, r.agent FROM first CROSS JOIN runs r ON r.no = first.no LIMIT ?2";
/// The first queued runs of an owner's agent. As an equality, the condition on the agent would let
/// a server read all runs in the order of their numbers.
const FIRST_OF_GROUP: &str = "SELECT no FROM runs INDEXED BY runs_queue WHERE state = 'queued' AND pool = ?1 AND after_open = 0
    AND rank = ?2 AND owner = ?3 AND agent >= ?4 AND agent <= ?4 ORDER BY agent, no LIMIT ?5";

/// Returns the statements of [`QueueHead`].
#[cfg(test)]
pub(in crate::store) fn statements_of_head() -> Vec<String> {
    [GROUPS, FIRST_OF_GROUP].map(str::to_owned).to_vec()
}

impl QueueHead {
    /// Reads the first queued runs of a pool.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read(connection: &Connection, pool: &str) -> Result<Self, StoreError> {
        let groups: Vec<(u8, String, String)> = connection
            .prepare_cached(GROUPS)?
            .read_rows(params![pool, GROUPS_MAX])?;
        let counted_max = (READ_MAX / u32::try_from(groups.len()).unwrap_or(u32::MAX).max(1))
            .clamp(1, AHEAD_COUNTED_MAX);
        if groups.len() >= GROUPS_MAX as usize {
            return Ok(Self {
                counted_max,
                first: None,
            });
        }
        let first_of = |connection: &Connection,
                        (rank, owner, agent): &(u8, String, String)|
         -> Result<Vec<i64>, StoreError> {
            let mut statement = connection.prepare_cached(FIRST_OF_GROUP)?;
            Ok(statement.read_rows(params![pool, rank, owner, agent, counted_max])?)
        };
        let mut first = BTreeMap::<(u8, String), Vec<i64>>::new();
        for part in groups.chunks(GROUPS_AT_ONCE) {
            part.iter()
                .for_each(|group| connection.announce(|connection| first_of(connection, group)));
            for group in part {
                first
                    .entry((group.0, group.1.clone()))
                    .or_default()
                    .extend(first_of(connection, group)?);
            }
        }
        first.values_mut().for_each(|runs| runs.sort_unstable());
        Ok(Self {
            counted_max,
            first: Some(first),
        })
    }

    /// Returns the place of a queued run of the pool that waits for no other run. `None`: there are
    /// too many owners and agents.
    #[must_use]
    pub fn place(&self, run: &Run) -> Option<QueuePosition> {
        let (rank, owner) = (run.rank.number(), run.owner.to_string());
        let counted = |runs: &Vec<i64>| runs.len() as u64;
        let first = self.first.as_ref()?;
        let of_owner = first
            .get(&(rank, owner.clone()))
            .map_or(0, |runs| runs.partition_point(|no| *no < run.no) as u64);
        let of_rank = first.iter().filter(|((of, _), _)| *of == rank);
        Some(queue_place(&Ahead {
            counted_max: self.counted_max.into(),
            of_lower_rank: first
                .iter()
                .filter(|((of, _), _)| *of < rank)
                .map(|(_, runs)| counted(runs))
                .sum(),
            of_owner,
            of_others: of_rank
                .filter(|((_, of), _)| *of != owner)
                .map(|(_, runs)| counted(runs))
                .collect(),
        }))
    }
}

/// Reads the active times of the newest ended runs of a pool.
///
/// # Errors
/// A failure of the store.
pub fn measured_times(connection: &Connection, pool: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT active_ms FROM (SELECT active_ms, pool, started_at FROM runs INDEXED BY runs_finished WHERE state = 'finished'
         ORDER BY ended_at DESC LIMIT ?2) AS ended WHERE pool = ?1 AND started_at IS NOT NULL LIMIT ?3";
    let times = connection.prepare_cached(sql)?.read_rows(params![
        pool,
        SEARCHED_RUNS_MAX,
        MEASURED_MAX
    ])?;
    Ok(times)
}

/// Reads the times of the live runs of a pool that occupy a slot.
///
/// # Errors
/// A failure of the store.
pub fn live_times(
    connection: &Connection,
    pool: &str,
    now: SteadyTime,
) -> Result<Vec<LiveTime>, StoreError> {
    let sql = "SELECT active_ms, active_since, estimate_ms FROM runs INDEXED BY runs_live
         WHERE state IN ('starting', 'running', 'stopping') AND pool = ?1 AND holding = 0";
    let rows: Vec<(i64, Option<SteadyTime>, Option<i64>)> =
        connection.prepare_cached(sql)?.read_rows([pool])?;
    let times = rows
        .into_iter()
        .map(|(active_ms, since, estimate_ms)| LiveTime {
            active_ms: active_ms + since.map_or(0, |since| now.ms_since(since)),
            estimate_ms,
        });
    Ok(times.collect())
}
