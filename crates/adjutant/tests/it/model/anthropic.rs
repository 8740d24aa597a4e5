//! The dialect of Anthropic's Messages API.

use super::serve::{event, pieces};
use super::turn::{Input, Refusal, Say};
use super::{Dialect, Offered};
use serde_json::{Value, json};

pub fn offered(body: &Value) -> Vec<Offered> {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    tools
        .iter()
        .filter_map(|tool| Offered::function(tool, "input_schema"))
        .collect()
}

pub fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let blocks = messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten();
    blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| text(&block["content"]))
        .collect()
}

/// Returns the text of a content, which is a string or a list of blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        other => other.to_string(),
    }
}

fn message(turn: usize, content: &Value, stop: &Value) -> Value {
    let usage = json!({ "input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 10 });
    json!({
        "id": format!("msg_{turn}"), "type": "message", "role": "assistant", "model": "claude-test", "content": content,
        "stop_reason": stop, "stop_sequence": null, "usage": usage,
    })
}

fn block(say: &Say, turn: usize, whole: bool) -> (Value, &'static str) {
    match say {
        Say::Text(text) | Say::Search(text) => (
            json!({ "type": "text", "text": if whole { text.as_str() } else { "" } }),
            "end_turn",
        ),
        Say::Call(call) => {
            let input = if whole { input(&call.input) } else { json!({}) };
            (
                json!({ "type": "tool_use", "id": format!("toolu_{turn}"), "name": call.name, "input": input }),
                "tool_use",
            )
        }
    }
}

fn input(input: &Input) -> Value {
    match input {
        Input::Json(value) => value.clone(),
        Input::Text(text) => json!({ "input": text }),
    }
}

pub fn whole(say: &Say, turn: usize) -> Value {
    let (block, stop) = block(say, turn, true);
    message(turn, &json!([block]), &json!(stop))
}

pub fn stream(say: &Say, turn: usize, ends: bool) -> Vec<String> {
    let (block, stop) = block(say, turn, false);
    let deltas: Vec<Value> = match say {
        Say::Text(text) | Say::Search(text) => pieces(text)
            .into_iter()
            .map(|piece| json!({ "type": "text_delta", "text": piece }))
            .collect(),
        Say::Call(call) => {
            let input = input(&call.input).to_string();
            pieces(&input)
                .into_iter()
                .map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }))
                .collect()
        }
    };
    let mut events = vec![
        json!({ "type": "message_start", "message": message(turn, &json!([]), &Value::Null) }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
    ];
    events.extend(
        deltas
            .into_iter()
            .map(|delta| json!({ "type": "content_block_delta", "index": 0, "delta": delta })),
    );
    if ends {
        events.push(json!({ "type": "content_block_stop", "index": 0 }));
        let delta = json!({ "stop_reason": stop, "stop_sequence": null });
        events.push(
            json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 10 } }),
        );
        events.push(json!({ "type": "message_stop" }));
    }
    events
        .iter()
        .map(|data| event(data["type"].as_str(), data))
        .collect()
}

pub fn refusal(refusal: Refusal) -> Value {
    let kind = match refusal {
        Refusal::RateLimited { .. } | Refusal::UsedUp { .. } => "rate_limit_error",
        Refusal::Unauthorized => "authentication_error",
        Refusal::TooLong | Refusal::NoCredit => "invalid_request_error",
        Refusal::Overloaded => "overloaded_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": refusal.message(Dialect::Messages) } })
}
