//! Decides when a change of the configured policies counts.
//!
//! A run without a fence can write the configuration. So a change counts at once only if no run has
//! been live since the policies were last seen unchanged. Any other change waits until the person
//! trusts it; until then, it only restricts.

use super::{ApprovalQuery, Policy, PolicyDecision, deciding};

/// The policies of the configuration file, compared with those in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePolicies {
    Same,
    Other,
    /// The file cannot be used, so its policies are unknown.
    Unknown,
}

/// What an observation of the file leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// The policies of the file are in effect from now on.
    pub accepts: bool,
    /// A run is live, or was live when the policies changed or could not be read: a change needs
    /// the person's trust.
    pub is_guarded: bool,
}

/// Observes the file. `is_guarded`: the result of the last observation. `has_live_runs`: a run can
/// write the file now.
#[must_use]
pub fn observe(file: FilePolicies, is_guarded: bool, has_live_runs: bool) -> Observation {
    match file {
        FilePolicies::Same => Observation {
            accepts: false,
            is_guarded: has_live_runs,
        },
        FilePolicies::Unknown => Observation {
            accepts: false,
            is_guarded: is_guarded || has_live_runs,
        },
        FilePolicies::Other if is_guarded || has_live_runs => Observation {
            accepts: false,
            is_guarded: true,
        },
        FilePolicies::Other => Observation {
            accepts: true,
            is_guarded: false,
        },
    }
}

/// Returns the policy that decides about a request while a change waits: the more restrictive
/// decision of the policies in effect and of the change. `None`: the request is asked.
#[must_use]
pub fn deciding_with_change<'a>(
    in_effect: &'a [Policy],
    change: &'a [Policy],
    asked: &ApprovalQuery<'_>,
) -> Option<&'a Policy> {
    let both = [
        deciding(in_effect.iter(), asked),
        deciding(change.iter(), asked),
    ];
    let first = |decision| {
        both.into_iter()
            .flatten()
            .find(|policy| policy.decision == decision)
    };
    let is_allowed = || {
        both.iter()
            .all(|policy| policy.is_some_and(|policy| policy.decision == PolicyDecision::Allow))
    };
    let restricts = first(PolicyDecision::Deny).or_else(|| first(PolicyDecision::Ask));
    restricts.or_else(|| {
        if is_allowed() {
            first(PolicyDecision::Allow)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Conditions, Operation, PolicyName};
    use crate::{Decision, Permissions};

    #[test]
    fn change_counts_only_if_no_run_could_have_made_it() {
        use FilePolicies::{Other, Same, Unknown};
        let seen = |file, is_guarded, live| {
            let Observation {
                accepts,
                is_guarded,
            } = observe(file, is_guarded, live);
            (accepts, is_guarded)
        };
        assert_eq!(
            seen(Other, false, false),
            (true, false),
            "nobody else could write it"
        );
        assert_eq!(seen(Other, false, true), (false, true));
        assert_eq!(seen(Other, true, true), (false, true));
        assert_eq!(
            seen(Other, true, false),
            (false, true),
            "the run that made it has ended, which changes nothing"
        );
        assert_eq!(
            seen(Same, true, false),
            (false, false),
            "it was undone, or never made"
        );
        assert_eq!(
            seen(Same, true, true),
            (false, true),
            "it can still be made"
        );
        assert_eq!(
            seen(Unknown, true, false),
            (false, true),
            "the next readable file can contain the run's change"
        );
        assert_eq!(seen(Unknown, false, true), (false, true));
        assert_eq!(seen(Unknown, false, false), (false, false));
    }

    #[test]
    fn waiting_change_only_restricts() {
        let policy = |decision: PolicyDecision| Policy {
            name: PolicyName::parse(decision.word()).expect("a name"),
            decision,
            conditions: Conditions::default(),
            reason: None,
        };
        let operation = Operation::default();
        let asked = ApprovalQuery {
            agent: "echo",
            profile: Permissions::Full,
            risk: None,
            operation: &operation,
        };
        let choices = [
            None,
            Some(PolicyDecision::Allow),
            Some(PolicyDecision::Ask),
            Some(PolicyDecision::Deny),
        ];
        let rank = |answer: Option<Decision>| match answer {
            Some(Decision::Approved { .. }) => 0,
            None => 1,
            Some(_) => 2,
        };
        for now in choices {
            for then in choices {
                let sets = [now, then]
                    .map(|decision| decision.map(policy).into_iter().collect::<Vec<_>>());
                let alone =
                    |set: &[Policy]| rank(deciding(set.iter(), &asked).and_then(Policy::answer));
                let both =
                    rank(deciding_with_change(&sets[0], &sets[1], &asked).and_then(Policy::answer));
                assert_eq!(
                    both,
                    alone(&sets[0]).max(alone(&sets[1])),
                    "{now:?} and {then:?}"
                );
            }
        }
    }
}
