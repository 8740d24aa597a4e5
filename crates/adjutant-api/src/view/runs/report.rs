//! A run's completion report and its verification.

use crate::view::Word;
use adjutant_core::report::{ReportStatus, Verdict};
use serde::{Deserialize, Serialize};

/// A run's completion report, each claim with the evidence for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReportView {
    /// The status that the run claims, independent of its exit code.
    pub status: Word<ReportStatus>,
    /// The overall verdict of `checked`.
    pub verdict: Word<Verdict>,
    pub summary: String,
    #[serde(default)]
    pub deliverables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_achieved: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issues_encountered: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration: Option<String>,
    /// The files that the deliverables name, and the findings about them.
    #[serde(default)]
    pub files: Vec<DeliverableView>,
    /// The number of open requests of the run.
    #[serde(default)]
    pub open_requests: u64,
    /// One finding for each field.
    #[serde(default)]
    pub checked: Vec<FindingView>,
}

/// The verdict about one field of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingView {
    pub field: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
}

/// One file that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeliverableView {
    pub path: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The result of a command other than the agent, such as the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CommandView {
    pub command: Vec<String>,
    /// Absent if unknown.
    #[serde(default)]
    pub passed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why the command was stopped, or why its result is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of the command's output.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}

impl CommandView {
    /// Returns why the command did not pass, or `None` if it passed.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let command = self.command.join(" ");
        let reason = self.reason.as_deref().unwrap_or("its end was not reported");
        match (self.passed, self.exit_code, &self.reason) {
            (Some(true), ..) => None,
            (Some(false), Some(code), None) => {
                Some(format!("\"{command}\" ended with exit code {code}"))
            }
            (Some(false), ..) => Some(format!("\"{command}\" was stopped: {reason}")),
            (None, ..) => Some(format!("\"{command}\" could not run: {reason}")),
        }
    }
}
