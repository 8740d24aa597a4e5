//! The machine of the hub: its load, and how many runs it can have.

use crate::config::Config;
use adjutant_core::pressure::{Admission, MachineLoad};
use std::sync::{Arc, Mutex, PoisonError};

/// The hub's own machine. Clones share its state.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Maximum number of live runs that the file descriptor limit allows.
    live_runs_max: u64,
    /// The load when it was last read.
    load: Arc<Mutex<MachineLoad>>,
}

impl Machine {
    pub(super) fn new(live_runs_max: u64) -> Self {
        Self {
            live_runs_max,
            load: Arc::default(),
        }
    }

    /// Returns how many runs may be live at a time: the configured limit, or the file descriptor
    /// limit if lower.
    pub fn live_runs_max(&self, config: &Config) -> u64 {
        config.live_runs_max.min(self.live_runs_max)
    }

    /// Records the load of the machine, as the hub has read it.
    pub fn note_load(&self, load: MachineLoad) {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner) = load;
    }

    /// Returns what decides whether a run may start on the machine.
    pub(super) fn admission(&self, config: &Config) -> Admission {
        Admission {
            limits: config.pressure,
            load: *self.load.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
