//! How and why a hub ends.

use super::home::Lost;
use crate::process::Lock;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long calls in progress may take once the hub is ending.
pub(super) const CALLS_END_MAX: Duration = Duration::from_millis(300);

/// How a hub has ended.
#[derive(Debug)]
pub(super) enum Served {
    Ended,
    /// It shares its store and is no longer the leader, or the server of its store cannot be used
    /// or was set back, and it is started again.
    LeadLost(Lock),
}

/// Why a hub ends.
#[derive(Debug)]
pub(super) enum EndReason {
    /// It was stopped, or another version takes over.
    Asked,
    Terminated,
    Interrupted,
    /// It has nothing to do.
    Idle,
    /// It becomes a standby hub.
    LeadLost,
    /// Its database was set back, so it opens the store again.
    SetBack,
    HomeLost(Lost),
    SocketClosed,
    SocketFailed(io::Error),
}

impl EndReason {
    /// Returns the reason for the log of the hub.
    pub(super) fn text(&self, home: &Path) -> String {
        let text = match self {
            Self::Asked => "asked to",
            Self::Terminated => "terminated",
            Self::Interrupted => "interrupted",
            Self::Idle => "idle",
            Self::LeadLost => "it is no longer the leader",
            Self::SetBack => "its database was set back",
            Self::SocketClosed => "the socket closed",
            Self::SocketFailed(error) => return format!("the socket failed: {error}"),
            Self::HomeLost(Lost::Removed) => return format!("{} was removed", home.display()),
            Self::HomeLost(Lost::Unlocked) => {
                return format!("{} was moved, or its lock removed", home.display());
            }
        };
        text.to_owned()
    }

    /// Returns whether the person has ended the hub with a signal.
    pub(super) fn is_signal(&self) -> bool {
        matches!(self, Self::Terminated | Self::Interrupted)
    }

    /// Returns whether the hub is started again in the same process.
    pub(super) fn starts_again(&self) -> bool {
        matches!(self, Self::LeadLost | Self::SetBack)
    }

    /// Returns whether the hub has lost its home.
    pub(super) fn is_home_lost(&self) -> bool {
        matches!(self, Self::HomeLost(_))
    }

    /// Returns whether the runs of a home that ends with its hub are ended first. An idle hub has
    /// none, and one that lost its home or is started again leaves them.
    pub(super) fn ends_runs_of_home(&self) -> bool {
        match self {
            Self::Asked
            | Self::Terminated
            | Self::Interrupted
            | Self::SocketClosed
            | Self::SocketFailed(_) => true,
            Self::Idle | Self::LeadLost | Self::SetBack | Self::HomeLost(_) => false,
        }
    }
}

/// The signals that end a hub. None is lost between two calls.
pub(super) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn received(&mut self) -> EndReason {
        tokio::select! {
            _ = self.terminate.recv() => EndReason::Terminated,
            _ = self.interrupt.recv() => EndReason::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_end_ends_the_runs_of_a_home_in_memory() {
        for reason in [
            EndReason::Asked,
            EndReason::Interrupted,
            EndReason::SocketFailed(io::ErrorKind::BrokenPipe.into()),
        ] {
            assert!(reason.ends_runs_of_home(), "{reason:?}");
            assert!(!reason.starts_again() && !reason.is_home_lost());
        }
        for reason in [
            EndReason::Idle,
            EndReason::LeadLost,
            EndReason::SetBack,
            // Its runs are ended without waiting for reports that nobody can store.
            EndReason::HomeLost(Lost::Removed),
            EndReason::HomeLost(Lost::Unlocked),
        ] {
            assert!(!reason.ends_runs_of_home(), "{reason:?}");
        }
    }

    #[test]
    fn reason_in_the_log_names_the_home_that_was_lost() {
        let text = |reason: EndReason| reason.text(Path::new("/home/u/.adj"));
        assert_eq!(
            text(EndReason::HomeLost(Lost::Unlocked)),
            "/home/u/.adj was moved, or its lock removed"
        );
        assert_eq!(text(EndReason::Terminated), "terminated");
    }
}
