//! Distributions of times, in buckets of at most 1/32 of their values.

use std::collections::BTreeMap;

/// Values up to this one have a bucket each; above, each power of two has this many.
const STEPS: u64 = 32;

/// How often times occurred. A quantile is exact up to 63 ms and at most 1/32 too low above.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distribution {
    counts: BTreeMap<u64, u64>,
    count: u64,
}

impl Distribution {
    /// Adds a time in milliseconds. A negative one, from a wall clock that was set back, counts as 0.
    pub fn add(&mut self, ms: i64) {
        *self
            .counts
            .entry(bucket(u64::try_from(ms).unwrap_or(0)))
            .or_default() += 1;
        self.count += 1;
    }

    /// Returns the number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that `percent` percent of the times do not exceed. `None`: there is no
    /// time.
    #[must_use]
    pub fn quantile_ms(&self, percent: u64) -> Option<u64> {
        let rank = self
            .count
            .saturating_mul(percent.min(100))
            .div_ceil(100)
            .max(1);
        let mut seen = 0;
        self.counts.iter().find_map(|(lowest, count)| {
            seen += count;
            (seen >= rank).then_some(*lowest)
        })
    }
}

/// Returns the lowest value of the bucket of a value.
fn bucket(value: u64) -> u64 {
    let shift = (value / STEPS).checked_ilog2().unwrap_or(0);
    value >> shift << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantile_is_near_the_sorted_value(mut values in prop::collection::vec(0_i64..200_000_000, 1..200), percent in 1_u64..=100) {
            let mut distribution = Distribution::default();
            values.iter().for_each(|value| distribution.add(*value));
            values.sort_unstable();
            let rank = (values.len() as u64 * percent).div_ceil(100).max(1);
            let exact = values[rank as usize - 1] as u64;
            let found = distribution.quantile_ms(percent).expect("there are values");
            prop_assert!(found <= exact && exact - found <= exact / STEPS, "{found} for {exact}");
        }

        #[test]
        fn buckets_are_few(values in prop::collection::vec(any::<i64>(), 1..500)) {
            let mut distribution = Distribution::default();
            values.iter().for_each(|value| distribution.add(*value));
            prop_assert!(distribution.counts.len() <= 64 * STEPS as usize && distribution.count() == values.len() as u64);
        }
    }

    #[test]
    fn empty_distribution_has_no_quantile() {
        assert_eq!(Distribution::default().quantile_ms(50), None);
    }

    #[test]
    fn median_of_two_is_the_lower_one() {
        let mut distribution = Distribution::default();
        [10, -5].into_iter().for_each(|ms| distribution.add(ms));
        assert_eq!(
            (distribution.quantile_ms(50), distribution.quantile_ms(95)),
            (Some(0), Some(10))
        );
    }
}
