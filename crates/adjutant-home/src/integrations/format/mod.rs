//! Edits of files in the clients' formats. An edit changes one entry of the map of servers;
//! everything else, with comments and white space, stays as it is. Each result is parsed again and
//! compared with the original.

mod json;
mod toml;
mod yaml;

use super::table::Format;
use serde_json::{Map, Value};

/// Why a file cannot be edited. It is then unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        line: usize,
        column: usize,
        message: String,
    },
    #[error("{0}")]
    Layout(String),
}

/// An edit of the map of servers.
#[derive(Debug, Clone)]
pub(super) enum Edit<'a> {
    Add {
        name: &'a str,
        entry: &'a Value,
    },
    Set {
        name: &'a str,
        fields: &'a Map<String, Value>,
    },
    /// Removes an entry; with `empty_map`, also the map if nothing else is in it.
    Remove {
        name: &'a str,
        empty_map: bool,
    },
}

/// Parses a file. An empty file is an empty map.
///
/// # Errors
/// It does not parse, or is not a map.
pub(super) fn parse(format: Format, text: &str) -> Result<Value, FormatError> {
    let (_, text) = split_mark(text);
    let value = match format {
        Format::Json => json::parse(text),
        Format::Toml => toml::parse(text),
        Format::Yaml => yaml::parse(text),
    }?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err(FormatError::Layout(format!(
            "the file is not a {} map",
            format.word()
        ))),
    }
}

/// Returns the map of servers in a parsed file.
#[must_use]
pub(super) fn servers<'a>(file: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
    path.iter()
        .try_fold(file, |value, key| value.get(key))?
        .as_object()
}

/// Edits the text of a file.
///
/// # Errors
/// It does not parse, or it is written in a form that cannot be edited without changing more than
/// the entry.
pub(super) fn edit(
    format: Format,
    text: &str,
    path: &[&str],
    edit: &Edit<'_>,
) -> Result<String, FormatError> {
    let mut expected = parse(format, text)?;
    apply(&mut expected, path, edit)?;
    let (mark, text) = split_mark(text);
    let edited = match format {
        Format::Json => json::edit(text, path, edit),
        Format::Toml => toml::edit(text, path, edit),
        Format::Yaml => yaml::edit(text, path, edit),
    }?;
    if parse(format, &edited).ok().as_ref() != Some(&expected) {
        return Err(FormatError::Layout(
            "this file's layout cannot be edited safely".to_owned(),
        ));
    }
    Ok(format!("{mark}{edited}"))
}

/// Splits off the byte order mark, which some editors write. It stays in the file.
fn split_mark(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    })
}

/// Applies an edit to a parsed file.
fn apply(file: &mut Value, path: &[&str], edit: &Edit<'_>) -> Result<(), FormatError> {
    let no_map = |key: &str| FormatError::Layout(format!("{key} is not a map"));
    let [parents @ .., last] = path else {
        return Err(no_map("the file"));
    };
    let mut at = file;
    for key in parents {
        at = at
            .as_object_mut()
            .ok_or_else(|| no_map(key))?
            .entry(*key)
            .or_insert_with(|| Value::Object(Map::new()));
    }
    let above = at.as_object_mut().ok_or_else(|| no_map(last))?;
    if above.get(*last).is_some_and(Value::is_null) {
        above.shift_remove(*last);
    }
    if let Edit::Remove {
        empty_map: true,
        name,
    } = edit
    {
        let servers = above
            .get_mut(*last)
            .and_then(Value::as_object_mut)
            .ok_or_else(|| no_map(last))?;
        servers.shift_remove(*name);
        if servers.is_empty() {
            above.shift_remove(*last);
        }
        return Ok(());
    }
    let servers = above
        .entry(*last)
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()
        .ok_or_else(|| no_map(last))?;
    match edit {
        Edit::Add { name, entry } => {
            servers.insert((*name).to_owned(), (*entry).clone());
        }
        Edit::Set { name, fields } => {
            let entry = servers
                .get_mut(*name)
                .and_then(Value::as_object_mut)
                .ok_or_else(|| no_map(name))?;
            entry.extend((*fields).clone());
        }
        Edit::Remove { name, .. } => {
            servers.shift_remove(*name);
        }
    }
    Ok(())
}

/// Returns the line and the column of a position (in bytes) in a text, counted from 1.
fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests;
