//! Status reports of a run, and notes of its parent.

use crate::view::Word;
use adjutant_core::signal::StopCause;
use adjutant_core::words;
use serde::{Deserialize, Serialize};

/// The status that a run reports or its parent notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedStatus {
    /// Progress.
    Running,
    Success,
    Completed,
    PartialSuccess,
    Failed,
    Error,
}

words!(ReportedStatus {
    Running = "running",
    Success = "success",
    Completed = "completed",
    PartialSuccess = "partial_success",
    Failed = "failed",
    Error = "error",
});

/// Reports a run's status. From the run itself, this is progress or its completion report. From a
/// parent, it is an annotation, which never changes the run's state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetStatus {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    pub status: Word<ReportedStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// When the run expects to finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliverables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_achieved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issues_encountered: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration: Option<String>,
}

/// Stops the calling run with a checkpoint, because it cannot continue or is done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StopWork {
    /// Empty: the calling run itself.
    #[serde(default)]
    pub run: String,
    pub stop_reason: Word<StopCause>,
    pub details: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker_type: Option<String>,
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
}
