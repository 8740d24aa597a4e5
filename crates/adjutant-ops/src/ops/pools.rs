//! Pools: their limits, listing them, and changing them while the hub runs.

use crate::clock::{self, rfc3339};
use crate::config::{Config, PoolEntry};
use crate::ops::machine::Machine;
use crate::ops::runner_launches::Launches;
use crate::ops::runner_sessions::Sessions;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup};
use crate::store::{
    ConfiguredPool, Connection, Held, PoolCounts, PoolRow, Pools, SlotsUsed, StartTarget, Store,
    StoreError, next_limit_end, pool_rows, queued_up_to, slots_used,
};
use crate::view::{ChangePool, PoolList, PoolView, PoolWaitingView};
use adjutant_core::pool::{self, PoolTarget, QueueReason, Queued, SLOTS_MAX, queue_reason};
use adjutant_core::pressure::{Admission, PressureLimits};
use adjutant_core::tree::Rank;
use adjutant_core::{Action, Denied, PoolName, Principal, SteadyTime};
use std::collections::BTreeMap;

/// The configured pools, and the overall limit.
#[derive(Debug, Clone)]
pub(super) struct PoolSettings {
    by_name: BTreeMap<PoolName, ConfiguredPool>,
    live_max: u64,
    admission: Admission,
}

impl PoolSettings {
    /// Reads the limits in effect.
    pub(super) fn in_effect(&self, connection: &Connection) -> Result<Pools, StoreError> {
        let mut pools = Pools::read(connection, &self.by_name, self.live_max, clock::steady())?;
        if self.admission.limits != PressureLimits::default() {
            let used = slots_used(connection, &pools)?.in_all.used();
            pools.held = Held::read(connection, self.admission, used)?;
        }
        Ok(pools)
    }

    /// Returns whether a queued run that waits for no other may start in one of several places.
    pub(super) fn has_queued_for(
        &self,
        connection: &Connection,
        places: &[StartTarget],
    ) -> Result<bool, StoreError> {
        let is_served = |(name, pool): &(&PoolName, &ConfiguredPool)| {
            places
                .iter()
                .any(|place| place.serves(name.as_str(), pool.place))
        };
        let served: Vec<&str> = self
            .by_name
            .iter()
            .filter(is_served)
            .map(|(name, _)| name.as_str())
            .collect();
        served
            .iter()
            .for_each(|pool| connection.announce(|connection| queued_up_to(connection, pool, 1)));
        for pool in served {
            if queued_up_to(connection, pool, 1)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the limits in effect and the slots that live runs occupy. `is_here`: for starts on the
    /// hub's own machine.
    pub(super) fn for_starts(
        &self,
        connection: &Connection,
        is_here: bool,
    ) -> Result<(Pools, SlotsUsed), StoreError> {
        let mut pools = Pools::read(connection, &self.by_name, self.live_max, clock::steady())?;
        let used = slots_used(connection, &pools)?;
        if is_here {
            pools.held = Held::read(connection, self.admission, used.in_all.used())?;
        }
        Ok((pools, used))
    }
}

/// The pools, with the places that serve them.
#[derive(Debug, Clone)]
pub struct HubPools {
    store: Store,
    settings: Settings,
    machine: Machine,
    runners: Sessions,
    launches: Launches,
}

impl HubPools {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            machine: ops.machine.clone(),
            runners: ops.sessions.clone(),
            launches: ops.launches.clone(),
        }
    }

    /// Returns the configured pools.
    pub(super) fn configured(&self, config: &Config) -> PoolSettings {
        let served = self.runners.served_pools();
        let place = |name: &PoolName, pool: &PoolEntry| match pool.on_runners {
            false => PoolTarget::Here,
            true => served
                .get(name.as_str())
                .copied()
                .unwrap_or(PoolTarget::NoRunner),
        };
        let configured = |name: &PoolName, pool: &PoolEntry| ConfiguredPool {
            slots: pool.slots,
            keep_slot: pool.keep_slot,
            place: place(name, pool),
        };
        let by_name = config
            .pools
            .iter()
            .map(|(name, pool)| (name.clone(), configured(name, pool)))
            .collect();
        PoolSettings {
            by_name,
            live_max: self.machine.live_runs_max(config),
            admission: self.machine.admission(config),
        }
    }

