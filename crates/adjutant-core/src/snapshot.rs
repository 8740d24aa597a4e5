//! Snapshots of a run's tree, and why they are taken.

use crate::words;

/// Why a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotCause {
    /// An attempt is about to start its agent.
    Start,
    /// The agent has finished a turn and continues.
    Turn,
    /// An attempt is over.
    End,
    /// A caller requests the run's changes.
    Look,
    /// The tree is about to be restored to an earlier state.
    Undo,
    /// The run's changes are about to be merged.
    Merge,
    /// The run's workspace is about to be removed.
    Discard,
}

words!(SnapshotCause { Start = "start", Turn = "turn", End = "end", Look = "look", Undo = "undo", Merge = "merge", Discard = "discard" });

/// What can be due about the tree of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeWork {
    /// Keep it: a turn of its agent has ended.
    Keep,
    /// Compare its newest snapshot with those of its siblings.
    Compare,
}

words!(TreeWork { Keep = "keep", Compare = "compare" });

impl SnapshotCause {
    /// Returns whether the snapshot is kept even if nothing has changed since the one before, because it marks a
    /// point of the run.
    #[must_use]
    pub const fn is_always_kept(self) -> bool {
        matches!(self, Self::Start | Self::End)
    }

    /// Describes when it was taken, for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Start => "start of the attempt",
            Self::Turn => "end of a turn",
            Self::End => "end of the attempt",
            Self::Look => "a look at the changes",
            Self::Undo => "before an undo",
            Self::Merge => "before a merge",
            Self::Discard => "before its workspace was discarded",
        }
    }
}
