//! Why git could not do what was wanted.

use std::io;
use std::path::PathBuf;

/// Why git could not do what was wanted.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed, or not on the hub's PATH")]
    Missing,
    #[error("{} is not in a git repository", .0.display())]
    NotARepository(PathBuf),
    #[error("git cannot use the repository of {}: {why}", .cwd.display())]
    Unusable { cwd: PathBuf, why: String },
    #[error("git {command} took too long")]
    Slow { command: String },
    #[error("git {command}: {why}")]
    Failed { command: String, why: String },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
}

impl GitError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::File { path, error }
    }

    pub(super) fn unusable(cwd: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Unusable { cwd: cwd.into(), why: why.into() }
    }
}
