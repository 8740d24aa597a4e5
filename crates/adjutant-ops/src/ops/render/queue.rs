//! Why a queued run has not started, and when it is likely to.

use crate::clock::{self, rfc3339};
use crate::store::{
    Connection, Pools, QueueHead, Run, SlotsUsed, StoreError, WaitedRun, after_of, live_times,
    measured_times, run_by_id, slots_used, waited_runs,
};
use crate::view::{AfterView, QueueView, RunView};
use adjutant_core::RunState;
use adjutant_core::pool::{
    AfterEnd, AfterState, LiveTime, PoolTarget, QueuePosition, QueueReason, Queued,
    likely_start_ms, queue_reason,
};
use adjutant_core::pressure::Admission;
use adjutant_core::run::RunStatus;
use adjutant_core::units::size;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Reads about the queue that the views of several runs have in common.
pub(super) struct QueueReads<'a> {
    connection: &'a Connection,
    /// By pool.
    heads: HashMap<String, QueueHead>,
    used: Option<SlotsUsed>,
    /// The active times of ended runs and those of live ones, by pool.
    times: HashMap<String, (Vec<i64>, Vec<LiveTime>)>,
}

impl<'a> QueueReads<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            heads: HashMap::new(),
            used: None,
            times: HashMap::new(),
        }
    }

    /// Adds the place of a queued run in its pool, unless it waits for other runs.
    pub(super) fn add_place(&mut self, run: &Run, view: &mut RunView) -> Result<(), StoreError> {
        if run.after_open > 0 {
            return Ok(());
        }
        let head = match self.heads.entry(run.pool.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(QueueHead::read(self.connection, &run.pool)?),
        };
        match head.place(run) {
            Some(QueuePosition::At(place)) => view.in_queue.queue_place = Some(place),
            Some(QueuePosition::Behind(ahead)) => view.in_queue.queue_ahead_min = Some(ahead),
            None => {}
        }
        Ok(())
    }

    fn slots_used(&mut self, pools: &Pools) -> Result<&SlotsUsed, StoreError> {
        Ok(match &mut self.used {
            Some(used) => used,
            none => none.insert(slots_used(self.connection, pools)?),
        })
    }

    fn times(&mut self, pool: &str) -> Result<&(Vec<i64>, Vec<LiveTime>), StoreError> {
        Ok(match self.times.entry(pool.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert((
                measured_times(self.connection, pool)?,
                live_times(self.connection, pool, clock::steady())?,
            )),
        })
    }

    /// Adds why a queued run has not started.
    pub(super) fn add_queue(
        &mut self,
        pools: &Pools,
        run: &Run,
        view: &mut RunView,
    ) -> Result<(), StoreError> {
        if run.state != RunState::Queued {
            return Ok(());
        }
        let connection = self.connection;
        if pools
            .by_name
            .get(&run.pool)
            .is_some_and(|limits| limits.place.is_on_runners())
        {
            // Its directory will be on another machine.
            (
                view.place.shares_directory_with,
                view.place.shares_directory_more,
            ) = (Vec::new(), false);
        }
        let used = self.slots_used(pools)?;
        let waited = if run.after_open > 0 {
            waited_runs(connection, run.id)?
        } else {
            Vec::new()
        };
        let reason = reason(pools, used, run, &waited);
        let (why, next_step) = Blocked {
            run,
            pools,
            waited: &waited,
            slots: pools
                .by_name
                .get(&run.pool)
                .map_or(0, |limits| limits.slots),
        }
        .explain(reason);
        view.in_queue.queue = Some(QueueView {
            waiting_for: reason.into(),
            why,
            next_step,
            starts_about: self.starts_about(pools, run, reason, view.in_queue.queue_place)?,
        });
        Ok(())
    }

    /// Returns when a queued run is likely to start, if that can be estimated.
    fn starts_about(
        &mut self,
        pools: &Pools,
        run: &Run,
        reason: QueueReason,
        place: Option<u64>,
    ) -> Result<Option<String>, StoreError> {
        Ok(match (reason, place) {
            (QueueReason::Slot | QueueReason::Turn, Some(place)) => {
                let slots = pools
                    .by_name
                    .get(&run.pool)
                    .map_or(0, |limits| limits.slots);
                let (measured, live) = self.times(&run.pool)?;
                likely_start_ms(place, slots, measured, live)
                    .map(|ms| rfc3339(clock::now().plus_ms(ms)))
            }
            (QueueReason::Quota, _) => pools
                .limited
                .get(&run.agent)
                .map(|until| rfc3339(clock::expected_wall_time(*until))),
            _ => None,
        })
    }

    /// Shows a newly queued run as starting when a slot is free: it starts within milliseconds.
    pub(super) fn starts_at_once(
        &mut self,
        pools: &Pools,
        run: &Run,
        view: &mut RunView,
    ) -> Result<(), StoreError> {
        let Some(place) = view.in_queue.queue_place else {
            return self.add_queue(pools, run, view);
        };
        let used = self.slots_used(pools)?;
        let free = |slots: u64, used: u64| slots.saturating_sub(used) >= place;
        let limits = pools
            .by_name
            .get(&run.pool)
            .filter(|limits| !limits.is_paused);
        let is_held = pools.held.reason(&run.agent).is_some();
        // Whether a runner has a free slot is not known here.
        let is_here = limits.is_some_and(|limits| !limits.place.is_on_runners());
        if !is_held
            && is_here
            && limits.is_some_and(|limits| free(limits.slots, used.in_pool(&run.pool).used()))
            && free(pools.live_max, used.in_all.used())
        {
            view.in_queue.queue_place = None;
            view.condition.status = RunStatus::Starting.into();
            return Ok(());
        }
        self.add_queue(pools, run, view)
    }
}

