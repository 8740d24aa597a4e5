//! TOML.

use super::{Edit, FormatError, place_of};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

pub(super) fn parse(text: &str) -> Result<Value, FormatError> {
    let document = document(text)?;
    Ok(table_value(document.as_table()))
}

fn document(text: &str) -> Result<DocumentMut, FormatError> {
    text.parse::<DocumentMut>().map_err(|error| {
        let (line, column) = place_of(text, error.span().map_or(0, |span| span.start));
        FormatError::Syntax {
            line,
            column,
            message: error.message().to_owned(),
        }
    })
}

pub(super) fn edit(text: &str, path: &[&str], edit: &Edit<'_>) -> Result<String, FormatError> {
    let mut document = document(text)?;
    let mut servers: &mut dyn TableLike = document.as_table_mut();
    for key in path {
        if !servers.contains_key(key) {
            let mut table = Table::new();
            table.set_implicit(true);
            servers.insert(key, Item::Table(table));
        }
        servers = servers
            .get_mut(key)
            .and_then(Item::as_table_like_mut)
            .ok_or_else(|| FormatError::Layout(format!("{key} is not a table")))?;
    }
    match edit {
        Edit::Add { name, entry } => {
            let mut table = Table::new();
            for (key, field) in entry.as_object().into_iter().flatten() {
                table.insert(key, item(field)?);
            }
            servers.insert(name, Item::Table(table));
        }
        Edit::Set { name, fields } => {
            let entry = servers.get_mut(name).and_then(Item::as_table_like_mut);
            let entry =
                entry.ok_or_else(|| FormatError::Layout(format!("{name} is not a table")))?;
            for (key, field) in *fields {
                match (
                    entry.get_mut(key).and_then(Item::as_value_mut),
                    item(field)?.into_value(),
                ) {
                    // Keep the comment after the old value.
                    (Some(there), Ok(mut new)) => {
                        *new.decor_mut() = there.decor().clone();
                        *there = new;
                    }
                    _ => drop(entry.insert(key, item(field)?)),
                }
            }
        }
        Edit::Remove { name, empty_map } => {
            servers.remove(name);
            let is_empty = servers.is_empty();
            if let ([key], true) = (path, *empty_map && is_empty) {
                document.remove(key);
            }
        }
    }
    let edited = document.to_string();
    // The library writes plain line feeds.
    let is_crlf =
        text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    Ok(if is_crlf {
        edited.replace("\r\n", "\n").replace('\n', "\r\n")
    } else {
        edited
    })
}

fn item(from: &Value) -> Result<Item, FormatError> {
    Ok(match from {
        Value::String(text) => value(text),
        Value::Bool(flag) => value(*flag),
        Value::Number(number) => value(
            number
                .as_i64()
                .ok_or_else(|| FormatError::Layout(format!("{number} is not a TOML integer")))?,
        ),
        Value::Array(values) => {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            value(
                texts
                    .ok_or_else(|| {
                        FormatError::Layout("only lists of texts can be written".to_owned())
                    })?
                    .into_iter()
                    .collect::<toml_edit::Array>(),
            )
        }
        Value::Null | Value::Object(_) => {
            return Err(FormatError::Layout(
                "only plain fields can be written".to_owned(),
            ));
        }
    })
}

fn table_value(table: &dyn TableLike) -> Value {
    Value::Object(
        table
            .iter()
            .map(|(key, item)| (key.to_owned(), item_value(item)))
            .collect(),
    )
}

fn item_value(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => plain_value(value),
        Item::Table(table) => table_value(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table_value(table)).collect(),
    }
}

fn plain_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => Value::String(text.value().clone()),
        Toml::Integer(number) => Value::from(*number.value()),
        Toml::Boolean(flag) => Value::Bool(*flag.value()),
        Toml::Array(values) => values.iter().map(plain_value).collect(),
        Toml::InlineTable(table) => table_value(table),
        // Only compared.
        Toml::Float(number) => Value::String(number.value().to_string()),
        Toml::Datetime(time) => Value::String(time.value().to_string()),
    }
}