    /// Returns when the next usage limit of an agent ends.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn next_limit_end(&self) -> Result<Option<SteadyTime>, OpError> {
        Ok(self
            .store
            .read(|connection| next_limit_end(connection, clock::steady()))?)
    }

    /// Lists the pools.
    ///
    /// # Errors
    /// The caller may not list.
    pub fn list(&self, who: &Principal) -> Result<PoolList, OpError> {
        lookup::check(who, Action::ListAgents)?;
        let config = self.settings.config_or_builtin();
        let settings = self.configured(&config);
        let queued = self.store.queued_by_pool();
        Ok(self.store.read(|connection| {
            let seen = Overview::read(connection, &settings, queued)?;
            let mut names: Vec<String> = seen
                .pools
                .by_name
                .keys()
                .chain(seen.counts.keys())
                .chain(seen.used.by_pool.keys())
                .cloned()
                .collect();
            names.sort_by_key(|name| (name != PoolName::DEFAULT, name.clone()));
            names.dedup();
            let pools = names
                .iter()
                .map(|name| PoolView {
                    launch: self.launches.view(&config, name),
                    ..seen.view(&config, name)
                })
                .collect();
            Ok::<_, StoreError>(PoolList {
                pools,
                live_runs_max: settings.live_max,
                live_runs: seen.used.in_all.live,
            })
        })?)
    }

    /// Changes a pool: its slots, or whether it is paused.
    ///
    /// # Errors
    /// Not the person, no such pool, or an unusable number.
    pub async fn change(&self, caller: Caller, call: ChangePool) -> Result<PoolView, OpError> {
        lookup::check(&caller.who, Action::ManageHub)?;
        let config = self.settings.config_or_builtin();
        let name = known_pool(&config, &call.pool)?;
        match (call.slots, call.slots_as_configured) {
            (Some(_), true) => {
                return Err(Denied::invalid(
                    "slots",
                    "give a number, or slots_as_configured, not both",
                )
                .into());
            }
            (Some(0), false) => {
                return Err(Denied::invalid(
                    "slots",
                    format!("at least 1; to start no run: adj pools pause {name}"),
                )
                .into());
            }
            (Some(slots), false) if slots > SLOTS_MAX => {
                return Err(Denied::invalid("slots", format!("at most {SLOTS_MAX}")).into());
            }
            (None, false) if call.paused.is_none() => {
                return Err(Denied::invalid("slots", "nothing to change").into());
            }
            _ => {}
        }
        let settings = self.configured(&config);
        let queued = self.store.queued_by_pool();
        caller
            .write(&self.store, move |tx, who| {
                let before = pool_rows(tx.connection())?
                    .into_iter()
                    .find(|row| row.name == name.as_str());
                let configured = config.pools.get(&name).map_or(0, |pool| pool.slots);
                let slots = if call.slots_as_configured {
                    None
                } else {
                    call.slots.or(before.as_ref().and_then(|row| row.slots))
                };
                let was_paused = before.as_ref().is_some_and(|row| row.is_paused);
                let is_paused = call.paused.unwrap_or(was_paused);
                let slots_before = before.and_then(|row| row.slots).unwrap_or(configured);
                let changes = pool::changes(
                    (slots_before, was_paused),
                    (slots.unwrap_or(configured), is_paused),
                );
                tx.set_pool(&name, slots, is_paused, who, &changes)?;
                Ok(
                    Overview::read(tx.connection(), &settings, queued)?
                        .view(&config, name.as_str()),
                )
            })
            .await
    }
}

/// Resolves the name of a configured pool.
pub(super) fn known_pool(config: &Config, given: &str) -> Result<PoolName, Denied> {
    match PoolName::parse(given) {
        Ok(name) if config.pools.contains_key(&name) => Ok(name),
        _ => {
            let shown: String = given.chars().take(80).filter(|c| !c.is_control()).collect();
            let known = config
                .pools
                .keys()
                .map(PoolName::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            Err(Denied::invalid(
                "pool",
                format!("no pool {shown:?}; the configuration has: {known}"),
            ))
        }
    }
}

/// Everything about the pools at one time.
struct Overview {
    pools: Pools,
    rows: Vec<PoolRow>,
    used: SlotsUsed,
    counts: BTreeMap<String, PoolCounts>,
}

impl Overview {
    fn read(
        connection: &Connection,
        settings: &PoolSettings,
        counts: BTreeMap<String, PoolCounts>,
    ) -> Result<Self, StoreError> {
        let pools = settings.in_effect(connection)?;
        let used = slots_used(connection, &pools)?;
        Ok(Self {
            rows: pool_rows(connection)?,
            used,
            counts,
            pools,
        })
    }

    fn view(&self, config: &Config, name: &str) -> PoolView {
        let entry = PoolName::parse(name)
            .ok()
            .and_then(|name| config.pools.get(&name));
        let limits = self.pools.by_name.get(name);
        let row = self.rows.iter().find(|row| row.name == name);
        let counts = self.counts.get(name).copied().unwrap_or_default();
        let in_pool = self.used.in_pool(name);
        let first = Queued {
            rank: Rank::default(),
            after_open: 0,
            after_failed: 0,
            after_ports: 0,
            is_limited: false,
            pool: limits.copied(),
            in_pool,
            in_all: self.used.in_all,
            live_max: self.pools.live_max,
            pressure: self.pools.held.all,
        };
        let waiting = [
            (queue_reason(&first), counts.queued - counts.after),
            (QueueReason::After, counts.after),
        ];
        PoolView {
            name: name.to_owned(),
            slots: limits.map_or(0, |limits| limits.slots),
            slots_configured: entry
                .map(|entry| entry.slots)
                .filter(|slots| limits.is_some_and(|limits| limits.slots != *slots)),
            live: in_pool.live,
            lent: in_pool.lent,
            queued: counts.queued,
            paused: limits.is_some_and(|limits| limits.is_paused),
            removed: entry.is_none(),
            waiting: waiting
                .into_iter()
                .filter(|(_, runs)| *runs > 0)
                .map(|(reason, runs)| PoolWaitingView {
                    reason: reason.into(),
                    runs,
                })
                .collect(),
            agents: entry.map_or_else(Vec::new, |entry| {
                entry.agents.iter().map(ToString::to_string).collect()
            }),
            isolation: entry.and_then(|entry| entry.isolation).map(Into::into),
            keep_slot: limits.is_none_or(|limits| limits.keep_slot),
            fallback: entry.is_some_and(|entry| entry.fallback),
            budget: entry
                .map(|entry| entry.budget.to_string())
                .filter(|budget| !budget.is_empty()),
            changed_by: row.map(|row| row.changed_by.clone()),
            changed_at: row.map(|row| rfc3339(row.changed_at)),
            launch: None,
        }
    }
}
