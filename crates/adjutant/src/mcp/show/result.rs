//! A tool's result.

use crate::text::count;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value};

/// Most lines of Adjutant in a text; what is quoted from a log comes on top.
pub(super) const LINES_MAX: usize = 25;

/// A tool's result.
#[derive(Debug, Clone)]
pub struct Shown {
    lines: Vec<String>,
    /// Quoted lines between ours and the last one.
    quotation: String,
    data: Map<String, Value>,
    next: String,
}

impl Shown {
    /// Begins a result with its structured fields, which must be an object.
    #[must_use]
    pub fn new(data: Value) -> Self {
        let data = match data {
            Value::Object(data) => data,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        Self { lines: Vec::new(), quotation: String::new(), data, next: String::new() }
    }

    /// Adds a line.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Adds lines.
    #[must_use]
    pub fn lines(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.lines.extend(lines);
        self
    }

    /// Adds quoted lines, as [`super::text::barred`] writes them.
    #[must_use]
    pub fn quotation(mut self, quotation: String) -> Self {
        self.quotation = quotation;
        self
    }

    /// Adds a field to the structured content.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// Says what to do next: the last line.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Writes the result.
    #[must_use]
    pub fn into_result(self) -> CallToolResult {
        let Self { mut lines, quotation, mut data, next } = self;
        if lines.len() + 1 > LINES_MAX {
            let more = lines.len() - (LINES_MAX - 2);
            lines.truncate(LINES_MAX - 2);
            lines.push(format!("… {} more", count(more as u64, "line", "lines")));
        }
        let mut text = lines.join("\n");
        text.push('\n');
        text.push_str(&quotation);
        text.push_str("next: ");
        text.push_str(&next);
        data.insert("next".to_owned(), Value::String(next));
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(Value::Object(data));
        result
    }
}
