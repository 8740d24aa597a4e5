//! The saved state of a stopped run, and how the run can continue.

use crate::view::Word;
use adjutant_core::checkpoint::{CheckpointAuthor, Choice};
use serde::{Deserialize, Serialize};

/// The data that a later attempt needs to continue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckpointView {
    /// `adjutant` if the run saved no checkpoint and Adjutant composed this one.
    #[serde(default)]
    pub made_by: Word<CheckpointAuthor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker_type: Option<String>,
    pub details: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_work: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_requirements: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_recovery: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The files in the directory that git reported as changed when the attempt ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<String>,
}

/// One way to proceed with a run that an error or a limit stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChoiceView {
    pub choice: Word<Choice>,
    pub about: String,
}
