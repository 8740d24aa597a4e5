//! What a client calls.

use crate::config::Home;
use adjutant_core::ClientName;
use std::path::PathBuf;

/// Who is at the far end, and what to do when nobody is.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// The hub; it is started when it is not there.
    Hub { home: Home, client: Option<ClientName> },
    /// The hub, if it is there; nothing is started.
    RunningHub { home: Home },
    /// A supervisor's socket. If it is gone, so is the run.
    Worker { socket: PathBuf, token: Option<String> },
    /// The hub, for a supervisor: waited for as long as it takes.
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
