//! When a call is repeated that a hub has refused.

use crate::view::{ErrorView, codes};
use std::time::{Duration, Instant};

/// How long a supervisor repeats such a call of its agent, from the first refusal on.
const AWAY_MAX: Duration = Duration::from_secs(15 * 60);
/// How often a call is repeated at once after a failure of the store.
const STORAGE_FAILURES_MAX: u32 = 3;

/// The earlier tries of a call.
#[derive(Debug)]
pub(super) struct Tries {
    is_hub_call: bool,
    /// A call of a supervisor's agent that adds to a list of the hub.
    is_open_write: bool,
    pub(super) failures: u32,
    /// An earlier sending may have taken effect, so a refusal does not say that nothing was
    /// changed.
    is_in_doubt: bool,
    refused_since: Option<Instant>,
}

/// What follows a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRefusal {
    /// The caller gets it.
    Return,
    /// The call is repeated at once: the store opens its connection again with the next call.
    Repeat,
    /// The call is repeated after a pause: the store's server is restarted, read-only or away, or a
    /// disk is full. With its question or report, the agent waits as for an answer.
    AwaitStore,
    /// The call is repeated after a pause, however long the disk of the store is full: an earlier
    /// try may have taken effect.
    AwaitSpace,
}

impl Tries {
    pub(super) fn new(path: &str, is_open_write: bool) -> Self {
        Self {
            is_hub_call: path.starts_with("/api/v1/"),
            is_open_write,
            failures: 0,
            is_in_doubt: false,
            refused_since: None,
        }
    }

    /// Counts a try whose connection broke.
    pub(super) fn note_lost(&mut self) {
        self.failures += 1;
        self.is_in_doubt = true;
    }

    /// Counts a refusal, and returns whether it is the first one after which the call waits.
    pub(super) fn note_refused(&mut self, follows: AfterRefusal, now: Instant) -> bool {
        match follows {
            AfterRefusal::Return => false,
            AfterRefusal::Repeat => {
                self.failures += 1;
                false
            }
            AfterRefusal::AwaitStore | AfterRefusal::AwaitSpace => {
                let is_first = self.refused_since.is_none();
                self.refused_since.get_or_insert(now);
                is_first
            }
        }
    }

    /// Decides what follows a refusal. `by_supervisor`: a supervisor makes the call.
    pub(super) fn after_refusal(
        &self,
        refusal: &ErrorView,
        by_supervisor: bool,
        now: Instant,
    ) -> AfterRefusal {
        let code = refusal.code.as_str();
        let is_away = [codes::STORAGE, codes::STORAGE_FULL, codes::UNREACHABLE].contains(&code);
        let may_wait = self
            .refused_since
            .is_none_or(|since| now.saturating_duration_since(since) < AWAY_MAX);
        if code == codes::STORAGE && self.is_hub_call && self.failures < STORAGE_FAILURES_MAX {
            AfterRefusal::Repeat
        } else if is_away && self.is_open_write && by_supervisor && may_wait {
            AfterRefusal::AwaitStore
        } else if code == codes::STORAGE_FULL && self.is_in_doubt && by_supervisor {
            AfterRefusal::AwaitSpace
        } else {
            AfterRefusal::Return
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: &str) -> ErrorView {
        ErrorView {
            code: code.to_owned(),
            message: String::new(),
            hint: None,
        }
    }

    #[test]
    fn failure_of_the_store_is_repeated_three_times() {
        let now = Instant::now();
        let mut tries = Tries::new("/api/v1/ask", false);
        for _ in 0..STORAGE_FAILURES_MAX {
            let follows = tries.after_refusal(&refusal(codes::STORAGE), false, now);
            assert_eq!(follows, AfterRefusal::Repeat);
            assert!(!tries.note_refused(follows, now));
        }
        let follows = tries.after_refusal(&refusal(codes::STORAGE), false, now);
        assert_eq!(follows, AfterRefusal::Return);
        let elsewhere = Tries::new("/facts", false);
        let follows = elsewhere.after_refusal(&refusal(codes::STORAGE), false, now);
        assert_eq!(follows, AfterRefusal::Return);
    }

    #[test]
    fn only_a_supervisor_waits_with_an_open_write() {
        let now = Instant::now();
        for (code, is_open_write, by_supervisor, expected) in [
            (codes::UNREACHABLE, true, true, AfterRefusal::AwaitStore),
            (codes::STORAGE_FULL, true, true, AfterRefusal::AwaitStore),
            (codes::STORAGE_FULL, true, false, AfterRefusal::Return),
            (codes::STORAGE_FULL, false, true, AfterRefusal::Return),
            (codes::INVALID, true, true, AfterRefusal::Return),
        ] {
            let tries = Tries::new("/api/v1/ask", is_open_write);
            let follows = tries.after_refusal(&refusal(code), by_supervisor, now);
            assert_eq!(follows, expected, "{code} {is_open_write} {by_supervisor}");
        }
    }

    #[test]
    fn wait_for_the_store_ends_unless_the_call_may_have_taken_effect() {
        let began = Instant::now();
        let (full, late) = (refusal(codes::STORAGE_FULL), began + AWAY_MAX);
        let mut tries = Tries::new("/api/v1/ask", true);
        assert!(tries.note_refused(AfterRefusal::AwaitStore, began));
        assert!(!tries.note_refused(AfterRefusal::AwaitStore, late));
        let in_time = late - Duration::from_millis(1);
        assert_eq!(
            tries.after_refusal(&full, true, in_time),
            AfterRefusal::AwaitStore
        );
        assert_eq!(tries.after_refusal(&full, true, late), AfterRefusal::Return);
        tries.note_lost();
        assert_eq!(
            tries.after_refusal(&full, true, late),
            AfterRefusal::AwaitSpace
        );
        let away = refusal(codes::UNREACHABLE);
        assert_eq!(tries.after_refusal(&away, true, late), AfterRefusal::Return);
    }
}
