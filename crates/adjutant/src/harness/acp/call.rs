//! A tool call, merged from all messages of an ACP agent about it.

use serde_json::Value;

/// Maximum number of titles that are kept of one call.
const TITLES_MAX: usize = 16;

/// The merged reports of one tool call.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    /// All titles of the call, in order.
    pub(super) titles: Vec<String>,
    pub(super) kind: String,
    pub(super) input: Value,
    /// The text of the content that was reported before the call runs.
    pub(super) pending_text: Option<String>,
    pub(super) content: Value,
    pub(super) locations: Value,
    pub(super) meta: Value,
}

impl Call {
    /// Merges a message about the call. Fields that are missing in the message stay unchanged.
    pub(super) fn merge(&mut self, incoming: &Value) {
        if let Some(title) = incoming["title"].as_str()
            && !self.titles.iter().any(|known| known == title)
        {
            // The last place holds the newest title, so a call with too many titles still shows a foreign one.
            self.titles.truncate(TITLES_MAX - 1);
            self.titles.push(title.to_owned());
        }
        if let Some(kind) = incoming["kind"].as_str() {
            kind.clone_into(&mut self.kind);
        }
        if matches!(incoming["status"].as_str(), Some("pending" | "in_progress")) {
            self.pending_text = only_text(&incoming["content"]).map(str::to_owned);
        }
        for (field, kept) in
            [("rawInput", &mut self.input), ("content", &mut self.content), ("locations", &mut self.locations), ("_meta", &mut self.meta)]
        {
            if !incoming[field].is_null() {
                *kept = incoming[field].clone();
            }
        }
    }

    /// Uses the text of the content as the input, if the input itself is missing. Text that is not JSON becomes a
    /// string: it names no file, and is not an input of one of Adjutant's tools.
    pub(super) fn use_content_as_input(&mut self) {
        if self.input.is_null()
            && let Some(text) = self.pending_text.take().filter(|text| !text.is_empty())
        {
            self.input = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if only_text(&self.content).is_some() {
                self.content = Value::Null;
            }
        }
    }

    /// Returns the newest title.
    pub(super) fn name(&self) -> String {
        self.titles.last().cloned().unwrap_or_else(|| "a tool".to_owned())
    }

    /// Returns whether the two states of a call look different to a person.
    pub(super) fn is_displayed_differently(&self, other: &Self) -> bool {
        (&self.kind, &self.input, &self.content, &self.locations, self.titles.last())
            != (&other.kind, &other.input, &other.content, &other.locations, other.titles.last())
    }

    /// Returns whether `other` has a different input or changes other files. Input that only becomes known, and output,
    /// do not count.
    pub(super) fn has_different_effect(&self, other: &Self) -> bool {
        let files = |call: &Self| -> Vec<Value> {
            let parts = call.content.as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().filter(|part| part["type"] == "diff").map(|part| part["path"].clone()).collect()
        };
        let (before, now) = (files(self), files(other));
        !is_empty(&self.input) && self.input != other.input || !before.is_empty() && now.iter().any(|file| !before.contains(file))
    }

    /// Returns whether the call reports changed files or a terminal.
    pub(super) fn changes_something(&self) -> bool {
        let parts = self.content.as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().any(|part| matches!(part["type"].as_str(), Some("diff" | "terminal"))) || !is_empty(&self.locations)
    }

    /// Returns everything known about what the call does: its input and its content.
    pub(super) fn shown(&self) -> String {
        match (is_empty(&self.input), is_empty(&self.content)) {
            (false, true) => self.input.to_string(),
            (true, false) => self.content.to_string(),
            (false, false) => format!("{}\n{}", self.input, self.content),
            (true, true) => String::new(),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Returns the text of a content that consists of a single text block.
fn only_text(content: &Value) -> Option<&str> {
    match content.as_array()?.as_slice() {
        [part] if part["type"] == "content" && part["content"]["type"] == "text" => part["content"]["text"].as_str(),
        _ => None,
    }
}
