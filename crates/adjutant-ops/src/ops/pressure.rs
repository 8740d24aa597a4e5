//! Memory pressure: pausing runs before the kernel kills one, and resuming them.

use super::machine::Machine;
use super::pools::HubPools;
use super::settings::Settings;
use super::{OpError, Ops};
use crate::clock;
use crate::store::{
    Held, Pools, Run, Store, StoreError, Topic, hosted_attempts, is_queue_longer, live_runs,
    paused_by_pressure, slots_used,
};
use adjutant_core::pressure::{Admission, Relief, ReliefHistory};
use adjutant_core::units::size;
use adjutant_core::{RunEvent, RunState, StopReason};
use std::time::Duration;

/// Relieves the pressure on the hub's machine, one step at a time.
#[derive(Debug)]
pub struct PressureRelief {
    store: Store,
    settings: Settings,
    machine: Machine,
    pools: HubPools,
    /// The starts that were delayed at the last step.
    held: Held,
    /// The previous actions.
    history: ReliefHistory,
}

impl PressureRelief {
    pub fn new(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            machine: ops.machine.clone(),
            pools: HubPools::of(ops),
            held: Held::default(),
            history: ReliefHistory::default(),
        }
    }

    /// Pauses the newest run if the machine is short of memory, or resumes a paused one when memory
    /// is free again. Returns when to read the load again, if a start or a run waits for it.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn step(&mut self) -> Result<Option<Duration>, OpError> {
        let config = self.settings.config_or_builtin();
        let admission = self.machine.admission(&config);
        let settings = self.pools.configured(&config);
        let is_pausing = self.history.is_pausing();
        let (used, now_held, waits, has_paused, is_stopping) = self.store.read(|connection| {
            let pools = settings.in_effect(connection)?;
            let used = slots_used(connection, &pools)?.in_all.used();
            let has_paused = !paused_by_pressure(connection)?.is_empty();
            let waits = (pools.held.all.is_some() || !pools.held.by_agent.is_empty())
                && is_queue_longer(connection, 0)?;
            let is_stopping = is_pausing && live_runs(connection)?.iter().any(is_being_paused);
            Ok::<_, StoreError>((used, pools.held, waits, has_paused, is_stopping))
        })?;
        let now = clock::steady();
        if let Some(relief) = self
            .history
            .next(&admission, used, is_stopping, has_paused, now)
        {
            let retention = self.settings.retention();
            self.store
                .write(move |tx| {
                    let pools: Pools = settings.in_effect(tx.connection())?;
                    let used = slots_used(tx.connection(), &pools)?.in_all.used();
                    match relief {
                        Relief::Pause if admission.needs_pause(used) => {
                            let hosted = hosted_attempts(tx.connection())?;
                            // Those of runners are on other machines.
                            let here = live_runs(tx.connection())?
                                .into_iter()
                                .filter(|run| hosted.iter().all(|hosted| hosted.run != run.id));
                            if let Some(run) = run_to_pause(here.collect()) {
                                let reason = describe(&admission);
                                tx.advance(
                                    &run,
                                    RunEvent::StopAsked(StopReason::MemoryPressure),
                                    retention,
                                    "hub",
                                    &reason,
                                )?;
                            }
                        }
                        Relief::Resume if admission.has_passed(used) => {
                            if let Some(run) = paused_by_pressure(tx.connection())?.first() {
                                tx.advance(
                                    run,
                                    RunEvent::Resumed,
                                    retention,
                                    "hub",
                                    "the memory pressure has passed",
                                )?;
                            }
                        }
                        Relief::Pause | Relief::Resume => {}
                    }
                    Ok(())
                })
                .await?;
        }
        if !self.held.holds_same(&now_held) {
            self.store.wake_ups().notify([&Topic::Queue]);
        }
        self.held = now_held;
        Ok((waits || has_paused)
            .then(|| Duration::from_millis(self.history.recheck_ms(&admission, now))))
    }
}

/// Chooses the run to pause: the newest that works, unless one is being paused already.
fn run_to_pause(live: Vec<Run>) -> Option<Run> {
    if live.iter().any(is_being_paused) {
        return None;
    }
    live.into_iter()
        .filter(|run| run.state == RunState::Running && run.holding == 0)
        .max_by_key(|run| run.started_at)
}

fn is_being_paused(run: &Run) -> bool {
    run.state == RunState::Stopping(StopReason::MemoryPressure)
}

fn describe(admission: &Admission) -> String {
    let stalled = admission
        .load
        .memory
        .map_or(0, |stall| stall.full.as_percent());
    let free = admission.load.free_bytes.map_or_else(String::new, |bytes| {
        format!(", {} are free", size::text(bytes))
    });
    format!("all tasks waited for memory {stalled} % of the last 10s{free}")
}
