//! The dialect of OpenAI's Chat Completions API.

use super::super::Offered;
use super::super::serve::{event, pieces};
use super::super::turn::Say;
use super::{arguments, text};
use serde_json::{Value, json};

pub fn offered(body: &Value) -> Vec<Offered> {
    let tools = body["tools"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    tools
        .iter()
        .filter_map(|tool| Offered::function(&tool["function"], "parameters"))
        .collect()
}

pub fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| text(&message["content"]))
        .collect()
}

fn usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 })
}

pub fn whole(say: &Say, turn: usize) -> Value {
    let (message, reason) = match say {
        Say::Text(text) | Say::Search(text) => {
            (json!({ "role": "assistant", "content": text }), "stop")
        }
        Say::Call(call) => {
            let function = json!({ "name": call.name, "arguments": arguments(&call.input) });
            let calls =
                json!([{ "id": format!("call_{turn}"), "type": "function", "function": function }]);
            (
                json!({ "role": "assistant", "content": null, "tool_calls": calls }),
                "tool_calls",
            )
        }
    };
    let choices = json!([{ "index": 0, "message": message, "finish_reason": reason }]);
    json!({ "id": format!("chatcmpl-{turn}"), "object": "chat.completion", "created": 0, "model": "gpt-test", "choices": choices, "usage": usage() })
}

pub fn stream(say: &Say, turn: usize, ends: bool) -> Vec<String> {
    let chunk = |delta: Value, reason: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
        json!({ "id": format!("chatcmpl-{turn}"), "object": "chat.completion.chunk", "created": 0, "model": "gpt-test", "choices": choices })
    };
    let mut chunks = vec![chunk(
        json!({ "role": "assistant", "content": "" }),
        Value::Null,
    )];
    let reason = match say {
        Say::Text(text) | Say::Search(text) => {
            chunks.extend(
                pieces(text)
                    .into_iter()
                    .map(|piece| chunk(json!({ "content": piece }), Value::Null)),
            );
            "stop"
        }
        Say::Call(call) => {
            let function = json!({ "name": call.name, "arguments": "" });
            let begin = json!([{ "index": 0, "id": format!("call_{turn}"), "type": "function", "function": function }]);
            chunks.push(chunk(json!({ "tool_calls": begin }), Value::Null));
            for piece in pieces(&arguments(&call.input)) {
                let more = json!([{ "index": 0, "function": { "arguments": piece } }]);
                chunks.push(chunk(json!({ "tool_calls": more }), Value::Null));
            }
            "tool_calls"
        }
    };
    let mut said: Vec<String> = chunks.iter().map(|chunk| event(None, chunk)).collect();
    if ends {
        let mut last = chunk(json!({}), json!(reason));
        last["usage"] = usage();
        said.push(event(None, &last));
        said.push("data: [DONE]\n\n".to_owned());
    }
    said
}
