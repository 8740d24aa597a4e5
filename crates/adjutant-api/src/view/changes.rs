//! Snapshots of a run's tree, and the differences between them.

use super::Word;
use adjutant_core::ledger::AnnouncedKind;
use adjutant_core::merge::ConflictKind;
use adjutant_core::snapshot::SnapshotCause;
use serde::{Deserialize, Serialize};

/// A snapshot of a run's tree: a commit under a hidden ref of its repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SnapshotView {
    /// The snapshot's number within its run, from 1. 0: what the changes of an isolated run count
    /// from.
    pub n: u32,
    /// `refs/adjutant/<run id>/<n>`; of number 0, `base` or `changes` instead of the number, or the
    /// newest commit of your branch that the run has merged.
    pub git_ref: String,
    pub commit: String,
    /// Why the snapshot was taken. Absent if the commit's message does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Word<SnapshotCause>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub at: String,
    /// The files that the snapshot omits, quoted, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A run whose changes conflict with those of another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunConflictView {
    pub run_id: String,
    pub run_name: String,
    pub files: Vec<ConflictFileView>,
}

/// A file in which two runs conflict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConflictFileView {
    /// From the top of the repository.
    pub path: String,
    pub kind: Word<ConflictKind>,
}

/// The paths and interfaces that a run has announced to change or provide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AnnouncedView {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

/// A run whose announcements overlap with those of another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunOverlapView {
    pub run_id: String,
    pub run_name: String,
    pub items: Vec<OverlapView>,
}

/// An overlap of two runs' announcements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverlapView {
    pub kind: Word<AnnouncedKind>,
    /// As the run itself stated it, and as the other run did.
    pub own: String,
    pub other: String,
}

/// Returns the difference between two snapshots of a run. By default, for a run with a workspace,
/// this is what a merge would bring: from what the workspace was made from to its present state. A
/// snapshot of a workspace or a live run is taken first, unless `kept` is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiffRun {
    pub run: String,
    /// The older snapshot. Default: 0 for a run with a workspace, otherwise the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The newer snapshot. Default: the newest one; without a workspace, the newest one of the
    /// run's own work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Limits the difference to these files and directories, relative to the top of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Shows only which files changed, and by how many lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stat: bool,
    /// Shows changed words instead of changed lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Takes no snapshot: compares those that exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

/// The difference between two snapshots of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiffView {
    pub run_id: String,
    pub run_name: String,
    pub from: SnapshotView,
    pub to: SnapshotView,
    /// The output of `git diff`, cut at 8 MiB.
    pub text: String,
    /// Whether `text` was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The proposed order of merging the run and its siblings, by name. Empty if it conflicts with
    /// none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merge_order: Vec<String>,
    /// Files in the run's commits that were copied into its workspace, such as `.env`: they can be
    /// secrets, so its commits are kept and merged without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed_copies: Vec<String>,
    /// What the difference includes besides the work of the run's own agent.
    #[serde(flatten)]
    pub includes: IncludedView,
    /// The newest snapshot that was merged. Absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<u32>,
    /// The run in whose workspace this run worked. A merge of that run brings the work of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_of: Option<String>,
    /// The workspace, if it is missing although it was not discarded: changes without a snapshot
    /// are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What the changes of an isolated run include besides the work of its own agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IncludedView {
    /// What the setup command changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_setup: bool,
    /// The work of these runs, which followed it in its workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_runs: Vec<String>,
    /// Edits that were made while no agent worked there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_edits: bool,
}

/// Restores the files that an ended or stopped run has changed to one of its snapshots. A snapshot
/// of the current tree is taken first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UndoRun {
    pub run: String,
    /// The snapshot to restore. Default: the first one, taken before the run changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Also restores files that have changed since the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// An undo that was interrupted, for example because the hub was killed: each file is as before the
/// undo or as after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InterruptedUndoView {
    /// The number of the snapshot that it restores.
    pub to: u32,
    /// The number of the snapshot that was taken before it.
    pub before: u32,
    /// The command that completes it.
    pub complete_with: String,
    /// The command that reverses it.
    pub reverse_with: String,
}

impl InterruptedUndoView {
    /// Describes the state of the files, and the commands that end it.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            to,
            before: _,
            complete_with,
            reverse_with,
        } = self;
        format!(
            "interrupted: some files may not be restored to snapshot {to}; to complete it: {complete_with}; to reverse it: {reverse_with}"
        )
    }
}

/// What an undo did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UndoView {
    pub run_id: String,
    pub run_name: String,
    /// The snapshot taken before the undo. Restoring it reverses the undo.
    pub before: SnapshotView,
    pub to: SnapshotView,
    /// The files that were written or removed, relative to the top of the repository.
    pub files: Vec<String>,
    /// Entries that are never restored: nested repositories, and files produced by a filter (such
    /// as Git LFS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Files that another process changed during the undo. They were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
    /// Files that a program has open for writing. They were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<String>,
    /// Where older saves of these files are, if a program saved one twice during the undo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_beside: Vec<String>,
    /// Whether files were replaced after a last look, because the file system cannot exchange two
    /// files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unguarded: bool,
    /// Files that were not removed although the snapshot does not have them: they were there before
    /// it, or can have been, because it leaves such files out (ignored, or too large).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_removed: Vec<String>,
    /// The commit that was checked out before the run, if another one is now. An undo moves no
    /// branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_before: Option<String>,
    /// Files that the run changed outside its directory, which were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// The top of the tree that was changed.
    #[serde(default)]
    pub tree: String,
    /// The repository of an isolated run, which was not changed: merged changes stay there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Whether the run was merged into it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_merged: bool,
}
