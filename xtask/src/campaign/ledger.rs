//! Records the campaign's actions and all acknowledged writes.

use super::plan::{Decisions, Plan};
use adjutant_api::view::Dispatch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An acknowledged dispatch.
#[derive(Debug, Clone)]
pub struct Dispatched {
    pub run: String,
    pub order: Dispatch,
    pub plan: Plan,
}

/// An acknowledged decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub approved: bool,
    /// The text of the decision in the request.
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// The acknowledged dispatch of each key.
    pub dispatched: BTreeMap<String, Dispatched>,
    /// The accepted answer of each request.
    pub answered: BTreeMap<String, String>,
    /// The accepted decisions of each request, in order.
    pub decided: BTreeMap<String, Vec<Decided>>,
    /// Runs whose supervisor died between two resumes, so that both took effect.
    pub resumed_twice: BTreeSet<String>,
    /// The key and the resolution with which each run was resumed.
    pub resumed: BTreeMap<String, (String, String)>,
    /// Runs that were cancelled.
    pub cancelled: BTreeSet<String>,
    /// Child runs.
    pub children: BTreeSet<String>,
    /// Runs that may have lost a process to a kill.
    pub supervisor_killed: BTreeSet<String>,
    pub guard_killed: BTreeSet<String>,
    /// When a hub or the server of the store was last killed.
    pub hub_killed: Option<Instant>,
    pub problems: Vec<String>,
}

impl Ledger {
    /// Returns how long a run that began at this time has had a hub. On a loaded host, hubs that
    /// are killed one after the other start nothing.
    pub fn undisturbed(&self, start: Instant) -> Duration {
        self.hub_killed
            .map_or(start, |killed| killed.max(start))
            .elapsed()
    }

    /// Returns the decisions for a run, once its dispatch is acknowledged.
    pub fn decisions(&self, run: &str) -> Option<Decisions> {
        self.dispatched
            .values()
            .find(|one| one.run == run)
            .map(|one| one.plan.decisions)
    }
}

pub type Shared = Arc<Mutex<Ledger>>;

pub fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
