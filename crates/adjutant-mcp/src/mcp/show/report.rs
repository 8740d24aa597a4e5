//! A run's report and its acceptance command.

use super::fields::filled;
use super::limits::{FILES_MAX, RESULT_CHARS};
use crate::mcp::text::{line, quoted};
use crate::present::claim;
use crate::view::{CommandView, ReportView};
use adjutant_core::shorten;
use serde_json::{Value, json};

pub(super) fn acceptance_brief(acceptance: &CommandView) -> Value {
    filled([
        ("passed", json!(acceptance.passed)),
        ("exit_code", json!(acceptance.exit_code)),
    ])
}

/// Formats a report as lines: the overall verdict, each claim with its verdict, and the files.
pub(super) fn report_lines(report: &ReportView) -> Vec<String> {
    let mut lines = vec![format!(
        "report {}, {}",
        line(report.status.as_str(), 40),
        line(report.verdict.as_str(), 40)
    )];
    for finding in &report.checked {
        let claim = claim(report, &finding.field);
        let claim = claim.map(|claim| format!(" {}", quoted(&claim, RESULT_CHARS)));
        lines.push(format!(
            "{}{}: {}, {}",
            line(&finding.field, 40),
            claim.unwrap_or_default(),
            line(finding.verdict.as_str(), 20),
            line(&finding.reason, 600)
        ));
    }
    if !report.files.is_empty() {
        let files: Vec<String> = report
            .files
            .iter()
            .take(FILES_MAX)
            .map(|file| {
                let size = file
                    .bytes
                    .map(|bytes| format!(", {bytes} bytes"))
                    .unwrap_or_default();
                format!(
                    "{} ({}{size})",
                    quoted(&file.path, 200),
                    line(&file.reason, 100)
                )
            })
            .collect();
        lines.push(format!("files: {}", files.join(", ")));
    }
    lines
}

/// Formats an acceptance command with its outcome. A run can choose the command of its child.
pub(super) fn acceptance_line(acceptance: &CommandView) -> String {
    let came = match acceptance.passed {
        Some(true) => "passed",
        Some(false) => "did not pass",
        None => "not known",
    };
    let code = acceptance
        .exit_code
        .map(|code| format!(", exit code {code}"))
        .unwrap_or_default();
    let reason = acceptance
        .reason
        .as_deref()
        .map(|reason| format!(", {}", line(reason, 300)))
        .unwrap_or_default();
    let output = shorten::tail_chars(&acceptance.output, RESULT_CHARS);
    format!(
        "acceptance command {}: {came}{code}{reason}, output {}",
        quoted(&acceptance.command.join(" "), 300),
        quoted(output, RESULT_CHARS)
    )
}
