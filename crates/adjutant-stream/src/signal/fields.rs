//! Parses YAML and JSON into fields. Scalars keep their source text, so dates and versions stay as
//! written.

use adjutant_core::shorten;
use adjutant_core::signal::{Field, SignalError, SignalKind};
use saphyr_parser::{Event, Parser};
use serde_json::Value;
use std::borrow::Cow;

/// The fields outside the payload in the JSON form.
const HEAD: [&str; 3] = ["signal_type", "agent_id", "timestamp"];
/// How deeply a block may be nested.
const DEPTH_MAX: usize = 16;

enum Open {
    List(Vec<Field>),
    Map {
        pairs: Vec<(String, Field)>,
        key: Option<String>,
    },
}

/// Parses one YAML document. Anchors and aliases are refused, since a few lines of them can expand
/// to gigabytes.
pub(super) fn from_yaml(text: &str) -> Result<Field, SignalError> {
    let unreadable = |problem: &str| SignalError::Unreadable(problem.to_owned());
    // The parser requires LF; some agents write CRLF.
    let text: Cow<'_, str> = if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n"))
    } else {
        Cow::Borrowed(text)
    };
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(&text) {
        let (event, _) = event.map_err(|error| unreadable(&error.to_string()))?;
        let complete = match event {
            Event::Scalar(text, ..) => Some(Field::Text(text.into_owned())),
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Map {
                    pairs: Vec::new(),
                    key: None,
                });
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(items)) => Some(Field::List(items)),
                Some(Open::Map { pairs, .. }) => Some(Field::Map(pairs)),
                None => return Err(unreadable("an unmatched end")),
            },
            Event::Alias(_) => return Err(unreadable("aliases are not supported")),
            Event::DocumentStart(_) if root.is_some() => {
                return Err(unreadable("it has more than one document"));
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => None,
        };
        if open.len() > DEPTH_MAX {
            return Err(unreadable("it is nested too deeply"));
        }
        let Some(field) = complete else { continue };
        match open.last_mut() {
            None => root = Some(field),
            Some(Open::List(items)) => items.push(field),
            Some(Open::Map { pairs, key }) => match (key.take(), field) {
                (Some(name), field) => pairs.push((name, field)),
                (None, Field::Text(name)) if pairs.iter().any(|(known, _)| *known == name) => {
                    return Err(unreadable(&format!("{name:?} is repeated")));
                }
                (None, Field::Text(name)) => *key = Some(name),
                (None, _) => return Err(unreadable("a key is not text")),
            },
        }
    }
    root.ok_or_else(|| unreadable("it is empty"))
}

/// Parses the JSON form: `signal_type`, `agent_id`, `timestamp`, and the other fields in `payload`,
/// or on the top level if there is no payload.
pub(super) fn from_json(text: &str) -> Result<(SignalKind, Field), SignalError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| SignalError::Unreadable(error.to_string()))?;
    let Value::Object(mut object) = value else {
        return Err(SignalError::Unreadable("it is not an object".to_owned()));
    };
    let kind = object
        .get("signal_type")
        .and_then(Value::as_str)
        .ok_or(SignalError::Missing("signal_type"))?;
    let kind = SignalKind::from_spoken_tag(kind).ok_or_else(|| SignalError::Unusable {
        field: "signal_type",
        given: shorten::to_chars(kind, 80).into_owned(),
        wanted: "a type such as STOP_WORK",
    })?;
    match object.remove("payload") {
        None => {}
        Some(Value::Object(payload)) => {
            object.retain(|name, _| HEAD.contains(&name.as_str()));
            for (name, value) in payload
                .into_iter()
                .filter(|(name, _)| !HEAD.contains(&name.as_str()))
            {
                object.insert(name, value);
            }
        }
        Some(_) => {
            return Err(SignalError::Unusable {
                field: "payload",
                given: "no object".to_owned(),
                wanted: "an object",
            });
        }
    }
    Ok((
        kind,
        Field::Map(
            object
                .into_iter()
                .map(|(name, value)| (name, field(value)))
                .collect(),
        ),
    ))
}

/// Returns the kind that an object names, also if it is not valid.
pub(super) fn kind_of_json(text: &str) -> Option<SignalKind> {
    let (_, after) = text.split_once("\"signal_type\"")?;
    let word = after.split('"').nth(1)?;
    SignalKind::from_spoken_tag(word)
}

/// Returns a JSON text without the slips whose meaning is certain: line ends and tabs within
/// strings, unknown escapes, halves of surrogate pairs (a truncated emoji), and commas after the
/// last element.
pub(super) fn repaired(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text.char_indices();
    let mut in_string = false;
    while let Some((at, c)) = rest.next() {
        match (in_string, c) {
            (_, '"') => {
                in_string = !in_string;
                out.push(c);
            }
            (true, '\n') => out.push_str("\\n"),
            (true, '\t') => out.push_str("\\t"),
            (true, c) if c.is_control() => {}
            (true, '\\') => match rest.next().map(|(_, escaped)| escaped) {
                Some('u') => {
                    let unit = |from: usize| {
                        text.get(from..from + 4)
                            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                    };
                    let next = text
                        .get(at + 6..at + 8)
                        .filter(|escape| *escape == "\\u")
                        .and_then(|_| unit(at + 8));
                    match unit(at + 2) {
                        Some(0xd800..=0xdbff)
                            if next.is_some_and(|low| (0xdc00..=0xdfff).contains(&low)) =>
                        {
                            out.push_str(&text[at..at + 12]);
                            rest.by_ref().take(10).for_each(drop);
                        }
                        Some(0xd800..=0xdfff) => {
                            out.push('\u{fffd}');
                            rest.by_ref().take(4).for_each(drop);
                        }
                        _ => out.push_str("\\u"),
                    }
                }
                Some(escaped @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) => {
                    out.extend(['\\', escaped])
                }
                Some(other) => out.extend(['\\', '\\', other]),
                None => {}
            },
            (false, ',') if text[at + 1..].trim_start().starts_with(['}', ']']) => {}
            (_, c) => out.push(c),
        }
    }
    out
}

fn field(value: Value) -> Field {
    match value {
        Value::Null => Field::Text(String::new()),
        Value::Bool(value) => Field::Text(value.to_string()),
        Value::Number(number) => Field::Text(number.to_string()),
        Value::String(text) => Field::Text(text),
        Value::Array(items) => Field::List(items.into_iter().map(field).collect()),
        Value::Object(object) => Field::Map(
            object
                .into_iter()
                .map(|(name, value)| (name, field(value)))
                .collect(),
        ),
    }
}
