//! The machine resources that the attempt's processes use: measured every few seconds, reported
//! when they have changed.

use super::Attempt;
use crate::process::usage::{self, ReapedUse};
use crate::protocol::FactKind;
use adjutant_core::resources::{FIRST_AFTER, Measurement, Meter};
use std::time::Instant;

/// The measurements of an attempt.
#[derive(Debug)]
pub(super) struct Measuring {
    meter: Meter,
    began: Instant,
    /// The accounts of processes reaped before the agent started.
    before: ReapedUse,
    pub(super) due: Instant,
    /// Memory above which the attempt is stopped.
    memory_bytes_max: Option<u64>,
}

impl Measuring {
    pub(super) fn start(memory_bytes_max: Option<u64>, now: Instant) -> Self {
        let meter = Meter::default();
        Self {
            due: now + meter.next_after(),
            meter,
            began: now,
            before: usage::reaped(),
            memory_bytes_max,
        }
    }

    /// Returns when to measure next: where memory is limited, every second.
    fn next(&self, now: Instant) -> Instant {
        let after = self.meter.next_after();
        now + if self.memory_bytes_max.is_some() {
            after.min(FIRST_AFTER)
        } else {
            after
        }
    }
}

impl Attempt {
    /// Measures the live processes.
    pub(super) fn measure(&mut self, output_bytes: u64) {
        let mut found = Measurement {
            output_bytes,
            ..usage::below(rustix::process::getpid())
        };
        // The processes that the supervisor itself has reaped, if there is no init.
        let reaped = usage::reaped();
        found.cpu_ms = found
            .cpu_ms
            .saturating_add(reaped.cpu_ms.saturating_sub(self.measuring.before.cpu_ms));
        let at_ms = self.measuring.began.elapsed().as_millis();
        let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
        if let Some(known) = self.measuring.meter.measure(found, at_ms) {
            self.journal.record(FactKind::Resources(known.into()));
        }
        let now = Instant::now();
        self.measuring.due = self.measuring.next(now);
        if self
            .measuring
            .memory_bytes_max
            .is_some_and(|max| found.memory_bytes > max)
            && !self.stop.is_asked()
        {
            self.journal.record(FactKind::MemoryLimitReached {
                memory_bytes: found.memory_bytes,
            });
            self.begin_stop(now);
        }
    }

    /// Records the totals when every process has been reaped.
    pub(super) fn report_resource_use(&mut self) {
        let (reaped, before) = (usage::reaped(), self.measuring.before);
        let known = self.measuring.meter.finish(
            reaped.cpu_ms.saturating_sub(before.cpu_ms),
            reaped.written_bytes.saturating_sub(before.written_bytes),
            reaped.largest_bytes,
        );
        self.journal.record(FactKind::Resources(known.into()));
    }
}
