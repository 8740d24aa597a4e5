//! Automatic resumption of rate-limited runs: when, and how often.

use crate::Time;

/// How long and how often a run waits for its vendor's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a run resumes automatically before it fails. A resume by a person or parent resets the count.
    pub times_max: u32,
    /// The first pause, if the reset time is unknown. Each later pause is four times as long.
    pub pause_ms: i64,
    /// Longest pause.
    pub pause_ms_max: i64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { times_max: 10, pause_ms: 60 * 1000, pause_ms_max: 15 * 60 * 1000 }
    }
}

impl RetryPolicy {
    /// Returns when a rate-limited run resumes automatically, after `times` such resumptions. `told` is the reset
    /// time, if the vendor reported it. `None`: the run does not resume.
    #[must_use]
    pub fn resumes_at(self, told: Option<Time>, times: u32, now: Time) -> Option<Time> {
        let Self { times_max, pause_ms, pause_ms_max } = self;
        let pause_ms = || 4_i64.saturating_pow(times).saturating_mul(pause_ms).min(pause_ms_max);
        (times < times_max).then(|| told.unwrap_or_else(|| now.plus_ms(pause_ms())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE_MS: i64 = 60 * 1000;

    #[test]
    fn pauses_grow_up_to_a_limit_and_a_count() {
        let patience = RetryPolicy { times_max: 4, ..RetryPolicy::default() };
        let minutes = |times| patience.resumes_at(None, times, Time(7)).map(|at| at.ms_since(Time(7)) / MINUTE_MS);
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(minutes), [Some(1), Some(4), Some(15), Some(15), None, None]);
    }

    #[test]
    fn reported_reset_time_counts_and_is_bounded() {
        let patience = RetryPolicy { times_max: 2, ..RetryPolicy::default() };
        let told = Some(Time(9 * MINUTE_MS));
        assert_eq!([0, 1, 2].map(|times| patience.resumes_at(told, times, Time(0))), [told, told, None]);
        let none = RetryPolicy { times_max: 0, ..patience };
        assert_eq!((none.resumes_at(told, 0, Time(0)), none.resumes_at(None, 0, Time(0))), (None, None));
    }

    proptest! {
        #[test]
        fn pause_is_within_bounds_for_any_values(times in any::<u32>(), pause_ms in 0..i64::MAX, pause_ms_max in 0..i64::MAX) {
            let patience = RetryPolicy { times_max: u32::MAX, pause_ms, pause_ms_max };
            let at = patience.resumes_at(None, times.min(u32::MAX - 1), Time(0)).expect("it resumes");
            prop_assert!(at >= Time(0) && at <= Time(pause_ms_max));
        }
    }
}
