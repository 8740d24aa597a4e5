//! Splits valid JSON into its parts without parsing them again. Text that is not valid JSON gives
//! wrong parts, but neither a panic nor a part outside of the text.

use memchr::memchr2;

/// The fields of an object: the names with their quotes, and the values. `None`: the value is not
/// an object.
pub(super) fn fields(raw: &str) -> Option<impl Iterator<Item = (&str, &str)>> {
    let mut rest = raw.strip_prefix('{')?;
    Some(std::iter::from_fn(move || {
        rest = after(rest, b',');
        let (name, colon) = rest.split_at(if rest.starts_with('"') {
            string_end(rest)
        } else {
            return None;
        });
        let (value, next) = split(after(colon, b':'))?;
        rest = next;
        (name.len() > 1).then_some((name, value))
    }))
}

/// The items of an array. `None`: the value is not an array.
pub(super) fn items(raw: &str) -> Option<impl Iterator<Item = &str>> {
    let mut rest = raw.strip_prefix('[')?;
    Some(std::iter::from_fn(move || {
        let (value, next) = split(after(rest, b','))?;
        rest = next;
        Some(value)
    }))
}

/// Returns the text after blanks and a separator.
fn after(text: &str, separator: u8) -> &str {
    let bytes = text.as_bytes();
    let blanks = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace() || **byte == separator)
        .count();
    &text[blanks..]
}

/// Splits the value at the beginning of a text from the rest. `None`: there is none.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = match text.as_bytes().first()? {
        b'"' => string_end(text),
        b'{' | b'[' => nested_end(text),
        b'}' | b']' => return None,
        _ => text
            .bytes()
            .position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace())
            .unwrap_or(text.len()),
    };
    Some(text.split_at(end))
}

/// Returns the length of the string at the beginning of a text, with its quotes.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        // In valid JSON, one ASCII character follows.
        at += 2;
    }
    text.len()
}

/// Returns the length of the object or array at the beginning of a text.
fn nested_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return at + 1,
            b'}' | b']' => depth -= 1,
            b'"' => {
                at += string_end(&text[at..]);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn json() -> impl Strategy<Value = Value> {
        let text = "[ -~\\PC\"\\\\\n\u{1}]{0,12}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            Just(serde_json::json!(-1.5e300)),
            text.prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((text, inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn rebuild(raw: &str) -> Value {
        if let Some(fields) = fields(raw) {
            return Value::Object(
                fields
                    .map(|(name, value)| {
                        (serde_json::from_str(name).expect("a name"), rebuild(value))
                    })
                    .collect(),
            );
        }
        if let Some(items) = items(raw) {
            return Value::Array(items.map(rebuild).collect());
        }
        serde_json::from_str(raw).expect("a value")
    }

    proptest! {
        #[test]
        fn valid_json_is_split_into_its_parts(value in json()) {
            prop_assert_eq!(&rebuild(&value.to_string()), &value);
            prop_assert_eq!(&rebuild(&serde_json::to_string_pretty(&value).expect("JSON")), &value);
        }

        #[test]
        fn no_text_panics(text in "[{\\[\"][{}\\[\\]\"\\\\,:é ]{0,20}") {
            fields(&text).into_iter().flatten().for_each(drop);
            items(&text).into_iter().flatten().for_each(drop);
        }
    }
}
