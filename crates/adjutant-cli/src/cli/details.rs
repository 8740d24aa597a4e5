//! Checkpoints, reports, acceptance results and requests as blocks of terminal text.

use super::age;
use super::context::{Context, now};
use super::out::Out;
use super::style::Style;
use crate::present::{
    Reader, acceptance_line, asked_for, checkpoint_parts, claim, clarification_parts,
    delegation_parts, operation_parts,
};
use crate::text;
use crate::view::{
    CheckpointView, CommandView, DelegationView, EscalatedView, ReportView, RequestView, RunView,
    Word,
};
use adjutant_core::RequestStateKind;
use adjutant_core::checkpoint::CheckpointAuthor;
use adjutant_core::report::Verdict;
use adjutant_core::signal::Independence;
use adjutant_core::units::duration;
use jiff::Timestamp;
use std::fmt::Write as _;

/// The indent before text that others wrote.
pub(super) const INDENT: &str = "  ";

const INDENT_TWICE: &str = "    ";

/// Writes the checkpoint of a stopped run.
pub(crate) fn checkpoint_block(
    checkpoint: &CheckpointView,
    cx: &Context,
) -> Result<String, std::fmt::Error> {
    let changed = checkpoint.changed_files.join(", ");
    let mut out = String::new();
    let is_composed = checkpoint.made_by == CheckpointAuthor::Adjutant;
    let head = if is_composed {
        "checkpoint (composed from its last output)"
    } else {
        "checkpoint"
    };
    writeln!(out, "{}", cx.out.paint.apply(Style::Dim, head))?;
    // The heading says who made it. The state of the run names the limit at which Adjutant composed
    // one.
    let is_shown = |name: &str| name != "made_by" && !(is_composed && name == "blocker_type");
    let parts = checkpoint_parts(checkpoint)
        .into_iter()
        .filter(|part| is_shown(part.name))
        .map(|part| (part.label, part.text));
    for (label, value) in parts
        .chain([("changed", changed.as_str())])
        .filter(|(_, value)| !value.trim().is_empty())
    {
        out.push_str(&indented(&format!("{label}: {value}"), cx));
    }
    Ok(out)
}

/// Writes a report: each claim with its verdict.
pub(crate) fn report_block(report: &ReportView, cx: &Context) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{}",
        cx.out.paint.apply(
            Style::Dim,
            &format!(
                "report: {}, {}",
                text::line(report.status.as_str()),
                text::line(report.verdict.as_str())
            )
        )
    )?;
    for finding in &report.checked {
        let mark = match finding.verdict.known() {
            Some(Verdict::Verified) => cx.out.paint.apply(Style::Good, "✓"),
            Some(Verdict::Contradicted) => cx.out.paint.apply(Style::Bad, "✗"),
            _ => cx.out.paint.apply(Style::Dim, "?"),
        };
        let found = format!(
            "{} {}: {}",
            text::line(&finding.field),
            text::line(finding.verdict.as_str()),
            text::line(&finding.reason)
        );
        out.push_str(&cx.out.fold(
            &format!("{INDENT}  {found}"),
            &format!("{INDENT}{mark} {found}"),
        ));
        let claim = claim(report, &finding.field).unwrap_or_default();
        out.push_str(&cx.out.indent(INDENT_TWICE, &claim));
    }
    for file in &report.files {
        let size = file
            .bytes
            .map(|bytes| format!(", {bytes} bytes"))
            .unwrap_or_default();
        let hash = file
            .sha256
            .as_deref()
            .map(|hash| format!(", sha256 {}", text::line(hash)))
            .unwrap_or_default();
        let line = format!(
            "{INDENT}file {}: {}{size}{hash}",
            text::line(&file.path),
            text::line(&file.reason)
        );
        out.push_str(&cx.out.fold(&line, &line));
    }
    Ok(out)
}

/// Writes the result of the acceptance command.
pub(crate) fn acceptance_block(
    acceptance: &CommandView,
    cx: &Context,
) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let head = format!("acceptance: {}", text::line(&acceptance_line(acceptance)));
    out.push_str(&cx.out.fold(&head, &cx.out.paint.apply(Style::Dim, &head)));
    out.push_str(&indented(&acceptance.output, cx));
    Ok(out)
}

/// Describes how a request was closed and by whom. Empty for a pending request.
pub(crate) fn request_outcome(request: &RequestView) -> String {
    let by = |by: &str| {
        if by == "default" {
            "by default (no answer in time)".to_owned()
        } else {
            format!("by {}", person(by))
        }
    };
    match (
        &request.status,
        &request.reply.answer,
        &request.reply.answered_by,
    ) {
        (Word::Known(RequestStateKind::Pending), ..) => String::new(),
        (_, Some(answer), Some(who)) => match &request.reply.decision {
            None => format!("{:?} {}", text::line(answer), by(who)),
            Some(decision) => {
                let reason = request
                    .reply
                    .reason
                    .as_ref()
                    .map(|reason| format!(": {:?}", text::line(reason)))
                    .unwrap_or_default();
                format!("{} {}{reason}", text::line(decision.as_str()), by(who))
            }
        },
        _ => status_word(request).to_owned(),
    }
}

