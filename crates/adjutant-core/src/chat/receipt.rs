//! Receipts of messages to runs.

use crate::words;

/// The delivery state of a message to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receipt {
    /// It is stored, and waits for the run's next input, tool call or resume.
    Accepted,
    /// It is in the agent's input, a tool result or the prompt of an attempt.
    HandedOver,
    /// The run has called a tool, ended a turn or read the chat since.
    Read,
    /// The run has ended without receiving it, and cannot resume.
    RunEnded,
    /// It is only in the chat: the run has too many undelivered messages, or runs have answered
    /// each other too often.
    NotSent,
}

words!(Receipt { Accepted = "accepted", HandedOver = "handed_over", Read = "read", RunEnded = "run_ended", NotSent = "not_sent" });

impl Receipt {
    /// Returns the receipt of a message that was sent to a run.
    #[must_use]
    pub fn of(is_delivered: bool, is_read: bool, has_run_ended: bool) -> Self {
        match (is_read, is_delivered) {
            (true, _) => Self::Read,
            (false, true) => Self::HandedOver,
            (false, false) if has_run_ended => Self::RunEnded,
            (false, false) => Self::Accepted,
        }
    }

    /// Returns the words for people.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::HandedOver => "handed over",
            Self::Read => "read",
            Self::RunEnded => "has ended without it",
            Self::NotSent => "not sent",
        }
    }

    /// Returns whether the run can still answer.
    #[must_use]
    pub fn is_open(self, has_run_ended: bool) -> bool {
        match self {
            Self::Accepted | Self::HandedOver | Self::Read => !has_run_ended,
            Self::RunEnded | Self::NotSent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn receipt_never_goes_back(steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..8)) {
            let rank = |receipt| match receipt {
                Receipt::Accepted | Receipt::NotSent => 0,
                Receipt::RunEnded | Receipt::HandedOver => 1,
                Receipt::Read => 2,
            };
            let (mut delivered, mut read, mut ended) = (false, false, false);
            let mut before = Receipt::of(delivered, read, ended);
            for (delivers, reads, ends) in steps {
                delivered |= delivers && !ended;
                read |= reads && delivered && !ended;
                ended |= ends;
                let now = Receipt::of(delivered, read, ended);
                prop_assert!(rank(now) >= rank(before), "{before:?} {now:?}");
                prop_assert!(!now.is_open(true), "no answer comes from a run that has ended");
                before = now;
            }
        }
    }
}
