//! Grants: approvals that also cover the same operation again, within one tree of runs, for a time
//! or a number of uses.

use crate::{Denied, IdError, SteadyTime};
use std::fmt;

/// The short number of a grant within one home, shown as `G3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantNo(pub i64);

impl fmt::Display for GrantNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G{}", self.0)
    }
}

impl GrantNo {
    /// Parses `G3` or `g3`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix(['G', 'g']).ok_or(IdError)?;
        if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(IdError);
        }
        digits.parse().map(Self).map_err(|_| IdError)
    }
}

/// How long and how often a grant answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantTerms {
    /// `None`: until the topmost run of its tree ends.
    pub expires_at: Option<SteadyTime>,
    /// `None`: any number.
    pub uses_max: Option<u64>,
}

/// The state of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrantState {
    /// How often it has answered.
    pub uses: u64,
    pub is_revoked: bool,
    /// The topmost run of its tree has ended.
    pub is_tree_over: bool,
}

/// Uses a grant once, for a request that asks for the granted operation.
///
/// # Errors
/// It is revoked, expired or used up, or its tree has ended.
pub fn use_grant(
    state: GrantState,
    terms: GrantTerms,
    now: SteadyTime,
) -> Result<GrantState, Denied> {
    if state.is_revoked {
        return Err(Denied::conflict("grant", "is revoked"));
    }
    if state.is_tree_over {
        return Err(Denied::conflict("grant", "has ended with its tree"));
    }
    if terms.expires_at.is_some_and(|at| now >= at) {
        return Err(Denied::conflict("grant", "has expired"));
    }
    if terms.uses_max.is_some_and(|max| state.uses >= max) {
        return Err(Denied::conflict("grant", "is used up"));
    }
    Ok(GrantState {
        uses: state.uses + 1,
        ..state
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn grant_is_used_within_its_terms_only(
            uses_max in proptest::option::of(0_u64..5), expires in proptest::option::of(0_i64..20), revoked_at in 0_usize..12, over_at in 0_usize..12,
            steps in proptest::collection::vec(0_i64..20, 0..12),
        ) {
            let terms = GrantTerms { expires_at: expires.map(SteadyTime), uses_max };
            let mut state = GrantState::default();
            let mut used = 0;
            for (place, now) in steps.into_iter().enumerate() {
                state.is_revoked |= place >= revoked_at;
                state.is_tree_over |= place >= over_at;
                if let Ok(next) = use_grant(state, terms, SteadyTime(now)) {
                    used += 1;
                    prop_assert!(place < revoked_at.min(over_at) && expires.is_none_or(|at| now < at) && uses_max.is_none_or(|max| used <= max));
                    state = next;
                }
                prop_assert_eq!(state.uses, used);
            }
        }
    }

    #[test]
    fn grants_have_short_numbers() {
        assert_eq!(GrantNo::parse("g12"), Ok(GrantNo(12)));
        assert!(
            ["G", "12", "Q1", "G-1", "G1234567890123456789"]
                .iter()
                .all(|text| GrantNo::parse(text).is_err())
        );
    }
}
