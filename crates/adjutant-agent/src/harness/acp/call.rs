//! A tool call, merged from all messages of an ACP agent about it.

use super::modes::words;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Maximum number of titles that are kept of one call.
const TITLES_MAX: usize = 16;
/// Maximum number of fields that are merged of one object of an input.
const FIELDS_MAX: usize = 256;
/// Maximum depth to which the objects of an input are merged.
const DEPTH_MAX: usize = 4;

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
            // The last place holds the newest title, so a call with too many titles still shows a
            // foreign one.
            self.titles.truncate(TITLES_MAX - 1);
            self.titles.push(title.to_owned());
        }
        if let Some(kind) = incoming["kind"].as_str() {
            kind.clone_into(&mut self.kind);
        }
        if matches!(incoming["status"].as_str(), Some("pending" | "in_progress")) {
            self.pending_text = only_text(&incoming["content"]).map(str::to_owned);
        }
        if !incoming["rawInput"].is_null() {
            merge_input(&mut self.input, &incoming["rawInput"], DEPTH_MAX);
        }
        for (field, kept) in [
            ("content", &mut self.content),
            ("locations", &mut self.locations),
            ("_meta", &mut self.meta),
        ] {
            if !incoming[field].is_null() {
                *kept = incoming[field].clone();
            }
        }
    }

    /// Uses the text of the content as the input, if the input itself is missing. Text that is not
    /// JSON becomes a string: it names no file, and is not an input of one of Adjutant's tools.
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
        self.titles
            .last()
            .cloned()
            .unwrap_or_else(|| "a tool".to_owned())
    }

    /// Returns whether the two states of a call look different to a person.
    pub(super) fn is_displayed_differently(&self, other: &Self) -> bool {
        (
            &self.kind,
            &self.input,
            &self.content,
            &self.locations,
            self.titles.last(),
        ) != (
            &other.kind,
            &other.input,
            &other.content,
            &other.locations,
            other.titles.last(),
        )
    }

    /// Returns whether `other`, a later state of the call, has another effect: a field of the input
    /// has another value, a new field names a command, a place or an address that was not stated,
    /// or another file is changed. Other input that only becomes known, and output, do not count.
    pub(super) fn has_different_effect(&self, other: &Self, cwd: &Path) -> bool {
        let (before, now) = (self.diff_paths(), other.diff_paths());
        let is_other_file = !before.is_empty() && now.iter().any(|file| !before.contains(file));
        is_other_file || !is_empty(&self.input) && self.has_other_input(&other.input, cwd)
    }

    fn has_other_input(&self, now: &Value, cwd: &Path) -> bool {
        let (Value::Object(known), Value::Object(fields)) = (&self.input, now) else {
            return self.input != *now;
        };
        let is_known = |value: &Value| {
            known.values().any(|known| known == value)
                || [&self.content, &self.locations]
                    .iter()
                    .any(|list| states(list, value))
        };
        let is_stated = |name: &str, value: &Value| {
            let Some(text) = value.as_str() else {
                return is_known(value);
            };
            // The same file, once as the model has named it and once in full.
            let by_its_full_path = || {
                names_place(name)
                    .then(|| in_full(cwd, text))
                    .is_some_and(|path| is_known(&Value::from(path.to_string_lossy())))
            };
            Path::new(text) == cwd || is_known(value) || by_its_full_path()
        };
        fields.iter().any(|(name, value)| match known.get(name) {
            Some(known) => known != value,
            None => decides_effect(name) && !is_empty(value) && !is_stated(name, value),
        })
    }

    /// Returns the files that the call changes, by its content.
    fn diff_paths(&self) -> Vec<&Value> {
        let parts = self
            .content
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        parts
            .iter()
            .filter(|part| part["type"] == "diff")
            .map(|part| &part["path"])
            .collect()
    }

    /// Returns whether the call reports changed files or a terminal.
    pub(super) fn changes_something(&self) -> bool {
        let parts = self
            .content
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        parts
            .iter()
            .any(|part| matches!(part["type"].as_str(), Some("diff" | "terminal")))
            || !is_empty(&self.locations)
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

/// Merges a later description of an input into an earlier one. A field that the later one omits
/// stays: some agents repeat only a part of the input in a permission request.
fn merge_input(known: &mut Value, incoming: &Value, depth: usize) {
    match (known, incoming) {
        (Value::Object(known), Value::Object(fields))
            if depth > 0 && is_mergeable(known, fields) =>
        {
            for (name, value) in fields {
                merge_input(
                    known.entry(name.clone()).or_insert(Value::Null),
                    value,
                    depth - 1,
                );
            }
        }
        (known, incoming) => known.clone_from(incoming),
    }
}

/// Returns whether the merged object is of limited size. A larger one is replaced, which counts as
/// a change.
fn is_mergeable(known: &Map<String, Value>, fields: &Map<String, Value>) -> bool {
    known.len()
        + fields
            .keys()
            .filter(|name| !known.contains_key(*name))
            .count()
        <= FIELDS_MAX
}

/// Parts of the names of fields that name a file or a directory, and of those that decide what is
/// executed or called.
const PLACES: [&str; 4] = ["path", "file", "dir", "cwd"];
const ACTIONS: [&str; 8] = [
    "command", "cmd", "script", "code", "arg", "sudo", "url", "uri",
];

/// Returns whether a field of an input, by its name, decides what is executed, and where.
fn decides_effect(name: &str) -> bool {
    has_part(name, &PLACES) || has_part(name, &ACTIONS)
}

fn names_place(name: &str) -> bool {
    has_part(name, &PLACES) && !has_part(name, &ACTIONS)
}

/// Returns a path of a call in full, without `.` as a part. `..` stays: what it leads to depends on
/// links.
fn in_full(cwd: &Path, path: &str) -> PathBuf {
    cwd.join(path).components().collect()
}

/// Words also occur joined, as in `filepath` and `workdir`.
fn has_part(name: &str, parts: &[&str]) -> bool {
    words(name).iter().any(|word| {
        parts
            .iter()
            .any(|part| word.starts_with(part) || word.ends_with(part))
    })
}

/// Returns whether a list of locations or of content states a value.
fn states(list: &Value, value: &Value) -> bool {
    list.as_array().is_some_and(|parts| {
        parts.iter().any(|part| {
            ["path", "oldText", "newText"]
                .iter()
                .any(|field| part[*field] == *value)
        })
    })
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
        [part] if part["type"] == "content" && part["content"]["type"] == "text" => {
            part["content"]["text"].as_str()
        }
        _ => None,
    }
}
