//! A run's completion report and what verified it.

use crate::view::Word;
use adjutant_core::report::{ReportStatus, Verdict};
use serde::{Deserialize, Serialize};

/// A run's completion report: its claims, and beside them what was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportView {
    /// As the run reported it, independent of the exit code.
    pub status: Word<ReportStatus>,
    /// What all of `checked` comes to.
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
    /// The files that the deliverables name, as they were found.
    #[serde(default)]
    pub files: Vec<DeliverableView>,
    /// Requests of the run that nobody has settled.
    #[serde(default)]
    pub open_requests: u64,
    /// A finding for each field.
    #[serde(default)]
    pub checked: Vec<FindingView>,
}

/// The verdict about one field of a report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingView {
    pub field: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
}

/// One file that a report names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliverableView {
    pub path: String,
    pub verdict: Word<Verdict>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The result of the acceptance command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceView {
    pub command: Vec<String>,
    /// Nothing where that is not known.
    #[serde(default)]
    pub passed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Why it was stopped, or why nobody knows what it came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of what it wrote.
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub took_ms: u64,
}

impl AcceptanceView {
    /// Says why it has not passed, with the command; `None` where it has.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let command = self.command.join(" ");
        let reason = self.reason.as_deref().unwrap_or("nobody has said how it ended");
        match (self.passed, self.exit_code, &self.reason) {
            (Some(true), ..) => None,
            (Some(false), Some(code), None) => Some(format!("\"{command}\" ended with exit code {code}")),
            (Some(false), ..) => Some(format!("\"{command}\" was stopped: {reason}")),
            (None, ..) => Some(format!("\"{command}\" could not run: {reason}")),
        }
    }
}
