//! The amount of output that facts have reported.

use super::throttled::Pace;
use crate::protocol::FactKind;
use std::time::{Duration, Instant};

/// Minimum interval between facts about output.
const OUTPUT_FACT_EVERY: Duration = Duration::from_secs(1);

/// The reported output. `now` is an argument.
#[derive(Debug)]
pub(super) struct ReportedOutput {
    bytes: u64,
    pace: Pace,
}

impl ReportedOutput {
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            bytes: 0,
            pace: Pace::new(OUTPUT_FACT_EVERY, now),
        }
    }

    /// Returns the number of reported bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns when more output may be reported.
    pub(super) fn next_at(&self) -> Instant {
        self.pace.next_at()
    }

    /// Returns the fact about more output.
    pub(super) fn report(&mut self, total_bytes: u64, now: Instant) -> FactKind {
        self.bytes = total_bytes;
        self.pace.restart(now);
        FactKind::Output { total_bytes }
    }
}
