//! Facts that are recorded at most once in an interval. Pure: `now` is an argument.

use std::time::{Duration, Instant};

/// The minimum interval between facts of a kind.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    next_at: Instant,
}

impl Pace {
    /// Creates a pace whose first fact may be recorded at once.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            next_at: now,
        }
    }

    /// Returns when the next fact may be recorded.
    pub(super) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Begins another interval.
    pub(super) fn restart(&mut self, now: Instant) {
        self.next_at = now + self.every;
    }
}

/// A fact that waits until it may be recorded. Only the latest one is kept.
#[derive(Debug)]
pub(super) struct Throttled<T> {
    pace: Pace,
    pending: Option<T>,
}

impl<T> Throttled<T> {
    /// Creates it without a fact. The first one is due at once.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        Self {
            pace: Pace::new(every, now),
            pending: None,
        }
    }

    /// Keeps a fact, which replaces a pending one. It is due an interval after the last recorded
    /// one.
    pub(super) fn put(&mut self, fact: T) {
        self.pending = Some(fact);
    }

    /// Keeps a fact, which replaces a pending one. It is due an interval after the first
    /// pending fact.
    pub(super) fn put_delayed(&mut self, fact: T, now: Instant) {
        if self.pending.is_none() {
            self.pace.restart(now);
        }
        self.pending = Some(fact);
    }

    /// Returns when the pending fact is due. `None`: there is none.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.as_ref().map(|_| self.pace.next_at())
    }

    /// Takes the pending fact, due or not, to record it now.
    pub(super) fn take(&mut self, now: Instant) -> Option<T> {
        let fact = self.pending.take()?;
        self.pace.restart(now);
        Some(fact)
    }

    /// Takes the pending fact if it is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<T> {
        self.due()
            .filter(|due| *due <= now)
            .and_then(|_| self.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn first_fact_is_due_at_once_and_the_next_after_the_interval() {
        let now = Instant::now();
        let mut facts = Throttled::new(EVERY, now);
        assert_eq!((facts.due(), facts.take_due(now)), (None, None));
        facts.put("first");
        assert_eq!(facts.take_due(now), Some("first"));
        assert_eq!(facts.due(), None);
        facts.put("second");
        assert_eq!(facts.due(), Some(now + EVERY));
        assert_eq!(facts.take_due(now + SECOND), None);
        facts.put("third");
        assert_eq!(facts.take_due(now + EVERY), Some("third"));
        assert_eq!(facts.take_due(now + EVERY * 2), None);
    }

    #[test]
    fn delayed_fact_is_due_after_the_interval() {
        let now = Instant::now();
        let mut facts = Throttled::new(EVERY, now);
        facts.put_delayed(1, now);
        facts.put_delayed(2, now + SECOND);
        assert_eq!(facts.due(), Some(now + EVERY));
        assert_eq!(facts.take_due(now + EVERY), Some(2));
        facts.put_delayed(3, now + EVERY * 9);
        assert_eq!(facts.due(), Some(now + EVERY * 10));
    }

    #[test]
    fn last_fact_is_taken_before_it_is_due() {
        let now = Instant::now();
        let mut facts = Throttled::new(EVERY, now);
        facts.put(1);
        facts.take(now);
        facts.put(2);
        assert_eq!(facts.take(now), Some(2));
        assert_eq!(facts.take(now + EVERY), None);
    }
}
