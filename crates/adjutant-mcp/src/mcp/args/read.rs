//! Parsing the arguments of a call.

use super::entries::{ANSWER, CHANGES, QUESTION};
use super::param::{Kind, Param};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::text;
use crate::view::codes;
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The validated arguments of one call, by their canonical names.
#[derive(Debug, Default)]
pub struct Args(JsonObject);

impl Args {
    /// Parses the arguments of a call.
    ///
    /// # Errors
    /// An unknown or repeated argument, a value of the wrong type, or a missing required argument.
    pub fn read(params: &[Param], object: Option<JsonObject>) -> Result<Self, ToolRefusal> {
        let object = object.unwrap_or_default();
        let find = |name: &str| params.iter().find(|param| param.has_spelling(name));
        if let Some(name) = object.keys().find(|name| find(name).is_none()) {
            return Err(unknown(params, name, &missing(params, &object)));
        }
        let mut args = JsonObject::new();
        for (name, value) in object {
            let Some(param) = find(&name) else { continue };
            if value.is_null() {
                continue;
            }
            let value = convert_value(param, &name, value)?;
            match args.get(param.name) {
                Some(earlier) if *earlier == value => {}
                Some(_) => {
                    let hint = format!("pass `{}` only", param.name);
                    return Err(ToolRefusal::invalid(
                        format!("`{}` was given twice with different values", param.name),
                        hint,
                    ));
                }
                None => {
                    args.insert(param.name.to_owned(), value);
                }
            }
        }
        match params
            .iter()
            .find(|param| param.required && !args.contains_key(param.name))
        {
            None => Ok(Self(args)),
            Some(missing) => {
                let hint = format!("call again with {}", missing.expected());
                Err(ToolRefusal::invalid(
                    format!("`{}` is missing", missing.name),
                    hint,
                ))
            }
        }
    }

    /// Accepts arguments without validation.
    #[cfg(test)]
    pub fn unchecked(object: JsonObject) -> Self {
        Self(object)
    }

    /// Converts the arguments to a tool's struct. A test checks that the structs match what
    /// [`Args::read`] accepts.
    ///
    /// # Errors
    /// The struct does not match the tool's parameters.
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, ToolRefusal> {
        serde_json::from_value(Value::Object(self.0)).map_err(|error| {
            ToolRefusal::new(
                codes::INTERNAL,
                format!("the arguments cannot be read: {error}"),
                "this is a defect of Adjutant: report it with this call",
            )
        })
    }
}

/// Parses the fields of an entry or of a nested object.
fn parse_nested(params: &[Param], object: JsonObject) -> Result<Value, ToolRefusal> {
    Args::read(params, Some(object)).map(|entry| Value::Object(entry.0))
}

fn answer(name: &str, entry: Value) -> Result<Value, ToolRefusal> {
    let Value::Object(object) = entry else {
        let hint = format!("pass `{name}` as a list of {{\"message_id\": …, \"answer\": …}}");
        return Err(ToolRefusal::invalid(
            format!("an entry of `{name}` is not an object"),
            hint,
        ));
    };
    let answer = parse_nested(&ANSWER, object)?;
    if answer.get("answer").is_none() && answer.get("decision").is_none() {
        let hint =
            "pass answer to a question, decision (approve or deny) to an approval or a delegation";
        return Err(ToolRefusal::invalid(
            format!("an entry of `{name}` has neither `answer` nor `decision`"),
            hint,
        ));
    }
    Ok(answer)
}

fn question(entry: Value) -> Result<Value, ToolRefusal> {
    match entry {
        Value::String(text) => Ok(json!({"question": text})),
        Value::Object(object) => parse_nested(&QUESTION, object),
        _ => Err(ToolRefusal::invalid(
            "an entry of `questions` is neither a text nor an object",
            "pass `questions` as a list of {\"question\": …}",
        )),
    }
}

