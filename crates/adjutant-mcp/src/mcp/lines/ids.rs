//! Request ids that are fractions or numbers beyond 64 bits. JSON-RPC and MCP allow them, but rmcp
//! cannot parse them. Such an id is encoded as a string that contains the original text, and
//! decoded in the reply. No state is kept. Pure functions.

use rmcp::RoleServer;
use rmcp::model::{ErrorData, JsonRpcVersion2_0, RequestId, ServerJsonRpcMessage};
use rmcp::service::TxJsonRpcMessage;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::ops::Range;

/// The prefix of strings that encode an id. A client's own string with this prefix is encoded in
/// the same way.
const ENCODED_PREFIX: &str = "\u{f8ff}id:";

/// The parts of a message that identify a request.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CancelledParams<'a> {
    #[serde(borrow, rename = "requestId")]
    request_id: Option<&'a RawValue>,
}

/// Returns whether an id is an encoded one.
pub(super) fn is_encoded(id: &RequestId) -> bool {
    matches!(id, RequestId::String(text) if text.starts_with(ENCODED_PREFIX))
}

/// Encodes the ids of a message. `None`: rmcp can parse them as they are.
pub(crate) fn encode_ids(line: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    let envelope: Envelope<'_> = serde_json::from_str(text).ok()?;
    let cancelled = envelope
        .params
        .filter(|_| envelope.method.map(RawValue::get) == Some("\"notifications/cancelled\""));
    let cancelled = cancelled.and_then(|params| {
        serde_json::from_str::<CancelledParams<'_>>(params.get())
            .ok()?
            .request_id
    });
    let id = envelope.id.or(cancelled)?.get();
    let held = serde_json::to_string(&format!("{ENCODED_PREFIX}{}", id_to_encode(id)?)).ok()?;
    let Range { start, end } = place(text, id)?;
    Some([&text[..start], &held, &text[end..]].concat().into_bytes())
}

/// Returns the position of a substring in its text.
pub(super) fn place(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    Some(
        start
            ..start
                .checked_add(part.len())
                .filter(|end| *end <= whole.len())?,
    )
}

/// Returns an id as rmcp can represent it. `None`: it is not an id.
pub(super) fn request_id(id: &str) -> Option<RequestId> {
    match id_to_encode(id) {
        Some(id) => serde_json::from_str::<&RawValue>(id)
            .is_ok()
            .then(|| RequestId::String(format!("{ENCODED_PREFIX}{id}").into())),
        None => serde_json::from_str(id).ok(),
    }
}

/// Returns the id if it must be encoded.
fn id_to_encode(id: &str) -> Option<&str> {
    match id.as_bytes().first()? {
        b'-' | b'0'..=b'9' => id.parse::<i64>().is_err().then_some(id),
        b'"' => serde_json::from_str::<String>(id)
            .is_ok_and(|text| text.starts_with(ENCODED_PREFIX))
            .then_some(id),
        _ => None,
    }
}

/// Decodes an id to its original text.
fn original_id(id: &RequestId) -> Option<&RawValue> {
    let RequestId::String(text) = id else {
        return None;
    };
    let held: &RawValue = serde_json::from_str(text.strip_prefix(ENCODED_PREFIX)?).ok()?;
    // Only what `encode_ids` encodes, so that nothing else can be injected into a message.
    id_to_encode(held.get()).map(|_| held)
}

#[derive(Serialize)]
struct ResultMessage<'a, T> {
    jsonrpc: JsonRpcVersion2_0,
    id: &'a RawValue,
    result: &'a T,
}

#[derive(Serialize)]
struct ErrorMessage<'a> {
    jsonrpc: JsonRpcVersion2_0,
    id: &'a RawValue,
    error: &'a ErrorData,
}