/// Returns the runs that a run starts after.
pub(super) fn after(connection: &Connection, run: &Run) -> Result<Vec<AfterView>, StoreError> {
    let view = |row: crate::store::AfterRow| {
        let name =
            run_by_id(connection, row.run)?.map_or_else(|| row.run.to_string(), |run| run.name);
        Ok(AfterView {
            run_id: row.run.to_string(),
            name,
            on: row.on.into(),
            state: row.state.into(),
        })
    };
    after_of(connection, run.id)?
        .into_iter()
        .map(view)
        .collect()
}

/// Why a queued run has not started, and what to do about it.
type Explanation = (String, Option<String>);

/// A queued run that cannot start yet.
struct Blocked<'a> {
    run: &'a Run,
    pools: &'a Pools,
    /// The runs that it starts after.
    waited: &'a [WaitedRun],
    /// Those of its pool.
    slots: u64,
}

impl Blocked<'_> {
    fn explain(&self, reason: QueueReason) -> Explanation {
        let pool = &self.run.pool;
        match reason {
            QueueReason::Turn => (
                "it starts next, or after the runs before it".to_owned(),
                None,
            ),
            QueueReason::Slot => (slots_in_use(pool, self.slots), None),
            QueueReason::LiveLimit => (
                format!(
                    "{} runs are live, the maximum (live_runs_max)",
                    self.pools.live_max
                ),
                None,
            ),
            QueueReason::PoolPaused | QueueReason::PoolRemoved | QueueReason::NoRunner => {
                self.explain_pool(reason)
            }
            QueueReason::After => (format!("it starts after {}", self.names(false)), None),
            QueueReason::AfterFailed => held_after_failed(&self.names(true), &self.run.name),
            QueueReason::MemoryPressure | QueueReason::CpuPressure => {
                match self.pools.by_name.get(pool).map(|limits| limits.place) {
                    Some(PoolTarget::RunnersHeld(_)) => (pressure_on_runners(pool, reason), None),
                    _ => (pressure(self.pools, reason), None),
                }
            }
            QueueReason::RunnerStorage => (
                format!("no runner of pool {pool} can write to its home"),
                Some("free space there: the runners notice it by themselves".to_owned()),
            ),
            QueueReason::FreeMemory => (self.memory(), None),
            QueueReason::Ports => (
                format!(
                    "not enough consecutive ports are free: it starts after {}",
                    self.names(false)
                ),
                None,
            ),
            QueueReason::Quota => (
                format!(
                    "{} has reached its usage limit{}",
                    self.run.agent,
                    limit_end(self.pools, self.run)
                ),
                None,
            ),
        }
    }

    /// Explains that the pool itself starts nothing.
    fn explain_pool(&self, reason: QueueReason) -> Explanation {
        let (pool, name) = (&self.run.pool, &self.run.name);
        match reason {
            QueueReason::PoolPaused => (
                format!("pool {pool} is paused"),
                Some(format!("adj pools resume {pool}")),
            ),
            QueueReason::PoolRemoved => (
                format!("the configuration no longer has pool {pool}"),
                Some(format!(
                    "add [pools.{pool}] to the configuration   or   adj cancel {name}"
                )),
            ),
            _ => (
                format!("no runner of pool {pool} is connected"),
                Some(format!(
                    "on another machine: adj runner --join URL --token-file FILE --pool {pool}"
                )),
            ),
        }
    }

    fn memory(&self) -> String {
        let shown = |bytes: Option<u64>| size::megabytes(bytes.unwrap_or(0));
        let held = &self.pools.held;
        let expected = shown(held.by_agent.get(&self.run.agent).copied());
        let free = shown(held.admission.load.free_bytes);
        format!(
            "runs of {} have used {expected} of memory, and {free} are free, less what live runs are expected to use",
            self.run.agent
        )
    }

    /// Returns the names of the runs that it starts after: those that have failed, or the others.
    fn names(&self, failed: bool) -> String {
        let of = self
            .waited
            .iter()
            .filter(|waited| (waited.state == AfterState::Failed) == failed);
        of.map(|waited| waited.name.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn slots_in_use(pool: &str, slots: u64) -> String {
    if slots == 1 {
        format!("the only slot of pool {pool} is in use")
    } else {
        format!("all {slots} slots of pool {pool} are in use")
    }
}

fn held_after_failed(failed: &str, name: &str) -> Explanation {
    let first = failed.split(',').next().unwrap_or("");
    (
        format!("held because {failed} did not succeed"),
        Some(format!("adj retry {first}   or   adj resume {name}")),
    )
}

fn pressure(pools: &Pools, reason: QueueReason) -> String {
    let Admission { limits, load } = pools.held.admission;
    let (what, key, stall, limit) = match reason {
        QueueReason::CpuPressure => ("a CPU", "cpu", load.cpu, limits.cpu),
        _ => ("memory", "memory", load.memory, limits.memory),
    };
    let (found, limit) = (
        stall.unwrap_or_default().some.as_percent(),
        limit.unwrap_or_default().as_percent(),
    );
    format!(
        "tasks of this machine waited for {what} {found} % of the last 10s, the limit for a start is {limit} % ([pressure] {key})"
    )
}

fn pressure_on_runners(pool: &str, reason: QueueReason) -> String {
    let (what, key) = if reason == QueueReason::CpuPressure {
        ("a CPU", "cpu")
    } else {
        ("memory", "memory")
    };
    format!(
        "tasks on the machines of all runners of pool {pool} wait for {what}, longer than the limit for a start ([pressure] {key})"
    )
}

fn limit_end(pools: &Pools, run: &Run) -> String {
    pools
        .limited
        .get(&run.agent)
        .map_or_else(String::new, |until| {
            format!(", until {}", rfc3339(clock::expected_wall_time(*until)))
        })
}

fn reason(pools: &Pools, used: &SlotsUsed, run: &Run, waited: &[WaitedRun]) -> QueueReason {
    queue_reason(&Queued {
        rank: run.rank,
        after_open: run.after_open,
        after_failed: waited
            .iter()
            .filter(|waited| waited.state == AfterState::Failed)
            .count() as u64,
        after_ports: waited
            .iter()
            .filter(|waited| waited.on == AfterEnd::Ports)
            .count() as u64,
        is_limited: pools.limited.contains_key(&run.agent),
        pool: pools.by_name.get(&run.pool).copied(),
        in_pool: used.in_pool(&run.pool),
        in_all: used.in_all,
        live_max: pools.live_max,
        pressure: pools.held.reason(&run.agent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_is_held_suggests_to_retry_the_first_that_failed() {
        let (why, next_step) = held_after_failed("build, lint", "deploy");
        assert_eq!(why, "held because build, lint did not succeed");
        assert_eq!(
            next_step.as_deref(),
            Some("adj retry build   or   adj resume deploy")
        );
    }

    #[test]
    fn slots_are_counted() {
        assert_eq!(slots_in_use("ci", 1), "the only slot of pool ci is in use");
        assert_eq!(slots_in_use("ci", 4), "all 4 slots of pool ci are in use");
    }
}
