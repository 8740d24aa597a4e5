//! Where a run works: in the directory that it was dispatched for, or in a workspace of its own.

use crate::words;

/// How a run's files are kept apart from those of the user and of other runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// It works in the directory that it was dispatched for.
    #[default]
    None,
    /// It works in a clone that shares the objects of the user's repository.
    Clone,
    /// It works in another work tree of the user's repository.
    Worktree,
}

words!(Isolation { None = "none", Clone = "clone", Worktree = "worktree" });

/// The state of a run's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkspaceState {
    /// It is made before the run's agent starts for the first time.
    Planned,
    /// The agent works in it, or has.
    Ready,
    /// Its changes were merged.
    Merged,
    /// Its changes were discarded, and its directory removed.
    Discarded,
}

words!(WorkspaceState { Planned = "planned", Ready = "ready", Merged = "merged", Discarded = "discarded" });
