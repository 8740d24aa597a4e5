//! Merging a run's changes into the user's repository, and discarding its workspace.

use super::{Call, RunView, SnapshotView, Word};
use adjutant_core::merge::{ConflictKind, MergeMode, MergeOutcome};
use serde::{Deserialize, Serialize};

/// Merges what an isolated run has changed into the repository that its workspace was made from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeRun {
    pub run: String,
    /// Left out: `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Word<MergeMode>>,
    /// The new branch of the mode `branch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Makes a merge commit also where the branch could be moved forward.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_ff: bool,
    /// The agent that resolves conflicts, in a new run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolve_with: Option<String>,
    /// Variables for that agent beside the allow-list.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}
call!(MergeRun = "merge", writes true -> MergeView);

/// The outcome of a merge.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MergeView {
    pub run_id: String,
    pub run_name: String,
    pub outcome: Word<MergeOutcome>,
    pub mode: Word<MergeMode>,
    /// The top of the user's work tree.
    pub repository: String,
    /// The branch that has the changes. Absent if a commit is checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that was checked out before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The new commit of the branch. Absent if none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Files that were written or removed, from the top of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Files that conflict. Nothing was changed then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictView>,
    /// The subject of the run's commit that cannot be applied again (mode `rebase`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicting_commit: Option<String>,
    /// The run that resolves the conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolving: Option<Box<RunView>>,
}

/// A file that cannot be merged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictView {
    pub path: String,
    pub kind: Word<ConflictKind>,
    /// The conflicting lines with git's conflict markers and a little context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<String>,
    /// There are more conflicting lines than that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Removes the workspace of an isolated run, after keeping its tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscardRun {
    pub run: String,
    /// Also if files would be lost that a snapshot leaves out (such as too large ones).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}
call!(DiscardRun = "discard", writes true -> DiscardView);

/// What a discard did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscardView {
    pub run_id: String,
    pub run_name: String,
    /// The directory that was removed.
    pub path: String,
    /// The run's tree as it was. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SnapshotView>,
    /// It was discarded before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_discarded: bool,
}
