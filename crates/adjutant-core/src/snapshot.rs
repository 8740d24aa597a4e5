//! Snapshots of a run's tree, and why they are taken.

use crate::{RunId, words};
use std::collections::{HashMap, HashSet};

/// Why a snapshot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotCause {
    /// An attempt is about to start its agent.
    Start,
    /// The agent has finished a turn and continues.
    Turn,
    /// The agent works, and a sibling works too.
    Watch,
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

words!(SnapshotCause { Start = "start", Turn = "turn", Watch = "watch", End = "end", Look = "look", Undo = "undo", Merge = "merge", Discard = "discard" });

/// A task about the tree of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeWork {
    /// Take a snapshot, because a turn of its agent has ended.
    Keep,
    /// Take a snapshot while its agent works, because the tree can conflict with that of a sibling.
    Watch,
    /// Compare its newest snapshot with those of its siblings.
    Compare,
}

words!(TreeWork { Keep = "keep", Watch = "watch", Compare = "compare" });

impl SnapshotCause {
    /// Returns whether the snapshot is kept even if nothing has changed since the one before,
    /// because it marks a point of the run.
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
            Self::Watch => "work so far",
            Self::End => "end of the attempt",
            Self::Look => "when its changes were shown",
            Self::Undo => "before an undo",
            Self::Merge => "before a merge",
            Self::Discard => "before its workspace was discarded",
        }
    }
}

/// Decides which snapshots of a run contain only its own work. Receives them in the order in which
/// they were taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnWork {
    is_live: bool,
}

impl OwnWork {
    /// Returns whether the next snapshot was taken at the start, during or at the end of an
    /// attempt. Later ones (by a request for the run's changes, or before an undo, a merge or a
    /// discard) can contain the work of others.
    pub fn is_own(&mut self, cause: Option<SnapshotCause>) -> bool {
        match cause {
            None | Some(SnapshotCause::Start) => self.is_live = true,
            Some(SnapshotCause::End) => self.is_live = false,
            Some(SnapshotCause::Turn | SnapshotCause::Watch) => {}
            Some(
                SnapshotCause::Look
                | SnapshotCause::Undo
                | SnapshotCause::Merge
                | SnapshotCause::Discard,
            ) => return self.is_live,
        }
        true
    }
}

/// A snapshot of a tree in which several runs can work, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct KeptTree<'a> {
    pub run: RunId,
    pub cause: Option<SnapshotCause>,
    pub tree: &'a str,
}

/// Returns whether a tree has changed while no agent worked in it, for example because a person has
/// edited it. `kept`: the snapshots of all runs, grouped by run, in the order in which they were
/// taken, those of the first run first. Changes by a setup command before the first attempt are not
/// edits, nor is a return to an earlier state.
#[must_use]
pub fn has_edits(base: &str, kept: &[KeptTree<'_>]) -> bool {
    let (mut known, mut others) = (HashSet::from([base]), Vec::new());
    let mut work = HashMap::<RunId, OwnWork>::new();
    for (at, KeptTree { run, cause, tree }) in kept.iter().enumerate() {
        let is_own = work.entry(*run).or_default().is_own(*cause);
        // The state at the start of a later attempt existed before it.
        if is_own && (at == 0 || *cause != Some(SnapshotCause::Start)) {
            known.insert(tree);
        } else {
            others.push(*tree);
        }
    }
    others.iter().any(|tree| !known.contains(tree))
}

#[cfg(test)]
mod tests {
    use super::SnapshotCause::{End, Look, Merge, Start};
    use super::*;
    use crate::Time;

    fn found(kept: &[(u8, SnapshotCause, &str)]) -> bool {
        let id = |run: u8| RunId::new(Time(1), [run; 10]);
        let kept: Vec<_> = kept
            .iter()
            .map(|(run, cause, tree)| KeptTree {
                run: id(*run),
                cause: Some(*cause),
                tree,
            })
            .collect();
        has_edits("base", &kept)
    }

    #[test]
    fn work_of_agents_is_no_edit() {
        assert!(!found(&[]));
        assert!(!found(&[
            (1, Start, "setup"),
            (1, Look, "half"),
            (1, End, "whole"),
            (2, Start, "whole"),
            (2, End, "better"),
            (1, Merge, "better")
        ]));
        assert!(
            !found(&[(1, Start, "base"), (1, End, "whole"), (1, Look, "base")]),
            "undone"
        );
    }

    #[test]
    fn change_between_attempts_is_an_edit() {
        assert!(found(&[
            (1, Start, "base"),
            (1, End, "whole"),
            (1, Look, "edited")
        ]));
        assert!(found(&[
            (1, Start, "base"),
            (1, End, "whole"),
            (2, Start, "edited"),
            (2, End, "better"),
            (1, Merge, "better")
        ]));
        assert!(
            found(&[
                (1, Start, "base"),
                (1, End, "half"),
                (1, Start, "edited"),
                (1, End, "whole")
            ]),
            "of one run"
        );
    }
}
