//! An agent that has gone silent: no output and no call for as long as its configuration says. It is
//! reported, and nothing is done about it. Nobody polls: a deadline is looked at when it comes, and put
//! off by the signs of life since then.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct Stall {
    limit: Duration,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody wants to know.
    Off,
    Watching {
        look_at: Instant,
    },
    Stalled {
        since: Instant,
    },
}

impl Stall {
    #[must_use]
    pub fn watch(limit_ms: Option<i64>, now: Instant) -> Self {
        let limit = limit_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let state = limit.map_or(State::Off, |limit| State::Watching { look_at: now + limit });
        Self { limit: limit.unwrap_or_default(), state }
    }

    /// Returns when to look next. `None`: not at all, or it is reported already.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if let State::Watching { look_at } = self.state { Some(look_at) } else { None }
    }

    /// Tells whether it is reported, and a sign of life would be news.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        matches!(self.state, State::Stalled { .. })
    }

    /// Looks. `silent_since` is when the last sign of life came, where it is the agent's turn to give
    /// one. Returns how long it has been silent, when that is too long.
    pub fn look(&mut self, silent_since: Option<Instant>, now: Instant) -> Option<Duration> {
        let since = silent_since.unwrap_or(now);
        let silent = now.saturating_duration_since(since);
        if silent < self.limit {
            self.state = State::Watching { look_at: since + self.limit };
            return None;
        }
        self.state = State::Stalled { since };
        Some(silent)
    }

    /// Takes what may be a sign of life. Tells whether it is one.
    pub fn note_sign(&mut self, silent_since: Option<Instant>, now: Instant) -> bool {
        let State::Stalled { since } = self.state else { return false };
        let is_news = silent_since.is_none_or(|last| last > since);
        if is_news {
            self.state = State::Watching { look_at: now + self.limit };
        }
        is_news
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
        assert_eq!(stall.look(Some(at(60)), at(100)), None);
        assert_eq!(stall.due(), Some(at(160)));
        // It is our turn.
        assert_eq!(stall.look(None, at(160)), None);
        assert_eq!(stall.due(), Some(at(260)));
        assert_eq!(stall.look(Some(at(160)), at(270)), Some(Duration::from_millis(110)));
        assert_eq!((stall.due(), stall.is_stalled()), (None, true));
        assert!(!stall.note_sign(Some(at(160)), at(280)), "that sign was noted before");
        assert!(stall.note_sign(Some(at(290)), at(290)) && !stall.is_stalled());
        assert_eq!(stall.due(), Some(at(390)));
        assert_eq!(Stall::watch(None, begin).due(), None);
    }
}
