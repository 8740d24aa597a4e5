//! OpenAI's two dialects, which share their refusals.

pub mod chat;
pub mod responses;

use super::Dialect;
use super::turn::{Input, Refusal, epoch_s};
use serde_json::{Value, json};

pub fn refusal(refusal: Refusal) -> Value {
    let (kind, code) = match refusal {
        Refusal::RateLimited { .. } => ("rate_limit_exceeded", "rate_limit_exceeded"),
        Refusal::UsedUp { .. } => ("usage_limit_reached", "usage_limit_reached"),
        Refusal::Unauthorized => ("invalid_request_error", "invalid_api_key"),
        Refusal::TooLong => ("invalid_request_error", "context_length_exceeded"),
        Refusal::NoCredit => ("insufficient_quota", "insufficient_quota"),
        Refusal::Overloaded => ("server_error", "server_error"),
    };
    let mut error = json!({ "message": refusal.message(Dialect::Chat), "type": kind, "code": code, "param": null });
    if let Refusal::UsedUp { for_s } = refusal {
        error["resets_at"] = epoch_s(for_s).into();
    }
    json!({ "error": error })
}

/// Returns arguments as JSON text.
fn arguments(input: &Input) -> String {
    match input {
        Input::Json(value) => value.to_string(),
        Input::Text(text) => text.clone(),
    }
}

/// Returns the text of a content, which is a string or a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        other => other.to_string(),
    }
}