/// Converts a value to its declared type, accepting obvious variants.
fn convert_value(param: &Param, name: &str, value: Value) -> Result<Value, ToolRefusal> {
    let read = match (param.kind, value) {
        (Kind::Text, Value::String(text)) => Some(Value::String(text)),
        // Ids are sometimes sent as bare numbers.
        (Kind::Text, Value::Number(number)) => Some(Value::String(number.to_string())),
        (Kind::Names, Value::String(text)) => Some(Value::String(text)),
        (Kind::Names, Value::Array(list)) => names(&list).map(Value::String),
        (Kind::Word(words), Value::String(word)) => (words.contains(&word.as_str())
            || param.compat_words.contains(&word.as_str()))
        .then_some(Value::String(word)),
        (Kind::Integer | Kind::Count, Value::Number(number)) => whole(&number).map(Value::from),
        (Kind::Integer | Kind::Count, Value::String(text)) => {
            text.trim().parse::<i64>().ok().map(Value::from)
        }
        (Kind::Bool, Value::Bool(truth)) => Some(Value::Bool(truth)),
        (Kind::Bool, Value::String(text)) => text.parse::<bool>().ok().map(Value::Bool),
        (Kind::Texts, Value::String(text)) => Some(json!([text])),
        (Kind::Texts, Value::Array(list)) => list
            .iter()
            .all(Value::is_string)
            .then_some(Value::Array(list)),
        (Kind::Answers, Value::Array(list)) => Some(
            list.into_iter()
                .map(|entry| answer(param.name, entry))
                .collect::<Result<_, _>>()?,
        ),
        (Kind::Answers, one @ Value::Object(_)) => Some(json!([answer(param.name, one)?])),
        (Kind::Questions, Value::Array(list)) => {
            Some(list.into_iter().map(question).collect::<Result<_, _>>()?)
        }
        (Kind::Changes, Value::Object(changes)) => Some(parse_nested(&CHANGES, changes)?),
        _ => None,
    };
    let value = read.ok_or_else(|| {
        ToolRefusal::invalid(
            format!("`{name}` has a value of the wrong kind"),
            format!("pass {}", param.expected()),
        )
    })?;
    if matches!(param.kind, Kind::Count) && value.as_i64().is_some_and(|number| number < 0) {
        return Err(ToolRefusal::invalid(
            format!("`{}` is negative", param.name),
            format!("pass 0 or more in `{}`", param.name),
        ));
    }
    Ok(value)
}

/// Joins a list of names. `None`: an entry is not a name.
fn names(list: &[Value]) -> Option<String> {
    let names: Option<Vec<&str>> = list
        .iter()
        .map(|name| {
            name.as_str()
                .filter(|name| !name.trim().is_empty() && !name.contains(','))
        })
        .collect();
    names
        .filter(|names| !names.is_empty())
        .map(|names| names.join(","))
}

/// Accepts `5` and `5.0`, but not `5.5`.
fn whole(number: &serde_json::Number) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if let Some(integer) = number.as_i64() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole and within the range that doubles hold exactly"
    )]
    (float.fract() == 0.0 && float.abs() <= EXACT_MAX).then_some(float as i64)
}

/// Returns whether a name is a slip or a beginning of a known one. Another word of similar length
/// is neither.
fn is_near(known: &str, name: &str) -> bool {
    text::distance(known, name) <= 1.max(name.len() / 3)
        || name.len() >= 3 && known.starts_with(name)
}

/// Returns the required parameters without a value.
fn missing<'a>(params: &'a [Param], object: &JsonObject) -> Vec<&'a Param> {
    let is_given = |param: &Param| {
        object
            .iter()
            .any(|(name, value)| !value.is_null() && param.has_spelling(name))
    };
    params
        .iter()
        .filter(|param| param.required && !is_given(param))
        .collect()
}