/// Returns the status of a request for the terminal.
pub(crate) fn status_word(request: &RequestView) -> &str {
    if request.status == RequestStateKind::Retrieved {
        "delivered"
    } else {
        request.status.as_str()
    }
}

/// Returns the name of a principal for the terminal, where the person is "you".
pub(super) fn person(principal: &str) -> &str {
    if principal == "person" {
        "you"
    } else {
        principal
    }
}

/// Writes a pending request with its options.
pub(crate) fn request_block(
    request: &RequestView,
    cx: &Context,
) -> Result<String, std::fmt::Error> {
    request_text(request, now(), &cx.out)
}

/// Like [`request_block`], at a given time.
pub(crate) fn request_text(
    request: &RequestView,
    now: Timestamp,
    output: &Out,
) -> Result<String, std::fmt::Error> {
    let indented = |block: &str| output.indent(INDENT, block);
    let mut out = String::new();
    let wants = request.shown_kind().asks();
    let of = request
        .group
        .as_ref()
        .map(|group| format!(" ({} of {})", group.place, group.size))
        .unwrap_or_default();
    let own = request
        .content
        .question_id
        .as_ref()
        .map_or_else(String::new, |id| format!(" ({})", text::line(id)));
    let head = format!(
        "{}{own}{of}: {} {wants}, {}",
        text::line(&request.number),
        text::line(&request.run_name),
        time_ago(&request.times.asked_at, now, output)
    );
    writeln!(out, "{}", output.paint.apply(Style::Attention, &head))?;
    for EscalatedView { to, at } in &request.escalated {
        out.push_str(&indented(&format!(
            "escalated to {}, {}",
            text::line(to),
            time_ago(at, now, output)
        )));
    }
    out.push_str(&indented(asked_for(request).text));
    for part in operation_parts(request) {
        out.push_str(&indented(&format!("{}: {}", part.label, part.text)));
    }
    if let Some(risk) = &request.content.risk {
        out.push_str(&indented(&format!("risk: {risk}")));
    }
    if let Some(delegation) = &request.delegated.delegation {
        out.push_str(&indented(&delegation_text(delegation)));
    }
    if let Some(preview) = &request.content.preview {
        writeln!(out, "{INDENT}{}", output.paint.apply(Style::Dim, "preview"))?;
        out.push_str(&output.indent(INDENT_TWICE, preview));
    }
    if let Some(context) = &request.content.context {
        out.push_str(&indented(&format!("why: {context}")));
    }
    for part in request
        .content
        .clarification
        .iter()
        .flat_map(clarification_parts)
    {
        out.push_str(&indented(&format!("{}: {}", part.label, part.text)));
    }
    for (n, option) in request.content.options.iter().enumerate() {
        let default = if request.content.default.as_ref() == Some(option) {
            "   (default)"
        } else {
            ""
        };
        let line = format!("{INDENT}{}) {}{default}", n + 1, text::line(option));
        out.push_str(&output.fold(&line, &line));
    }
    if let Some(default) = request
        .content
        .default
        .as_ref()
        .filter(|default| !request.content.options.contains(default))
    {
        out.push_str(&indented(&format!("default: {}", text::line(default))));
    }
    Ok(out)
}

/// Describes a delegation without its task.
fn delegation_text(delegation: &DelegationView) -> String {
    let meaning = match delegation.independence.known() {
        Some(Independence::Blocks) => "the run waits for the result",
        Some(Independence::Optional) => "optional",
        _ => "the run continues meanwhile",
    };
    let mut text = format!("({meaning}; {})", delegation.priority);
    for part in delegation_parts(delegation) {
        text.push_str(&format!("\n{}: {}", part.label, part.text));
    }
    if let Some(room) = &delegation.room {
        text.push_str(&format!("\nin use: {room}"));
    }
    text
}

impl Reader for Context {
    fn ago(&self, time: &str) -> String {
        relative_time(time, self)
    }

    fn about(&self, time: &str) -> String {
        match age::seconds_since(time, now()).filter(|_| self.out.terminal) {
            Some(seconds) => format!("in about {}", duration::age(-seconds)),
            None => format!("about {time}"),
        }
    }

    fn principal<'a>(&self, principal: &'a str) -> &'a str {
        person(principal)
    }

    fn log_command(&self, run: &RunView) -> String {
        format!("adj logs {}", run.identity.name)
    }
}

pub(crate) fn relative_time(time: &str, cx: &Context) -> String {
    time_ago(time, now(), &cx.out)
}

fn time_ago(time: &str, now: Timestamp, to: &Out) -> String {
    if to.terminal {
        format!("{} ago", age::shown(time, now, true))
    } else {
        time.to_owned()
    }
}

pub(super) fn indented(block: &str, cx: &Context) -> String {
    cx.out.indent(INDENT, block)
}
