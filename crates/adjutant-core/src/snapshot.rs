//! Snapshots of a run's tree: what each is taken for.

use crate::words;

/// What a snapshot is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotCause {
    /// An attempt is about to start its agent.
    Start,
    /// The agent has ended a turn and continues.
    Turn,
    /// An attempt is over.
    End,
    /// A caller looks at the run's changes.
    Look,
    /// The tree is about to be brought back to an earlier state.
    Undo,
    /// The run's changes are about to be merged.
    Merge,
    /// The run's workspace is about to be removed.
    Discard,
}

words!(SnapshotCause { Start = "start", Turn = "turn", End = "end", Look = "look", Undo = "undo", Merge = "merge", Discard = "discard" });

impl SnapshotCause {
    /// Tells whether it is kept even if nothing has changed since the one before: it marks a point of the run.
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
