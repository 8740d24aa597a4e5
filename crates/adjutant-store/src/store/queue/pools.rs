//! Pools as configured, with the changes that were made without editing the configuration.

use super::limits::usage_limits;
use super::memory::Held;
use crate::store::db::{self, Columns, Connection, params, row, select};
use crate::store::events::append_of_pool;
use crate::store::runs::HostLease;
use crate::store::{StoreError, Tx};
use adjutant_core::pool::{PoolChange, PoolLimits, PoolTarget};
use adjutant_core::{EventKind, PoolName, Principal, SteadyTime, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A pool as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfiguredPool {
    pub slots: u64,
    pub keep_slot: bool,
    pub place: PoolTarget,
}

/// Where runs are to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartTarget {
    /// The hub's own machine.
    Here,
    /// A runner, which serves these pools. `held`: what the load of its machine delays.
    Runner {
        host: String,
        pools: BTreeSet<String>,
        lease_ms: i64,
        held: Held,
    },
}

impl StartTarget {
    /// Returns the runner and its lease. `None`: the hub's own machine.
    #[must_use]
    pub fn host(&self) -> Option<HostLease<'_>> {
        match self {
            Self::Here => None,
            Self::Runner {
                host,
                lease_ms,
                pools: _,
                held: _,
            } => Some(HostLease {
                host,
                lease_ms: *lease_ms,
            }),
        }
    }

    /// Returns what the load of the machine delays there.
    #[must_use]
    pub fn held<'a>(&'a self, pools: &'a Pools) -> &'a Held {
        match self {
            Self::Here => &pools.held,
            Self::Runner { held, .. } => held,
        }
    }

    /// Returns whether runs of a pool start there.
    #[must_use]
    pub fn serves(&self, pool: &str, place: PoolTarget) -> bool {
        match self {
            Self::Here => !place.is_on_runners(),
            Self::Runner { pools, .. } => place.is_on_runners() && pools.contains(pool),
        }
    }
}

/// The limits in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// How many runs may be live at a time on the hub's own machine.
    pub live_max: u64,
    pub by_name: BTreeMap<String, PoolLimits>,
    /// Agents of which no run starts, each until when.
    pub limited: BTreeMap<String, SteadyTime>,
    /// What the load of the hub's own machine delays.
    pub held: Held,
}

row! {
    /// What was changed about one pool.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PoolRow {
        pub name: String,
        pub slots: Option<u64> as slots,
        pub is_paused: bool,
        pub changed_by: String,
        pub changed_at: Time,
    }
}

impl Pools {
    /// Reads the limits in effect, without what the load of the machine holds back.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn read(
        connection: &Connection,
        configured: &BTreeMap<PoolName, ConfiguredPool>,
        live_max: u64,
        now: SteadyTime,
    ) -> Result<Self, StoreError> {
        let limits = |pool: &ConfiguredPool| PoolLimits {
            slots: pool.slots,
            keep_slot: pool.keep_slot,
            is_paused: false,
            place: pool.place,
        };
        let mut by_name: BTreeMap<String, PoolLimits> = configured
            .iter()
            .map(|(name, pool)| (name.to_string(), limits(pool)))
            .collect();
        for row in pool_rows(connection)? {
            if let Some(pool) = by_name.get_mut(&row.name) {
                pool.slots = row.slots.unwrap_or(pool.slots);
                pool.is_paused = row.is_paused;
            }
        }
        let limits = usage_limits(connection)?
            .into_iter()
            .filter(|row| row.limit.is_closed(now));
        let limited = limits.map(|row| (row.agent, row.limit.until)).collect();
        Ok(Self {
            live_max,
            by_name,
            limited,
            held: Held::default(),
        })
    }
}

/// Reads the changes of pools.
///
/// # Errors
/// A failure of the store.
pub fn pool_rows(connection: &Connection) -> Result<Vec<PoolRow>, StoreError> {
    Ok(connection
        .prepare_cached(select!(PoolRow, "FROM pools ORDER BY name"))?
        .read_rows([])?)
}

fn slots(columns: &mut Columns<'_>) -> db::Result<Option<u64>> {
    let slots: Option<i64> = columns.value()?;
    Ok(slots.and_then(|slots| u64::try_from(slots).ok()))
}

/// Counts the queued runs of a pool that wait for no other run, up to a number.
///
/// # Errors
/// A failure of the store.
pub fn queued_up_to(connection: &Connection, pool: &str, max: u64) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM runs INDEXED BY runs_queue WHERE state = 'queued' AND pool = ?1 AND after_open = 0 LIMIT ?2) AS counted";
    let count: i64 = connection
        .prepare_cached(sql)?
        .read_row(params![pool, i64::try_from(max).unwrap_or(i64::MAX)])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

impl Tx<'_> {
    /// Changes the slots of a pool (`None`: as configured), or pauses or resumes it. Each of
    /// `changes` is an event.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_pool(
        &mut self,
        name: &PoolName,
        slots: Option<u64>,
        is_paused: bool,
        by: &Principal,
        changes: &[PoolChange],
    ) -> Result<(), StoreError> {
        for change in changes {
            let kind = match change {
                PoolChange::Paused => EventKind::PoolPaused,
                PoolChange::Resumed => EventKind::PoolResumed,
                PoolChange::Slots { .. } => EventKind::PoolChanged,
            };
            append_of_pool(self, kind, name, by, &change.text(name))?;
        }
        let slots = slots.map(|slots| i64::try_from(slots).unwrap_or(i64::MAX));
        self.prepare(
            "INSERT INTO pools (name, slots, is_paused, changed_by, changed_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name) DO UPDATE SET slots = ?2, is_paused = ?3, changed_by = ?4, changed_at = ?5",
        )?
        .run(params![name.as_str(), slots, is_paused, by.to_string(), self.now().0])?;
        self.notify(crate::store::Topic::Queue);
        Ok(())
    }
}
