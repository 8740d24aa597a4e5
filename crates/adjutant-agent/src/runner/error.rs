//! Why a runner cannot run.

use crate::config::HomeError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a runner does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunnerError {
    #[error(
        "http sends the token and the data of all runs in plain text: use https, or accept it with --plain"
    )]
    PlainText,
    #[error("only an https address has a certificate: leave out --fingerprint and --ca")]
    NoCertificate,
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(
        "a hub or another runner uses {}: set ADJ_HOME to another directory",
        .0.display()
    )]
    HomeInUse(PathBuf),
    #[error("{} has the store of a hub: set ADJ_HOME to another directory", .0.display())]
    HomeOfHub(PathBuf),
    #[error("{} is accessible to other users: chmod 600", .0.display())]
    ExposedToken(PathBuf),
    #[error(
        "{}: must contain the token that adj token new NAME --role runner printed",
        .0.display()
    )]
    NoToken(PathBuf),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Identity {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(
        "the hub refuses the token ({0}): make one there with adj token new NAME --role runner"
    )]
    TokenRefused(String),
    /// The hub refuses the runner, with this message.
    #[error("{0}")]
    Refused(String),
}

impl RunnerError {
    /// Returns a function that names the file of an error.
    pub(super) fn of_file(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}
