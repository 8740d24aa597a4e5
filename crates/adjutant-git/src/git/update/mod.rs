//! Moves the user's branch, index and tree from one commit to another atomically, even if the
//! process dies in between.
//!
//! ```text
//!  prepare   all checks; nothing is changed
//!            (the caller records the update)
//!  lock      the new index becomes index.lock; fails if the repository has changed since the preparation
//!  files     each is exchanged, and left alone if the user saves it meanwhile; then everything is rolled back
//!  ref       compare-and-swap; if the branch has moved, everything is rolled back
//!  index     index.lock becomes the index
//!            (each step is synced before the next one)
//!            (the caller records the end)
//! ```
//! The new index is a second name of `index.lock`, so that a later process recognises a lock that a
//! dead process of Adjutant left. It then finishes the update, or rolls it back if the user's
//! branch has moved.

mod index;
mod lock;
mod prepared;
mod recovery;

#[cfg(test)]
mod tests;

pub use prepared::{Applied, PreparedUpdate};
pub use recovery::{has_remains, may_have_remains, recover};

use super::new_commit::Identity;

/// An update of the user's repository. The fields suffice to finish it after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// An id that is unique among the updates of the repository.
    pub name: String,
    /// The ref to move: the branch, or `HEAD`. `None`: only the tree and the index change.
    pub git_ref: Option<String>,
    /// The commit that is checked out.
    pub before: String,
    /// The new commit, or a tree if no ref is moved.
    pub after: String,
    /// The committer and the reason, for the reflog.
    pub who: Identity,
    pub reason: String,
}

/// The outcome of recovering an interrupted update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// The update is complete.
    Finished,
    /// The repository is as before the update.
    Undone,
}
