//! The dialect of OpenAI's Responses API.

use super::super::Offered;
use super::super::serve::{event, pieces};
use super::super::turn::{Input, Say};
use super::{arguments, text};
use serde_json::{Value, json};

pub fn offered(body: &Value) -> Vec<Offered> {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = input(body)
        .iter()
        .filter(|item| item["type"] == "tool_search_output")
        .filter_map(|item| item["tools"].as_array());
    tools.iter().chain(found.flatten()).flat_map(one).collect()
}

/// Returns whether tools are deferred until the model searches for them.
pub fn can_search(body: &Value) -> bool {
    body["tools"]
        .as_array()
        .is_some_and(|tools| tools.iter().any(|tool| tool["type"] == "tool_search"))
}

/// Returns whether the service may search the web by itself.
pub fn has_web_search(body: &Value) -> bool {
    let is_search = |tool: &Value| {
        tool["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("web_search"))
    };
    body["tools"]
        .as_array()
        .is_some_and(|tools| tools.iter().any(is_search))
}

fn input(body: &Value) -> &[Value] {
    body["input"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Returns a tool, or the tools of a namespace.
fn one(tool: &Value) -> Vec<Offered> {
    match tool["type"].as_str() {
        Some("namespace") => {
            let namespace = tool["name"].as_str().map(str::to_owned);
            let within = tool["tools"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            within
                .iter()
                .flat_map(one)
                .map(|offer| Offered {
                    namespace: namespace.clone(),
                    ..offer
                })
                .collect()
        }
        Some("custom") => Offered::function(tool, "format")
            .map(|offer| Offered {
                freeform: true,
                ..offer
            })
            .into_iter()
            .collect(),
        _ => Offered::function(tool, "parameters").into_iter().collect(),
    }
}

pub fn results(body: &Value) -> Vec<String> {
    let outputs = input(body).iter().filter(|item| {
        matches!(
            item["type"].as_str(),
            Some("function_call_output" | "custom_tool_call_output")
        )
    });
    outputs.map(|item| text(&item["output"])).collect()
}

fn item(say: &Say, turn: usize) -> Value {
    match say {
        Say::Text(text) => {
            let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
            json!({ "type": "message", "id": format!("msg_{turn}"), "role": "assistant", "status": "completed", "content": content })
        }
        Say::Search(query) => json!({
            "type": "tool_search_call", "id": format!("tsc_{turn}"), "call_id": format!("call_{turn}"), "execution": "client",
            "status": "completed", "arguments": { "query": query },
        }),
        Say::Call(call) => match &call.input {
            Input::Text(text) => json!({
                "type": "custom_tool_call", "id": format!("ctc_{turn}"), "call_id": format!("call_{turn}"), "name": call.name, "input": text,
                "status": "completed",
            }),
            Input::Json(_) => {
                let mut item = json!({
                    "type": "function_call", "id": format!("fc_{turn}"), "call_id": format!("call_{turn}"), "name": call.name,
                    "arguments": arguments(&call.input), "status": "completed",
                });
                if let Some(namespace) = &call.namespace {
                    item["namespace"] = json!(namespace);
                }
                item
            }
        },
    }
}

pub fn whole(say: &Say, turn: usize) -> Value {
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 10,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 110,
    });
    json!({
        "id": format!("resp_{turn}"), "object": "response", "created_at": 0, "status": "completed", "model": "gpt-test",
        "output": [item(say, turn)], "usage": usage,
    })
}

pub fn stream(say: &Say, turn: usize, ends: bool) -> Vec<String> {
    let item = item(say, turn);
    let mut begun = item.clone();
    begun["status"] = json!("in_progress");
    let mut events = vec![
        json!({ "type": "response.created", "response": { "id": format!("resp_{turn}"), "object": "response", "status": "in_progress" } }),
    ];
    if let Say::Text(text) = say {
        begun["content"] = json!([]);
        events.push(
            json!({ "type": "response.output_item.added", "output_index": 0, "item": begun }),
        );
        let delta = |piece| json!({ "type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": piece });
        events.extend(pieces(text).into_iter().map(delta));
    }
    if ends {
        events
            .push(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
        events.push(json!({ "type": "response.completed", "response": whole(say, turn) }));
    }
    for (number, data) in events.iter_mut().enumerate() {
        data["sequence_number"] = json!(number);
    }
    events
        .iter()
        .map(|data| event(data["type"].as_str(), data))
        .collect()
}
