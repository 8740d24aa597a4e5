//! The servers that a client can call.

use crate::config::Home;
use adjutant_core::ClientName;
use std::path::PathBuf;

/// The server of a client, and what to do if it is not running.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// The hub, started if it is not running.
    Hub { home: Home, client: Option<ClientName> },
    /// The hub, if it is running. It is never started.
    RunningHub { home: Home },
    /// A supervisor's socket. If it is gone, the run has ended.
    Worker { socket: PathBuf, token: Option<String> },
    /// The hub, for a supervisor, which waits for it without a limit.
    Supervisor { home: Home, attempt: String, token: String },
}

impl Target {
    pub(super) fn socket(&self) -> PathBuf {
        match self {
            Self::Hub { home, .. } | Self::RunningHub { home } | Self::Supervisor { home, .. } => home.socket(),
            Self::Worker { socket, .. } => socket.clone(),
        }
    }
}
