//! Chooses the queued run that starts next.

use super::memory::Held;
use super::pools::{Pools, StartTarget};
use crate::store::db::{Connection, params, row, select};
use crate::store::ids::run_id;
use crate::store::records::run::list;
use crate::store::{Run, StoreError, Tx, run_input, workspace_around};
use adjutant_core::pool::{Candidate, PoolLimits, SlotUsage, next_start};
use adjutant_core::tree::Rank;
use adjutant_core::{EventSeq, RunState};
use std::collections::{BTreeMap, HashMap};

/// The slots that live runs occupy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlotsUsed {
    /// On the hub's own machine.
    pub in_all: SlotUsage,
    pub by_pool: BTreeMap<String, SlotUsage>,
    /// Live runs by pool and owner.
    by_owner: HashMap<(String, String), u64>,
}

impl SlotsUsed {
    /// Returns the usage of one pool.
    #[must_use]
    pub fn in_pool(&self, pool: &str) -> SlotUsage {
        self.by_pool.get(pool).copied().unwrap_or_default()
    }

    /// Adds a run that has just been claimed.
    pub fn add_claimed(&mut self, pools: &Pools, run: &Run) {
        self.add(
            pools,
            run.pool.clone(),
            run.owner.to_string(),
            run.holding > 0,
            run.blocking_pending > 0,
            1,
        );
    }

    fn add(
        &mut self,
        pools: &Pools,
        pool: String,
        owner: String,
        is_held: bool,
        is_asking: bool,
        count: u64,
    ) {
        let limits = pools.by_name.get(&pool);
        // Those of runners are on other machines.
        if limits.is_none_or(|limits| !limits.place.is_on_runners()) {
            self.in_all.live += count;
            self.in_all.lent += if is_held { count } else { 0 };
        }
        let keeps_slot = limits.is_none_or(|limits| limits.keep_slot);
        let of_pool = self.by_pool.entry(pool.clone()).or_default();
        of_pool.live += count;
        of_pool.lent += if is_held || is_asking && !keeps_slot {
            count
        } else {
            0
        };
        *self.by_owner.entry((pool, owner)).or_default() += count;
    }
}

/// Counts the slots that live runs occupy. A run held by a child lends its slot. A run that waits
/// for an answer lends the slot of its pool if the pool says so.
///
/// # Errors
/// A failure of the store.
pub fn slots_used(connection: &Connection, pools: &Pools) -> Result<SlotsUsed, StoreError> {
    let mut used = SlotsUsed::default();
    let mut statement = connection.prepare_cached(
        "SELECT pool, owner, holding > 0, blocking_pending > 0, count(*) FROM runs INDEXED BY runs_live
         WHERE state IN ('starting', 'running', 'stopping') GROUP BY 1, 2, 3, 4",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (pool, owner, is_held, is_asking, count): (_, _, _, _, i64) = row.read()?;
        let count = u64::try_from(count).unwrap_or(0);
        used.add(pools, pool, owner, is_held, is_asking, count);
    }
    Ok(used)
}

/// Reads the queued run that starts next in a place. `used`: the slots that live runs occupy.
/// `None`: no run can start there now.
///
/// # Errors
/// A failure of the store.
pub fn next_to_start(
    connection: &Connection,
    pools: &Pools,
    used: &SlotsUsed,
    place: &StartTarget,
) -> Result<Option<Run>, StoreError> {
    let held = place.held(pools);
    if held.all.is_some() {
        return Ok(None);
    }
    announce_next(connection, pools, used, place);
    let mut candidates = Vec::new();
    for (pool, limits) in served(pools, place) {
        for rank in open_ranks(pools, used, place, pool, limits) {
            let of_rank = candidates_of(connection, pools, used, pool, rank, held)?;
            let is_found = !of_rank.is_empty();
            candidates.extend(of_rank);
            // The rank is the first criterion of a start, so runs of later ranks cannot be next in
            // this pool.
            if is_found {
                break;
            }
        }
    }
    let Some(next) = next_start(&candidates) else {
        return Ok(None);
    };
    queued(connection, next.no)
}

