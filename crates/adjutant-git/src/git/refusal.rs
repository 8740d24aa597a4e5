//! Reasons for refusing to change the user's repository.

use crate::user_files::LeftAlone;

/// Maximum number of files that a refusal names.
const NAMED_MAX: usize = 10;

/// The reason for refusing to change the user's repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeRefusal {
    #[error("these files have changes of yours that are not committed: {0}")]
    Dirty(String),
    #[error("these files are in the way and are not in git: {0}")]
    InTheWay(String),
    #[error("these files have a filter (such as Git LFS), which Adjutant does not run: {0}")]
    Filtered(String),
    #[error(
        "the run has committed files that were copied into its workspace and can be secrets: {0}"
    )]
    Copies(String),
    #[error("these files are not part of the sparse checkout: {0}")]
    Sparse(String),
    #[error("repositories inside the repository were added, removed or replaced: {0}")]
    Submodules(String),
    #[error(
        "the run moves repositories inside the repository to commits that yours do not have: {0}"
    )]
    SubmoduleCommits(String),
    #[error("these names cannot be written here: {0}")]
    Names(String),
    #[error("{0} is in progress in the repository")]
    UnderWay(&'static str),
    #[error("another git process is running in the repository ({0} exists)")]
    Locked(String),
    #[error("{0} changed meanwhile")]
    Changed(String),
    /// Found while files were written. What was written is reverted.
    #[error("the merge was reverted, because of {0}")]
    LeftAlone(String),
    #[error("the repository has a split index, which Adjutant cannot update")]
    SplitIndex,
    #[error("git does not know your name and address, which a commit needs: {0}")]
    NoIdentity(String),
    #[error("{0:?} cannot be the name of a branch")]
    BranchName(String),
    #[error("the branch {0} exists already")]
    BranchTaken(String),
    #[error("these files have changed since the run: {0}")]
    ChangedSince(String),
    #[error(
        "it is not known who changed these files, because {runs} worked in the directory at the same time: {files}"
    )]
    ChangedBeside { runs: String, files: String },
    #[error("the run started from {0}")]
    OtherBase(String),
    #[error(
        "your branch and the run have merged each other's commits, so that their changes count from several commits"
    )]
    CrissCross,
    #[error("these files still have conflict markers: {0}")]
    Markers(String),
    #[error("the run has made a merge commit, which cannot be applied again")]
    MergeCommit,
    #[error("the run has made more than {0} commits")]
    TooManyCommits(usize),
}

impl MergeRefusal {
    /// Names the files that were left alone while others were written.
    pub(super) fn of_left_alone(files: &[(String, LeftAlone)]) -> Self {
        let named: Vec<String> = files
            .iter()
            .take(NAMED_MAX)
            .map(|(file, left)| format!("{file} ({left})"))
            .collect();
        let more = files.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        Self::LeftAlone(format!("{}{more}", named.join(", ")))
    }

    /// Refuses these files, if there are any.
    ///
    /// # Errors
    /// The refusal `of`, with the names of the first of them.
    pub fn files(
        of: fn(String) -> Self,
        files: impl IntoIterator<Item = String>,
    ) -> Result<(), Self> {
        let mut files: Vec<String> = files.into_iter().collect();
        if files.is_empty() {
            return Ok(());
        }
        files.sort_unstable();
        files.dedup();
        let more = files.len().saturating_sub(NAMED_MAX);
        files.truncate(NAMED_MAX);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        Err(of(format!("{}{more}", files.join(", "))))
    }
}
