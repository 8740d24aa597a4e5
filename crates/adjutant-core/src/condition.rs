//! Conditions of a live run: its CLI repeats a call to its model that keeps failing.
//!
//! Facts in, statements out: the supervisor notes each failed try and each sign of progress, and
//! looks when [`Retries::due_ms`] says so. Times are milliseconds of one clock that never goes back.

use crate::Cause;

/// Failed tries without progress for this long are a condition of the run: 10 s.
pub const RETRYING_AFTER_MS: i64 = 10_000;
/// How long a statement holds before a changed cause or count is stated again: 60 s.
pub const RESTATED_AFTER_MS: i64 = 60_000;
/// Longest text of a failed try that is kept, in characters.
pub const WORDS_CHARS_MAX: usize = 200;

/// That a CLI repeats what keeps failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retrying {
    pub cause: Cause,
    /// How long ago the first try failed.
    pub for_ms: i64,
    /// Failed tries so far.
    pub tries: u32,
    /// What the CLI said about the newest: one line.
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
    stated: Option<Stated>,
}

#[derive(Debug, Clone, Copy)]
struct Stated {
    at_ms: i64,
    cause: Cause,
    tries: u32,
}

impl Retries {
    /// Notes that a try failed. A cause that nothing is known of leaves the known one.
    pub fn note_failed_try(&mut self, cause: Cause, words: &str, now_ms: i64) {
        let episode = self.episode.get_or_insert_with(|| Episode { since_ms: now_ms, cause, tries: 0, words: String::new(), stated: None });
        episode.tries = episode.tries.saturating_add(1);
        if cause != Cause::Agent {
            episode.cause = cause;
        }
        let one_line = words.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        if !one_line.is_empty() {
            episode.words = one_line.chars().take(WORDS_CHARS_MAX).collect();
        }
    }

    /// Notes progress: words of the model, a call of a tool, the end. Tells whether a condition that was
    /// stated is over.
    pub fn note_progress(&mut self) -> bool {
        self.episode.take().is_some_and(|episode| episode.stated.is_some())
    }

    /// Returns when to look. `None`: nothing is to be stated unless something happens.
    #[must_use]
    pub fn due_ms(&self) -> Option<i64> {
        let episode = self.episode.as_ref()?;
        match episode.stated {
            None => Some(episode.since_ms.saturating_add(RETRYING_AFTER_MS)),
            Some(stated) if stated.cause == episode.cause && stated.tries == episode.tries => None,
            Some(stated) => Some(stated.at_ms.saturating_add(RESTATED_AFTER_MS)),
        }
    }

    /// Decides what is to be stated now.
    pub fn look(&mut self, now_ms: i64) -> Option<Retrying> {
        if self.due_ms()? > now_ms {
            return None;
        }
        let episode = self.episode.as_mut()?;
        let Episode { since_ms, cause, tries, ref words, .. } = *episode;
        let retrying = Retrying { cause, for_ms: now_ms.saturating_sub(since_ms), tries, words: words.clone() };
        episode.stated = Some(Stated { at_ms: now_ms, cause, tries });
        Some(retrying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tries_that_fail_for_ten_seconds_are_stated_once_until_progress() {
        let mut retries = Retries::default();
        assert_eq!((retries.due_ms(), retries.look(99_999)), (None, None));
        retries.note_failed_try(Cause::RateLimited, "429\n \u{1b} too many", 1_000);
        assert_eq!((retries.due_ms(), retries.look(10_999)), (Some(11_000), None));
        let stated = Retrying { cause: Cause::RateLimited, for_ms: 10_000, tries: 1, words: "429 too many".to_owned() };
        assert_eq!((retries.look(11_000), retries.look(500_000)), (Some(stated), None));
        assert!(retries.note_progress() && !retries.note_progress());
    }

    #[test]
    fn progress_within_ten_seconds_leaves_nothing_to_state() {
        let mut retries = Retries::default();
        for at in [0, 8_000, 16_000] {
            retries.note_failed_try(Cause::Overloaded, "529", at);
            assert!(!retries.note_progress());
            assert_eq!(retries.look(at + RETRYING_AFTER_MS), None);
        }
    }

    #[test]
    fn unknown_cause_keeps_the_known_one_and_a_new_one_is_stated_a_minute_later() {
        let mut retries = Retries::default();
        retries.note_failed_try(Cause::Network, "connection reset", 0);
        retries.note_failed_try(Cause::Agent, "", 5_000);
        let first = retries.look(RETRYING_AFTER_MS).expect("it is due");
        assert_eq!((first.cause, first.tries, first.words.as_str()), (Cause::Network, 2, "connection reset"));
        retries.note_failed_try(Cause::Overloaded, "529", 12_000);
        assert_eq!(retries.look(RETRYING_AFTER_MS + RESTATED_AFTER_MS - 1), None);
        assert_eq!(retries.look(RETRYING_AFTER_MS + RESTATED_AFTER_MS).map(|stated| (stated.cause, stated.tries)), Some((Cause::Overloaded, 3)));
    }

    proptest! {
        /// However many tries fail, what is stated is bounded by time.
        #[test]
        fn statements_are_at_least_a_minute_apart(gaps in proptest::collection::vec(0_i64..30_000, 1..200)) {
            let (mut retries, mut now, mut stated) = (Retries::default(), 0, Vec::new());
            for gap in gaps {
                now += gap;
                retries.note_failed_try(Cause::ALL[usize::try_from(gap).unwrap_or(0) % Cause::ALL.len()], "x", now);
                stated.extend(retries.look(now).map(|_| now));
            }
            prop_assert!(stated.windows(2).all(|pair| pair[1] - pair[0] >= RESTATED_AFTER_MS), "{stated:?}");
        }
    }
}
