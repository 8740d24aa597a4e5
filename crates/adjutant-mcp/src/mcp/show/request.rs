//! A request.

use super::fields::filled;
use super::limits::{QUESTION_CHARS, RESULT_CHARS_LISTED};
use crate::mcp::text::{line, quoted};
use crate::present::{asked_for, clarification_parts, delegation_parts, operation_parts};
use crate::view::{DelegationView, RequestView};
use adjutant_core::{RequestKind, RequestStateKind, shorten};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Formats an open request as one line.
#[must_use]
pub(crate) fn request_line(request: &RequestView) -> String {
    let number = line(&request.number, 24);
    let mut out = asked_line(request, &number);
    for part in request
        .content
        .clarification
        .iter()
        .flat_map(clarification_parts)
    {
        push_quoted(&mut out, part.name, part.text, QUESTION_CHARS);
    }
    push_operation(&mut out, request, &number);
    if let Some(risk) = &request.content.risk {
        push_quoted(&mut out, "risk", risk, 600);
    }
    if let Some(preview) = &request.content.preview {
        push_quoted(&mut out, "preview", preview, QUESTION_CHARS);
    }
    if let Some(delegation) = &request.delegated.delegation {
        push_delegation(&mut out, delegation);
    }
    push_answers(&mut out, request);
    out
}

/// Formats who asks what, and where the question belongs.
fn asked_line(request: &RequestView, number: &str) -> String {
    let wants = match request.shown_kind() {
        RequestKind::Delegation => "wants to delegate a task,",
        kind => kind.asks(),
    };
    let own = request
        .content
        .question_id
        .as_ref()
        .map_or_else(String::new, |id| format!(" (its {})", line(id, 60)));
    let mut out = format!(
        "{} {wants} {number}{own}: {}",
        line(&request.run_name, 60),
        quoted(asked_for(request).text, QUESTION_CHARS)
    );
    if let Some(group) = &request.group {
        out.push_str(&format!(
            " ({} of {} asked together)",
            group.place, group.size
        ));
    }
    if let Some(context) = &request.content.context {
        push_quoted(&mut out, "context", context, QUESTION_CHARS);
    }
    out
}

fn push_quoted(out: &mut String, name: &str, text: &str, chars_max: usize) {
    out.push_str(&format!(" {name} {}", quoted(text, chars_max)));
}

/// Adds what an approval allows besides its preview, or how much of it is left out.
fn push_operation(out: &mut String, request: &RequestView, number: &str) {
    let parts = operation_parts(request);
    for part in parts.iter().take(PARTS_MAX) {
        push_quoted(out, part.label, &part.text, QUESTION_CHARS);
    }
    if parts.len() > PARTS_MAX {
        let addresses = parts[PARTS_MAX..]
            .iter()
            .filter(|part| part.name == "urls")
            .count();
        let more = parts.len() - PARTS_MAX;
        out.push_str(&format!(" … and {more} more, {addresses} of them addresses: get_pending_questions message_id={number}"));
    }
}

fn push_delegation(out: &mut String, delegation: &DelegationView) {
    out.push_str(&format!(
        " {} {}",
        line(delegation.independence.as_str(), 40),
        line(delegation.priority.as_str(), 10)
    ));
    for part in delegation_parts(delegation) {
        push_quoted(out, part.name, part.text, 600);
    }
    if let Some(room) = &delegation.room {
        out.push_str(&format!(" (in use: {room})"));
    }
}

/// Adds the possible answers, and what happens without one.
fn push_answers(out: &mut String, request: &RequestView) {
    if !request.content.options.is_empty() {
        let options: Vec<String> = request
            .content
            .options
            .iter()
            .map(|option| quoted(option, 200))
            .collect();
        out.push_str(&format!(" options {}", options.join(" | ")));
    }
    if let Some(default) = &request.content.default {
        push_quoted(out, "default", default, 200);
        out.push_str(&format!(" at {}", line(&request.times.expires_at, 40)));
    }
    if !request.blocking {
        out.push_str(" (it continues meanwhile)");
    }
    if request.status != RequestStateKind::Pending {
        out.push_str(&format!(" [{}]", line(request.status.as_str(), 20)));
    }
}