/// Announces the first reads of [`next_to_start`].
pub fn announce_next(
    connection: &Connection,
    pools: &Pools,
    used: &SlotsUsed,
    place: &StartTarget,
) {
    for (pool, limits) in served(pools, place) {
        for rank in open_ranks(pools, used, place, pool, limits) {
            connection.announce(|connection| of_next_owner(connection, pool, rank, ""));
        }
    }
}

/// Returns the pools of which runs may start in a place.
fn served<'p>(
    pools: &'p Pools,
    place: &StartTarget,
) -> impl Iterator<Item = (&'p str, &'p PoolLimits)> {
    let pools = pools
        .by_name
        .iter()
        .filter(|(pool, limits)| !limits.is_paused && place.serves(pool, limits.place));
    pools.map(|(pool, limits)| (pool.as_str(), limits))
}

/// Returns the ranks for which a slot is free, in the order in which they start.
fn open_ranks(
    pools: &Pools,
    used: &SlotsUsed,
    place: &StartTarget,
    pool: &str,
    limits: &PoolLimits,
) -> impl Iterator<Item = Rank> {
    let (in_pool, slots) = (used.in_pool(pool), limits.slots);
    let in_all = (*place == StartTarget::Here).then_some((used.in_all, pools.live_max));
    Rank::all().filter(move |rank| {
        in_pool.has_slot(slots, *rank) && in_all.is_none_or(|(used, max)| used.has_slot(max, *rank))
    })
}

fn queued(connection: &Connection, no: i64) -> Result<Option<Run>, StoreError> {
    Ok(list(connection, "WHERE no = ?1 AND state = 'queued'", [no])?.pop())
}

row! {
    /// A queued run that may be a candidate.
    struct First {
        no: i64,
        owner: String,
        agent: String,
        /// The last start of its owner.
        owner_started: Option<i64> =
            "(SELECT seq FROM pool_starts s WHERE s.pool = runs.pool AND s.owner = runs.owner)",
        id: String,
        cwd: String,
    }
}

impl First {
    /// Announces what a start of the run reads first.
    fn announce_start(&self, connection: &Connection) {
        connection.announce(|connection| queued(connection, self.no));
        connection.announce(|connection| run_input(connection, run_id(&self.id)?));
        connection.announce(|connection| workspace_around(connection, &self.cwd));
    }
}

