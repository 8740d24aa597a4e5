//! Merging two states of a tree: what kind of conflict a file has.

use crate::words;

/// Why a file cannot be merged without a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Both sides changed the same lines.
    Content,
    /// Both sides added the file, with different content.
    AddAdd,
    /// Both sides changed a file that is not text.
    Binary,
    /// One side changed the file, the other removed it.
    ModifyDelete,
    /// One side renamed the file, the other removed it, or both renamed it differently.
    Rename,
    /// A file on one side is a directory on the other.
    FileDirectory,
    /// The entry is of another type on each side: a file, a link, a repository.
    DistinctTypes,
    /// Both sides moved a repository inside the repository to different commits.
    Submodule,
    /// Any other conflict that git reports.
    Other,
}

words!(ConflictKind {
    Content = "content",
    AddAdd = "add_add",
    Binary = "binary",
    ModifyDelete = "modify_delete",
    Rename = "rename",
    FileDirectory = "file_directory",
    DistinctTypes = "distinct_types",
    Submodule = "submodule",
    Other = "other",
});

impl ConflictKind {
    /// Describes it for people, after the file's name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Content => "both sides changed the same lines",
            Self::AddAdd => "both sides added it with different content",
            Self::Binary => "both sides changed it, and it is not text",
            Self::ModifyDelete => "one side changed it and the other removed it",
            Self::Rename => "the sides renamed it differently, or one removed it",
            Self::FileDirectory => "a file on one side is a directory on the other",
            Self::DistinctTypes => "a file, a link or a repository, depending on the side",
            Self::Submodule => "both sides moved the repository inside it",
            Self::Other => "git cannot merge it",
        }
    }
}

/// How a run's changes get into the user's repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MergeMode {
    /// The run's commits, joined with the user's branch by a merge commit where it has moved on.
    #[default]
    Merge,
    /// One commit with all changes.
    Squash,
    /// The run's commits, each applied again on top of the user's branch.
    Rebase,
    /// Only a new branch with the run's commits: the user's tree stays as it is.
    Branch,
    /// Only the user's tree and index: nothing is committed.
    Stage,
}

words!(MergeMode { Merge = "merge", Squash = "squash", Rebase = "rebase", Branch = "branch", Stage = "stage" });
