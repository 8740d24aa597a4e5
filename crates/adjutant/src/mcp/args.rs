//! A tool's arguments: what it takes, in which spellings, and reading them. Everything that is
//! wrong with a call is said here, once, in words that a model can act on.

use super::refusal::Refusal;
use crate::view::{ChangesView, DecisionWord, Word};
use adjutant_core::words::Words;
use rmcp::model::JsonObject;
use serde_json::{Value, json};

/// What one argument may be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Text,
    Integer,
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of answers: `{message_id | run_id, answer | decision, reason}`.
    Answers,
    /// What a delegation is approved with instead.
    Changes,
    /// A list of questions: texts, or `{question, context, options, default, blocking}`.
    Questions,
}

/// The words of a decision.
pub const DECISIONS: &[&str] = &["approve", "deny"];

/// One argument of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// What it means, where the name does not say it. Empty: left out of the schema.
    pub about: &'static str,
    /// Further spellings that are accepted.
    pub also: &'static [&'static str],
    /// The original protocol's spelling, which is listed under `--compat` and accepted always. Empty: the same.
    pub original: &'static str,
    /// Accepted always, listed only under `--compat`.
    pub compat_only: bool,
}

impl Param {
    /// Describes an optional argument.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, required: false, about: "", also: &[], original: "", compat_only: false }
    }

    /// Makes the argument one that every call must have.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Says what the argument means.
    #[must_use]
    pub const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Accepts further spellings.
    #[must_use]
    pub const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// Names the original protocol's spelling.
    #[must_use]
    pub const fn original(self, original: &'static str) -> Self {
        Self { original, ..self }
    }

    /// Leaves the argument out of the list unless `--compat` asks for it.
    #[must_use]
    pub const fn compat_only(self) -> Self {
        Self { compat_only: true, ..self }
    }

    fn listed_name(&self, list: Listing<'_>) -> &'static str {
        let Listing::Original(apart) = list else { return self.name };
        match apart.iter().find(|(name, _)| *name == self.name) {
            Some((_, spelled)) => spelled,
            None if self.original.is_empty() => self.name,
            None => self.original,
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Integer => json!({"type": "integer"}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Word(words) => json!({"type": "string", "enum": words}),
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Answers | Kind::Questions => json!({"type": "array", "items": {"type": "object"}}),
            Kind::Changes => json!({"type": "object"}),
        };
        if !self.about.is_empty() {
            schema["description"] = json!(self.about);
        }
        schema
    }

    fn goes_by(&self, name: &str) -> bool {
        self.name == name || (!self.original.is_empty() && self.original == name) || self.also.contains(&name)
    }
}

/// In whose spelling arguments are listed.
#[derive(Debug, Clone, Copy)]
pub enum Listing<'a> {
    Own,
    /// The original protocol's; of these, it has another one for this tool.
    Original(&'a [(&'static str, &'static str)]),
}

/// Writes the JSON Schema of a tool's arguments: plain types only, no `$ref`, no unions. `required` names
/// arguments that the list says are required beside those that are.
#[must_use]
pub fn input_schema(params: &[Param], list: Listing<'_>, required: &[&str]) -> JsonObject {
    let mut properties = JsonObject::new();
    let mut needed = Vec::new();
    for param in params.iter().filter(|param| matches!(list, Listing::Original(_)) || !param.compat_only) {
        let name = param.listed_name(list);
        properties.insert(name.to_owned(), param.schema());
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

/// One answer of `answers[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenAnswer {
    pub run: Option<String>,
    pub message_id: Option<String>,
    pub answer: String,
    pub decision: Option<DecisionWord>,
    pub reason: Option<String>,
    pub changes: Option<ChangesView>,
}

/// Reads a decision's word.
fn decision(args: &Args) -> Option<DecisionWord> {
    match args.text("decision")? {
        "approve" => Some(DecisionWord::Approve),
        _ => Some(DecisionWord::Deny),
    }
}

/// The arguments of one call, by their own names, each checked for its kind.
#[derive(Debug, Default)]
pub struct Args {
    given: Vec<(&'static str, Value)>,
}

impl Args {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// An unknown or repeated argument, a value of another kind, a missing required one.
    pub fn read(params: &[Param], object: Option<JsonObject>) -> Result<Self, Refusal> {
        let mut args = Self::default();
        for (name, value) in object.unwrap_or_default() {
            let Some(param) = params.iter().find(|param| param.goes_by(&name)) else {
                return Err(unknown(params, &name));
            };
            if value.is_null() {
                continue;
            }
            let value = checked(param, &name, value)?;
            match args.get(param.name) {
                None => args.given.push((param.name, value)),
                Some(earlier) if *earlier == value => {}
                Some(_) => {
                    let hint = format!("pass `{}` only", param.name);
                    return Err(Refusal::invalid(format!("`{}` was given twice with different values", param.name), hint));
                }
            }
        }
        match params.iter().find(|param| param.required && args.get(param.name).is_none()) {
            None => Ok(args),
            Some(missing) => {
                let hint = format!("call again with {}", expected(missing));
                Err(Refusal::invalid(format!("`{}` is missing", missing.name), hint))
            }
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// Tells whether it was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a text, where it was given.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    /// Returns an owned text, where it was given.
    #[must_use]
    pub fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// Returns a word of the contract, where it was given.
    #[must_use]
    pub fn value<T: Words>(&self, name: &str) -> Option<Word<T>> {
        self.text(name).map(Word::read)
    }

    /// Returns a text that [`Args::read`] has made sure of; empty for an optional one left out.
    #[must_use]
    pub fn word(&self, name: &str) -> String {
        self.owned(name).unwrap_or_default()
    }

    /// Returns a whole number of at least 0, where it was given.
    ///
    /// # Errors
    /// A negative one.
    pub fn count(&self, name: &str) -> Result<Option<u64>, Refusal> {
        match self.get(name).and_then(Value::as_i64) {
            None => Ok(None),
            Some(number) => match u64::try_from(number) {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(Refusal::invalid(format!("`{name}` is negative"), format!("pass 0 or more in `{name}`"))),
            },
        }
    }

    /// Returns a whole number, where it was given.
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// Returns a truth value, where it was given.
    #[must_use]
    pub fn truth(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(Value::as_bool)
    }

    /// Returns a list of texts; empty when it was left out.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<String> {
        let list = self.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Returns what this call itself says to a request: an answer, a decision, or nothing.
    ///
    /// # Errors
    /// A change that is none.
    pub fn given(&self) -> Result<Option<GivenAnswer>, Refusal> {
        const ENTRY: [Param; 4] = [
            Param::new("prompt", Kind::Text).also(&["input"]),
            Param::new("agent", Kind::Text),
            Param::new("cwd", Kind::Text).also(&["directory"]),
            Param::new("priority", Kind::Word(&["P0", "P1", "P2"])),
        ];
        let changes = match self.get("changes").and_then(Value::as_object) {
            None => None,
            Some(object) => {
                let entry = Self::read(&ENTRY, Some(object.clone()))?;
                Some(ChangesView {
                    prompt: entry.owned("prompt"),
                    agent: entry.owned("agent"),
                    cwd: entry.owned("cwd"),
                    priority: entry.value("priority"),
                })
            }
        };
        let (answer, decision) = (self.owned("answer"), decision(self));
        if answer.is_none() && decision.is_none() {
            return Ok(None);
        }
        let (run, message_id) = (self.owned("run_id"), self.owned("message_id"));
        Ok(Some(GivenAnswer { run, message_id, answer: answer.unwrap_or_default(), decision, reason: self.owned("reason"), changes }))
    }

    /// Returns the questions of `questions[]`, each with what it says itself.
    ///
    /// # Errors
    /// An entry that is no question.
    pub fn questions(&self) -> Result<Vec<Self>, Refusal> {
        const ENTRY: [Param; 6] = [
            Param::new("question", Kind::Text).also(&["text"]).required(),
            Param::new("question_id", Kind::Text),
            Param::new("context", Kind::Text),
            Param::new("options", Kind::Texts),
            Param::new("default", Kind::Text),
            Param::new("blocking", Kind::Bool),
        ];
        let list = self.get("questions").and_then(Value::as_array);
        let read = |entry: &Value| match entry {
            Value::String(_) => Self::read(&ENTRY, json!({"question": entry}).as_object().cloned()),
            Value::Object(object) => Self::read(&ENTRY, Some(object.clone())),
            _ => Err(Refusal::invalid("an entry of `questions` is neither a text nor an object", "pass `questions` as a list of {\"question\": …}")),
        };
        list.into_iter().flatten().map(read).collect()
    }

    /// Returns the answers of `answers[]`.
    ///
    /// # Errors
    /// An entry that is no answer.
    pub fn answers(&self, name: &str) -> Result<Vec<GivenAnswer>, Refusal> {
        const ENTRY: [Param; 6] = [
            Param::new("run_id", Kind::Text).also(&["runId", "subagent_id"]),
            Param::new("message_id", Kind::Text).also(&["messageId"]),
            Param::new("answer", Kind::Text).also(&["message"]),
            Param::new("decision", Kind::Word(DECISIONS)),
            Param::new("reason", Kind::Text),
            Param::new("changes", Kind::Changes),
        ];
        let list = self.get(name).and_then(Value::as_array);
        let mut answers = Vec::new();
        for entry in list.into_iter().flatten() {
            let Some(object) = entry.as_object() else {
                let hint = format!("pass `{name}` as a list of {{\"message_id\": …, \"answer\": …}}");
                return Err(Refusal::invalid(format!("an entry of `{name}` is not an object"), hint));
            };
            let Some(given) = Self::read(&ENTRY, Some(object.clone()))?.given()? else {
                let hint = "pass answer to a question, decision (approve or deny) to an approval or a delegation";
                return Err(Refusal::invalid(format!("an entry of `{name}` has neither `answer` nor `decision`"), hint));
            };
            answers.push(given);
        }
        Ok(answers)
    }
}

fn expected(param: &Param) -> String {
    let kind = match param.kind {
        Kind::Text => "a string".to_owned(),
        Kind::Integer => "a whole number".to_owned(),
        Kind::Bool => "true or false".to_owned(),
        Kind::Word(words) => format!("one of {}", words.join(", ")),
        Kind::Texts => "a list of strings".to_owned(),
        Kind::Answers => "a list of {\"message_id\": …, \"answer\": …}".to_owned(),
        Kind::Questions => "a list of {\"question\": …, \"options\": […]}".to_owned(),
        Kind::Changes => "an object with prompt, agent, cwd or priority".to_owned(),
    };
    format!("`{}`: {kind}", param.name)
}

fn checked(param: &Param, name: &str, value: Value) -> Result<Value, Refusal> {
    let read = match (param.kind, value) {
        (Kind::Text, Value::String(text)) => Some(Value::String(text)),
        // Ids are sometimes sent as bare numbers.
        (Kind::Text, Value::Number(number)) => Some(Value::String(number.to_string())),
        (Kind::Word(words), Value::String(word)) => words.contains(&word.as_str()).then_some(Value::String(word)),
        (Kind::Integer, Value::Number(number)) => whole(&number).map(Value::from),
        (Kind::Integer, Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        (Kind::Bool, Value::Bool(truth)) => Some(Value::Bool(truth)),
        (Kind::Bool, Value::String(text)) => text.parse::<bool>().ok().map(Value::Bool),
        (Kind::Texts, Value::String(text)) => Some(json!([text])),
        (Kind::Texts, Value::Array(list)) => list.iter().all(Value::is_string).then_some(Value::Array(list)),
        (Kind::Answers, Value::Array(list)) => Some(Value::Array(list)),
        (Kind::Questions, Value::Array(list)) => Some(Value::Array(list)),
        (Kind::Answers, Value::Object(one)) => Some(json!([one])),
        (Kind::Changes, Value::Object(changes)) => Some(Value::Object(changes)),
        _ => None,
    };
    read.ok_or_else(|| Refusal::invalid(format!("`{name}` has a value of the wrong kind"), format!("pass {}", expected(param))))
}

/// Reads `5` and `5.0`, but not `5.5`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the range that doubles hold exactly")]
    (float.fract() == 0.0 && float.abs() <= EXACT_MAX).then_some(float as i64)
}

fn unknown(params: &[Param], name: &str) -> Refusal {
    let shown = super::text::quoted(name, 60);
    let nearest = params
        .iter()
        .flat_map(|param| [param.name, param.original].into_iter().chain(param.also.iter().copied()).filter(|name| !name.is_empty()))
        .min_by_key(|known| super::text::distance(known, name));
    let all: Vec<&str> = params.iter().map(|param| param.name).collect();
    let hint = match nearest {
        None => "this tool takes no arguments: call it with {}".to_owned(),
        Some(nearest) if super::text::distance(nearest, name) <= 3.max(name.len() / 3) => {
            format!("did you mean `{nearest}`? It takes: {}", all.join(", "))
        }
        Some(_) => format!("it takes: {}", all.join(", ")),
    };
    Refusal::invalid(format!("there is no argument {shown}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::signal::Priority;

    const PARAMS: [Param; 4] = [
        Param::new("run_id", Kind::Text).also(&["runId", "subagent_id"]).required(),
        Param::new("wait_s", Kind::Integer),
        Param::new("status", Kind::Word(&["running", "error"])),
        Param::new("answers", Kind::Answers),
    ];

    fn read(value: Value) -> Result<Args, Refusal> {
        Args::read(&PARAMS, value.as_object().cloned())
    }

    #[test]
    fn every_spelling_reads_as_the_same_argument() {
        for spelling in ["run_id", "runId", "subagent_id"] {
            assert_eq!(read(json!({spelling: "otter"})).expect("read").text("run_id"), Some("otter"));
        }
        assert!(read(json!({"run_id": "a", "runId": "a"})).is_ok());
        assert!(read(json!({"run_id": "a", "runId": "b"})).is_err());
    }

    #[test]
    fn an_unknown_argument_is_refused_with_the_nearest_name() {
        let refusal = read(json!({"run_id": "a", "wait": 5})).expect_err("refused");
        assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("did you mean `wait_s`")), "{refusal:?}");
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused_and_obvious_ones_are_read() {
        assert_eq!(read(json!({"run_id": "a", "wait_s": "5"})).expect("read").count("wait_s").expect("count"), Some(5));
        assert_eq!(read(json!({"run_id": "a", "wait_s": 5.0})).expect("read").count("wait_s").expect("count"), Some(5));
        assert!(read(json!({"run_id": "a", "wait_s": -1})).expect("read").count("wait_s").is_err());
        for bad in [json!({"run_id": "a", "wait_s": 5.5}), json!({"run_id": ["a"]}), json!({"run_id": "a", "status": "done"}), json!({})] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_come_in_both_spellings() {
        let args =
            read(json!({"run_id": "a", "answers": [{"messageId": "Q1", "message": "yes"}, {"message_id": "Q2", "answer": ""}]})).expect("read");
        let answers = args.answers("answers").expect("answers");
        assert_eq!((answers[0].message_id.as_deref(), answers[0].answer.as_str(), answers[0].decision), (Some("Q1"), "yes", None));
        assert_eq!(answers[1].answer, "");
        for bad in [json!(["x"]), json!([{"message_id": "Q1"}]), json!([{"message_id": "Q1", "decision": "maybe"}])] {
            assert!(read(json!({"run_id": "a", "answers": bad})).expect("read").answers("answers").is_err(), "{bad}");
        }
    }

    #[test]
    fn decisions_come_with_their_reason_and_changes() {
        let entry = json!({"message_id": "Q1", "decision": "approve", "changes": {"agent": "echo", "priority": "P0"}});
        let args = read(json!({"run_id": "a", "answers": [entry, {"message_id": "Q2", "decision": "deny", "reason": "later"}]})).expect("read");
        let answers = args.answers("answers").expect("answers");
        let changes = answers[0].changes.clone().expect("changes");
        assert_eq!((changes.agent.as_deref(), changes.priority, changes.prompt), (Some("echo"), Some(Priority::P0.into()), None));
        assert_eq!((answers[1].decision, answers[1].reason.as_deref()), (Some(DecisionWord::Deny), Some("later")));
    }
}
