//! Structured content.

use serde_json::Value;

/// Returns an object of the fields that have a value.
pub(super) fn filled<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let fields = fields.into_iter().filter(|(_, value)| !is_empty(value));
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
