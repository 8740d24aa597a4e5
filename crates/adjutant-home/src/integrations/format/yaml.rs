//! YAML. Text is inserted, replaced or removed at the positions that the parser reports, so that
//! the rest stays as it is; the caller compares the parsed result. A format-keeping library would
//! be a second YAML parser in the binary.

use super::{Edit, FormatError};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};
use std::borrow::Cow;

const DEPTH_MAX: usize = 64;
/// The indent of a new level.
const STEP: usize = 2;

/// A value with its place. Positions are counted in characters.
#[derive(Debug)]
struct Node {
    content: Content,
    start: Marker,
    end: Marker,
}

#[derive(Debug)]
enum Content {
    Plain(Value),
    List(Vec<Node>),
    Map(Vec<Field>),
}

#[derive(Debug)]
struct Field {
    key: String,
    place: Span,
    value: Node,
}

/// A list or map that is not complete yet.
enum Open {
    List(Marker, Vec<Node>),
    Map(Marker, Vec<Field>, Option<(String, Span)>),
}

pub(super) fn parse(text: &str) -> Result<Value, FormatError> {
    Ok(read(&with_line_feeds(text)?)?.map_or(Value::Null, Node::into_value))
}

/// The parser requires line feeds.
fn with_line_feeds(text: &str) -> Result<Cow<'_, str>, FormatError> {
    if !text.contains('\r') {
        return Ok(Cow::Borrowed(text));
    }
    let plain = text.replace("\r\n", "\n");
    if plain.contains('\r') || plain.matches('\n').count() != text.matches("\r\n").count() {
        return Err(FormatError::Layout(
            "its lines end in different ways".to_owned(),
        ));
    }
    Ok(Cow::Owned(plain))
}

