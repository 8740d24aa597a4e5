//! Ends an agent whose work is complete.

use super::Attempt;
use adjutant_core::units::duration;
use std::time::{Duration, Instant};

/// How long an agent may take to exit: after its work is complete, before it is asked to exit; and
/// then, before it is killed.
const FINISH_MAX: Duration = Duration::from_millis(1500);
pub(super) const FINISH_KILL: Duration = Duration::from_secs(3);

/// The progress of an agent's exit after its work is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Working,
    /// Its input has ended.
    Closed {
        ask_at: Instant,
    },
    /// It was asked to exit.
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
    /// Closes the input of the agent, whose work is complete, so that it exits.
    pub(super) fn close(&mut self) {
        self.worker.close_input();
        if self.finish == Finish::Working {
            self.finish = Finish::Closed {
                ask_at: Instant::now() + FINISH_MAX,
            };
        }
    }

    /// Ends the agent, which has reported its result and stays silent. This is no stop: the report
    /// and the evidence decide about the run.
    pub(super) fn end_after_report(&mut self, silent: Duration) {
        self.is_ended_after_report = true;
        self.note(&format!(
            "! ended after its report: silent for {} (end_after_report)",
            duration::of(silent)
        ));
        self.close();
    }
}
