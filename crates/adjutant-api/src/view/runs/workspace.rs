//! The workspace of an isolated run.

use super::report::CommandView;
use crate::view::Word;
use adjutant_core::{Isolation, WorkspaceState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The workspace of an isolated run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkspaceView {
    pub isolation: Word<Isolation>,
    pub state: Word<WorkspaceState>,
    /// The top of the workspace.
    pub path: String,
    /// The top of the user's work tree.
    pub repository: String,
    /// The commit that the workspace was created from: the tip of `branch` when the first attempt
    /// started. Until then, and with `changes` or without `branch`, the commit that was checked out
    /// at the dispatch.
    pub base: String,
    /// The branch that was checked out in the repository at the dispatch. Absent if HEAD was
    /// detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How many commits the branch now has that the base has not. Only where one run is shown;
    /// absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// The commit of the uncommitted changes that it started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
    /// Files of the repository's work tree that were copied into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copied: Vec<String>,
    /// Configured files that were not copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied: Vec<NotCopiedView>,
    /// Submodules whose directories are empty: nothing was fetched for the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub empty_submodules: Vec<String>,
    /// Variables that name a directory which it shares with other workspaces of the repository.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caches: BTreeMap<String, String>,
    /// The setup command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandView>,
}

/// A configured file that was not copied into a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NotCopiedView {
    pub path: String,
    pub why: String,
}

/// The ports that a run may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PortsView {
    /// The first one, which is `ADJ_PORT_BASE` in the run's environment.
    pub base: u16,
    pub count: u16,
}
