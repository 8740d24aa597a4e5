//! Active time, measured by the monotonic clock and paused while a blocking request is open. A
//! wrong wall clock and a suspended machine do not affect it.

use std::time::{Duration, Instant};

/// Counts the active time of one run across its attempts.
#[derive(Debug)]
pub(crate) struct ActiveClock {
    counted: Duration,
    /// `None` while the clock is paused.
    since: Option<Instant>,
    /// The time limit of the run. `None`: there is none.
    limit: Option<Duration>,
}

impl ActiveClock {
    /// Starts the clock with the active time of earlier attempts.
    #[must_use]
    pub(super) fn start(now: Instant, limit_ms: Option<i64>, before_ms: i64) -> Self {
        let duration = |ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        Self {
            counted: duration(before_ms),
            since: Some(now),
            limit: limit_ms.map(duration),
        }
    }

    /// Pauses or resumes the clock.
    pub(crate) fn set_waiting(&mut self, waiting: bool, now: Instant) {
        self.counted = self.active(now);
        self.since = (!waiting).then_some(now);
    }

    /// Returns the active time of the run.
    #[must_use]
    pub(super) fn active(&self, now: Instant) -> Duration {
        self.counted
            + self
                .since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns the active time of the run in milliseconds.
    #[must_use]
    pub(super) fn active_ms(&self, now: Instant) -> i64 {
        i64::try_from(self.active(now).as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the active time that is left. `None`: there is no limit.
    #[must_use]
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        Some(self.limit?.saturating_sub(self.active(now)))
    }

    /// Returns when the limit will be reached if nothing changes. `None`: there is no limit, or the
    /// clock is paused.
    #[must_use]
    pub(crate) fn limit_at(&self) -> Option<Instant> {
        Some(self.since? + self.limit?.saturating_sub(self.counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_stops_while_waiting() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut clock = ActiveClock::start(begin, Some(1_000), 400);
        assert_eq!(clock.limit_at(), Some(at(600)));
        clock.set_waiting(true, at(100));
        assert_eq!((clock.limit_at(), clock.active_ms(at(5_000))), (None, 500));
        clock.set_waiting(true, at(6_000));
        clock.set_waiting(false, at(10_000));
        clock.set_waiting(false, at(10_100));
        assert_eq!(
            (clock.limit_at(), clock.active_ms(at(10_200))),
            (Some(at(10_500)), 700)
        );
    }

    #[test]
    fn limit_used_up_by_earlier_attempts_applies_at_once() {
        let begin = Instant::now();
        assert_eq!(
            ActiveClock::start(begin, Some(100), 500).limit_at(),
            Some(begin)
        );
        assert_eq!(ActiveClock::start(begin, None, 500).limit_at(), None);
    }
}
