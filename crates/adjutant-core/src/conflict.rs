//! Conflicts between the changes of runs that are not merged yet, and the order in which to merge
//! them.

/// The changes of one run, as far as the order of merging depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changes {
    /// How many files it has changed.
    pub files: u64,
}

/// What happened to a pair of runs when their trees were compared again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairChange {
    /// Their first conflict: their parent has to know.
    Conflict,
    /// They conflicted, and do not any more.
    Settled,
    Unchanged,
}

/// Returns what a comparison changes.
#[must_use]
pub fn pair_change(conflicted: bool, conflicts: bool) -> PairChange {
    match (conflicted, conflicts) {
        (false, true) => PairChange::Conflict,
        (true, false) => PairChange::Settled,
        (true, true) | (false, false) => PairChange::Unchanged,
    }
}

/// Proposes an order of merging: always the run that conflicts with the fewest remaining ones, then
/// the one with the fewest changed files, then the first. Runs that have changed nothing are left
/// out. `conflicts` are pairs of positions in `runs`; the result are positions.
#[must_use]
pub fn merge_order(runs: &[Changes], conflicts: &[(usize, usize)]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..runs.len()).filter(|run| runs[*run].files > 0).collect();
    let mut order = Vec::with_capacity(runs.len());
    while !left.is_empty() {
        let others = |run: usize| {
            let other = |pair: &(usize, usize)| match *pair {
                (a, b) if a == b => None,
                (a, b) if a == run => Some(b),
                (a, b) if b == run => Some(a),
                _ => None,
            };
            let mut others: Vec<usize> = conflicts
                .iter()
                .filter_map(other)
                .filter(|other| left.contains(other))
                .collect();
            others.sort_unstable();
            others.dedup();
            others.len()
        };
        let first = left
            .iter()
            .copied()
            .min_by_key(|run| (others(*run), runs[*run].files, *run));
        let Some(first) = first else { break };
        left.retain(|run| *run != first);
        order.push(first);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(files: &[u64]) -> Vec<Changes> {
        files
            .iter()
            .map(|files| Changes { files: *files })
            .collect()
    }

    #[test]
    fn fewest_conflicts_then_smallest_change_comes_first() {
        assert_eq!(merge_order(&of(&[5, 1, 3]), &[]), [1, 2, 0]);
        assert_eq!(merge_order(&of(&[1, 2, 9]), &[(0, 1)]), [2, 0, 1]);
        assert_eq!(
            merge_order(&of(&[1, 1, 1, 1]), &[(0, 1), (0, 2), (2, 0), (0, 0)]),
            [3, 1, 0, 2]
        );
        assert_eq!(merge_order(&[], &[(0, 1)]), [] as [usize; 0]);
    }

    #[test]
    fn run_without_changes_is_not_merged() {
        assert_eq!(merge_order(&of(&[0, 2, 1, 0]), &[(1, 2)]), [2, 1]);
    }

    proptest! {
        #[test]
        fn order_is_a_permutation_that_pairs_do_not_reorder(
            files in prop::collection::vec(1_u64..4, 0..9), pairs in prop::collection::vec((0_usize..9, 0_usize..9), 0..12),
        ) {
            let runs = of(&files);
            let order = merge_order(&runs, &pairs);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..runs.len()).collect::<Vec<_>>());
            let turned: Vec<(usize, usize)> = pairs.iter().rev().map(|(a, b)| (*b, *a)).collect();
            prop_assert_eq!(&order, &merge_order(&runs, &turned));
            // A run without conflicts never comes after one with some.
            let is_free = |run: &usize| !pairs.iter().any(|(a, b)| a != b && (a == run || b == run) && *a < runs.len() && *b < runs.len());
            let free = order.iter().filter(|run| is_free(run)).count();
            prop_assert!(order.iter().take(free).all(is_free));
        }

        #[test]
        fn conflict_is_reported_once(seen in prop::collection::vec(any::<bool>(), 0..20)) {
            let (mut known, mut open) = (false, 0_i32);
            for conflicts in seen {
                match pair_change(known, conflicts) {
                    PairChange::Conflict => open += 1,
                    PairChange::Settled => open -= 1,
                    PairChange::Unchanged => {}
                }
                known = conflicts;
                prop_assert!(open == i32::from(known));
            }
        }
    }
}
