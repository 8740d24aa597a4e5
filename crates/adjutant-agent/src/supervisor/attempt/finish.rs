//! Ends an agent whose work is complete.

use super::Attempt;
use adjutant_core::units::duration;
use std::time::{Duration, Instant};

/// How long an agent may take to exit: after its work is complete, before it is asked to exit; and
/// then, before it is killed.
const FINISH_MAX: Duration = Duration::from_millis(1500);
const FINISH_KILL: Duration = Duration::from_secs(3);

/// The exit of an agent after its work is complete.
#[derive(Debug, Default)]
pub(super) struct Finish {
    progress: Progress,
    /// The agent is ended because it has stayed silent after its report.
    is_after_report: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Working,
    /// Its input has ended.
    Closed { ask_at: Instant },
    /// It was asked to exit.
    Asked { kill_at: Instant },
}

impl Finish {
    pub(super) fn due(&self) -> Option<Instant> {
        match self.progress {
            Progress::Working => None,
            Progress::Closed { ask_at } => Some(ask_at),
            Progress::Asked { kill_at } => Some(kill_at),
        }
    }

    /// Returns whether the agent was asked to exit because it has stayed silent after its report.
    pub(super) fn is_ended_after_report(&self) -> bool {
        self.is_after_report && matches!(self.progress, Progress::Asked { .. })
    }
}

impl Attempt {
    /// Closes the input of the agent, whose work is complete, so that it exits.
    pub(super) fn close(&mut self) {
        self.worker.close_input();
        if self.finish.progress == Progress::Working {
            self.finish.progress = Progress::Closed {
                ask_at: Instant::now() + FINISH_MAX,
            };
        }
    }

    /// Asks the agent to exit, whose input has ended. Returns `false` if it was asked before, and
    /// has to be killed.
    pub(super) fn ask_to_exit(&mut self) -> bool {
        let is_closed = matches!(self.finish.progress, Progress::Closed { .. });
        if is_closed {
            self.worker.ask_to_end();
            self.finish.progress = Progress::Asked {
                kill_at: Instant::now() + FINISH_KILL,
            };
        }
        is_closed
    }

    /// Ends the agent, which has reported its result and stays silent. This is no stop: the report
    /// and the evidence decide about the run.
    pub(super) fn end_after_report(&mut self, silent: Duration) {
        self.finish.is_after_report = true;
        self.note(&format!(
            "! ended after its report: silent for {} (end_after_report)",
            duration::of(silent)
        ));
        self.close();
    }
}
