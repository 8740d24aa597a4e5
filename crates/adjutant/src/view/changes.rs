//! Snapshots of a run's tree, and the differences between them.

use super::{Call, Word};
use adjutant_core::ledger::AnnouncedKind;
use adjutant_core::merge::ConflictKind;
use adjutant_core::snapshot::SnapshotCause;
use serde::{Deserialize, Serialize};

/// A snapshot of a run's tree: a commit under a hidden ref of its repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotView {
    /// The snapshot's number within its run, from 1.
    pub n: u32,
    /// `refs/adjutant/<run id>/<n>`.
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
pub struct RunConflictView {
    pub run_id: String,
    pub run_name: String,
    pub files: Vec<ConflictFileView>,
}

/// A file in which two runs conflict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictFileView {
    /// From the top of the repository.
    pub path: String,
    pub kind: Word<ConflictKind>,
}

/// The paths and interfaces that a run has announced to change or provide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedView {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
}

/// A run whose announcements overlap with those of another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOverlapView {
    pub run_id: String,
    pub run_name: String,
    pub items: Vec<OverlapView>,
}

/// Something that two runs have announced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlapView {
    pub kind: Word<AnnouncedKind>,
    /// In the words of the run itself, and of the other one.
    pub own: String,
    pub other: String,
}

/// Returns the difference between two snapshots of a run. For a live run, a new snapshot is taken first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffRun {
    pub run: String,
    /// The older snapshot. Default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The newer snapshot. Default: the newest one.
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
}
call!(DiffRun = "diff", writes false -> DiffView);

/// The difference between two snapshots of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The proposed order of merging the run and its siblings, by name. Empty if it conflicts with none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merge_order: Vec<String>,
    /// Files that the run's commits have although its workspace was only given them, such as `.env`: they can be secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed_copies: Vec<String>,
}

/// Restores the tree of an ended or stopped run to one of its snapshots. A snapshot of the current tree is taken
/// first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoRun {
    pub run: String,
    /// The snapshot to restore. Default: the first one, taken before the run changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
}
call!(UndoRun = "undo", writes true -> UndoView);

/// What an undo did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoView {
    pub run_id: String,
    pub run_name: String,
    /// The snapshot taken before the undo. Restoring it reverses the undo.
    pub before: SnapshotView,
    pub to: SnapshotView,
    /// The files that were written or removed, relative to the top of the repository.
    pub files: Vec<String>,
    /// Entries that are never restored: nested repositories, and files produced by a filter (such as Git LFS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Files that another process changed during the undo. They were not restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
}
