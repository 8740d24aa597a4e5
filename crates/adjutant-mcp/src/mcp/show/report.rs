//! A run's report and its acceptance command.

use super::limits::{FILES_MAX, RESULT_CHARS, cut_end};
use crate::mcp::text::{line, quoted};
use crate::present::report_claims;
use crate::view::{CommandView, ReportView};
use serde_json::{Map, Value};

pub(super) fn acceptance_brief(acceptance: &CommandView) -> Value {
    let mut brief = Map::new();
    let fields = [
        ("passed", acceptance.passed.map(Value::from)),
        ("exit_code", acceptance.exit_code.map(Value::from)),
    ];
    brief.extend(
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    Value::Object(brief)
}

/// Formats a report as lines: the overall verdict, each claim with its verdict, and the files.
pub(super) fn report_lines(report: &ReportView) -> Vec<String> {
    let mut lines = vec![format!(
        "report {}, {}",
        line(report.status.as_str(), 40),
        line(report.verdict.as_str(), 40)
    )];
    for finding in &report.checked {
        let claim = report_claims(report)
            .find(|part| *part.name == *finding.field)
            .map(|part| format!(" {}", quoted(part.text, RESULT_CHARS)));
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
    let output = cut_end(&acceptance.output, RESULT_CHARS);
    format!(
        "acceptance command {}: {came}{code}{reason}, output {}",
        quoted(&acceptance.command.join(" "), 300),
        quoted(&output, RESULT_CHARS)
    )
}
