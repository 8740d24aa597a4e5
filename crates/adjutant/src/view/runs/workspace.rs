//! The workspace of an isolated run.

use crate::view::Word;
use adjutant_core::{Isolation, WorkspaceState};
use serde::{Deserialize, Serialize};

/// The workspace of an isolated run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceView {
    pub isolation: Word<Isolation>,
    pub state: Word<WorkspaceState>,
    /// The top of the workspace.
    pub path: String,
    /// The top of the user's work tree.
    pub repository: String,
    /// The commit that the workspace was created from.
    pub base: String,
    /// The branch that was checked out in the repository at the dispatch. Absent if HEAD was detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit of the uncommitted changes that it started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}
