//! Why a hub cannot run.

use super::capacity::TooFewDescriptors;
use super::listening::ListenError;
use super::options::OptionsError;
use crate::config::{ConfigError, HomeError};
use crate::ops::{LogStoreError, OpError};
use crate::store::StoreError;
use adjutant_core::RunId;
use std::io;
use std::path::PathBuf;
use tokio::task::JoinError;

/// Why a hub cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum HubError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Op(#[from] OpError),
    #[error("{0}{hint}", hint = .0.hint())]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Io(io::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Task(#[from] JoinError),
    #[error("another hub{} uses {} and does not exit", pid.map_or_else(String::new, |pid| format!(" (pid {pid})")), home.display())]
    HomeInUse { pid: Option<i32>, home: PathBuf },
    #[error("another hub serves {}", home.display())]
    AlreadyServed { home: PathBuf },
    #[error("{} is the home of a runner (adj runner): set ADJ_HOME to another directory", home.display())]
    HomeOfRunner { home: PathBuf },
    #[error("the log store cannot be used: {0}")]
    LogStore(#[from] LogStoreError),
    #[error(
        "run {run} was started by a hub in another home, without store_shared: start that hub without store_shared until its runs have ended"
    )]
    LocalAttempt { run: RunId },
    #[error("the socket failed: {0}")]
    Socket(io::Error),
    #[error("the thread that waits for leadership has ended")]
    ElectionEnded,
}

/// Why a hub cannot begin.
#[derive(Debug)]
pub(super) enum NotBegun {
    Refused(HubError),
    /// The server of the store cannot be used at the moment.
    Again(OpError),
}

impl From<OpError> for NotBegun {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Store(StoreError::Lost(_) | StoreError::Unreachable(_)) => Self::Again(error),
            error => Self::Refused(error.into()),
        }
    }
}
