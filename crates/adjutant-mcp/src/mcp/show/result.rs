//! A tool's result.

use crate::text::count;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value};

/// Maximum number of lines of Adjutant in a text, not counting quoted log lines.
pub(super) const LINES_MAX: usize = 25;

/// A tool's result.
#[derive(Debug, Clone)]
pub struct Shown {
    lines: Vec<String>,
    /// Quoted lines, shown before the last line.
    quotation: String,
    data: Map<String, Value>,
    next: String,
}

impl Shown {
    /// Creates a result from its structured fields, which must be an object.
    #[must_use]
    pub fn new(data: Value) -> Self {
        let data = match data {
            Value::Object(data) => data,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        Self {
            lines: Vec::new(),
            quotation: String::new(),
            data,
            next: String::new(),
        }
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

    /// Adds quoted lines, formatted by [`super::text::barred`].
    #[must_use]
    pub(crate) fn quotation(mut self, quotation: String) -> Self {
        self.quotation = quotation;
        self
    }

    /// Adds a field to the structured content.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the last line, which names the next step.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Converts to the result of a tool call.
    #[must_use]
    pub(crate) fn into_result(mut self) -> CallToolResult {
        let mut data = std::mem::take(&mut self.data);
        data.insert("next".to_owned(), Value::String(self.next.clone()));
        let mut result = CallToolResult::success(vec![ContentBlock::text(self.into_text())]);
        result.structured_content = Some(Value::Object(data));
        result
    }

    /// Converts to text.
    #[must_use]
    pub fn into_text(self) -> String {
        let Self {
            mut lines,
            quotation,
            data: _,
            next,
        } = self;
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
        text
    }
}
