//! A request.

use super::limits::{QUESTION_CHARS, RESULT_CHARS_LISTED};
use crate::mcp::text::{cut, line, quoted};
use crate::present::{AskedFor, asked_for, clarification_parts, delegation_parts};
use crate::view::RequestView;
use adjutant_core::policy::OperationPart;
use adjutant_core::{RequestKind, RequestStateKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Formats an open request as one line.
#[must_use]
pub fn request_line(request: &RequestView) -> String {
    let wants = match request.kind.known() {
        Some(RequestKind::Approval) => "asks for approval",
        Some(RequestKind::Delegation) => "wants to delegate a task,",
        _ => "asks",
    };
    let own = request
        .question_id
        .as_ref()
        .map_or_else(String::new, |id| format!(" (its {})", line(id, 60)));
    let number = line(&request.number, 24);
    let AskedFor { text, parts } = asked_for(request);
    let mut out = format!(
        "{} {wants} {number}{own}: {}",
        line(&request.run_name, 60),
        quoted(text, QUESTION_CHARS)
    );
    if let Some(group) = &request.group {
        out.push_str(&format!(
            " ({} of {} asked together)",
            group.place, group.size
        ));
    }
    if let Some(context) = &request.context {
        out.push_str(&format!(" context {}", quoted(context, QUESTION_CHARS)));
    }
    for part in request.clarification.iter().flat_map(clarification_parts) {
        out.push_str(&format!(
            " {} {}",
            part.name,
            quoted(part.text, QUESTION_CHARS)
        ));
    }
    // The preview and the parts of a delegation follow below.
    let parts: Vec<&OperationPart> = parts
        .iter()
        .filter(|part| part.name != "preview" && request.delegation.is_none())
        .collect();
    for part in parts.iter().take(PARTS_MAX) {
        out.push_str(&format!(
            " {} {}",
            part.label,
            quoted(&part.text, QUESTION_CHARS)
        ));
    }
    if parts.len() > PARTS_MAX {
        let addresses = parts[PARTS_MAX..]
            .iter()
            .filter(|part| part.name == "urls")
            .count();
        let more = parts.len() - PARTS_MAX;
        out.push_str(&format!(" … and {more} more, {addresses} of them addresses: get_pending_questions message_id={number}"));
    }
    if let Some(risk) = &request.risk {
        out.push_str(&format!(" risk {}", quoted(risk, 600)));
    }
    if let Some(preview) = &request.preview {
        out.push_str(&format!(" preview {}", quoted(preview, QUESTION_CHARS)));
    }
    if let Some(delegation) = &request.delegation {
        out.push_str(&format!(
            " {} {}",
            line(delegation.independence.as_str(), 40),
            line(delegation.priority.as_str(), 10)
        ));
        for part in delegation_parts(delegation) {
            out.push_str(&format!(" {} {}", part.name, quoted(part.text, 600)));
        }
        if let Some(room) = &delegation.room {
            out.push_str(&format!(" (in use: {room})"));
        }
    }
    if !request.options.is_empty() {
        let options: Vec<String> = request
            .options
            .iter()
            .map(|option| quoted(option, 200))
            .collect();
        out.push_str(&format!(" options {}", options.join(" | ")));
    }
    if let Some(default) = &request.default {
        out.push_str(&format!(
            " default {} at {}",
            quoted(default, 200),
            line(&request.expires_at, 40)
        ));
    }
    if !request.blocking {
        out.push_str(" (it continues meanwhile)");
    }
    if request.status != RequestStateKind::Pending {
        out.push_str(&format!(" [{}]", line(request.status.as_str(), 20)));
    }
    out
}

/// Returns a request as structured content of a list: the facts of its line and its run's id. Its number serves as
/// its id.
#[must_use]
pub fn request_brief(request: &RequestView) -> Value {
    let mut brief = json!({
        "message_id": request.number,
        "run_id": request.run_id,
        "run_name": request.run_name,
        "question": cut(asked_for(request).text, QUESTION_CHARS),
    });
    if request.kind != RequestKind::Question {
        brief["kind"] = json!(request.kind);
    }
    if !request.blocking {
        brief["blocking"] = json!(false);
    }
    if request.status != RequestStateKind::Pending {
        brief["status"] = json!(request.status);
    }
    if request.default.is_some() {
        brief["expires_at"] = json!(request.expires_at);
    }
    with_details(brief, request)
}

/// Returns a whole request as structured content.
#[must_use]
pub fn request_full(request: &RequestView) -> Value {
    let full = json!({
        "message_id": request.message_id,
        "number": request.number,
        "run_id": request.run_id,
        "run_name": request.run_name,
        "kind": request.kind,
        "question": cut(asked_for(request).text, QUESTION_CHARS),
        "timestamp": request.asked_at,
        "expires_at": request.expires_at,
        "blocking": request.blocking,
        "status": request.status,
    });
    with_details(full, request)
}

/// Maximum number of files, addresses and directories of an approval in a list.
pub const PARTS_MAX: usize = 20;

/// Returns what an approval allows besides its preview, by the fields of the contract.
pub fn operation(
    request: &RequestView,
    chars_max: usize,
    parts_max: usize,
) -> BTreeMap<&'static str, Value> {
    let mut fields: BTreeMap<&'static str, Value> = BTreeMap::new();
    if request.delegation.is_some() {
        return fields;
    }
    let parts: Vec<OperationPart> = asked_for(request)
        .parts
        .into_iter()
        .filter(|part| part.name != "preview")
        .collect();
    for part in parts.iter().take(parts_max) {
        let text = cut(&part.text, chars_max);
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

/// Adds the optional fields of a request.
fn with_details(mut brief: Value, request: &RequestView) -> Value {
    if let Some(context) = &request.context {
        brief["context"] = json!(cut(context, QUESTION_CHARS));
    }
    if let Some(id) = &request.question_id {
        brief["question_id"] = json!(id);
    }
    if let Some(clarification) = &request.clarification {
        brief["clarification"] = clarification_parts(clarification)
            .map(|part| (part.name.to_owned(), json!(cut(part.text, QUESTION_CHARS))))
            .collect();
    }
    for (name, text) in [("risk", &request.risk), ("preview", &request.preview)] {
        if let Some(text) = text {
            brief[name] = json!(cut(text, QUESTION_CHARS));
        }
    }
    let operation = operation(request, QUESTION_CHARS, PARTS_MAX);
    if !operation.is_empty() {
        brief["operation"] = json!(operation);
    }
    if let Some(delegation) = &request.delegation {
        brief["delegation"] = json!(delegation);
    }
    for (name, text) in [
        ("child", &request.child),
        ("child_name", &request.child_name),
        ("child_result", &request.child_result),
    ] {
        if let Some(text) = text {
            brief[name] = json!(cut(text, QUESTION_CHARS));
        }
    }
    if let Some(group) = &request.group {
        brief["group"] = json!(group);
    }
    if let Some(decision) = &request.decision {
        brief["decision"] = json!(decision);
    }
    if let Some(reason) = &request.reason {
        brief["reason"] = json!(reason);
    }
    if !request.options.is_empty() {
        brief["options"] = request
            .options
            .iter()
            .map(|option| cut(option, 200))
            .collect();
    }
    if let Some(default) = &request.default {
        brief["default"] = json!(cut(default, 200));
    }
    brief
}

/// Formats the recorded answer to a request: the chosen option, or the text.
#[must_use]
pub fn recorded_line(request: &RequestView) -> String {
    let answer = quoted(
        request.answer.as_deref().unwrap_or_default(),
        RESULT_CHARS_LISTED,
    );
    let option = request
        .option_chosen()
        .map(|number| format!("option {number}, "))
        .unwrap_or_default();
    format!("{} recorded: {option}{answer}", line(&request.number, 24))
}
