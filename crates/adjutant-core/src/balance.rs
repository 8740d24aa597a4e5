//! Chooses one of several agents for a run, and decides whether a run falls back to another one.

use crate::{Cause, words};

/// Maximum number of agents among which a run may choose.
pub const ALTERNATIVES_MAX: usize = 8;

/// The data about one of the agents of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alternative {
    /// Whether its pool has a free slot.
    pub has_slot: bool,
    /// Whether it has reached its usage limit.
    pub is_limited: bool,
    /// The average cost of its runs, in millionths of a dollar. `None`: not measured.
    pub cost_micros: Option<u64>,
}

/// The reason for choosing an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChoiceReason {
    /// It is the only usable one.
    Only,
    /// It is the only one, or the first, with a free slot.
    FreeSlot,
    /// The others have reached their usage limits.
    Quota,
    /// Its runs cost less.
    Price,
    /// It was named first.
    Order,
}

words!(ChoiceReason { Only = "only", FreeSlot = "free_slot", Quota = "quota", Price = "price", Order = "order" });

/// Chooses an agent: prefers a free slot, then quota left, then the lowest cost if all costs are
/// known, then the first. Returns its index and the reason. `None`: the list is empty.
#[must_use]
pub fn choose(all: &[Alternative]) -> Option<(usize, ChoiceReason)> {
    let mut left: Vec<usize> = (0..all.len()).collect();
    if left.len() == 1 {
        return Some((0, ChoiceReason::Only));
    }
    // The reason is the last rule that excluded an agent.
    let mut reason = ChoiceReason::Order;
    for (rule, is_better) in [
        (
            ChoiceReason::FreeSlot,
            (|one: &Alternative| one.has_slot) as fn(&Alternative) -> bool,
        ),
        (ChoiceReason::Quota, |one: &Alternative| !one.is_limited),
    ] {
        let better: Vec<usize> = left
            .iter()
            .copied()
            .filter(|at| is_better(&all[*at]))
            .collect();
        if !better.is_empty() && better.len() < left.len() {
            left = better;
            reason = rule;
        }
    }
    let costs: Option<Vec<u64>> = left.iter().map(|at| all[*at].cost_micros).collect();
    if let Some(least) = costs.as_ref().and_then(|costs| costs.iter().min().copied()) {
        let cheapest: Vec<usize> = left
            .iter()
            .copied()
            .filter(|at| all[*at].cost_micros == Some(least))
            .collect();
        if cheapest.len() < left.len() {
            left = cheapest;
            reason = ChoiceReason::Price;
        }
    }
    left.first().map(|at| (*at, reason))
}

/// The progress of a run before its agent failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WorkDone {
    /// The number of output tokens.
    pub output_tokens: u64,
    /// Whether it has reported progress or a result, asked, or saved a checkpoint.
    pub has_stated: bool,
    /// Whether it has changed files.
    pub has_changed: bool,
}

impl WorkDone {
    /// Returns whether there is no progress, so that another agent can start the task from the
    /// beginning.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Cause {
    /// Returns whether the failure is the agent's and not the task's, so that another agent may
    /// succeed.
    #[must_use]
    pub fn is_of_agent(self) -> bool {
        match self {
            Self::NotSignedIn
            | Self::ModelUnavailable
            | Self::RateLimited
            | Self::NoCredit
            | Self::TooOld => true,
            Self::Overloaded
            | Self::Network
            | Self::ContextExhausted
            | Self::SessionLost
            | Self::NotPermitted
            | Self::LimitReached
            | Self::NoWord
            | Self::Refused
            | Self::Agent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alternative(has_slot: bool, is_limited: bool, cost_micros: Option<u64>) -> Alternative {
        Alternative {
            has_slot,
            is_limited,
            cost_micros,
        }
    }

    #[test]
    fn slot_counts_before_quota_before_price_before_order() {
        let (free, limited, full) = (
            alternative(true, false, None),
            alternative(true, true, None),
            alternative(false, false, None),
        );
        for (all, expected) in [
            (vec![], None),
            (vec![limited], Some((0, ChoiceReason::Only))),
            (vec![free, free], Some((0, ChoiceReason::Order))),
            (vec![full, limited], Some((1, ChoiceReason::FreeSlot))),
            (vec![limited, free], Some((1, ChoiceReason::Quota))),
            (
                vec![
                    alternative(true, false, Some(5)),
                    alternative(true, false, Some(3)),
                ],
                Some((1, ChoiceReason::Price)),
            ),
            (
                vec![
                    alternative(true, false, Some(5)),
                    alternative(true, false, None),
                ],
                Some((0, ChoiceReason::Order)),
            ),
            (
                vec![
                    alternative(true, true, Some(1)),
                    alternative(true, false, Some(9)),
                ],
                Some((1, ChoiceReason::Quota)),
            ),
        ] {
            assert_eq!(choose(&all), expected, "{all:?}");
        }
    }

    proptest! {
        #[test]
        fn chosen_agent_is_never_worse_by_slot_or_quota(
            all in proptest::collection::vec((any::<bool>(), any::<bool>(), proptest::option::of(0_u64..5)), 1..8),
        ) {
            let all: Vec<Alternative> = all.into_iter().map(|(slot, limited, cost)| alternative(slot, limited, cost)).collect();
            let (at, _) = choose(&all).expect("there is one");
            let chosen = all[at];
            prop_assert!(chosen.has_slot || all.iter().all(|one| !one.has_slot));
            prop_assert!(!chosen.is_limited || all.iter().all(|one| one.is_limited || one.has_slot != chosen.has_slot));
        }
    }
}
