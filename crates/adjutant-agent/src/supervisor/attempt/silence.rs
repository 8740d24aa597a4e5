//! The watch over an agent that is silent although it is expected to act.

use super::Attempt;
use crate::harness::dialogue::Dialogue;
use crate::harness::step::Step;
use crate::hub_client::AgentActivity;
use crate::protocol::{FactKind, Order, Orders};
use crate::supervisor::stall::{SilenceLimits, Stall};
use crate::supervisor::stop::Stop;
use adjutant_core::units::duration;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The silence of an agent.
#[derive(Debug)]
pub(super) struct Silence {
    /// The time of the agent's last output or call.
    activity: Arc<AgentActivity>,
    stall: Stall,
    /// The run waits for a decision.
    is_waiting: bool,
    /// Its configuration has the agent ended when it stays silent after its report.
    ends_after_report: bool,
}

impl Silence {
    pub(super) fn watch(order: &Order, activity: Arc<AgentActivity>, now: Instant) -> Self {
        let limits = SilenceLimits::of_ms(order.stall_ms, order.report_grace_ms);
        Self {
            activity,
            stall: Stall::watch(limits, now),
            is_waiting: false,
            ends_after_report: order.ends_after_report,
        }
    }

    pub(super) fn activity(&self) -> &Arc<AgentActivity> {
        &self.activity
    }

    /// Records whether the run waits, and whether it has reported.
    pub(super) fn follow(&mut self, orders: &Orders, now: Instant) {
        if std::mem::replace(&mut self.is_waiting, orders.waiting) {
            // From here on the agent is expected to act again.
            self.activity.record();
        }
        self.stall
            .set_reported(orders.reported, self.activity.silent_since(), now);
    }

    /// Returns when to check next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.stall.due()
    }

    /// Returns the duration of the silence if it is too long. `is_stopping`: the agent is not
    /// expected to act.
    fn check(&mut self, is_stopping: bool, now: Instant) -> Option<Duration> {
        let is_its_turn = !self.is_waiting && !is_stopping;
        let silent_since = self.activity.silent_since().filter(|_| is_its_turn);
        self.stall.check(silent_since, now)
    }

    /// Waits for a sign of life after a stall. Without a stall, this takes forever. Cancel safe.
    pub(super) async fn next_sign(&self) {
        if self.stall.is_stalled() {
            self.activity.next_activity().await;
        } else {
            std::future::pending().await
        }
    }

    /// Records a sign of life. Returns whether it ends a stall.
    pub(super) fn note_sign(&mut self, now: Instant) -> bool {
        self.stall.note_sign(self.activity.silent_since(), now)
    }
}

impl Attempt {
    /// Records a stall if the agent is silent although it is expected to act.
    pub(super) fn check_for_stall(&mut self) {
        let is_stopping = self.stop != Stop::Not;
        let Some(silent) = self.silence.check(is_stopping, Instant::now()) else {
            return;
        };
        if self.dialogue.as_ref().is_some_and(Dialogue::is_opening) {
            let why = format!(
                "it has not begun a session and has been silent for {}: does it speak ACP?",
                duration::of(silent)
            );
            self.perform_step(Step::Failed(why));
        }
        let has_reported = self.silence.stall.has_reported();
        tracing::info!(?silent, has_reported, "the agent is silent");
        if self.silence.ends_after_report && has_reported {
            self.end_after_report(silent);
            return;
        }
        self.journal.record(FactKind::Stalled {
            silent_ms: i64::try_from(silent.as_millis()).unwrap_or(i64::MAX),
        });
    }
}