// The state is a constant and not a parameter: a statement is planned once, without its values, and
// a plan may use the partial index `runs_queue` only if it holds for all of them.
/// The first queued run of the next agent of an owner (`?3`, after the agent `?4`) in a pool and
/// rank.
const NEXT_AGENT: &str = select!(First, "FROM runs INDEXED BY runs_queue
  WHERE state = 'queued' AND pool = ?1 AND after_open = 0 AND rank = ?2 AND owner = ?3 AND agent > ?4 ORDER BY agent, no LIMIT 1");
/// The first queued run of the next owner. As one condition, `(owner, agent) > (?3, ?4)`, SQLite
/// would pass over every queued run of the owner.
const NEXT_OWNER: &str = select!(First, "FROM runs INDEXED BY runs_queue
  WHERE state = 'queued' AND pool = ?1 AND after_open = 0 AND rank = ?2 AND owner > ?3 ORDER BY owner, agent, no LIMIT 1");

fn of_next_owner(
    connection: &Connection,
    pool: &str,
    rank: Rank,
    owner: &str,
) -> Result<Option<First>, StoreError> {
    Ok(connection
        .prepare_cached(NEXT_OWNER)?
        .find_row(params![pool, rank.number(), owner])?)
}

/// Reads the first queued run of each owner and agent in a pool and rank: two seeks in the index
/// for each of them, however many are queued.
fn candidates_of(
    connection: &Connection,
    pools: &Pools,
    used: &SlotsUsed,
    pool: &str,
    rank: Rank,
    held: &Held,
) -> Result<Vec<Candidate>, StoreError> {
    let mut found = Vec::new();
    let (mut owner, mut agent) = (String::new(), String::new());
    loop {
        connection.announce(|connection| of_next_owner(connection, pool, rank, &owner));
        // No owner has an empty name.
        let mut next = match owner.as_str() {
            "" => None,
            owner => connection.prepare_cached(NEXT_AGENT)?.find_row(params![
                pool,
                rank.number(),
                owner,
                agent
            ])?,
        };
        if next.is_none() {
            next = of_next_owner(connection, pool, rank, &owner)?;
        }
        let Some(first) = next else { return Ok(found) };
        let is_delayed =
            pools.limited.contains_key(&first.agent) || held.reason(&first.agent).is_some();
        if found.is_empty() && !is_delayed {
            first.announce_start(connection);
        }
        let (no, owner_started) = (first.no, first.owner_started);
        // Also for an agent that is skipped, which would otherwise be found again.
        (owner, agent) = (first.owner, first.agent);
        if is_delayed {
            continue;
        }
        let owner_live = used
            .by_owner
            .get(&(pool.to_owned(), owner.clone()))
            .copied()
            .unwrap_or(0);
        found.push(Candidate {
            rank,
            owner_live,
            owner_started,
            no,
        });
    }
}

/// Maximum number of queued runs that are read to count those for which a runner is missing.
const QUEUED_MAX: u32 = 1_000;

/// Counts the queued runs of a pool that could start now if a runner had a free slot, up to the
/// free slots of the pool.
///
/// # Errors
/// A failure of the store.
pub fn launch_candidates(
    connection: &Connection,
    pools: &Pools,
    pool: &str,
) -> Result<u64, StoreError> {
    let Some(limits) = pools.by_name.get(pool).filter(|limits| !limits.is_paused) else {
        return Ok(0);
    };
    let free = limits
        .slots
        .saturating_sub(slots_used(connection, pools)?.in_pool(pool).used());
    let sql = "SELECT agent FROM runs INDEXED BY runs_queue WHERE state = 'queued' AND pool = ?1 AND after_open = 0 LIMIT ?2";
    let agents: Vec<String> = connection
        .prepare_cached(sql)?
        .read_rows(params![pool, QUEUED_MAX])?;
    let able = agents
        .iter()
        .filter(|agent| !pools.limited.contains_key(*agent))
        .count();
    Ok(free.min(able as u64))
}

/// Records that a run of its owner has started in its pool, so that other owners come first.
pub(in crate::store) fn note_start(
    tx: &mut Tx<'_>,
    run: &Run,
    seq: EventSeq,
) -> Result<(), StoreError> {
    debug_assert_eq!(run.state, RunState::Queued, "only a queued run starts");
    tx.prepare("INSERT INTO pool_starts (pool, owner, seq) VALUES (?1, ?2, ?3) ON CONFLICT (pool, owner) DO UPDATE SET seq = ?3")?
        .run(params![run.pool, run.owner.to_string(), seq.0])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_candidate_costs_the_same_however_many_are_queued() {
        let connection = Connection::open_in_memory();
        connection
            .execute_batch(
                "CREATE TABLE runs (no INTEGER PRIMARY KEY, pool TEXT, after_open INTEGER, rank INTEGER, owner TEXT, agent TEXT, state TEXT, id TEXT DEFAULT 'r', cwd TEXT DEFAULT '/');
                 CREATE INDEX runs_queue ON runs (pool, after_open, rank, owner, agent, no) WHERE state = 'queued';
                 CREATE TABLE pool_starts (pool TEXT, owner TEXT, seq INTEGER);",
            )
            .expect("a table");
        for _ in 0..2_000 {
            let queue = "INSERT INTO runs (pool, after_open, rank, owner, agent, state) VALUES ('p', 0, 1, 'a', 'echo', 'queued')";
            connection.execute(queue, []).expect("a row");
        }
        connection
            .execute("INSERT INTO runs (pool, after_open, rank, owner, agent, state) VALUES ('p', 0, 1, 'b', 'echo', 'queued')", [])
            .expect("a row");
        for (sql, last, expected) in [
            (NEXT_AGENT, Some("echo"), None),
            (NEXT_OWNER, None, Some(2_001)),
        ] {
            let mut statement = connection.prepare_cached(sql).expect("a statement");
            let found: Option<First> = match last {
                Some(agent) => statement.find_row(params!["p", 1, "a", agent]),
                None => statement.find_row(params!["p", 1, "a"]),
            }
            .expect("a row or none");
            assert_eq!(found.map(|first| first.no), expected);
            let steps = statement.steps();
            assert!(steps < 100, "{steps} steps: {sql}");
        }
    }
}
