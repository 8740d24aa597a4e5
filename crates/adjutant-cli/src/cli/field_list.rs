//! Some fields of the objects that a command prints as JSON.

use serde_json::{Map, Value};

/// The wanted fields of a command's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldList(Vec<String>);

/// A list of fields names nothing at one of its places.
#[derive(Debug, thiserror::Error)]
#[error("name one field or more, as in --json=name,state")]
pub(super) struct EmptyField;

impl FieldList {
    /// Parses names that are separated by commas.
    pub(super) fn parse(text: &str) -> Result<Self, EmptyField> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if names.iter().any(String::is_empty) {
            Err(EmptyField)
        } else {
            Ok(Self(names))
        }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

/// The fields that a command prints as JSON.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonFields {
    wanted: Option<FieldList>,
    /// All fields of the command's objects, if they are needed.
    known: Option<Vec<&'static str>>,
}

impl JsonFields {
    /// Returns the fields that are wanted of those that a command prints. `known`: all of them, if
    /// they are needed.
    pub(super) fn new(wanted: Option<FieldList>, known: Option<Vec<&'static str>>) -> Self {
        Self { wanted, known }
    }

    /// Returns whether all fields are printed.
    pub(crate) fn are_all(&self) -> bool {
        self.wanted.is_none()
    }

    /// Reduces an object, or each object of a list, to the wanted fields, in their order.
    pub(super) fn select(&self, value: &mut Value) {
        let Some(FieldList(wanted)) = &self.wanted else {
            return;
        };
        match value {
            Value::Array(entries) => entries.iter_mut().for_each(|entry| self.select(entry)),
            Value::Object(fields) => {
                *fields = wanted
                    .iter()
                    .filter_map(|name| Some((name.clone(), fields.remove(name)?)))
                    .collect::<Map<_, _>>();
            }
            _ => {}
        }
    }

    /// Returns a field that the table does not name.
    pub(super) fn unknown<'a>(&self, value: &'a Value) -> Option<&'a str> {
        let known = self.known.as_ref()?;
        match value {
            Value::Array(entries) => entries.iter().find_map(|entry| self.unknown(entry)),
            Value::Object(fields) => fields
                .keys()
                .map(String::as_str)
                .find(|name| !known.contains(name)),
            _ => None,
        }
    }
}
