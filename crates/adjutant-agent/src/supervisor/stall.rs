//! Detects an agent without output and calls for the configured time, which is shorter after its
//! report. Instead of polling, each deadline is postponed by the signs of life before it.

use std::time::{Duration, Instant};

/// Durations of silence. `None`: never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SilenceLimits {
    pub working: Option<Duration>,
    /// After the run's report, if that is shorter.
    pub reported: Option<Duration>,
}

impl SilenceLimits {
    /// Takes the limits of an order, in milliseconds.
    #[must_use]
    pub(crate) fn of_ms(working: Option<i64>, reported: Option<i64>) -> Self {
        let duration = |ms: Option<i64>| {
            ms.and_then(|ms| u64::try_from(ms).ok())
                .map(Duration::from_millis)
        };
        Self {
            working: duration(working),
            reported: duration(reported),
        }
    }

    fn limit(self, is_reported: bool) -> Option<Duration> {
        let of_report = self.reported.filter(|_| is_reported);
        self.working.into_iter().chain(of_report).min()
    }
}

#[derive(Debug)]
pub(super) struct Stall {
    limits: SilenceLimits,
    /// The position of the run's report, unless it has made a statement since.
    reported: Option<i64>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No limit is configured.
    Off,
    Watching {
        check_at: Instant,
    },
    Stalled {
        since: Instant,
    },
}

impl Stall {
    #[must_use]
    pub(super) fn watch(limits: SilenceLimits, now: Instant) -> Self {
        let mut stall = Self {
            limits,
            reported: None,
            state: State::Off,
        };
        stall.state = stall.watching_from(now);
        stall
    }

    /// Records the position of the run's report, or (`None`) that the run has made a statement
    /// since. A repetition changes nothing. A reported stall lasts until the next sign of life.
    pub(super) fn set_reported(
        &mut self,
        reported: Option<i64>,
        silent_since: Option<Instant>,
        now: Instant,
    ) {
        if std::mem::replace(&mut self.reported, reported) != reported && !self.is_stalled() {
            self.state = self.watching_from(silent_since.unwrap_or(now));
        }
    }

    /// Returns whether the run has reported, and has made no statement since.
    #[must_use]
    pub(crate) fn has_reported(&self) -> bool {
        self.reported.is_some()
    }

    fn watching_from(&self, since: Instant) -> State {
        self.limits
            .limit(self.reported.is_some())
            .map_or(State::Off, |limit| State::Watching {
                check_at: since + limit,
            })
    }

    /// Returns when to check next. `None`: there is no limit, or the stall is reported already.
    #[must_use]
    pub(super) fn due(&self) -> Option<Instant> {
        if let State::Watching { check_at } = self.state {
            Some(check_at)
        } else {
            None
        }
    }

    /// Returns whether a stall was reported and has not ended.
    #[must_use]
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.state, State::Stalled { .. })
    }

    /// Checks for a stall. `silent_since` is the time of the last sign of life, if the agent is
    /// expected to act. Returns the duration of the silence if it is too long.
    pub(super) fn check(
        &mut self,
        silent_since: Option<Instant>,
        now: Instant,
    ) -> Option<Duration> {
        let since = silent_since.unwrap_or(now);
        let silent = now.saturating_duration_since(since);
        if self
            .limits
            .limit(self.reported.is_some())
            .is_none_or(|limit| silent < limit)
        {
            self.state = self.watching_from(since);
            return None;
        }
        self.state = State::Stalled { since };
        Some(silent)
    }

    /// Records a sign of life. Returns whether it ends a reported stall.
    pub(crate) fn note_sign(&mut self, silent_since: Option<Instant>, now: Instant) -> bool {
        let State::Stalled { since } = self.state else {
            return false;
        };
        let is_later = silent_since.is_none_or(|last| last > since);
        if is_later {
            self.state = self.watching_from(now);
        }
        is_later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_reported_once_and_reset_by_output() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut stall = Stall::watch(SilenceLimits::of_ms(Some(100), Some(10)), begin);
        assert_eq!(stall.due(), Some(at(100)));
        assert_eq!(stall.check(Some(at(60)), at(100)), None);
        assert_eq!(stall.due(), Some(at(160)));
        // The agent waits for Adjutant.
        assert_eq!(stall.check(None, at(160)), None);
        assert_eq!(stall.due(), Some(at(260)));
        assert_eq!(
            stall.check(Some(at(160)), at(270)),
            Some(Duration::from_millis(110))
        );
        assert_eq!((stall.due(), stall.is_stalled()), (None, true));
        assert!(
            !stall.note_sign(Some(at(160)), at(280)),
            "that sign was noted before"
        );
        assert!(stall.note_sign(Some(at(290)), at(290)) && !stall.is_stalled());
        assert_eq!(stall.due(), Some(at(390)));
        assert_eq!(
            Stall::watch(SilenceLimits::of_ms(None, Some(10)), begin).due(),
            None
        );
    }

    #[test]
    fn report_shortens_the_silence_until_the_next_statement() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut stall = Stall::watch(SilenceLimits::of_ms(None, Some(10)), begin);
        stall.set_reported(Some(7), Some(at(100)), at(101));
        assert_eq!((stall.due(), stall.has_reported()), (Some(at(110)), true));
        // The next poll for orders repeats it.
        assert_eq!(stall.check(Some(at(105)), at(110)), None);
        stall.set_reported(Some(7), Some(at(100)), at(112));
        assert_eq!(stall.due(), Some(at(115)));
        assert_eq!(
            stall.check(Some(at(105)), at(116)),
            Some(Duration::from_millis(11))
        );
        // Another report counts again, and a statement ends it.
        stall.set_reported(Some(9), Some(at(120)), at(119));
        assert!(stall.is_stalled() && stall.note_sign(Some(at(120)), at(120)));
        assert_eq!((stall.due(), stall.is_stalled()), (Some(at(130)), false));
        stall.set_reported(None, Some(at(125)), at(126));
        assert_eq!((stall.due(), stall.has_reported()), (None, false));
        assert_eq!(stall.check(Some(at(125)), at(900)), None);

        let mut patient = Stall::watch(SilenceLimits::of_ms(Some(50), None), begin);
        patient.set_reported(Some(1), Some(at(10)), at(11));
        assert_eq!(
            patient.due(),
            Some(at(60)),
            "without a limit of its own, that of working agents counts"
        );
        let mut hasty = Stall::watch(SilenceLimits::of_ms(Some(50), Some(90)), begin);
        hasty.set_reported(Some(1), Some(at(10)), at(11));
        assert_eq!(hasty.due(), Some(at(60)), "the shorter one counts");
    }
}
