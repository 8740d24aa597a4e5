//! What the campaign has done, and everything that was acknowledged to it.

use super::plan::{Decisions, Plan};
use adjutant::view::Dispatch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One dispatch that was acknowledged.
#[derive(Debug, Clone)]
pub struct Dispatched {
    pub run: String,
    pub order: Dispatch,
    pub plan: Plan,
}

/// One decision that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub approved: bool,
    /// As the request then carries it.
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Ledger {
    /// Key to what was acknowledged under it.
    pub dispatched: BTreeMap<String, Dispatched>,
    /// Request to the answer that was accepted.
    pub answered: BTreeMap<String, String>,
    /// Request to the decisions about it that were accepted, in their order.
    pub decided: BTreeMap<String, Vec<Decided>>,
    /// Runs that stopped again, for want of a supervisor, between two resumes: both are in effect.
    pub resumed_twice: BTreeSet<String>,
    /// Run to the key and the resolution with which it was resumed.
    pub resumed: BTreeMap<String, (String, String)>,
    /// Runs that were cancelled.
    pub cancelled: BTreeSet<String>,
    /// Runs that others have delegated to.
    pub children: BTreeSet<String>,
    /// Runs that may have lost a process of theirs.
    pub supervisor_killed: BTreeSet<String>,
    pub guard_killed: BTreeSet<String>,
    pub problems: Vec<String>,
}

impl Ledger {
    /// How a run is to be decided about, once its dispatch is acknowledged.
    pub fn decisions(&self, run: &str) -> Option<Decisions> {
        self.dispatched.values().find(|one| one.run == run).map(|one| one.plan.decisions)
    }
}

pub type Shared = Arc<Mutex<Ledger>>;

pub fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
