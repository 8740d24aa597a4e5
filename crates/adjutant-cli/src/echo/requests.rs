//! The echo agent's requests, as tool calls and as signal blocks in its output.

use super::script::{ApprovalRequest, DelegationRequest, Question, ToolCall};
use serde_json::{Map, Value, json};

/// Returns the tool call that asks a question.
pub(super) fn ask(question: &Question) -> ToolCall {
    let mut arguments = Map::new();
    arguments.insert("question".into(), json!(question.text));
    options(&mut arguments, &question.options);
    text(&mut arguments, "default", question.default.as_ref());
    if let Some(expires_s) = question.expires_s {
        arguments.insert("expires_s".into(), json!(expires_s));
    }
    if question.nonblocking {
        arguments.insert("blocking".into(), json!(false));
        arguments.insert("wait_s".into(), json!(0));
    }
    ToolCall {
        name: "ask_parent".to_string(),
        arguments: Value::Object(arguments),
    }
}

/// Returns the tool call that asks for approval.
pub(super) fn approve(approval: &ApprovalRequest) -> ToolCall {
    let mut arguments = approval_fields(approval);
    if let Some(expires_s) = approval.expires_s {
        arguments.insert("expires_s".into(), json!(expires_s));
    }
    if approval.nowait {
        arguments.insert("wait_s".into(), json!(0));
    }
    ToolCall {
        name: "request_approval".to_string(),
        arguments: Value::Object(arguments),
    }
}

/// Returns the block that asks for approval.
pub(crate) fn approve_block(run: &str, approval: &ApprovalRequest) -> String {
    block("APPROVAL_NEEDED", run, &approval_fields(approval))
}

/// Returns the tool call that delegates a task.
pub(super) fn delegate(delegation: &DelegationRequest) -> ToolCall {
    let mut arguments = task(delegation);
    if delegation.nowait {
        arguments.insert("wait_s".into(), json!(0));
    }
    ToolCall {
        name: "delegate_work".to_string(),
        arguments: Value::Object(arguments),
    }
}

/// Returns the block that delegates a task.
pub(crate) fn delegate_block(run: &str, delegation: &DelegationRequest) -> String {
    block("DELEGATE_WORK", run, &task(delegation))
}

/// Returns a block with these fields.
pub(crate) fn any_block(run: &str, call: &ToolCall) -> String {
    block(
        &call.name,
        run,
        &call.arguments.as_object().cloned().unwrap_or_default(),
    )
}

fn task(delegation: &DelegationRequest) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("new_task_description".into(), json!(delegation.task));
    for (name, value) in &delegation.fields {
        fields.insert((*name).into(), json!(value));
    }
    fields
}

fn approval_fields(approval: &ApprovalRequest) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("action".into(), json!(approval.action));
    text(&mut fields, "preview", approval.preview.as_ref());
    text(&mut fields, "risk", approval.risk.as_ref());
    options(&mut fields, &approval.options);
    fields
}

fn text(fields: &mut Map<String, Value>, name: &str, value: Option<&String>) {
    if let Some(value) = value {
        fields.insert(name.into(), json!(value));
    }
}

fn options(fields: &mut Map<String, Value>, options: &[String]) {
    if !options.is_empty() {
        fields.insert("options".into(), json!(options));
    }
}

/// Writes a block. Its fields are JSON, which is also valid YAML.
fn block(tag: &str, run: &str, fields: &Map<String, Value>) -> String {
    let lines: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    format!("[{tag}]\nagent_id: {run}\n{lines}[/{tag}]")
}
