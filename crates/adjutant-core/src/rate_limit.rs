//! Automatic resumption of rate-limited runs: when, and how often.

use crate::{SteadyTime, Time};

/// How long and how often a run waits for its vendor's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often a run resumes automatically before it fails. A resume by a person or parent resets
    /// the count.
    pub times_max: u32,
    /// The first pause, if the reset time is unknown. Each later pause is four times as long.
    pub pause_ms: i64,
    /// Longest pause.
    pub pause_ms_max: i64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            times_max: 10,
            pause_ms: 60 * 1000,
            pause_ms_max: 15 * 60 * 1000,
        }
    }
}

impl RetryPolicy {
    /// Returns when a rate-limited run resumes automatically, after `times` such resumptions.
    /// `resets_at` is the reset time, if the vendor reported it. `None`: the run does not resume.
    #[must_use]
    pub fn resumes_at(self, resets_at: Option<Time>, times: u32, now: Time) -> Option<Time> {
        let Self {
            times_max,
            pause_ms,
            pause_ms_max,
        } = self;
        let pause_ms = || {
            4_i64
                .saturating_pow(times)
                .saturating_mul(pause_ms)
                .min(pause_ms_max)
        };
        (times < times_max).then(|| resets_at.unwrap_or_else(|| now.plus_ms(pause_ms())))
    }
}

/// A rolling window of an agent's quota, as its vendor has stated it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaWindow {
    pub minutes: u32,
    /// From 0 to 100.
    pub used_percent: u8,
    pub resets_at: Time,
}

/// Resets that are nearer to each other are the same one.
const SAME_RESET_MS: i64 = 60 * 1000;

impl QuotaWindow {
    /// Returns whether windows differ from the known ones.
    #[must_use]
    pub fn has_change(known: &[Self], stated: &[Self]) -> bool {
        let is_known = |stated: &Self| {
            known.iter().any(|known| {
                let is_same_reset =
                    stated.resets_at.ms_since(known.resets_at).abs() < SAME_RESET_MS;
                known.minutes == stated.minutes
                    && known.used_percent == stated.used_percent
                    && is_same_reset
            })
        };
        !stated.iter().all(is_known)
    }
}

/// How many runs of an agent start apart from each other after its usage limit was reset, and by
/// how much.
pub(crate) const SPREAD_STARTS: u32 = 10;
pub(crate) const SPREAD_MS: i64 = 5_000;

/// The usage limit of an agent, as its vendor reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageLimit {
    /// No run of the agent starts before.
    pub until: SteadyTime,
    /// How many more starts are spread out.
    pub spread: u32,
}

impl UsageLimit {
    /// Returns the limit that a vendor has reported.
    #[must_use]
    pub fn new(until: SteadyTime) -> Self {
        Self {
            until,
            spread: SPREAD_STARTS,
        }
    }

    /// Returns whether no run of the agent may start now.
    #[must_use]
    pub fn is_closed(self, now: SteadyTime) -> bool {
        now < self.until
    }

    /// Returns the limit after a start, so that the runs that waited do not all start at once.
    /// `None`: the limit has ended.
    #[must_use]
    pub fn after_start(self, now: SteadyTime) -> Option<Self> {
        let spread = self.spread.checked_sub(1).filter(|spread| *spread > 0)?;
        Some(Self {
            until: now.plus_ms(SPREAD_MS),
            spread,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE_MS: i64 = 60 * 1000;

    #[test]
    fn pauses_grow_up_to_a_limit_and_a_count() {
        let policy = RetryPolicy {
            times_max: 4,
            ..RetryPolicy::default()
        };
        let minutes = |times| {
            policy
                .resumes_at(None, times, Time(7))
                .map(|at| at.ms_since(Time(7)) / MINUTE_MS)
        };
        assert_eq!(
            [0, 1, 2, 3, 4, u32::MAX].map(minutes),
            [Some(1), Some(4), Some(15), Some(15), None, None]
        );
    }

    #[test]
    fn reported_reset_time_counts_and_is_bounded() {
        let policy = RetryPolicy {
            times_max: 2,
            ..RetryPolicy::default()
        };
        let resets_at = Some(Time(9 * MINUTE_MS));
        assert_eq!(
            [0, 1, 2].map(|times| policy.resumes_at(resets_at, times, Time(0))),
            [resets_at, resets_at, None]
        );
        let none = RetryPolicy {
            times_max: 0,
            ..policy
        };
        assert_eq!(
            (
                none.resumes_at(resets_at, 0, Time(0)),
                none.resumes_at(None, 0, Time(0))
            ),
            (None, None)
        );
    }

    #[test]
    fn starts_after_a_limit_are_spread_out() {
        let mut limit = UsageLimit::new(SteadyTime(100));
        assert!(limit.is_closed(SteadyTime(99)) && !limit.is_closed(SteadyTime(100)));
        let mut starts = vec![100];
        while let Some(next) = limit.after_start(SteadyTime(starts[starts.len() - 1])) {
            starts.push(next.until.0);
            limit = next;
        }
        assert_eq!(starts.len(), SPREAD_STARTS as usize);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == SPREAD_MS));
    }

    #[test]
    fn changed_windows_are_detected() {
        let window = |minutes, used_percent, at| QuotaWindow {
            minutes,
            used_percent,
            resets_at: Time(at),
        };
        let known = [window(300, 40, 1_000_000), window(10_080, 7, 9_000_000)];
        assert!(
            !QuotaWindow::has_change(&known, &[window(300, 40, 1_001_000)])
                && !QuotaWindow::has_change(&known, &[])
        );
        for changed in [
            window(300, 41, 1_000_000),
            window(300, 40, 2_000_000),
            window(60, 40, 1_000_000),
        ] {
            assert!(
                QuotaWindow::has_change(&known, &[known[1], changed]),
                "{changed:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn pause_is_within_bounds_for_any_values(times in any::<u32>(), pause_ms in 0..i64::MAX, pause_ms_max in 0..i64::MAX) {
            let policy = RetryPolicy { times_max: u32::MAX, pause_ms, pause_ms_max };
            let at = policy.resumes_at(None, times.min(u32::MAX - 1), Time(0)).expect("it resumes");
            prop_assert!(at >= Time(0) && at <= Time(pause_ms_max));
        }
    }
}
