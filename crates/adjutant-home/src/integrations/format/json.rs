//! JSON with comments and trailing commas.

use super::{Edit, FormatError};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

/// Comments and trailing commas are accepted, no other extension.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

fn syntax(error: &jsonc_parser::errors::ParseError) -> FormatError {
    FormatError::Syntax {
        line: error.line_display(),
        column: error.column_display(),
        message: error.kind().to_string(),
    }
}

pub(super) fn parse(text: &str) -> Result<Value, FormatError> {
    let root = CstRootNode::parse(text, &OPTIONS).map_err(|error| syntax(&error))?;
    match root.value() {
        None => Ok(Value::Null),
        Some(_) => root.to_serde_value().ok_or_else(|| {
            FormatError::Layout("it has a value that JSON does not allow".to_owned())
        }),
    }
}

pub(super) fn edit(text: &str, path: &[&str], edit: &Edit<'_>) -> Result<String, FormatError> {
    if text.trim().is_empty() {
        return new_file(path, edit);
    }
    let root = CstRootNode::parse(text, &OPTIONS).map_err(|error| syntax(&error))?;
    let no_map = |what: &str| FormatError::Layout(format!("{what} is not a map"));
    let mut above = root.object_value().ok_or_else(|| no_map("the file"))?;
    let mut servers = None::<CstObject>;
    for key in path {
        let parent = servers.take().unwrap_or(above);
        above = parent.clone();
        servers = Some(
            parent
                .object_value_or_create(key)
                .ok_or_else(|| no_map(key))?,
        );
    }
    let servers = servers.ok_or_else(|| no_map("the file"))?;
    match edit {
        Edit::Add { name, entry } => {
            servers.append(name, input(entry));
        }
        Edit::Set { name, fields } => {
            let entry = servers.object_value(name).ok_or_else(|| no_map(name))?;
            for (key, value) in *fields {
                match entry.get(key) {
                    Some(field) => field.set_value(input(value)),
                    None => drop(entry.append(key, input(value))),
                }
            }
        }
        Edit::Remove { name, empty_map } => {
            if let Some(entry) = servers.get(name) {
                entry.remove();
            }
            if *empty_map
                && servers.properties().is_empty()
                && let Some(map) = path.last().and_then(|last| above.get(last))
            {
                map.remove();
            }
        }
    }
    Ok(root.to_string())
}

/// Returns the content of a file that has only the entry.
fn new_file(path: &[&str], edit: &Edit<'_>) -> Result<String, FormatError> {
    let Edit::Add { name, entry } = edit else {
        return Err(FormatError::Layout("the file is empty".to_owned()));
    };
    let mut value = serde_json::json!({ *name: entry });
    for key in path.iter().rev() {
        value = serde_json::json!({ *key: value });
    }
    serde_json::to_string_pretty(&value)
        .map(|text| text + "\n")
        .map_err(|error| FormatError::Layout(error.to_string()))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields
                .iter()
                .map(|(key, value)| (key.clone(), input(value)))
                .collect(),
        ),
    }
}
