//! Stops an agent in steps: its protocol's cancellation, its signal (INT to the agent, or TERM and
//! CONT to the tree), the grace period, KILL to the tree. Each step has a deadline. An agent that
//! announced its stop gets the grace period first.

use super::worker::{Line, Worker};
use std::time::{Duration, Instant};

/// How long an agent may take to follow its protocol's cancellation before it gets its signal.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// The progress of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// No stop is requested.
    Not,
    /// The agent announced its stop and may finish its work until then.
    Announced { until: Instant },
    /// The agent received its protocol's cancellation.
    Asked { until: Instant, kill_at: Instant },
    /// The agent received its signal.
    Terminating { kill_at: Instant },
}

impl Stop {
    /// Begins a stop. `cancel` is the cancellation in the agent's protocol, if it has one.
    #[must_use]
    pub(super) fn begin(
        worker: &Worker,
        cancel: Option<Vec<u8>>,
        grace: Duration,
        now: Instant,
    ) -> Self {
        let kill_at = now + grace;
        if let (Some(lines), Some(bytes)) = (&worker.lines, cancel) {
            let line = Line {
                bytes,
                message_id: None,
            };
            // Without waiting for space: an agent that reads nothing must not hold up its own stop.
            match lines.try_send(line) {
                Ok(()) => {
                    return Self::Asked {
                        // At least half of the grace period is left for the signal. The
                        // cancellation does not extend it.
                        until: now + CANCEL_MAX.min(grace / 2),
                        kill_at,
                    };
                }
                Err(error) => tracing::info!(%error, "the agent accepts no cancellation"),
            }
        }
        worker.ask_to_end();
        Self::Terminating { kill_at }
    }

    /// Returns whether the agent was asked to end. An earlier exit is its own decision.
    #[must_use]
    pub(super) fn is_asked(self) -> bool {
        match self {
            Self::Not | Self::Announced { .. } => false,
            Self::Asked { .. } | Self::Terminating { .. } => true,
        }
    }

    /// Returns when the next step is due.
    #[must_use]
    pub(super) fn due(self) -> Option<Instant> {
        match self {
            Self::Not => None,
            Self::Announced { until } | Self::Asked { until, .. } => Some(until),
            Self::Terminating { kill_at } => Some(kill_at),
        }
    }

    /// Takes the next step. `None`: kill all processes now.
    #[must_use]
    pub(super) fn next(self, worker: &Worker) -> Option<Self> {
        match self {
            Self::Not | Self::Announced { .. } => Some(self),
            Self::Asked { kill_at, .. } => {
                worker.ask_to_end();
                Some(Self::Terminating { kill_at })
            }
            Self::Terminating { .. } => None,
        }
    }
}

/// Waits until `due`, or forever if it is `None`.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
