//! A received message before it is parsed: corrects what its author certainly meant, and names what
//! is ambiguous. Pure functions.
//!
//! - Half of a surrogate pair (`JSON.stringify` of a text that was cut inside an emoji) becomes the
//!   replacement character.
//! - `arguments` of a tool call as a string that contains a JSON object becomes this object.
//! - A repeated key is refused, because it is unknown which value was meant.
//!
//! The id of a request is found even where the text is not JSON, so that its client does not wait
//! forever.

use super::ids;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// The refusal of a message, with the id of its request if it has a readable one.
#[derive(Debug)]
pub(crate) struct Refused(pub ErrorData, pub Option<RequestId>);

/// Returns a message as it is to be parsed.
///
/// # Errors
/// Its meaning is ambiguous.
pub(crate) fn prepared(text: &[u8]) -> Result<Cow<'_, [u8]>, Box<Refused>> {
    let whole = with_whole_characters(text);
    let message = match with_object_arguments(&whole) {
        Ok(Some(replaced)) => Cow::Owned(replaced),
        Ok(None) => whole,
        Err(problem) => {
            return Err(Box::new(Refused(
                ErrorData::new(ErrorCode::INVALID_PARAMS, problem.to_string(), None),
                readable_id(text),
            )));
        }
    };
    match repeated_key(&message) {
        None => Ok(message),
        Some(key) => {
            let problem = format!("the key {key:?} is repeated: send it once");
            Err(Box::new(Refused(
                ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None),
                readable_id(text),
            )))
        }
    }
}

/// Replaces halves of surrogate pairs.
fn with_whole_characters(text: &[u8]) -> Cow<'_, [u8]> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let escape = at + next;
        at = escape + 2;
        let Some(unit) = code_unit(text, escape) else {
            continue;
        };
        at = escape + 6;
        match unit {
            0xD800..=0xDBFF if matches!(code_unit(text, at), Some(0xDC00..=0xDFFF)) => at += 6,
            0xD800..=0xDFFF => found.push(escape),
            _ => {}
        }
    }
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut whole = text.to_vec();
    for escape in found {
        whole[escape + 2..escape + 6].copy_from_slice(b"fffd");
    }
    Cow::Owned(whole)
}

/// Reads the escape `\uXXXX` at a position.
fn code_unit(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(
        std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?,
        16,
    )
    .ok()
}

/// The parts of a tool call around its arguments.
#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// The `arguments` of a call are neither an object nor a string with one.
#[derive(Debug)]
struct NotAnObject;

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments: must be a JSON object, such as {\"prompt\": \"…\"}")
    }
}

/// Replaces `arguments` that are a string by the object in it. `None`: they are an object, or there
/// are none.
fn with_object_arguments(text: &[u8]) -> Result<Option<Vec<u8>>, NotAnObject> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Ok(None);
    };
    let Ok(Call {
        method,
        params: Params { arguments },
    }) = serde_json::from_str::<Call<'_>>(text)
    else {
        return Ok(None);
    };
    let given = arguments.get();
    if method != "tools/call" || given.starts_with('{') || given == "null" {
        return Ok(None);
    }
    let object = serde_json::from_str::<String>(given).map_err(|_| NotAnObject)?;
    let object = String::from_utf8_lossy(&with_whole_characters(object.as_bytes())).into_owned();
    let object = if object.trim().is_empty() {
        "{}"
    } else {
        object.trim()
    };
    if !object.starts_with('{') || serde_json::from_str::<&RawValue>(object).is_err() {
        return Err(NotAnObject);
    }
    let Some(place) = ids::place(text, given) else {
        return Ok(None);
    };
    Ok(Some(
        [&text[..place.start], object, &text[place.end..]]
            .concat()
            .into_bytes(),
    ))
}

/// Returns a key that an object of the message repeats. `None` also if the message is not JSON.
fn repeated_key(text: &[u8]) -> Option<String> {
    let mut repeated = None;
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = deserializer.deserialize_any(Keys(&mut repeated));
    // What else is wrong with the message is found where it is parsed.
    read.err().and(repeated)
}

