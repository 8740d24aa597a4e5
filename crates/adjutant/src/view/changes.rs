//! The kept states of a run's tree, and what differs between them.

use super::{Call, Word};
use adjutant_core::snapshot::SnapshotCause;
use serde::{Deserialize, Serialize};

/// A kept state of a run's tree: a commit under a hidden ref of its repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotView {
    /// From 1 within its run.
    pub n: u32,
    /// `refs/adjutant/<run id>/<n>`.
    pub git_ref: String,
    pub commit: String,
    /// Why it was taken. Absent if the commit's message does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Word<SnapshotCause>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub at: String,
    /// Files that it leaves out, quoted, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// Shows what differs between two snapshots of a run. Of a live run, a new one is taken first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffRun {
    pub run: String,
    /// The older snapshot. Left out: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    /// The newer snapshot. Left out: the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Only these files and directories, from the top of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Only which files changed, and by how many lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stat: bool,
    /// Changed words within lines, instead of lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
}
call!(DiffRun = "diff", writes false -> DiffView);

/// What differs between two snapshots of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffView {
    pub run_id: String,
    pub run_name: String,
    pub from: SnapshotView,
    pub to: SnapshotView,
    /// As git writes it: at most 8 MiB.
    pub text: String,
    /// It is longer than that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Brings the tree of an ended or stopped run back to one of its snapshots, after keeping it as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoRun {
    pub run: String,
    /// The snapshot. Left out: the first one, before the run changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
}
call!(UndoRun = "undo", writes true -> UndoView);

/// What an undo did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoView {
    pub run_id: String,
    pub run_name: String,
    /// The tree as it was before: bringing it back to this one undoes the undo.
    pub before: SnapshotView,
    pub to: SnapshotView,
    /// Files that were written or removed, from the top of the repository.
    pub files: Vec<String>,
    /// Entries that are never restored: repositories inside this one, and files that a filter makes (such as those of Git LFS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// Files that changed meanwhile, which were left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<String>,
}
