//! The metadata of a run in the original protocol's format: the content of `<run-id>.meta.json` and
//! of the results of its tools.

use super::{RequestView, RunView};
use adjutant_core::OutcomeKind;
use serde_json::{Value, json};

/// The maximum number of exchanges in the metadata. The newest are kept.
pub const METADATA_MESSAGES_MAX: u32 = 500;

/// Returns a run and its requests under the original protocol's names.
#[must_use]
pub fn metadata(run: &RunView, requests: &[RequestView]) -> Value {
    let messages: Vec<Value> = requests
        .iter()
        .map(|request| {
            json!({
                "messageId": request.message_id,
                "questionContent": request.content.question,
                "questionTimestamp": request.times.asked_at,
                "answerContent": request.reply.answer,
                "answerTimestamp": request.times.answered_at,
                "messageStatus": request.message_status,
            })
        })
        .collect();
    json!({
        "runId": run.identity.run_id,
        "agentName": run.identity.agent,
        "command": run.identity.agent,
        "startTime": run.times.started_at.as_ref().unwrap_or(&run.times.created_at),
        "status": run.condition.status,
        "exitCode": run.condition.exit_code,
        "endTime": run.times.ended_at,
        "summary": run.results.summary.as_ref().or(run.results.result.as_ref()),
        "lastUpdated": run.times.updated_at,
        "error": error(run),
        "messages": messages,
        "completion_report": completion_report(run),
    })
}

fn error(run: &RunView) -> Option<String> {
    let outcome = run
        .condition
        .outcome
        .as_ref()
        .filter(|outcome| **outcome != OutcomeKind::Succeeded)?;
    Some(run.condition.reason.as_ref().map_or_else(
        || outcome.to_string(),
        |reason| format!("{outcome}: {reason}"),
    ))
}

/// Returns the report under the original protocol's field names, with its verification.
fn completion_report(run: &RunView) -> Option<Value> {
    let mut fields = json!({"agent_id": run.identity.run_id, "timestamp": run.times.updated_at});
    if let (Some(fields), Ok(Value::Object(report))) = (
        fields.as_object_mut(),
        serde_json::to_value(run.results.report.as_ref()?),
    ) {
        fields.extend(report);
    }
    Some(fields)
}