/// Serializes a message with its id as the client wrote it.
pub(super) fn written(message: &TxJsonRpcMessage<RoleServer>) -> serde_json::Result<Vec<u8>> {
    match message {
        ServerJsonRpcMessage::Response(response) => match original_id(&response.id) {
            Some(id) => serde_json::to_vec(&ResultMessage {
                jsonrpc: JsonRpcVersion2_0,
                id,
                result: &response.result,
            }),
            None => serde_json::to_vec(message),
        },
        ServerJsonRpcMessage::Error(refused) => match refused.id.as_ref().and_then(original_id) {
            Some(id) => serde_json::to_vec(&ErrorMessage {
                jsonrpc: JsonRpcVersion2_0,
                id,
                error: &refused.error,
            }),
            None => serde_json::to_vec(message),
        },
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
            serde_json::to_vec(message)
        }
    }
}

/// Serializes an error for a message without a readable id, with the null id that JSON-RPC 2.0
/// requires.
pub(crate) fn with_null_id(message: &TxJsonRpcMessage<RoleServer>) -> serde_json::Result<Vec<u8>> {
    match message {
        ServerJsonRpcMessage::Error(refused) if refused.id.is_none() => {
            serde_json::to_vec(&ErrorMessage {
                jsonrpc: JsonRpcVersion2_0,
                id: RawValue::NULL,
                error: &refused.error,
            })
        }
        _ => written(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::{EmptyResult, ServerResult};

    fn id_of(line: &str) -> RequestId {
        let kept =
            encode_ids(line.as_bytes()).unwrap_or_else(|| panic!("{line} needs no encoding"));
        serde_json::from_value(
            serde_json::from_slice::<serde_json::Value>(&kept).expect("JSON")["id"].clone(),
        )
        .expect("an id")
    }

    #[test]
    fn every_id_is_returned_unchanged() {
        for id in [
            "1.5",
            "-0.0",
            "9223372036854775808",
            "123456789012345678901234567890",
            "1e400",
            "1.0",
            "\"\u{f8ff}id:1.5\"",
            "\"\\uf8ffid:\"",
        ] {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"ping\", \"id\" : {id} }}");
            let id_ = id_of(&line);
            assert!(is_encoded(&id_), "{id}");
            let result = ServerJsonRpcMessage::response(
                ServerResult::EmptyResult(EmptyResult {}),
                id_.clone(),
            );
            assert_eq!(
                String::from_utf8(written(&result).expect("JSON")).expect("text"),
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
            );
            let error =
                ServerJsonRpcMessage::error(ErrorData::invalid_request("no", None), Some(id_));
            assert!(
                String::from_utf8(written(&error).expect("JSON"))
                    .expect("text")
                    .contains(&format!("\"id\":{id},")),
                "{id}"
            );
        }
    }

    #[test]
    fn ids_that_rmcp_parses_are_unchanged() {
        for id in ["1", "-9223372036854775808", "\"a\"", "null", "[1.5]", "{}"] {
            assert_eq!(
                encode_ids(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}").as_bytes()
                ),
                None,
                "{id}"
            );
        }
        for line in [
            "",
            "[]",
            "1.5",
            "{\"id\":1.5,\"id\":2}",
            "{\"params\":{\"requestId\":1.5}}",
            "{\"jsonrpc\"",
        ] {
            assert_eq!(encode_ids(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn cancellation_has_the_same_id() {
        let line = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.50,"reason":"x"}}"#;
        let kept: serde_json::Value =
            serde_json::from_slice(&encode_ids(line.as_bytes()).expect("held")).expect("JSON");
        assert_eq!(kept["params"]["requestId"], format!("{ENCODED_PREFIX}1.50"));
    }

    #[test]
    fn text_cannot_forge_part_of_a_message() {
        for text in ["1,\"x\":2", "null", "true", "{}", "[1.5]", "5", "\"a\"", ""] {
            let id = RequestId::String(format!("{ENCODED_PREFIX}{text}").into());
            let message = ServerJsonRpcMessage::response(
                ServerResult::EmptyResult(EmptyResult {}),
                id.clone(),
            );
            assert_eq!(
                written(&message).expect("JSON"),
                serde_json::to_vec(&message).expect("JSON"),
                "{text}"
            );
        }
    }
}
