//! How an agent that has said its last word is brought to its end.

use super::Attempt;
use std::time::{Duration, Instant};

/// How long an agent that has said its last word may take to end by itself, before it is asked to,
/// and then until it is killed.
const FINISH_MAX: Duration = Duration::from_millis(1500);
pub(super) const FINISH_KILL: Duration = Duration::from_secs(3);

/// How far an agent has come that has said its last word and should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Working,
    /// Its input has ended.
    Closed {
        ask_at: Instant,
    },
    /// It was asked to end.
    Asked {
        kill_at: Instant,
    },
}

impl Finish {
    pub(super) fn due(self) -> Option<Instant> {
        match self {
            Self::Working => None,
            Self::Closed { ask_at } => Some(ask_at),
            Self::Asked { kill_at } => Some(kill_at),
        }
    }
}

impl Attempt {
    /// The work is over: the agent is expected to end.
    pub(super) fn close(&mut self) {
        self.worker.close_input();
        if self.finish == Finish::Working {
            self.finish = Finish::Closed { ask_at: Instant::now() + FINISH_MAX };
        }
    }
}