/// Refuses an argument that does not exist. A required one that is missing may be what was meant.
fn unknown(params: &[Param], name: &str, missing: &[&Param]) -> ToolRefusal {
    let shown = text::quoted(name, 60);
    let nearest = params
        .iter()
        .flat_map(|param| {
            [param.name, param.original]
                .into_iter()
                .chain(param.also.iter().copied())
                .filter(|name| !name.is_empty())
        })
        .min_by_key(|known| text::distance(known, name));
    let all: Vec<&str> = params.iter().map(|param| param.name).collect();
    let hint = match nearest {
        None => "this tool takes no arguments: call it with {}".to_owned(),
        Some(nearest) if is_near(nearest, name) => {
            format!("did you mean `{nearest}`? It takes: {}", all.join(", "))
        }
        Some(_) => format!("it takes: {}", all.join(", ")),
    };
    let also: String = missing
        .iter()
        .map(|param| format!("; `{}` is missing: pass {}", param.name, param.expected()))
        .collect();
    let hint = hint + &also;
    ToolRefusal::invalid(format!("there is no argument {shown}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::args::{AnswerEntry, QuestionEntry, fields_of};
    use crate::view::{ChangesView, DecisionWord};
    use adjutant_core::signal::Priority;
    use serde::Deserialize;

    const PARAMS: [Param; 5] = [
        Param::new("run_id", Kind::Text)
            .also(&["runId", "subagent_id"])
            .required(),
        Param::new("wait_s", Kind::Count),
        Param::new("status", Kind::Word(&["running", "error"])),
        Param::new("answers", Kind::Answers),
        Param::new("questions", Kind::Questions),
    ];

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Decoded {
        run_id: String,
        wait_s: Option<u64>,
        status: Option<String>,
        #[serde(default)]
        answers: Vec<AnswerEntry>,
        #[serde(default)]
        questions: Vec<QuestionEntry>,
    }

    fn read(value: Value) -> Result<Decoded, ToolRefusal> {
        Args::read(&PARAMS, value.as_object().cloned())?.decode()
    }

    #[test]
    fn entries_have_the_fields_of_their_parameters() {
        let names = |params: &[Param]| params.iter().map(|param| param.name).collect::<Vec<_>>();
        assert_eq!(names(&ANSWER), fields_of::<AnswerEntry>());
        assert_eq!(names(&QUESTION), fields_of::<QuestionEntry>());
        assert_eq!(names(&CHANGES), fields_of::<ChangesView>());
    }

    #[test]
    fn every_spelling_reads_as_the_same_argument() {
        for spelling in ["run_id", "runId", "subagent_id"] {
            assert_eq!(
                read(json!({spelling: "otter"})).expect("read").run_id,
                "otter"
            );
        }
        assert!(read(json!({"run_id": "a", "runId": "a"})).is_ok());
        assert!(read(json!({"run_id": "a", "runId": "b"})).is_err());
    }

    #[test]
    fn unknown_argument_is_refused_with_the_nearest_name() {
        let refusal = read(json!({"run_id": "a", "wait": 5})).expect_err("refused");
        assert!(
            refusal
                .hint
                .as_deref()
                .is_some_and(|hint| hint.contains("did you mean `wait_s`")),
            "{refusal:?}"
        );
        assert!(
            !refusal
                .hint
                .as_deref()
                .is_some_and(|hint| hint.contains("is missing")),
            "{refusal:?}"
        );
    }

    #[test]
    fn unknown_argument_suggests_no_other_word_and_names_what_is_missing() {
        for name in ["goal", "text", "subject", "x", "details"] {
            let refusal = read(json!({name: "fix it"})).expect_err("refused");
            let hint = refusal.hint.clone().unwrap_or_default();
            assert!(
                !hint.contains("did you mean") && hint.contains("`run_id` is missing: pass "),
                "{name}: {refusal:?}"
            );
        }
        // An argument without a value is missing too.
        let refusal = read(json!({"run_id": null, "stat": "error"})).expect_err("refused");
        let hint = refusal.hint.clone().unwrap_or_default();
        assert!(
            hint.contains("did you mean `status`") && hint.contains("`run_id` is missing"),
            "{refusal:?}"
        );
    }

    #[test]
    fn wrong_types_are_refused_and_obvious_values_converted() {
        assert_eq!(
            read(json!({"run_id": "a", "wait_s": "5"}))
                .expect("read")
                .wait_s,
            Some(5)
        );
        assert_eq!(
            read(json!({"run_id": "a", "wait_s": 5.0}))
                .expect("read")
                .wait_s,
            Some(5)
        );
        assert_eq!(
            read(json!({"run_id": 7, "wait_s": null, "status": "error"}))
                .expect("read")
                .status
                .as_deref(),
            Some("error")
        );
        let negative = read(json!({"run_id": "a", "wait_s": -1})).expect_err("refused");
        assert_eq!(negative.message, "`wait_s` is negative");
        for bad in [
            json!({"run_id": "a", "wait_s": 5.5}),
            json!({"run_id": ["a"]}),
            json!({"run_id": "a", "status": "done"}),
            json!({}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_are_accepted_in_both_spellings() {
        let args =
            read(json!({"run_id": "a", "answers": [{"messageId": "Q1", "message": "yes"}, {"message_id": "Q2", "answer": ""}]})).expect("read");
        let answers = args.answers;
        assert_eq!(
            (
                answers[0].message_id.as_deref(),
                answers[0].answer.as_deref(),
                answers[0].decision
            ),
            (Some("Q1"), Some("yes"), None)
        );
        assert_eq!(answers[1].answer.as_deref(), Some(""));
        for bad in [
            json!(["x"]),
            json!([{"message_id": "Q1"}]),
            json!([{"message_id": "Q1", "decision": "maybe"}]),
        ] {
            assert!(
                read(json!({"run_id": "a", "answers": bad})).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn decisions_carry_their_reason_and_changes() {
        let entry = json!({"message_id": "Q1", "decision": "approve", "changes": {"agent": "echo", "priority": "P0"}});
        let args = read(json!({"run_id": "a", "answers": [entry, {"message_id": "Q2", "decision": "deny", "reason": "later"}]})).expect("read");
        let changes = args.answers[0].changes.clone().expect("changes");
        assert_eq!(
            (changes.agent.as_deref(), changes.priority, changes.prompt),
            (Some("echo"), Some(Priority::P0.into()), None)
        );
        assert_eq!(
            (args.answers[1].decision, args.answers[1].reason.as_deref()),
            (Some(DecisionWord::Deny), Some("later"))
        );
    }

    #[test]
    fn questions_are_texts_or_objects() {
        let args = read(json!({"run_id": "a", "questions": ["why?", {"text": "how?", "options": "a", "blocking": "false"}]})).expect("read");
        let questions = args.questions;
        assert_eq!(
            (questions[0].question.as_str(), questions[0].blocking),
            ("why?", None)
        );
        assert_eq!(
            (
                questions[1].question.as_str(),
                questions[1].blocking,
                questions[1].options.len()
            ),
            ("how?", Some(false), 1)
        );
        for bad in [
            json!([5]),
            json!([{"context": "x"}]),
            json!([{"question": "x", "when": "now"}]),
        ] {
            assert!(
                read(json!({"run_id": "a", "questions": bad})).is_err(),
                "{bad}"
            );
        }
    }
}
