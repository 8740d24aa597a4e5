//! Where a run works: in the directory of its dispatch, or in its own workspace.

use crate::words;

/// How a run's files are isolated from those of the user and of other runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The run works in the directory of its dispatch.
    #[default]
    None,
    /// The run works in a clone that shares the objects of the user's repository.
    Clone,
    /// The run works in another work tree of the user's repository.
    Worktree,
}

words!(Isolation { None = "none", Clone = "clone", Worktree = "worktree" });

/// The state of a run's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkspaceState {
    /// It is created before the run's agent starts for the first time.
    Planned,
    /// The agent works in it, or has worked in it.
    Ready,
    /// Its changes were merged.
    Merged,
    /// Its changes were discarded, and its directory removed.
    Discarded,
}

words!(WorkspaceState { Planned = "planned", Ready = "ready", Merged = "merged", Discarded = "discarded" });
