//! Errors of git operations.

use super::refusal::MergeRefusal;
use std::io;
use std::path::PathBuf;

/// An error of a git operation.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed, or not on the hub's PATH")]
    Missing,
    #[error("{} is not in a git repository", .0.display())]
    NotARepository(PathBuf),
    #[error("the repository {} is gone: it was moved or deleted", .repository.display())]
    RepositoryGone { repository: PathBuf, run: String },
    #[error("the directory {} is gone: it was moved or deleted", .0.display())]
    DirectoryGone(PathBuf),
    #[error("{} is a bare repository, without a work tree", .0.display())]
    Bare(PathBuf),
    /// A directory beside the work trees of a bare repository.
    #[error("{} is not a work tree of its repository, which has these: {}", .dir.display(), name_dirs(.work_trees))]
    NoWorkTree {
        dir: PathBuf,
        work_trees: Vec<PathBuf>,
    },
    #[error("{} has no commit yet", .0.display())]
    NoCommit(PathBuf),
    #[error("the commit {commit}, from which the workspace is made, is not in {} any more", .repository.display())]
    NoBase { repository: PathBuf, commit: String },
    #[error("the workspace {} is not there: it was removed, or not made yet", .0.display())]
    NoWorkspace(PathBuf),
    #[error("the git directory of {} is not the one that was made for it", .0.display())]
    ForeignGitDirectory(PathBuf),
    /// The agent may have damaged the workspace, or too many of its commits contain copied files.
    // The reason comes first, because long texts are cut.
    #[error("the commits cannot be kept: {why} (workspace {})", .workspace.display())]
    UnreadableCommits { workspace: PathBuf, why: String },
    /// A configured file cannot be copied into a workspace.
    #[error("{} cannot be copied into the workspace: {why}", .path.display())]
    NotCopied { path: PathBuf, why: String },
    #[error("git cannot use the repository of {}: {why}", .cwd.display())]
    Unusable { cwd: PathBuf, why: String },
    #[error("git {command} took too long")]
    Slow { command: String },
    #[error("git {command}: {why}")]
    Failed { command: String, why: String },
    #[error(
        "git would carry {bytes} bytes of the repository, more than the maximum of {bytes_max}"
    )]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// The work of a runner is refused.
    #[error("the work of the runner cannot be stored: {0}")]
    NotAccepted(String),
    #[error(transparent)]
    Refused(#[from] MergeRefusal),
    /// A merge failed halfway and could not be rolled back. The hub retries the rollback.
    #[error("{cause}; the files that were already written cannot be restored yet: {error}")]
    PartlyApplied { cause: String, error: String },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
}

/// Maximum number of directories that an error names.
const NAMED_MAX: usize = 5;

fn name_dirs(dirs: &[PathBuf]) -> String {
    let named: Vec<String> = dirs
        .iter()
        .take(NAMED_MAX)
        .map(|dir| dir.display().to_string())
        .collect();
    let more = dirs
        .len()
        .checked_sub(NAMED_MAX)
        .filter(|more| *more > 0)
        .map(|more| format!(" and {more} more"))
        .unwrap_or_default();
    if named.is_empty() {
        "none".to_owned()
    } else {
        format!("{}{more}", named.join(", "))
    }
}

impl GitError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::File { path, error }
    }

    /// Tells whether the directory of a run has no repository that git can use now, so that it has
    /// no snapshots either.
    #[must_use]
    pub fn is_without_repository(&self) -> bool {
        matches!(
            self,
            Self::Missing
                | Self::NotARepository(_)
                | Self::RepositoryGone { .. }
                | Self::DirectoryGone(_)
                | Self::File { .. }
        )
    }

    /// Tells whether a file or directory does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::File { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    /// Says why a repository, or a directory of one, cannot be used.
    pub fn unusable(cwd: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Unusable {
            cwd: cwd.into(),
            why: why.into(),
        }
    }
}
