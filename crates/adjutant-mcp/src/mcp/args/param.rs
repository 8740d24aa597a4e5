//! The parameters of a tool, and their JSON Schema.

use crate::mcp::session::Role;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// The type of an argument.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    /// A whole number.
    Integer,
    /// A whole number, at least 0.
    Count,
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Names in one text, separated by commas. A list is accepted too, and listed as a text.
    Names,
    /// A list of texts.
    Texts,
    /// A list of answers: `{message_id | run_id, answer | decision, reason}`.
    Answers,
    /// Changes to an approved delegation.
    Changes,
    /// A list of questions: texts, or `{question, context, options, default, blocking}`.
    Questions,
}

/// The possible decisions.
pub(crate) const DECISIONS: &[&str] = &["approve", "deny"];

/// One argument of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// The description, if the name is not sufficient. Empty: omitted from the schema.
    about: &'static str,
    /// A shorter description for a worker's list.
    worker_about: Option<&'static str>,
    /// Further spellings that are accepted.
    pub also: &'static [&'static str],
    /// The original protocol's spelling, always accepted and listed under `--compat`. Empty: the
    /// same.
    pub original: &'static str,
    /// Always accepted, but listed only under `--compat`.
    compat_only: bool,
    /// Always accepted, but in a worker's list only under `--compat`.
    worker_compat_only: bool,
    /// Further words of [`Kind::Word`]: always accepted, but listed only under `--compat`.
    pub(super) compat_words: &'static [&'static str],
}

impl Param {
    /// Creates an optional argument.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            required: false,
            about: "",
            worker_about: None,
            also: &[],
            original: "",
            compat_only: false,
            worker_compat_only: false,
            compat_words: &[],
        }
    }

    /// Makes the argument required.
    #[must_use]
    pub const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// Sets the description.
    #[must_use]
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Sets a shorter description for workers.
    #[must_use]
    pub(crate) const fn worker_about(self, about: &'static str) -> Self {
        Self {
            worker_about: Some(about),
            ..self
        }
    }

    /// Accepts further spellings.
    #[must_use]
    pub const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// Sets the original protocol's spelling.
    #[must_use]
    pub const fn original(self, original: &'static str) -> Self {
        Self { original, ..self }
    }

    /// Lists the argument only under `--compat`.
    #[must_use]
    pub(crate) const fn compat_only(self) -> Self {
        Self {
            compat_only: true,
            ..self
        }
    }

    /// Lists the argument for workers only under `--compat`.
    #[must_use]
    pub(crate) const fn worker_compat_only(self) -> Self {
        Self {
            worker_compat_only: true,
            ..self
        }
    }

    /// Accepts further words, which are listed only under `--compat`.
    #[must_use]
    pub(crate) const fn compat_words(self, compat_words: &'static [&'static str]) -> Self {
        Self {
            compat_words,
            ..self
        }
    }

    /// Returns the description for a role. Empty: the name is sufficient.
    #[must_use]
    pub fn about_for(&self, role: Role) -> &'static str {
        self.worker_about
            .filter(|_| role == Role::Worker)
            .unwrap_or(self.about)
    }

    /// Returns whether the argument is listed for a role only under `--compat`.
    #[must_use]
    pub fn is_compat_only(&self, role: Role) -> bool {
        self.compat_only || (self.worker_compat_only && role == Role::Worker)
    }

    fn listed_name(&self, spelling: Spelling<'_>) -> &'static str {
        let Spelling::Original(apart) = spelling else {
            return self.name;
        };
        match apart.iter().find(|(name, _)| *name == self.name) {
            Some((_, spelled)) => spelled,
            None if self.original.is_empty() => self.name,
            None => self.original,
        }
    }

    fn schema(&self, role: Role, spelling: Spelling<'_>) -> Value {
        let mut schema = match self.kind {
            Kind::Text | Kind::Names => json!({"type": "string"}),
            Kind::Integer | Kind::Count => json!({"type": "integer"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Word(words) => {
                let more = if matches!(spelling, Spelling::Original(_)) {
                    self.compat_words
                } else {
                    &[]
                };
                let listed = [words, more].concat();
                json!({"type": "string", "enum": listed})
            }
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Answers | Kind::Questions => {
                json!({"type": "array", "items": {"type": "object"}})
            }
            Kind::Changes => json!({"type": "object"}),
        };
        let about = self.about_for(role);
        if !about.is_empty() {
            schema["description"] = json!(about);
        }
        schema
    }

    /// Returns whether `name` is one of the argument's spellings.
    pub(super) fn has_spelling(&self, name: &str) -> bool {
        self.name == name
            || (!self.original.is_empty() && self.original == name)
            || self.also.contains(&name)
    }

    /// Describes the accepted values.
    pub(super) fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Text => "a string".to_owned(),
            Kind::Names => "a name, or names separated by commas".to_owned(),
            Kind::Integer | Kind::Count => "a whole number".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
            Kind::Texts => "a list of strings".to_owned(),
            Kind::Answers => "a list of {\"message_id\": …, \"answer\": …}".to_owned(),
            Kind::Questions => "a list of {\"question\": …, \"options\": […]}".to_owned(),
            Kind::Changes => "an object with prompt, agent, cwd or priority".to_owned(),
        };
        format!("`{}`: {kind}", self.name)
    }
}

/// The spelling of listed arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spelling<'a> {
    Own,
    /// The original protocol's, with arguments that it spells differently for one tool.
    Original(&'a [(&'static str, &'static str)]),
}

/// Returns the JSON Schema of a tool's arguments: plain types only, no `$ref`, no unions.
/// `required` names arguments that are listed as required in addition to those that are.
#[must_use]
pub(crate) fn input_schema(
    params: &[Param],
    role: Role,
    spelling: Spelling<'_>,
    required: &[&str],
) -> JsonObject {
    let mut properties = JsonObject::new();
    let mut needed = Vec::new();
    for param in params
        .iter()
        .filter(|param| matches!(spelling, Spelling::Original(_)) || !param.is_compat_only(role))
    {
        let name = param.listed_name(spelling);
        properties.insert(name.to_owned(), param.schema(role, spelling));
        if param.required || required.contains(&param.name) {
            needed.push(name);
        }
    }
    let mut schema = JsonObject::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), Value::Object(properties));
    if !needed.is_empty() {
        schema.insert("required".into(), json!(needed));
    }
    schema
}
