//! What requests through gates have reserved of hard budgets. Only in the hub's memory: each call
//! of a supervisor states its open requests, so the next hub knows them too.

use crate::ops::attempt_id::AttemptId;
use crate::protocol::GateRequest;
use adjutant_core::budget::fits_beside;
use adjutant_core::{BudgetKind, RunId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Maximum number of open requests of an attempt. A gate has fewer connections.
const REQUESTS_MAX: usize = 256;

/// A hard budget that a run draws on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HardBudget {
    /// The run that has it.
    pub(super) run: RunId,
    pub(super) kind: BudgetKind,
    pub(super) left: i64,
}

/// What an open request has reserved.
#[derive(Debug)]
struct Reserved {
    /// Of the budgets of these runs.
    amounts: Vec<(RunId, BudgetKind, u64)>,
}

/// The reservations of all attempts.
#[derive(Debug)]
pub(super) struct Reservations {
    // Never held across an await.
    open: Mutex<HashMap<AttemptId, HashMap<u64, Reserved>>>,
    /// Changes when a reservation ends.
    ends: watch::Sender<()>,
}

impl Default for Reservations {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            ends: watch::Sender::new(()),
        }
    }
}

impl Reservations {
    /// Takes over what a supervisor states: requests that have ended reserve nothing, and those
    /// that have begun do, even if an earlier hub has admitted them. `amount`: what tokens are of a
    /// kind of budget.
    pub(super) fn restate(
        &self,
        id: AttemptId,
        requests: &[GateRequest],
        next_no: u64,
        budgets: &[HardBudget],
        amount: impl Fn(BudgetKind, u64) -> u64,
    ) {
        let mut open = self.open();
        let own = open.entry(id).or_default();
        let before = own.len();
        own.retain(|no, _| *no >= next_no || requests.iter().any(|request| request.no == *no));
        let has_ended = own.len() < before;
        for request in requests
            .iter()
            .filter(|request| request.has_begun)
            .take(REQUESTS_MAX)
        {
            own.entry(request.no)
                .or_insert_with(|| reserved(budgets, request.tokens, &amount));
        }
        if own.is_empty() {
            open.remove(&id);
        }
        drop(open);
        if has_ended {
            self.ends.send_replace(());
        }
    }

    /// Reserves what a request may use. Returns `false` if it must wait for others.
    pub(super) fn reserve(
        &self,
        id: AttemptId,
        request: GateRequest,
        budgets: &[HardBudget],
        is_live: impl Fn(AttemptId) -> bool,
        amount: impl Fn(BudgetKind, u64) -> u64,
    ) -> bool {
        let mut open = self.open();
        open.retain(|other, _| *other == id || is_live(*other));
        if open
            .get(&id)
            .is_some_and(|own| own.contains_key(&request.no))
        {
            return true;
        }
        let of = |budget: &HardBudget| {
            let all = open
                .values()
                .flat_map(HashMap::values)
                .flat_map(|reserved| &reserved.amounts);
            all.filter(|(run, kind, _)| (*run, *kind) == (budget.run, budget.kind))
                .fold(0_u64, |sum, (.., amount)| sum.saturating_add(*amount))
        };
        let fits = budgets.iter().all(|budget| {
            fits_beside(budget.left, of(budget), amount(budget.kind, request.tokens))
        });
        let own = open.entry(id).or_default();
        let has_room = own.len() < REQUESTS_MAX;
        if fits && has_room {
            own.insert(request.no, reserved(budgets, request.tokens, &amount));
        }
        fits && has_room
    }

    /// Returns a receiver that changes when a reservation ends.
    pub(super) fn ends(&self) -> watch::Receiver<()> {
        self.ends.subscribe()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<AttemptId, HashMap<u64, Reserved>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn reserved(
    budgets: &[HardBudget],
    tokens: u64,
    amount: &impl Fn(BudgetKind, u64) -> u64,
) -> Reserved {
    Reserved {
        amounts: budgets
            .iter()
            .map(|budget| (budget.run, budget.kind, amount(budget.kind, tokens)))
            .collect(),
    }
}
