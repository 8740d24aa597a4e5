//! Handles an agent that is silent although it is expected to act.

use super::Attempt;
use crate::harness::dialogue::Dialogue;
use crate::harness::step::Step;
use crate::protocol::FactKind;
use crate::supervisor::stop::Stop;
use adjutant_core::units::duration;
use std::time::Instant;

impl Attempt {
    /// Records a stall if the agent is silent although it is expected to act.
    pub(super) fn check_for_stall(&mut self) {
        let is_its_turn = !self.waiting && self.stop == Stop::Not;
        let silent_since = self.activity.silent_since().filter(|_| is_its_turn);
        if let Some(silent) = self.stall.check(silent_since, Instant::now()) {
            if self.dialogue.as_ref().is_some_and(Dialogue::is_opening) {
                let why = format!(
                    "it has not begun a session and has been silent for {}: does it speak ACP?",
                    duration::of(silent)
                );
                self.perform_step(Step::Failed(why));
            }
            tracing::info!(
                ?silent,
                has_reported = self.stall.has_reported(),
                "the agent is silent"
            );
            if self.ends_after_report && self.stall.has_reported() {
                self.end_after_report(silent);
                return;
            }
            self.journal.record(FactKind::Stalled {
                silent_ms: i64::try_from(silent.as_millis()).unwrap_or(i64::MAX),
            });
        }
    }
}
