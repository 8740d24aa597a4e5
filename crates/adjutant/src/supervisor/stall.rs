//! Detects an agent without output and calls for the configured time. The stall is reported and has no other effect.
//! Instead of polling, each deadline is postponed by the signs of life before it.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Stall {
    limit: Duration,
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
    pub fn watch(limit_ms: Option<i64>, now: Instant) -> Self {
        let limit = limit_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let state = limit.map_or(State::Off, |limit| State::Watching { check_at: now + limit });
        Self { limit: limit.unwrap_or_default(), state }
    }

    /// Returns when to check next. `None`: there is no limit, or the stall is reported already.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if let State::Watching { check_at } = self.state { Some(check_at) } else { None }
    }

    /// Returns whether a stall was reported and has not ended.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        matches!(self.state, State::Stalled { .. })
    }

    /// Checks for a stall. `silent_since` is the time of the last sign of life, if the agent is expected to act. Returns
    /// the duration of the silence if it is too long.
    pub fn check(&mut self, silent_since: Option<Instant>, now: Instant) -> Option<Duration> {
        let since = silent_since.unwrap_or(now);
        let silent = now.saturating_duration_since(since);
        if silent < self.limit {
            self.state = State::Watching { check_at: since + self.limit };
            return None;
        }
        self.state = State::Stalled { since };
        Some(silent)
    }

    /// Records a sign of life. Returns whether it ends a reported stall.
    pub fn note_sign(&mut self, silent_since: Option<Instant>, now: Instant) -> bool {
        let State::Stalled { since } = self.state else { return false };
        let is_later = silent_since.is_none_or(|last| last > since);
        if is_later {
            self.state = State::Watching { check_at: now + self.limit };
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
        let mut stall = Stall::watch(Some(100), begin);
        assert_eq!(stall.due(), Some(at(100)));
        assert_eq!(stall.check(Some(at(60)), at(100)), None);
        assert_eq!(stall.due(), Some(at(160)));
        // The agent waits for Adjutant.
        assert_eq!(stall.check(None, at(160)), None);
        assert_eq!(stall.due(), Some(at(260)));
        assert_eq!(stall.check(Some(at(160)), at(270)), Some(Duration::from_millis(110)));
        assert_eq!((stall.due(), stall.is_stalled()), (None, true));
        assert!(!stall.note_sign(Some(at(160)), at(280)), "that sign was noted before");
        assert!(stall.note_sign(Some(at(290)), at(290)) && !stall.is_stalled());
        assert_eq!(stall.due(), Some(at(390)));
        assert_eq!(Stall::watch(None, begin).due(), None);
    }
}
