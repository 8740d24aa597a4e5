//! Waits for the end of the output.

use super::Attempt;
use super::reading::Reading;
use super::statements::SIGNALS_MAX;
use std::time::Duration;

/// How long output may stay open after the agent has ended, before it is closed.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// Number of turns that reading gets before output counts as left open.
const TURNS: u32 = 3;

impl Attempt {
    /// Waits up to [`DRAIN_MAX`] for the end of the output. Returns whether it has ended.
    pub(super) async fn drain(&mut self, reading: &mut Reading) -> bool {
        let Reading { bytes, events, .. } = reading;
        let mut over = tokio::time::Instant::now() + DRAIN_MAX;
        loop {
            tokio::select! {
                // Reading waits until signals are recorded, which may take longer than `DRAIN_MAX`.
                Some(event) = events.recv() => {
                    self.apply_output(event);
                    if self.statements.signals() <= SIGNALS_MAX {
                        over = tokio::time::Instant::now() + DRAIN_MAX;
                    }
                }
                more = bytes.changed() => if more.is_err() { return true },
                () = tokio::time::sleep_until(over) => break,
            }
        }
        // On a busy machine, the time may have passed before reading had a turn.
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            if bytes.has_changed().is_err() {
                return true;
            }
        }
        false
    }
}