/// Returns a request as structured content of a list: the facts of its line and its run's id. Its
/// number serves as its id.
#[must_use]
pub(crate) fn request_brief(request: &RequestView) -> Value {
    let is_open = request.status == RequestStateKind::Pending;
    let brief = [
        ("message_id", json!(request.number)),
        ("run_id", json!(request.run_id)),
        ("run_name", json!(request.run_name)),
        (
            "question",
            text(Some(asked_for(request).text), QUESTION_CHARS),
        ),
        (
            "kind",
            given(request.kind != RequestKind::Question, &request.kind),
        ),
        ("blocking", given(!request.blocking, &false)),
        ("status", given(!is_open, &request.status)),
        (
            "expires_at",
            given(request.content.default.is_some(), &request.times.expires_at),
        ),
    ];
    filled(brief.into_iter().chain(details(request)))
}

/// Returns a whole request as structured content.
#[must_use]
pub(crate) fn request_full(request: &RequestView) -> Value {
    let full = [
        ("message_id", json!(request.message_id)),
        ("number", json!(request.number)),
        ("run_id", json!(request.run_id)),
        ("run_name", json!(request.run_name)),
        ("kind", json!(request.kind)),
        (
            "question",
            text(Some(asked_for(request).text), QUESTION_CHARS),
        ),
        ("timestamp", json!(request.times.asked_at)),
        ("expires_at", json!(request.times.expires_at)),
        ("blocking", json!(request.blocking)),
        ("status", json!(request.status)),
    ];
    filled(full.into_iter().chain(details(request)))
}

fn text(text: Option<&str>, chars_max: usize) -> Value {
    json!(text.map(|text| shorten::counted(text, chars_max)))
}

fn given(is_given: bool, value: &impl Serialize) -> Value {
    json!(is_given.then_some(value))
}

/// Maximum number of files, addresses and directories of an approval in a list.
pub(crate) const PARTS_MAX: usize = 20;

/// Returns what an approval allows besides its preview, by the fields of the contract.
pub(crate) fn operation(
    request: &RequestView,
    chars_max: usize,
    parts_max: usize,
) -> BTreeMap<&'static str, Value> {
    let mut fields: BTreeMap<&'static str, Value> = BTreeMap::new();
    let parts = operation_parts(request);
    for part in parts.iter().take(parts_max) {
        let text = shorten::counted(&part.text, chars_max);
        match part.name {
            "command" | "directory" => drop(fields.insert(part.name, json!(text))),
            _ => {
                if let Value::Array(all) = fields.entry(part.name).or_insert_with(|| json!([])) {
                    all.push(json!(text));
                }
            }
        }
    }
    if parts.len() > parts_max {
        fields.insert("more", json!(parts.len() - parts_max));
    }
    fields
}

/// Returns the optional fields of a request.
fn details(request: &RequestView) -> [(&'static str, Value); 15] {
    let question = |of: &Option<String>| text(of.as_deref(), QUESTION_CHARS);
    let operation = operation(request, QUESTION_CHARS, PARTS_MAX);
    let clarification = request.content.clarification.as_ref().map(|clarification| {
        let parts = clarification_parts(clarification);
        parts
            .map(|part| (part.name.to_owned(), text(Some(part.text), QUESTION_CHARS)))
            .collect::<Value>()
    });
    let options = request.content.options.iter();
    let options: Value = options
        .map(|option| shorten::counted(option, 200))
        .collect();
    [
        ("context", question(&request.content.context)),
        ("question_id", json!(request.content.question_id)),
        ("clarification", json!(clarification)),
        ("risk", question(&request.content.risk)),
        ("preview", question(&request.content.preview)),
        ("operation", given(!operation.is_empty(), &operation)),
        ("delegation", json!(request.delegated.delegation)),
        ("child", question(&request.delegated.child)),
        ("child_name", question(&request.delegated.child_name)),
        ("child_result", question(&request.delegated.child_result)),
        ("group", json!(request.group)),
        ("decision", json!(request.reply.decision)),
        ("reason", json!(request.reply.reason)),
        ("options", options),
        ("default", text(request.content.default.as_deref(), 200)),
    ]
}

/// Formats the recorded answer to a request: the chosen option, or the text.
#[must_use]
pub(crate) fn recorded_line(request: &RequestView) -> String {
    let answer = quoted(
        request.reply.answer.as_deref().unwrap_or_default(),
        RESULT_CHARS_LISTED,
    );
    let option = request
        .option_chosen()
        .map(|number| format!("option {number}, "))
        .unwrap_or_default();
    format!("{} recorded: {option}{answer}", line(&request.number, 24))
}
