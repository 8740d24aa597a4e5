//! The memory that runs are expected to use.

use crate::store::db::{Connection, params};
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

/// The memory that runs are expected to use.
#[derive(Debug, Clone, Default)]
pub struct MemoryNeeds {
    /// The peak of a run, by agent.
    expected: BTreeMap<String, u64>,
    /// How much more the live runs of a machine may use, by its runner. `None`: the hub's own
    /// machine.
    reserved: BTreeMap<Option<String>, u64>,
}

impl MemoryNeeds {
    /// Reads them for all machines.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read(connection: &Connection) -> Result<Self, StoreError> {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let expected: Vec<(String, i64)> = connection
            .prepare_cached("SELECT agent, peak_bytes FROM agent_memory")?
            .read_rows([])?;
        let expected: BTreeMap<String, u64> = expected
            .into_iter()
            .map(|(agent, peak)| (agent, bytes(peak)))
            .collect();
        let mut needs = Self {
            expected,
            reserved: BTreeMap::new(),
        };
        if needs.expected.is_empty() {
            return Ok(needs);
        }
        // Live runs may still grow to their expected size.
        let sql = "SELECT agent, coalesce(CAST(json_text_at(resources, '$.newest.memory_bytes') AS BIGINT), 0),
               (SELECT host FROM attempts WHERE attempts.run = runs.id AND attempts.n = runs.attempt)
             FROM runs INDEXED BY runs_live WHERE state IN ('starting', 'running', 'stopping')";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (agent, used, host): (String, i64, Option<String>) = row.read()?;
            let peak = needs.expected.get(&agent).copied().unwrap_or(0);
            let reserved = needs.reserved.entry(host).or_default();
            *reserved = reserved.saturating_add(peak.saturating_sub(bytes(used)));
        }
        Ok(needs)
    }
}

impl Held {
    /// Finds the starts to delay on the hub's own machine. `used`: its live runs that have not lent
    /// their slot.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read(
        connection: &Connection,
        admission: Admission,
        used: u64,
    ) -> Result<Self, StoreError> {
        let needs = if used > 0 && admission.watches_memory() {
            MemoryNeeds::read(connection)?
        } else {
            MemoryNeeds::default()
        };
        Ok(Self::of(admission, used, &needs, None))
    }

    /// Finds the starts to delay on a machine. `host`: its runner, `None` for the hub's own
    /// machine.
    #[must_use]
    pub fn of(admission: Admission, used: u64, needs: &MemoryNeeds, host: Option<&str>) -> Self {
        let reserved = needs
            .reserved
            .get(&host.map(str::to_owned))
            .copied()
            .unwrap_or(0);
        let by_agent = needs
            .expected
            .iter()
            .filter(|(_, peak)| admission.is_short_of_memory(used, **peak, reserved));
        Self {
            admission,
            all: admission.hold(used),
            by_agent: by_agent
                .map(|(agent, peak)| (agent.clone(), *peak))
                .collect(),
        }
    }

    /// Returns whether a machine has room for several more runs, of any agents.
    #[must_use]
    pub fn has_room(
        admission: Admission,
        used: u64,
        needs: &MemoryNeeds,
        host: &str,
        more: u64,
    ) -> bool {
        let reserved = needs
            .reserved
            .get(&Some(host.to_owned()))
            .copied()
            .unwrap_or(0);
        let is_short = |peak: u64| {
            admission.is_short_of_memory(
                used + more,
                peak,
                reserved.saturating_add(peak.saturating_mul(more.saturating_sub(1))),
            )
        };
        admission.hold(used + more).is_none()
            && !needs.expected.values().any(|peak| is_short(*peak))
    }

    /// Returns whether both delay the same runs.
    #[must_use]
    pub fn holds_same(&self, other: &Self) -> bool {
        self.all == other.all && self.by_agent.keys().eq(other.by_agent.keys())
    }

    /// Returns why starts of an agent's runs are delayed, if they are.
    #[must_use]
    pub fn reason(&self, agent: &str) -> Option<QueueReason> {
        self.all.or_else(|| {
            self.by_agent
                .contains_key(agent)
                .then_some(QueueReason::FreeMemory)
        })
    }
}

impl Tx<'_> {
    /// Records the peak of a run of an agent.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_agent_peak(&mut self, agent: &str, peak_bytes: u64) -> Result<(), StoreError> {
        let before: Option<i64> = self
            .prepare("SELECT peak_bytes FROM agent_memory WHERE agent = ?1")?
            .find_row([agent])?;
        let peak = expected_peak(
            before.and_then(|bytes| u64::try_from(bytes).ok()),
            peak_bytes,
        );
        let peak = i64::try_from(peak).unwrap_or(i64::MAX);
        self.prepare("INSERT INTO agent_memory (agent, peak_bytes) VALUES (?1, ?2) ON CONFLICT (agent) DO UPDATE SET peak_bytes = ?2")?
            .run(params![agent, peak])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::pressure::{MachineLoad, PressureLimits, Share};

    #[test]
    fn several_runs_need_the_sum_of_their_peaks() {
        let needs = MemoryNeeds {
            expected: [("a".to_owned(), 10)].into(),
            reserved: [(Some("r".to_owned()), 5)].into(),
        };
        let limits = PressureLimits {
            memory: Some(Share::percent(40)),
            ..PressureLimits::default()
        };
        let has_room = |free, more| {
            let load = MachineLoad {
                free_bytes: Some(free),
                ..MachineLoad::default()
            };
            Held::has_room(Admission { limits, load }, 0, &needs, "r", more)
        };
        assert!(has_room(15, 1) && !has_room(14, 1));
        assert!(has_room(45, 4) && !has_room(44, 4));
    }
}
