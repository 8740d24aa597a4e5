//! The condition of a live run whose CLI retries a failing call to its model.
//!
//! The supervisor records each failed try and each sign of progress, and calls
//! [`Retries::due_statement`] at the time of [`Retries::due_ms`]. Times are milliseconds of a
//! monotonic clock.

use crate::Cause;

/// Failed tries without progress for this long are a condition of the run: 10 s.
pub(crate) const RETRYING_AFTER_MS: i64 = 10_000;
/// Shortest time between two statements with a changed cause or count: 60 s.
pub(crate) const RESTATED_AFTER_MS: i64 = 60_000;
/// Longest error message that is kept, in characters.
pub(crate) const WORDS_CHARS_MAX: usize = 200;

/// The statement that a CLI retries a failing call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    pub cause: Cause,
    /// How long ago the first try failed.
    pub for_ms: i64,
    /// Failed tries so far.
    pub tries: u32,
    /// The newest error message of the CLI, in one line.
    pub words: String,
}

/// The failed tries since the last sign of progress.
#[derive(Debug, Default)]
pub struct Retries {
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    since_ms: i64,
    cause: Cause,
    tries: u32,
    words: String,
    stated: Option<StatedRetry>,
}

#[derive(Debug, Clone, Copy)]
struct StatedRetry {
    at_ms: i64,
    cause: Cause,
    tries: u32,
}

impl Retries {
    /// Records a failed try. An unknown cause does not replace a known one.
    pub fn note_failed_try(&mut self, cause: Cause, words: &str, now_ms: i64) {
        let episode = self.episode.get_or_insert_with(|| Episode {
            since_ms: now_ms,
            cause,
            tries: 0,
            words: String::new(),
            stated: None,
        });
        episode.tries = episode.tries.saturating_add(1);
        if cause != Cause::Agent {
            episode.cause = cause;
        }
        let one_line = words
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        if !one_line.is_empty() {
            episode.words = one_line.chars().take(WORDS_CHARS_MAX).collect();
        }
    }

    /// Records progress: text of the model, a tool call, or the end. Returns whether this ends a
    /// stated condition.
    pub fn note_progress(&mut self) -> bool {
        self.episode
            .take()
            .is_some_and(|episode| episode.stated.is_some())
    }

    /// Returns when to call [`Self::due_statement`]. `None`: not before the next failed try.
    #[must_use]
    pub fn due_ms(&self) -> Option<i64> {
        let episode = self.episode.as_ref()?;
        match episode.stated {
            None => Some(episode.since_ms.saturating_add(RETRYING_AFTER_MS)),
            Some(stated) if stated.cause == episode.cause && stated.tries == episode.tries => None,
            Some(stated) => Some(stated.at_ms.saturating_add(RESTATED_AFTER_MS)),
        }
    }

    /// Returns the statement that is due now, if any.
    pub fn due_statement(&mut self, now_ms: i64) -> Option<Retrying> {
        if self.due_ms()? > now_ms {
            return None;
        }
        let episode = self.episode.as_mut()?;
        let Episode {
            since_ms,
            cause,
            tries,
            ref words,
            ..
        } = *episode;
        let retrying = Retrying {
            cause,
            for_ms: now_ms.saturating_sub(since_ms),
            tries,
            words: words.clone(),
        };
        episode.stated = Some(StatedRetry {
            at_ms: now_ms,
            cause,
            tries,
        });
        Some(retrying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn condition_is_stated_once_until_progress() {
        let mut retries = Retries::default();
        assert_eq!(
            (retries.due_ms(), retries.due_statement(99_999)),
            (None, None)
        );
        retries.note_failed_try(Cause::RateLimited, "429\n \u{1b} too many", 1_000);
        assert_eq!(
            (retries.due_ms(), retries.due_statement(10_999)),
            (Some(11_000), None)
        );
        let stated = Retrying {
            cause: Cause::RateLimited,
            for_ms: 10_000,
            tries: 1,
            words: "429 too many".to_owned(),
        };
        assert_eq!(
            (
                retries.due_statement(11_000),
                retries.due_statement(500_000)
            ),
            (Some(stated), None)
        );
        assert!(retries.note_progress() && !retries.note_progress());
    }

    #[test]
    fn progress_within_ten_seconds_states_nothing() {
        let mut retries = Retries::default();
        for at in [0, 8_000, 16_000] {
            retries.note_failed_try(Cause::Overloaded, "529", at);
            assert!(!retries.note_progress());
            assert_eq!(retries.due_statement(at + RETRYING_AFTER_MS), None);
        }
    }

    #[test]
    fn changed_cause_is_stated_a_minute_later() {
        let mut retries = Retries::default();
        retries.note_failed_try(Cause::Network, "connection reset", 0);
        retries.note_failed_try(Cause::Agent, "", 5_000);
        let first = retries.due_statement(RETRYING_AFTER_MS).expect("it is due");
        assert_eq!(
            (first.cause, first.tries, first.words.as_str()),
            (Cause::Network, 2, "connection reset")
        );
        retries.note_failed_try(Cause::Overloaded, "529", 12_000);
        assert_eq!(
            retries.due_statement(RETRYING_AFTER_MS + RESTATED_AFTER_MS - 1),
            None
        );
        assert_eq!(
            retries
                .due_statement(RETRYING_AFTER_MS + RESTATED_AFTER_MS)
                .map(|stated| (stated.cause, stated.tries)),
            Some((Cause::Overloaded, 3))
        );
    }

    proptest! {
        #[test]
        fn statements_are_at_least_a_minute_apart(gaps in proptest::collection::vec(0_i64..30_000, 1..200)) {
            let (mut retries, mut now, mut stated) = (Retries::default(), 0, Vec::new());
            for gap in gaps {
                now += gap;
                retries.note_failed_try(Cause::ALL[usize::try_from(gap).unwrap_or(0) % Cause::ALL.len()], "x", now);
                stated.extend(retries.due_statement(now).map(|_| now));
            }
            prop_assert!(stated.windows(2).all(|pair| pair[1] - pair[0] >= RESTATED_AFTER_MS), "{stated:?}");
        }
    }
}
