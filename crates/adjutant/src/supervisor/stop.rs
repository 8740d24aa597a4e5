//! The stop ladder: the agent's own cancel, its signal (INT to itself, or TERM and CONT to
//! everything), grace, KILL to everything. One step after the other, each with its deadline; the whole lasts the grace and what
//! killing takes. Before it, an agent that announced its stop itself has its grace to exit.

use super::worker::{Line, Worker};
use std::time::{Duration, Instant};

/// The longest that an agent has to follow its own cancel, before it is sent TERM.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// How far a stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nobody wants it stopped.
    Not,
    /// The agent announced that it stops, and may finish what it is doing until then.
    Announced { until: Instant },
    /// The agent was asked in its own words.
    Asked { until: Instant, kill_at: Instant },
    /// The agent was sent its signal.
    Terminating { kill_at: Instant },
}

impl Stop {
    /// Begins a stop. `cancel` is what asks the agent in its own words.
    #[must_use]
    pub fn begin(worker: &Worker, cancel: Option<Vec<u8>>, grace: Duration, now: Instant) -> Self {
        let kill_at = now + grace;
        if let (Some(lines), Some(bytes)) = (&worker.lines, cancel) {
            let line = Line { bytes, message_id: None };
            match lines.try_send(line) {
                Ok(()) => return Self::Asked { until: now + CANCEL_MAX.min(grace / 2), kill_at },
                Err(error) => tracing::info!(%error, "the agent takes no cancel"),
            }
        }
        worker.ask_to_end();
        Self::Terminating { kill_at }
    }

    /// Tells whether the agent was asked to end. Until then an exit is its own.
    #[must_use]
    pub fn is_asked(self) -> bool {
        match self {
            Self::Not | Self::Announced { .. } => false,
            Self::Asked { .. } | Self::Terminating { .. } => true,
        }
    }

    /// Returns when the next step is due.
    #[must_use]
    pub fn due(self) -> Option<Instant> {
        match self {
            Self::Not => None,
            Self::Announced { until } | Self::Asked { until, .. } => Some(until),
            Self::Terminating { kill_at } => Some(kill_at),
        }
    }

    /// Takes the next step of a stop that was begun. `None`: everything is to be killed now.
    #[must_use]
    pub fn next(self, worker: &Worker) -> Option<Self> {
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

/// Waits until `due`, or for ever without it.
pub async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
