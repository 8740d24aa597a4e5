//! The operation of an approval request, as policies and grants see it.

use adjutant_core::policy::{Operation, StatedPath};
use serde::{Deserialize, Serialize};

/// An operation of an agent, as its CLI states it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OperationView {
    /// The CLI's name for the kind of action, such as `Bash` or `execute`. An approval that the run
    /// itself asks for has `request_approval`.
    pub tool: String,
    /// The command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The files that it reads or changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathView>,
    /// The addresses that it connects to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Where the command runs, if not in the run's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathView>,
    /// Directories in which the command may run instead, because the agent's shell may have changed
    /// to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub possible_directories: Vec<String>,
    /// The run's directory, with all links resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_directory: Option<String>,
    /// Whether the fields above state everything that it does.
    #[serde(default)]
    pub complete: bool,
    /// A hash of the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A path of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathView {
    /// As the agent states it.
    pub path: String,
    /// With all links resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<String>,
}

impl From<StatedPath> for PathView {
    fn from(StatedPath { stated, real }: StatedPath) -> Self {
        Self { path: stated, real }
    }
}

impl From<PathView> for StatedPath {
    fn from(PathView { path, real }: PathView) -> Self {
        Self { stated: path, real }
    }
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        let Operation {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete,
            digest,
        } = operation;
        let (paths, directory) = (
            paths.into_iter().map(PathView::from).collect(),
            directory.map(PathView::from),
        );
        Self {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            complete: is_complete,
            digest,
        }
    }
}

impl From<OperationView> for Operation {
    fn from(view: OperationView) -> Self {
        let OperationView {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            complete,
            digest,
        } = view;
        let (paths, directory) = (
            paths.into_iter().map(StatedPath::from).collect(),
            directory.map(StatedPath::from),
        );
        Self {
            tool,
            command,
            paths,
            urls,
            directory,
            possible_directories,
            run_directory,
            is_complete: complete,
            digest,
        }
    }
}