fn read(text: &str) -> Result<Option<Node>, FormatError> {
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    for event in Parser::new_from_str(text) {
        let (event, place) = event.map_err(|error| syntax(*error.marker(), error.info()))?;
        let node = match event {
            Event::Scalar(text, style, ..) => Node {
                content: Content::Plain(scalar(&text, style)),
                start: place.start,
                end: place.end,
            },
            Event::Alias(id) => Node {
                content: Content::Plain(Value::String(format!("*{id}"))),
                start: place.start,
                end: place.end,
            },
            Event::SequenceStart(..) => {
                open.push(Open::List(place.start, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(place.start, Vec::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(start, nodes)) => Node {
                    content: Content::List(nodes),
                    start,
                    end: place.end,
                },
                Some(Open::Map(start, fields, _)) => Node {
                    content: Content::Map(fields),
                    start,
                    end: place.end,
                },
                None => continue,
            },
            Event::DocumentStart(_) if root.is_some() => {
                return Err(FormatError::Layout(
                    "it has more than one document".to_owned(),
                ));
            }
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => continue,
        };
        if open.len() > DEPTH_MAX {
            return Err(FormatError::Layout("it is nested too deeply".to_owned()));
        }
        match open.last_mut() {
            None => root = Some(node),
            Some(Open::List(_, nodes)) => nodes.push(node),
            Some(Open::Map(_, fields, key)) => match key.take() {
                Some((key, place)) => fields.push(Field {
                    key,
                    place,
                    value: node,
                }),
                None => *key = Some((key_of(&node, fields)?, Span::new(node.start, node.end))),
            },
        }
    }
    Ok(root)
}

/// The parser counts columns from 0.
fn syntax(at: Marker, message: &str) -> FormatError {
    FormatError::Syntax {
        line: at.line().max(1),
        column: at.col() + 1,
        message: message.to_owned(),
    }
}

fn key_of(node: &Node, fields: &[Field]) -> Result<String, FormatError> {
    let key = match &node.content {
        Content::Plain(Value::String(key)) => key.clone(),
        Content::Plain(value) => value.to_string(),
        Content::List(_) | Content::Map(_) => {
            return Err(FormatError::Layout("a key is not a text".to_owned()));
        }
    };
    if fields.iter().any(|field| field.key == key) {
        return Err(syntax(node.start, &format!("{key:?} is repeated")));
    }
    Ok(key)
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text => text
            .parse::<i64>()
            .map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}

impl Node {
    fn into_value(self) -> Value {
        match self.content {
            Content::Plain(value) => value,
            Content::List(nodes) => nodes.into_iter().map(Self::into_value).collect(),
            Content::Map(fields) => Value::Object(
                fields
                    .into_iter()
                    .map(|field| (field.key, field.value.into_value()))
                    .collect(),
            ),
        }
    }

    fn field(&self, name: &str) -> Option<&Field> {
        match &self.content {
            Content::Map(fields) => fields.iter().find(|field| field.key == name),
            _ => None,
        }
    }

    /// Returns the fields of a map in block style.
    fn block_fields(&self, text: &Text) -> Option<&[Field]> {
        match &self.content {
            Content::Map(fields) if !fields.is_empty() && text.at(self.start) != Some('{') => {
                Some(fields)
            }
            _ => None,
        }
    }
}

/// The text that is edited, by characters.
struct Text {
    chars: Vec<char>,
}

impl Text {
    fn at(&self, place: Marker) -> Option<char> {
        self.chars.get(place.index()).copied()
    }

    fn replace(&mut self, from: usize, to: usize, new: &str) {
        self.chars.splice(from..to, new.chars());
    }

    /// Returns the start of the line after this position, or the end of the text.
    fn next_line(&self, from: usize) -> usize {
        self.chars
            .iter()
            .skip(from)
            .position(|c| *c == '\n')
            .map_or(self.chars.len(), |at| from + at + 1)
    }

    fn line_start(&self, from: usize) -> usize {
        self.chars[..from]
            .iter()
            .rposition(|c| *c == '\n')
            .map_or(0, |at| at + 1)
    }

    /// Inserts whole lines at the start of a line, or at the end of the text.
    fn insert_lines(&mut self, at: usize, lines: &str) {
        let gap = if at > 0 && self.chars[at - 1] != '\n' {
            "\n"
        } else {
            ""
        };
        self.replace(at, at, &format!("{gap}{lines}"));
    }

    /// Returns the end of the lines that belong to a key: those that are indented further. Blank
    /// lines at the end stay.
    fn end_of_field(&self, key: Marker) -> usize {
        let mut end = self.next_line(key.index());
        let mut at = end;
        while at < self.chars.len() {
            let next = self.next_line(at);
            let line = &self.chars[at..next];
            match line.iter().position(|c| *c != ' ' && *c != '\n') {
                None => {}
                Some(indent) if indent > key.col() => end = next,
                Some(indent) if indent == key.col() && line.get(indent) == Some(&'-') => end = next,
                Some(_) => break,
            }
            at = next;
        }
        end
    }
}

fn layout(what: &str) -> FormatError {
    FormatError::Layout(what.to_owned())
}

pub(super) fn edit(text: &str, path: &[&str], edit: &Edit<'_>) -> Result<String, FormatError> {
    let [key] = path else {
        return Err(layout("only servers on the top level are supported"));
    };
    let plain = with_line_feeds(text)?;
    let root = read(&plain)?;
    let mut edited = Text {
        chars: plain.chars().collect(),
    };
    match edit {
        Edit::Add { name, entry } => add(&mut edited, root.as_ref(), key, name, entry)?,
        Edit::Set { name, fields } => set(&mut edited, root.as_ref(), key, name, fields)?,
        Edit::Remove { name, empty_map } => {
            remove(&mut edited, root.as_ref(), key, name, *empty_map)?
        }
    }
    let edited: String = edited.chars.into_iter().collect();
    Ok(if text.contains('\r') {
        edited.replace('\n', "\r\n")
    } else {
        edited
    })
}

fn add(
    text: &mut Text,
    root: Option<&Node>,
    key: &str,
    name: &str,
    entry: &Value,
) -> Result<(), FormatError> {
    let Some(servers) = root.and_then(|root| root.field(key)) else {
        let end = text.chars.len();
        text.insert_lines(end, &format!("{key}:\n{}", entry_lines(STEP, name, entry)));
        return Ok(());
    };
    let (column, after_key) = (
        servers.place.start.col(),
        text.next_line(servers.place.start.index()),
    );
    match &servers.value.content {
        Content::Map(fields) if fields.is_empty() => {
            let from = servers.value.start.index();
            if from >= after_key || text.chars.get(from..from + 2) != Some(&['{', '}']) {
                return Err(layout("its map of servers is not written as {}"));
            }
            text.insert_lines(after_key, &entry_lines(column + STEP, name, entry));
            // With the space before it.
            text.replace(from - 1, from + 2, "");
        }
        Content::Map(_) if text.at(servers.value.start) == Some('{') => {
            let inside = servers.value.start.index() + 1;
            text.replace(inside, inside, &format!("{name}: {entry}, "));
        }
        Content::Map(fields) => {
            let column = fields
                .first()
                .map_or(column + STEP, |field| field.place.start.col());
            text.insert_lines(after_key, &entry_lines(column, name, entry));
        }
        Content::Plain(Value::Null) => {
            text.insert_lines(after_key, &entry_lines(column + STEP, name, entry))
        }
        Content::Plain(_) | Content::List(_) => return Err(layout(&format!("{key} is not a map"))),
    }
    Ok(())
}

fn set(
    text: &mut Text,
    root: Option<&Node>,
    key: &str,
    name: &str,
    fields: &Map<String, Value>,
) -> Result<(), FormatError> {
    let entry = root
        .and_then(|root| root.field(key))
        .and_then(|servers| servers.value.field(name));
    let entry = entry.ok_or_else(|| layout("the entry is missing"))?;
    let there = entry
        .value
        .block_fields(text)
        .ok_or_else(|| layout("the entry is written in one line"))?;
    let column = there
        .first()
        .map_or(entry.place.start.col() + STEP, |field| {
            field.place.start.col()
        });
    let new: Vec<_> = fields
        .iter()
        .filter(|(key, _)| there.iter().all(|field| field.key != **key))
        .collect();
    // From the end, so that the positions before stay valid.
    for field in there.iter().rev() {
        if let Some(value) = fields.get(&field.key) {
            text.replace(
                field.value.start.index(),
                field.value.end.index(),
                &inline(value),
            );
        }
    }
    let lines: String = new
        .into_iter()
        .map(|(key, value)| format!("{:column$}{key}: {}\n", "", inline(value)))
        .collect();
    let after_key = text.next_line(entry.place.start.index());
    text.insert_lines(after_key, &lines);
    Ok(())
}

fn remove(
    text: &mut Text,
    root: Option<&Node>,
    key: &str,
    name: &str,
    empty_map: bool,
) -> Result<(), FormatError> {
    let servers = root
        .and_then(|root| root.field(key))
        .ok_or_else(|| layout("it has no servers"))?;
    let fields = servers
        .value
        .block_fields(text)
        .ok_or_else(|| layout("its map of servers is written in one line"))?;
    let field = servers
        .value
        .field(name)
        .ok_or_else(|| layout("the entry is missing"))?;
    let removed = if empty_map && fields.len() == 1 {
        servers
    } else {
        field
    };
    let (from, to) = (
        text.line_start(removed.place.start.index()),
        text.end_of_field(removed.place.start),
    );
    text.replace(from, to, "");
    if fields.len() == 1 && !empty_map {
        let colon = servers.place.end.index() + 1;
        text.replace(colon, colon, " {}");
    }
    Ok(())
}

/// Formats an entry in block style.
fn entry_lines(column: usize, name: &str, entry: &Value) -> String {
    let mut lines = format!("{:column$}{name}:\n", "");
    let inner = column + STEP;
    for (key, value) in entry.as_object().into_iter().flatten() {
        lines.push_str(&format!("{:inner$}{key}: {}\n", "", inline(value)));
    }
    lines
}

/// Formats a value in one line. JSON is YAML; simple texts need no quotes.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) if is_simple(text) => text.clone(),
        Value::Array(values) => format!(
            "[{}]",
            values.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        value => value.to_string(),
    }
}

fn is_simple(text: &str) -> bool {
    let mut chars = text.chars();
    chars
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '/')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'))
        && matches!(scalar(text, ScalarStyle::Plain), Value::String(_))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off"
        )
}
