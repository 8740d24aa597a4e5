//! The memory that runs are expected to use.

use crate::store::db::{self, Connection, OptionalExtension, params};
use crate::store::{StoreError, Tx};
use adjutant_core::pool::QueueReason;
use adjutant_core::pressure::{Admission, expected_peak};
use std::collections::BTreeMap;

/// The starts that the load of the machine delays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    pub admission: Admission,
    /// All starts.
    pub all: Option<QueueReason>,
    /// The expected memory of agents for which too little is free.
    pub by_agent: BTreeMap<String, u64>,
}

impl Held {
    /// Finds the starts to delay on a machine. `used`: its live runs that have not lent their slot. `host`: its runner, `None` for the hub's
    /// own machine.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read(connection: &Connection, admission: Admission, used: u64, host: Option<&str>) -> Result<Self, StoreError> {
        let mut held = Self { admission, all: admission.hold(used), by_agent: BTreeMap::new() };
        if used == 0 || admission.load.free_bytes.is_none() {
            return Ok(held);
        }
        let bytes = |row: &db::Row<'_>, n| row.get::<i64>(n).map(|bytes| u64::try_from(bytes).unwrap_or(0));
        let expected: BTreeMap<String, u64> = connection
            .prepare_cached("SELECT agent, peak_bytes FROM agent_memory")?
            .query_map([], |row| Ok((row.get(0)?, bytes(row, 1)?)))?
            .collect::<Result<_, _>>()?;
        // Live runs may still grow to their expected size.
        let sql = "SELECT agent, coalesce(CAST(resources ->> '$.newest.memory_bytes' AS BIGINT), 0) FROM runs INDEXED BY runs_live
             WHERE state IN ('starting', 'running', 'stopping')
               AND (SELECT host FROM attempts WHERE attempts.run = runs.id AND attempts.n = runs.attempt) IS NOT DISTINCT FROM ?1";
        let mut reserved: u64 = 0;
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([host])?;
        while let Some(row) = rows.next()? {
            let peak = expected.get(&row.get::<String>(0)?).copied().unwrap_or(0);
            reserved = reserved.saturating_add(peak.saturating_sub(bytes(&row, 1)?));
        }
        held.by_agent = expected.into_iter().filter(|(_, peak)| admission.is_short_of_memory(used, *peak, reserved)).collect();
        Ok(held)
    }

    /// Returns whether both delay the same runs.
    #[must_use]
    pub fn holds_same(&self, other: &Self) -> bool {
        self.all == other.all && self.by_agent.keys().eq(other.by_agent.keys())
    }

    /// Returns why starts of an agent's runs are delayed, if they are.
    #[must_use]
    pub fn reason(&self, agent: &str) -> Option<QueueReason> {
        self.all.or_else(|| self.by_agent.contains_key(agent).then_some(QueueReason::FreeMemory))
    }
}

impl Tx<'_> {
    /// Records the peak of a run of an agent.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_agent_peak(&mut self, agent: &str, peak_bytes: u64) -> Result<(), StoreError> {
        let before: Option<i64> =
            self.prepare("SELECT peak_bytes FROM agent_memory WHERE agent = ?1")?.query_row([agent], |row| row.get(0)).optional()?;
        let peak = expected_peak(before.and_then(|bytes| u64::try_from(bytes).ok()), peak_bytes);
        let peak = i64::try_from(peak).unwrap_or(i64::MAX);
        self.prepare("INSERT INTO agent_memory (agent, peak_bytes) VALUES (?1, ?2) ON CONFLICT (agent) DO UPDATE SET peak_bytes = ?2")?
            .run(params![agent, peak])?;
        Ok(())
    }
}