/// Reads a value and stops at the first repeated key.
struct Keys<'a>(&'a mut Option<String>);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Nested(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            entries.next_value_seed(Nested(&mut *self.0))?;
            if let Some(key) = known.replace(key) {
                *self.0 = Some(key);
                return Err(A::Error::custom("repeated"));
            }
        }
        Ok(())
    }
}

/// A value within another one.
struct Nested<'a>(&'a mut Option<String>);

impl<'de> serde::de::DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(Keys(self.0))
    }
}

/// Finds the id of a request in a text that need not be JSON. `None`: it has none, or several, or
/// is not a request; an error under the id of a response could end another call of the client.
pub(crate) fn readable_id(text: &[u8]) -> Option<RequestId> {
    let mut outermost = Outermost {
        text,
        at: 0,
        depth: 0,
        key: None,
        is_key_next: false,
    };
    let (mut id, mut is_request) = (None, false);
    while let Some((key, value)) = outermost.next_scalar() {
        match key {
            b"method" => is_request |= value.starts_with(b"\""),
            b"id" if id.is_some_and(|known| known != value) => return None,
            b"id" => id = Some(value),
            _ => {}
        }
    }
    ids::request_id(std::str::from_utf8(id.filter(|_| is_request)?).ok()?)
}

/// Reads the members of the outermost object whose values are strings or numbers.
struct Outermost<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The key whose value follows.
    key: Option<&'a [u8]>,
    is_key_next: bool,
}

