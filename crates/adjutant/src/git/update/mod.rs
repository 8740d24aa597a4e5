//! Moving the user's branch, index and tree from one commit to another atomically, also when the process dies in between.
//!
//! ```text
//!  prepare   nothing is changed: what is in the way is named
//!            (the caller records the update)
//!  lock      the new index becomes index.lock; a change since the preparation ends it here
//!  files     each is replaced by a rename
//!  ref       compare and set; if the branch has moved, everything is rolled back
//!  index     index.lock becomes the index
//!            (the caller records the end)
//! ```
//! The new index is a second name of `index.lock`, so that a later process recognises a lock that a dead one left. From there it
//! continues, or rolls back if the user's branch has moved on.

mod index;
mod lock;
mod prepared;
mod recovery;

#[cfg(test)]
mod tests;

pub use prepared::PreparedUpdate;
pub use recovery::recover;

use super::new_commit::Identity;

/// An update of the user's repository. Its fields are all that is needed to finish it after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Tells it from other updates of the same repository: an id.
    pub name: String,
    /// The ref to move: the branch, or `HEAD`. `None`: only the tree and the index change.
    pub git_ref: Option<String>,
    /// The commit that is checked out.
    pub before: String,
    /// The new commit, or a tree if no ref is moved.
    pub after: String,
    /// For the reflog: who moves the ref, as git writes a person, and why.
    pub who: Identity,
    pub reason: String,
}

/// How an update that was interrupted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// It is complete.
    Finished,
    /// The repository is as it was before it.
    Undone,
}
