//! Snapshots of a run's tree, differences between them, restores, merges and workspaces, by means
//! of the git program. The only module that runs git.
//!
//! Agents can change a repository and its configuration, so no program that it configures is run:
//!
//! ```text
//!  refs        GIT_DIR = the repository's   only refs are read and written; hooks are disabled
//!  everything  GIT_DIR = a scratch one      no configuration, hooks or filters of the repository;
//!              objects = the repository's   attributes and the settings named in `repo` are data
//! ```
//!
//! The refs of a run are in the user's repository, even if its tree is a workspace:
//!
//! ```text
//!  refs/adjutant/<run id>/base   the commit that its workspace was made from; only of an isolated run
//!                        /changes   the user's uncommitted changes with which it started, on top of a commit of the staged ones
//!                        /<n>    a snapshot of its tree
//!                        /now    the last observed state of a live run's tree since its last snapshot
//!                        /head   the commit that the agent has checked out at the end, if it has made one
//!                        /merged/<commit>     in a nested repository: a commit that a merge has brought home
//!                        /resolved/<run id>   its changes that another run received to resolve their conflicts
//! ```
//! A merge needs only the base, the tree of the last snapshot, and `head` if it exists.
//!
//! Only [`Restore`] and [`PreparedUpdate`] change the user's index, HEAD, reflog or work tree.

mod base;
mod call;
mod carry;
mod commit_files;
mod commits;
mod committed_copies;
mod config_text;
mod contents;
mod copied;
mod diff;
mod durable;
mod error;
mod exchange;
mod head;
mod index_file;
mod line_ends;
mod merge;
mod merge_tree;
mod new_commit;
mod own_refs;
mod paths;
mod refusal;
mod repo;
mod restore;
mod rewrite;
mod scratch;
mod snapshot;
mod submodule_commits;
mod submodules;
mod undo;
mod update;
mod whole;
mod work_tree;
mod workspace;

#[cfg(test)]
mod tests;

pub use base::{Base, find_base, move_base, pin_base, pin_resolved, resolved_snapshot};
pub use call::{Git, nearest_repository};
pub use carry::{capture_changes, present_tree};
pub use commits::{
    KeptCommits, branch_tips, copies_in_commits, has_commits, keep_commits, other_branches,
    unmerged_refs,
};
pub use copied::{CopiedFiles, NotCopied, copied_files};
pub use diff::{Diff, DiffCall, DiffEntry};
pub use error::GitError;
pub use exchange::{
    CarriedSettings, Continued, KeptAs, RunRefs, accept_work, carried_refs, continued_state,
    known_commits, make_cache, read_pack, replace_refs, write_pack,
};
pub use head::Head;
pub use merge::{BuiltMerge, MergeInput};
pub use merge_tree::{Conflict, MergeCall, MergePurpose, MergeResult};
pub use new_commit::Identity;
pub use refusal::MergeRefusal;
pub use repo::Repo;
pub use restore::{
    Restore, RestoreOutcome, changed_by_run, edits_between_attempts, only_in, paths_between,
    settle_strays,
};
pub use scratch::{Scratch, WorkspacePath};
pub use snapshot::{
    NewSnapshot, Snapshot, TakenSnapshot, head_before, newest_state, remove_all, snapshots, take,
};
pub use submodule_commits::{BroughtCommit, SubmoduleSource, bring_submodule_commits};
pub use submodules::empty_submodules;
pub use undo::{PreparedUndo, Undo, UndoStart};
pub use update::{
    Applied, PreparedUpdate, RecoveryOutcome, Update, has_remains, may_have_remains, recover,
};
pub use whole::sync_workspace;
pub use workspace::{
    NewWorkspace, make_workspace, remove_torn_workspaces, remove_workspace, torn_workspaces,
};