impl<'a> Outermost<'a> {
    fn next_scalar(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        while let Some(byte) = self.text.get(self.at) {
            let start = self.at;
            self.at += 1;
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    (self.is_key_next, self.key) = (self.depth == 1 && *byte == b'{', None);
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).filter(|depth| *depth > 0)?;
                }
                b',' if self.depth == 1 => (self.is_key_next, self.key) = (true, None),
                b'"' => {
                    self.at = end_of_string(self.text, start)?;
                    let string = &self.text[start..self.at];
                    match (
                        self.depth == 1,
                        std::mem::take(&mut self.is_key_next),
                        self.key.take(),
                    ) {
                        (true, true, _) => self.key = string.get(1..string.len() - 1),
                        (true, false, Some(key)) => return Some((key, string)),
                        _ => {}
                    }
                }
                b'-' | b'0'..=b'9' => {
                    while self.text.get(self.at).is_some_and(|next| {
                        next.is_ascii_alphanumeric() || matches!(next, b'.' | b'+' | b'-')
                    }) {
                        self.at += 1;
                    }
                    if let Some(key) = self.key.take().filter(|_| self.depth == 1) {
                        return Some((key, &self.text[start..self.at]));
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// Returns the position after a string that begins at `start`.
fn end_of_string(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn value(text: &str) -> Value {
        serde_json::from_slice(
            &prepared(text.as_bytes()).unwrap_or_else(|refused| panic!("{text}: {}", refused.0)),
        )
        .expect("JSON")
    }

    #[test]
    fn half_a_pair_becomes_the_replacement_character() {
        for (given, expected) in [
            (r#"{"a":"half \ud83d end"}"#, "half \u{fffd} end"),
            (r#"{"a":"\udd25 end"}"#, "\u{fffd} end"),
            (r#"{"a":"end \uD83D"}"#, "end \u{fffd}"),
            (r#"{"a":"\ud83d\ud83d\udd25"}"#, "\u{fffd}\u{1f525}"),
            (r#"{"a":"\ud83d\n"}"#, "\u{fffd}\n"),
            (r#"{"a":"\ud83d\udd25 whole"}"#, "\u{1f525} whole"),
            (r#"{"a":"no escape: \\ud83d"}"#, "no escape: \\ud83d"),
            (r#"{"a":"\\\ud83d"}"#, "\\\u{fffd}"),
            (r#"{"a":"\ud83dudd25"}"#, "\u{fffd}udd25"),
        ] {
            assert_eq!(value(given)["a"], expected, "{given}");
        }
        assert_eq!(
            value(r#"{"\ud83d":1}"#),
            json!({"\u{fffd}": 1}),
            "in a key too"
        );
        assert!(
            matches!(prepared(br#"{"a":"\ud83d\udd25"}"#), Ok(Cow::Borrowed(_))),
            "what is whole is not copied"
        );
    }

    #[test]
    fn arguments_in_a_string_are_taken_or_named() {
        let call = |arguments: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"x","arguments":{arguments}}}}}"#
            )
        };
        for (given, expected) in [
            (r#""{\"a\":1}""#, json!({"a": 1})),
            (r#"" {\"a\":\"\\ud83d\"} ""#, json!({"a": "\u{fffd}"})),
            (r#""""#, json!({})),
            (r#"{"a":"{}"}"#, json!({"a": "{}"})),
            ("null", Value::Null),
        ] {
            assert_eq!(
                value(&call(given))["params"]["arguments"],
                expected,
                "{given}"
            );
        }
        for wrong in [r#""x""#, r#""[1]""#, r#""{\"a\":""#, "[1]", "5", "true"] {
            let Err(Refused(error, id)) =
                prepared(call(wrong).as_bytes()).map_err(|refused| *refused)
            else {
                panic!("{wrong}")
            };
            assert!(
                error.message.starts_with("arguments:") && id == Some(RequestId::Number(7)),
                "{wrong}: {error:?}"
            );
        }
        assert_eq!(
            value(r#"{"method":"other","params":{"arguments":"x"}}"#)["params"]["arguments"],
            "x",
            "only of tool calls"
        );
    }

    #[test]
    fn repeated_key_is_refused_by_name() {
        for (given, key) in [
            (
                r#"{"id":1,"method":"m","params":{"arguments":{"prompt":"a","prompt":"b"}}}"#,
                "prompt",
            ),
            (
                r#"{"id":1,"method":"m","params":{"a":[{"x":1,"\u0078":2}]}}"#,
                "x",
            ),
            (r#"{"id":1,"method":"m","params":{},"params":{}}"#, "params"),
            (r#"{"id":1,"id":1,"method":"m"}"#, "id"),
        ] {
            let Err(Refused(error, id)) = prepared(given.as_bytes()).map_err(|refused| *refused)
            else {
                panic!("{given}")
            };
            assert!(
                error.message.contains(&format!("{key:?} is repeated"))
                    && id == Some(RequestId::Number(1)),
                "{given}: {error:?}"
            );
        }
        assert!(
            prepared(br#"{"a":{"x":1},"b":{"x":1},"c":[{"x":1},{"x":1}]}"#).is_ok(),
            "in different objects"
        );
        let string = r#"{"id":1,"method":"tools/call","params":{"arguments":"{\"a\":1,\"a\":2}"}}"#;
        assert!(
            prepared(string.as_bytes()).is_err(),
            "also within a string of arguments"
        );
        assert!(
            matches!(
                prepared(br#"{"id":1,"id":2,"method":"m"}"#).map_err(|refused| *refused),
                Err(Refused(_, None))
            ),
            "it is unknown which one waits"
        );
    }

    #[test]
    fn id_is_read_where_the_text_is_not_json() {
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":20,"method":"m","params":{"a":NaN}}"#,
                Some("20"),
            ),
            (
                r#"{"params":{"id":1,"a":[{"id":2}],"x":"}\"id\":9"},"method":"m","id":"a b"#,
                None,
            ),
            (
                r#"{"params":{"id":1,"a":[{"id":2}],"x":"}\"id\":9"},"method":"m","id":"a b","#,
                Some("\"a b\""),
            ),
            (r#"{"id":1.5,"method":"m","params":{"#, Some("1.5")),
            (r#"{"id":1,"method":"m"} trailing"#, Some("1")),
            (r#"{"id":1,"result":{"a":NaN}}"#, None),
            (r#"{"id":1,"params":{"method":"m"},"#, None),
            (r#"[{"id":1,"method":"m","#, None),
            (r#"{"id":null,"method":"m","#, None),
            (r#"{"id":{"id":1},"method":"m","#, None),
            ("}{", None),
            ("", None),
        ] {
            let expected = expected.and_then(ids::request_id);
            assert_eq!(readable_id(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(
            readable_id(b"{\"id\":3,\"method\":\"m\",\"params\":{\"a\":\"\xff\"}}"),
            Some(RequestId::Number(3))
        );
        let deep = format!(
            "{{\"id\":4,\"method\":\"m\",\"params\":{}",
            "[".repeat(20_000)
        );
        assert_eq!(readable_id(deep.as_bytes()), Some(RequestId::Number(4)));
    }
}
