//! Merging a run's changes into the user's repository, and discarding its workspace.

use super::{MessageView, RunView, SnapshotView, Word};
use adjutant_core::merge::{ConflictKind, MergeMode, MergeOutcome};
use serde::{Deserialize, Serialize};

/// Merges the changes of an isolated run into the repository that its workspace was created from.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MergeRun {
    pub run: String,
    /// Default: `merge`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Word<MergeMode>>,
    /// The name of the new branch in mode `branch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Creates a merge commit even if a fast-forward is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_ff: bool,
    /// The agent that resolves conflicts, in a new run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolve_with: Option<String>,
    /// Environment variables for that agent, in addition to the allowed ones.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// The outcome of a merge.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MergeView {
    pub run_id: String,
    pub run_name: String,
    pub outcome: Word<MergeOutcome>,
    pub mode: Word<MergeMode>,
    /// The top of the user's work tree.
    pub repository: String,
    /// The branch that received the changes. Absent if HEAD is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that was checked out before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The new commit of the branch. Absent if none was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The files that were written or removed, relative to the top of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The changed files that are not merged because no snapshot can have them, quoted, each with
    /// the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_merged: Vec<String>,
    /// Files in the run's commits that were copied into its workspace, such as `.env`: its commits
    /// are merged without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed_copies: Vec<String>,
    /// The workspace that has those files. Absent if there are none, or it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Commits of submodules that were added to the user's, because the changes point to them.
    /// Their work trees stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submodules: Vec<SubmoduleView>,
    /// The conflicting files. If there are any, nothing was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictView>,
    /// In mode `rebase`: the subject of the run's commit that cannot be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicting_commit: Option<String>,
    /// Why the run's work may be incomplete: it is stopped, or it has not succeeded. Absent if it
    /// has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Whether the run started with uncommitted changes of the user, which a merge does not bring.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_changes: bool,
    /// Whether the new commits are unsigned although the user's git signs commits
    /// (`commit.gpgsign`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
    /// Why the run's own commits are merged as one commit. Absent if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_commit: Option<String>,
    /// The run whose conflicts this one was to resolve, if it has changed nothing: the conflicts
    /// are still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_nothing_of: Option<String>,
    /// Refs of other branches on which the run committed. They are not merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_branches: Vec<String>,
    /// The run that resolves the conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolving: Option<Box<RunView>>,
    /// Whether files were replaced after a last look, because the file system cannot exchange two
    /// files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unguarded: bool,
}

/// A commit that a merge added to a submodule of the user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SubmoduleView {
    /// Relative to the top of the repository.
    pub path: String,
    pub commit: String,
}

/// A file that cannot be merged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConflictView {
    pub path: String,
    pub kind: Word<ConflictKind>,
    /// The conflicting lines with git's conflict markers and a little context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hunks: Option<String>,
    /// Whether `hunks` was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Removes the workspace of an isolated run, after taking a snapshot of its tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiscardRun {
    pub run: String,
    /// Removes the workspace even if files would be lost that the snapshot omits, such as too large
    /// ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// What a discard did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiscardView {
    pub run_id: String,
    pub run_name: String,
    /// The directory that was removed.
    pub path: String,
    /// The snapshot of the run's tree. Absent if there was no tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<SnapshotView>,
    /// Whether the workspace had already been discarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_discarded: bool,
}

/// Sends comments on lines of a run's changes to the run, as one message. A stopped run is resumed
/// with it, a finished one is followed by a new run in the same directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommentOnRun {
    pub run: String,
    pub comments: Vec<CommentView>,
    /// Environment variables for a resumed or new run, in addition to the allowed ones.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// The outcome of comments on a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CommentedView {
    /// The message. Its id is empty if the run had finished: it is then the task of the new run.
    #[serde(flatten)]
    pub message: MessageView,
    /// Whether the run was stopped and has been resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resumed: bool,
    /// The name of the new run that follows a finished one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<String>,
}

/// A comment on a line of a run's newest snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommentView {
    /// From the top of the repository.
    pub path: String,
    /// From 1.
    pub line: u32,
    pub text: String,
}
