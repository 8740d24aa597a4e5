//! The git program, and what Adjutant does with it: snapshots of a run's tree, differences between them, and bringing
//! a tree back. The only module that runs git.
//!
//! A repository is the work of agents, its configuration included, so nothing that it configures is run:
//!
//! ```text
//!  refs        GIT_DIR = the repository's   only refs are read and written; hooks are switched off
//!  everything  GIT_DIR = a scratch one      no configuration, hooks or filters of the repository;
//!              objects = the repository's   attributes and the settings named in `repo` are data
//! ```
//!
//! Neither the user's index, HEAD and reflog nor the tree is touched, except by [`Restore`].

mod call;
mod diff;
mod error;
mod merge_tree;
mod repo;
mod restore;
mod scratch;
mod snapshot;

pub use call::Git;
pub use diff::{Diff, DiffCall, Listed};
pub use error::GitError;
pub use merge_tree::{Conflict, MergeCall, MergePurpose, Merged};
pub use repo::Repo;
pub use restore::{Restore, Restored, prepare_restore};
pub use scratch::Scratch;
pub use snapshot::{NewSnapshot, Snapshot, TakenSnapshot, remove_all, snapshots, take};
