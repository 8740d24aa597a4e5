//! A tool call as an ACP agent reports it, in all its messages.

use serde_json::Value;

/// Titles that are kept of one call.
const TITLES_MAX: usize = 16;

/// What an agent has reported of one tool call, in all its messages about it.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    /// Every title that it has had, in order.
    pub(super) titles: Vec<String>,
    pub(super) kind: String,
    pub(super) input: Value,
    /// The text of its content before it runs.
    pub(super) pending_text: Option<String>,
    pub(super) content: Value,
    pub(super) locations: Value,
    pub(super) meta: Value,
}

impl Call {
    /// Takes in what a message says of the call: what it leaves out stays as it was.
    pub(super) fn merge(&mut self, incoming: &Value) {
        if let Some(title) = incoming["title"].as_str()
            && !self.titles.iter().any(|known| known == title)
        {
            // One too many is none of Adjutant: the last place tells that there were more.
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

    /// Takes the input from the text that came before it, and with it all that the content says. A text
    /// that is no JSON stays one: it names no file, and is no input of Adjutant.
    pub(super) fn take_input_from_content(&mut self) {
        if self.input.is_null()
            && let Some(text) = self.pending_text.take().filter(|text| !text.is_empty())
        {
            self.input = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if only_text(&self.content).is_some() {
                self.content = Value::Null;
            }
        }
    }

    /// What it is called now.
    pub(super) fn name(&self) -> String {
        self.titles.last().cloned().unwrap_or_else(|| "a tool".to_owned())
    }

    /// Tells whether a person who was shown this call has not seen another one.
    pub(super) fn is_displayed_differently(&self, other: &Self) -> bool {
        (&self.kind, &self.input, &self.content, &self.locations, self.titles.last())
            != (&other.kind, &other.input, &other.content, &other.locations, other.titles.last())
    }

    /// Tells whether another call has other input or changes other files. What only becomes known, and what it puts
    /// out, is no difference.
    pub(super) fn has_different_effect(&self, other: &Self) -> bool {
        let files = |call: &Self| -> Vec<Value> {
            let parts = call.content.as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().filter(|part| part["type"] == "diff").map(|part| part["path"].clone()).collect()
        };
        let (before, now) = (files(self), files(other));
        !is_empty(&self.input) && self.input != other.input || !before.is_empty() && now.iter().any(|file| !before.contains(file))
    }

    /// Tells whether it says that it changes files or runs something in a terminal.
    pub(super) fn changes_something(&self) -> bool {
        let parts = self.content.as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().any(|part| matches!(part["type"].as_str(), Some("diff" | "terminal"))) || !is_empty(&self.locations)
    }

    /// What the call would do, whole: its input, and the content where that says more.
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

/// Returns the text of a content that is one text and nothing else.
fn only_text(content: &Value) -> Option<&str> {
    match content.as_array()?.as_slice() {
        [part] if part["type"] == "content" && part["content"]["type"] == "text" => part["content"]["text"].as_str(),
        _ => None,
    }
}
