//! Follows the hub's orders, and stops the attempt.

use super::Attempt;
use crate::harness::dialogue::Dialogue;
use crate::protocol::{FactKind, Orders};
use crate::supervisor::stop::Stop;
use adjutant_core::StopReason;
use std::time::Instant;

impl Attempt {
    pub(super) fn follow(&mut self, orders: Orders) {
        let now = Instant::now();
        self.clock.set_waiting(orders.waiting, now);
        self.silence.follow(&orders, now);
        self.deliver(&orders.messages);
        let Some(reason) = orders.stop else { return };
        let known = StopReason::from_word(&reason);
        if known == Some(StopReason::HostLost) && self.stop == Stop::Not {
            // Otherwise the hub would take the end for the agent's own.
            self.journal.record(FactKind::HubLost {});
        }
        let is_announced = known.is_some_and(StopReason::is_announced);
        match (self.stop, is_announced) {
            (Stop::Not, true) => {
                tracing::info!(reason, "the agent announced its stop");
                self.stop = Stop::Announced {
                    until: now + self.grace,
                };
            }
            (Stop::Not | Stop::Announced { .. }, false) => {
                tracing::info!(reason, "the attempt is being stopped");
                self.begin_stop(now);
            }
            _ => {}
        }
    }

    pub(super) fn begin_stop(&mut self, now: Instant) {
        self.permits.stop();
        let cancel = self.dialogue.as_mut().and_then(Dialogue::cancel);
        self.stop = Stop::begin(&self.worker, cancel, self.grace, now);
    }
}
