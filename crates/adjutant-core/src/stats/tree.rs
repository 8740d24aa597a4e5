//! The time and cost of an ended tree of runs.

use super::KnownSum;

/// Sums over the runs of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeTotals {
    pub runs: u64,
    pub unfinished: u64,
    /// When its first attempt started, and its last run ended.
    pub started_at_ms: Option<i64>,
    pub ended_at_ms: Option<i64>,
    /// Active time of all of its runs.
    pub active_ms: i64,
    /// Of the runs that have started.
    pub cost_micros: KnownSum,
}

/// The time and cost of an ended tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeStats {
    pub runs: u64,
    /// From its first start to its last end.
    pub elapsed_ms: u64,
    /// How long one agent would have worked on all of it in sequence, which is the active time of
    /// all runs.
    pub sequential_ms: u64,
    /// The sum of the known costs. `None`: none is known.
    pub cost_micros: Option<u64>,
    /// Runs whose cost is unknown.
    pub cost_unknown: u64,
}

impl TreeTotals {
    /// Returns the time and cost of the tree. `None`: one of its runs has not finished, or none has
    /// started.
    #[must_use]
    pub fn stats(&self) -> Option<TreeStats> {
        let Self {
            runs,
            unfinished,
            started_at_ms,
            ended_at_ms,
            active_ms,
            cost_micros,
        } = *self;
        if unfinished > 0 {
            return None;
        }
        Some(TreeStats {
            runs,
            elapsed_ms: u64::try_from(ended_at_ms?.saturating_sub(started_at_ms?)).unwrap_or(0),
            sequential_ms: u64::try_from(active_ms).unwrap_or(0),
            cost_micros: cost_micros.known(),
            cost_unknown: cost_micros.unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_stats_once_all_of_it_has_ended() {
        let mut cost_micros = KnownSum::default();
        [Some(3), None]
            .into_iter()
            .for_each(|cost| cost_micros.add(cost));
        let ended = TreeTotals {
            runs: 2,
            unfinished: 0,
            started_at_ms: Some(10),
            ended_at_ms: Some(40),
            active_ms: 50,
            cost_micros,
        };
        let stats = TreeStats {
            runs: 2,
            elapsed_ms: 30,
            sequential_ms: 50,
            cost_micros: Some(3),
            cost_unknown: 1,
        };
        assert_eq!(ended.stats(), Some(stats));
        assert_eq!(
            TreeTotals {
                unfinished: 1,
                ..ended
            }
            .stats(),
            None
        );
        assert_eq!(
            TreeTotals {
                started_at_ms: None,
                ..ended
            }
            .stats(),
            None
        );
        assert_eq!(
            TreeTotals {
                started_at_ms: Some(50),
                ..ended
            }
            .stats()
            .map(|stats| stats.elapsed_ms),
            Some(0),
            "the clock was set back"
        );
    }
}
