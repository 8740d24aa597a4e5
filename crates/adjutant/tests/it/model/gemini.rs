//! The dialect of Gemini's `generateContent` and `streamGenerateContent`.

use super::serve::{event, pieces};
use super::turn::{Input, Refusal, Say};
use super::{Dialect, Offered};
use serde_json::{Value, json};

pub fn offered(body: &Value) -> Vec<Offered> {
    let groups = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let tools = groups
        .iter()
        .filter_map(|group| group["functionDeclarations"].as_array())
        .flatten();
    tools
        .filter_map(|tool| {
            Offered::function(
                tool,
                if tool["parametersJsonSchema"].is_object() {
                    "parametersJsonSchema"
                } else {
                    "parameters"
                },
            )
        })
        .collect()
}

pub fn results(body: &Value) -> Vec<String> {
    let contents = body["contents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let parts = contents
        .iter()
        .filter_map(|content| content["parts"].as_array())
        .flatten();
    parts
        .filter_map(|part| part.get("functionResponse"))
        .map(|part| part["response"].to_string())
        .collect()
}

/// Returns one chunk, which is also the form of a whole answer.
pub fn chunk(say: &Say, ends: bool) -> Value {
    let part = match say {
        Say::Text(text) | Say::Search(text) => json!({ "text": text }),
        Say::Call(call) => {
            let args = match &call.input {
                Input::Json(value) => value.clone(),
                Input::Text(text) => json!({ "input": text }),
            };
            json!({ "functionCall": { "name": call.name, "args": args } })
        }
    };
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": [part] } });
    if ends {
        candidate["finishReason"] = json!("STOP");
    }
    let usage =
        json!({ "promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110 });
    json!({ "candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-test" })
}

pub fn stream(say: &Say, ends: bool) -> Vec<String> {
    let Say::Text(text) = say else {
        return vec![event(None, &chunk(say, ends))];
    };
    let pieces = pieces(text);
    let last = pieces.len().saturating_sub(1);
    pieces
        .into_iter()
        .enumerate()
        .map(|(number, piece)| event(None, &chunk(&Say::Text(piece), ends && number == last)))
        .collect()
}

pub fn refusal(refusal: Refusal) -> Value {
    let (code, status) = match refusal {
        Refusal::RateLimited { .. } | Refusal::UsedUp { .. } => (429, "RESOURCE_EXHAUSTED"),
        Refusal::Unauthorized => (401, "UNAUTHENTICATED"),
        Refusal::TooLong => (400, "INVALID_ARGUMENT"),
        Refusal::NoCredit => (429, "RESOURCE_EXHAUSTED"),
        Refusal::Overloaded => (503, "UNAVAILABLE"),
    };
    let mut details = json!([]);
    if let Refusal::RateLimited { after_s } = refusal {
        details = json!([{ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{after_s}s") }]);
    }
    if refusal == Refusal::NoCredit {
        let violation = json!({ "quotaMetric": "generate_requests_per_day", "quotaId": "GenerateRequestsPerDayPerProjectPerModel" });
        details = json!([{ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation] }]);
    }
    json!({ "error": { "code": code, "message": refusal.message(Dialect::Gemini), "status": status, "details": details } })
}
