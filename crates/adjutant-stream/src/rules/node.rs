//! JSON that is parsed lazily, only as far as it is read.

use super::scan;
use adjutant_core::shorten;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

pub(super) type Field<'a> = (Cow<'a, str>, Node<'a>);

/// Fields of an object that are kept; no CLI's event has as many.
const FIELDS_MAX: usize = 512;

/// A JSON value that is parsed lazily, each part at most once.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) raw: &'a str,
    /// The text is part of a document that was parsed, so it is valid JSON.
    is_valid: bool,
    fields: OnceCell<Option<Vec<Field<'a>>>>,
    items: OnceCell<Option<Vec<Node<'a>>>>,
}

impl<'a> Node<'a> {
    pub(super) fn new(raw: &'a str) -> Self {
        Self {
            raw,
            is_valid: false,
            fields: OnceCell::new(),
            items: OnceCell::new(),
        }
    }

    /// A part of a parsed document.
    fn part(raw: &'a str) -> Self {
        Self {
            is_valid: true,
            ..Self::new(raw)
        }
    }

    pub(super) fn fields(&self) -> Option<&[Field<'a>]> {
        let parse = || {
            if self.is_valid {
                fields_of(self.raw)
            } else {
                serde_json::from_str::<Fields<'a>>(self.raw)
                    .ok()
                    .map(|fields| fields.0)
            }
        };
        self.fields.get_or_init(parse).as_deref()
    }

    pub(super) fn field(&self, name: &str) -> Option<&Node<'a>> {
        self.fields()?
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, node)| node)
    }

    pub(super) fn items(&self) -> Option<&[Node<'a>]> {
        self.items
            .get_or_init(|| {
                if self.is_valid {
                    return Some(scan::items(self.raw)?.map(Node::part).collect());
                }
                let items: Vec<&'a RawValue> = serde_json::from_str(self.raw).ok()?;
                Some(items.into_iter().map(|raw| Node::part(raw.get())).collect())
            })
            .as_deref()
    }

    pub(super) fn number(&self) -> Option<f64> {
        self.raw.parse().ok()
    }

    /// Returns the value as text: the characters of a string, the texts of a list of content
    /// blocks, or JSON. Cut to about `bytes_max`.
    pub(super) fn text(&self, bytes_max: usize) -> Option<Cow<'a, str>> {
        match self.raw.as_bytes().first()? {
            b'"' => string(self.raw, bytes_max),
            b'[' if self
                .items()?
                .iter()
                .any(|item| item.field("text").is_some()) =>
            {
                let mut text = String::new();
                for part in self
                    .items()?
                    .iter()
                    .filter_map(|item| item.field("text")?.text(bytes_max))
                {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(&part);
                    if text.len() > bytes_max {
                        break;
                    }
                }
                Some(Cow::Owned(text))
            }
            _ if self.raw == "null" => None,
            _ => Some(Cow::Borrowed(shorten::head(self.raw, bytes_max))),
        }
    }
}

/// Returns the fields of a valid object, or `None` if the value is none.
fn fields_of(raw: &str) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::with_capacity(8);
    for (name, value) in scan::fields(raw)?.take(FIELDS_MAX) {
        let name = if name.contains('\\') {
            string(name, usize::MAX)?
        } else {
            Cow::Borrowed(&name[1..name.len() - 1])
        };
        fields.push((name, Node::part(value)));
    }
    Some(fields)
}

/// Parses a JSON string, or the beginning of one that is longer than `bytes_max`.
fn string(raw: &str, bytes_max: usize) -> Option<Cow<'_, str>> {
    if raw.len() <= bytes_max.saturating_add(2) {
        return serde_json::from_str::<Text<'_>>(raw)
            .ok()
            .map(|text| text.0);
    }
    // Do not cut within an escape. The longest one, a surrogate pair, has twelve bytes.
    let beginning = shorten::head(raw, bytes_max.saturating_sub(shorten::MARK.len_utf8()));
    (0..=12)
        .filter_map(|back| beginning.len().checked_sub(back))
        .filter(|at| beginning.is_char_boundary(*at))
        .find_map(|at| {
            let closed = format!("{}\"", &beginning[..at]);
            let text = serde_json::from_str::<Text<'_>>(&closed)
                .ok()?
                .0
                .into_owned();
            Some(Cow::Owned(text + "…"))
        })
}

/// A string, borrowed if it contains no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = Cow<'de, str>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text))
            }
        }
        deserializer.deserialize_str(Strings).map(Text)
    }
}

/// The fields of an object, with unparsed values.
struct Fields<'a>(Vec<Field<'a>>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Objects;
        impl<'de> Visitor<'de> for Objects {
            type Value = Vec<Field<'de>>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Text(name)) = map.next_key()? {
                    if fields.len() < FIELDS_MAX {
                        let raw: &'de RawValue = map.next_value()?;
                        fields.push((name, Node::part(raw.get())));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Objects).map(Fields)
    }
}
