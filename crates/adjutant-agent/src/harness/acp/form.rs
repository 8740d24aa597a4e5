//! Turns the form of an elicitation into questions, and their answers into the form's content.
//!
//! A form's schema is flat: strings (free, or one of a list), numbers, booleans, and several values
//! of a list. Other modes, such as a page to open, are refused, since there may be no person to
//! open it.

use crate::harness::step::Question;
use adjutant_core::{limits, shorten};
use serde_json::{Map, Value, json};

/// Maximum number of fields that a form may have.
const FIELDS_MAX: usize = 16;
/// Longest label of a field, in bytes.
const LABEL_BYTES_MAX: usize = 500;
/// The answer that declines a form.
const DECLINE: &str = "decline";
/// The answer that skips a field.
const SKIP: &str = "skip";
/// The answer that accepts a form without fields.
const ACCEPT: &str = "accept";

/// The type of a field.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text {
        length_min: u64,
        length_max: Option<u64>,
    },
    Number {
        is_integer: bool,
        min: Option<f64>,
        max: Option<f64>,
    },
    Boolean,
    OneOf(Vec<Choice>),
    SomeOf {
        choices: Vec<Choice>,
        items_min: u64,
        items_max: Option<u64>,
    },
}

/// One of the values of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    value: String,
    title: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    label: String,
    description: Option<String>,
    kind: Kind,
    is_required: bool,
}

/// A form whose questions are open.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Form {
    message: String,
    fields: Vec<Field>,
    /// The value of each answered field. `Null`: the field is skipped.
    values: Vec<Option<Value>>,
}

/// Why a form cannot be turned into questions.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("elicitation by a URL is not supported by this client: ask with a form")]
    Url,
    #[error("no elicitation mode {0:?} in this client: use form")]
    Mode(String),
    #[error("the elicitation has no message")]
    NoMessage,
    #[error("the properties of the elicitation's schema are not an object")]
    Properties,
    #[error("the elicitation has {0} fields, the limit is {FIELDS_MAX}")]
    TooManyFields(usize),
    #[error("the type of the field {0:?} is not known to this client")]
    UnknownType(String),
    #[error("{list} of the field {name:?} {problem}")]
    List {
        name: String,
        /// The part of the schema that lists the values.
        list: &'static str,
        problem: ListProblem,
    },
}

/// Why the values of a field cannot be offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListProblem {
    #[error("is no list of values")]
    Missing,
    #[error("has a value that cannot be offered")]
    BadValue,
}

/// Why an answer does not fit its field.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum AnswerError {
    #[error("{answer:?} is not {expected}")]
    Unexpected { answer: String, expected: String },
    #[error("{count} values given; choose {}", range(Some(min), max.as_ref()))]
    Count {
        count: u64,
        min: u64,
        max: Option<u64>,
    },
}

/// The result of answering a form.
#[derive(Debug, PartialEq)]
pub(super) enum FormReply {
    /// The content of the completed form.
    Accepted(Value),
    Declined,
    /// The questions that are still open, with the reason why an answer was not accepted.
    Retry(Vec<Question>),
}

impl Form {
    /// Reads the parameters of `elicitation/create`.
    ///
    /// # Errors
    /// The form cannot be turned into questions.
    pub(super) fn read(params: &Value) -> Result<Self, FormError> {
        match params["mode"].as_str() {
            None | Some("form") => {}
            Some("url") => return Err(FormError::Url),
            Some(other) => {
                let mode = shorten::to_bytes(other, LABEL_BYTES_MAX).into_owned();
                return Err(FormError::Mode(mode));
            }
        }
        let message = params["message"]
            .as_str()
            .filter(|message| !message.trim().is_empty())
            .ok_or(FormError::NoMessage)?;
        let schema = &params["requestedSchema"];
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = match &schema["properties"] {
            Value::Null => &Map::new(),
            Value::Object(properties) => properties,
            _ => return Err(FormError::Properties),
        };
        if properties.len() > FIELDS_MAX {
            return Err(FormError::TooManyFields(properties.len()));
        }
        let fields = properties
            .iter()
            .map(|(name, field)| Field::read(name, field, required.contains(&name.as_str())))
            .collect::<Result<Vec<_>, _>>()?;
        let values = vec![None; fields.len()];
        Ok(Self {
            message: message.to_owned(),
            fields,
            values,
        })
    }

    /// Returns the open questions: one for each field, or whether to accept a form without fields.
    pub(super) fn questions(&self) -> Vec<Question> {
        if self.fields.is_empty() {
            let options = vec![ACCEPT.to_owned(), DECLINE.to_owned()];
            return vec![Question {
                text: self.message.clone(),
                context: None,
                options,
            }];
        }
        let open = self
            .fields
            .iter()
            .zip(&self.values)
            .filter(|(_, value)| value.is_none());
        open.map(|(field, _)| field.question(&self.message, self.fields.len() > 1))
            .collect()
    }

    /// Handles the answers to the open questions, in their order.
    pub(super) fn answer(&mut self, answers: &[String]) -> FormReply {
        let is = |answer: &String, word: &str| answer.trim().eq_ignore_ascii_case(word);
        let open: Vec<usize> = (0..self.fields.len())
            .filter(|n| self.values[*n].is_none())
            .collect();
        let declines = |(n, answer): (usize, &String)| {
            is(answer, DECLINE)
                && !open
                    .get(n)
                    .is_some_and(|at| self.fields[*at].offers(DECLINE))
        };
        if answers.iter().enumerate().any(declines) {
            return FormReply::Declined;
        }
        if self.fields.is_empty() {
            let [answer] = answers else {
                return FormReply::Declined;
            };
            return if is(answer, ACCEPT) {
                FormReply::Accepted(json!({}))
            } else {
                self.ask_again(&[(0, format!("answer {ACCEPT} or {DECLINE}"))])
            };
        }
        let mut wrong = Vec::new();
        for (at, answer) in open.into_iter().zip(answers) {
            match self.fields[at].value(answer) {
                Ok(value) => self.values[at] = Some(value),
                Err(error) => wrong.push((at, error.to_string())),
            }
        }
        if !wrong.is_empty() || self.values.iter().any(Option::is_none) {
            return self.ask_again(&wrong);
        }
        let filled = self
            .fields
            .iter()
            .zip(&self.values)
            .filter_map(|(field, value)| Some((field.name.clone(), value.clone()?)));
        FormReply::Accepted(Value::Object(
            filled.filter(|(_, value)| !value.is_null()).collect(),
        ))
    }

    fn ask_again(&self, wrong: &[(usize, String)]) -> FormReply {
        let open = (0..self.fields.len().max(1))
            .filter(|n| self.values.get(*n).is_none_or(Option::is_none));
        let mut questions = self.questions();
        for (question, at) in questions.iter_mut().zip(open) {
            if let Some((_, why)) = wrong.iter().find(|(n, _)| *n == at) {
                let context = question
                    .context
                    .take()
                    .map_or_else(String::new, |context| format!("\n{context}"));
                question.context = Some(format!("the previous answer was invalid: {why}{context}"));
            }
        }
        FormReply::Retry(questions)
    }
}

impl Field {
    fn read(name: &str, schema: &Value, is_required: bool) -> Result<Self, FormError> {
        let text = |key: &str| {
            schema[key]
                .as_str()
                .map(|text| shorten::to_bytes(text, LABEL_BYTES_MAX).into_owned())
        };
        let kind = Kind::read(name, schema)?;
        let label = text("title")
            .filter(|title| !title.trim().is_empty())
            .unwrap_or_else(|| name.to_owned());
        Ok(Self {
            name: name.to_owned(),
            label,
            description: text("description"),
            kind,
            is_required,
        })
    }

    fn question(&self, message: &str, is_one_of_several: bool) -> Question {
        let text = if is_one_of_several {
            format!("{message}\n{}", self.label)
        } else {
            message.to_owned()
        };
        let mut options: Vec<String> = match &self.kind {
            Kind::Boolean => vec!["yes".to_owned(), "no".to_owned()],
            Kind::OneOf(choices) => choices.iter().map(|choice| choice.title.clone()).collect(),
            Kind::SomeOf { .. } | Kind::Text { .. } | Kind::Number { .. } => Vec::new(),
        };
        let mut extra_answers = vec![(DECLINE, "declines the whole form")];
        if !self.is_required {
            extra_answers.push((SKIP, "leaves this field empty"));
        }
        if options.len() + extra_answers.len() > limits::OPTIONS_MAX {
            options.clear();
        }
        if !options.is_empty() {
            options.extend(extra_answers.iter().map(|(word, _)| (*word).to_owned()));
        }
        let label = (!is_one_of_several).then(|| self.label.clone());
        let extra_answers = extra_answers
            .iter()
            .map(|(word, what)| format!("`{word}` {what}"))
            .collect::<Vec<_>>()
            .join(", ");
        let lines = [
            label,
            self.description.clone(),
            Some(self.expected()),
            Some(extra_answers),
        ];
        Question {
            text,
            context: Some(lines.into_iter().flatten().collect::<Vec<_>>().join("\n")),
            options,
        }
    }

    /// Describes a valid answer.
    fn expected(&self) -> String {
        let list = |choices: &[Choice]| {
            choices
                .iter()
                .map(|choice| choice.title.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        match &self.kind {
            Kind::Text {
                length_min: 0,
                length_max: None,
            } => "a text".to_owned(),
            Kind::Text {
                length_min,
                length_max,
            } => format!(
                "a text of {} characters",
                range(Some(length_min), length_max.as_ref())
            ),
            Kind::Number {
                is_integer,
                min,
                max,
            } => {
                let kind = if *is_integer {
                    "a whole number"
                } else {
                    "a number"
                };
                if min.is_none() && max.is_none() {
                    kind.to_owned()
                } else {
                    format!("{kind}, {}", range(min.as_ref(), max.as_ref()))
                }
            }
            Kind::Boolean => "yes or no".to_owned(),
            Kind::OneOf(choices) => format!("one of: {}", list(choices)),
            Kind::SomeOf { choices, .. } => {
                format!("some of these, with commas between them: {}", list(choices))
            }
        }
    }

    /// Returns whether a word is one of the field's values.
    fn offers(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::OneOf(choices) | Kind::SomeOf { choices, .. } if find(choices, word).is_some())
    }

    /// Parses an answer.
    fn value(&self, answer: &str) -> Result<Value, AnswerError> {
        let word = answer.trim();
        if !self.is_required && word.eq_ignore_ascii_case(SKIP) && !self.offers(SKIP) {
            return Ok(Value::Null);
        }
        let value = match &self.kind {
            Kind::Text {
                length_min,
                length_max,
            } => text_value(answer, *length_min, *length_max),
            Kind::Number {
                is_integer,
                min,
                max,
            } => number_value(word, *is_integer, *min, *max),
            Kind::Boolean => boolean_value(word),
            Kind::OneOf(choices) => find(choices, word).map(|choice| choice.value.as_str().into()),
            Kind::SomeOf {
                choices,
                items_min,
                items_max,
            } => match chosen(choices, word) {
                Some(values) => {
                    check_count(values.len() as u64, *items_min, *items_max)?;
                    Some(values.into_iter().collect())
                }
                None => None,
            },
        };
        value.ok_or_else(|| AnswerError::Unexpected {
            answer: shorten::to_bytes(word, LABEL_BYTES_MAX).into_owned(),
            expected: self.expected(),
        })
    }
}

fn text_value(answer: &str, length_min: u64, length_max: Option<u64>) -> Option<Value> {
    let length = answer.chars().count() as u64;
    (length >= length_min && length_max.is_none_or(|max| length <= max)).then(|| answer.into())
}

fn number_value(word: &str, is_integer: bool, min: Option<f64>, max: Option<f64>) -> Option<Value> {
    let is_within =
        |number: f64| min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max);
    let whole = word
        .parse::<i64>()
        .ok()
        .filter(|whole| is_within(*whole as f64))
        .map(Value::from);
    let real = || {
        word.parse::<f64>()
            .ok()
            .filter(|real| real.is_finite() && is_within(*real))
            .map(Value::from)
    };
    whole.or_else(|| if is_integer { None } else { real() })
}

fn boolean_value(word: &str) -> Option<Value> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "true" | "y" => Some(true.into()),
        "no" | "false" | "n" => Some(false.into()),
        _ => None,
    }
}

/// Returns the values of a list of words. `None`: one of them is none.
fn chosen<'a>(choices: &'a [Choice], list: &str) -> Option<Vec<&'a str>> {
    list.split([',', '\n'])
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| find(choices, word).map(|choice| choice.value.as_str()))
        .collect()
}

fn check_count(count: u64, min: u64, max: Option<u64>) -> Result<(), AnswerError> {
    if count < min || max.is_some_and(|max| count > max) {
        return Err(AnswerError::Count { count, min, max });
    }
    Ok(())
}

impl Kind {
    /// Reads the type of the field `name`.
    fn read(name: &str, schema: &Value) -> Result<Self, FormError> {
        let number = |key: &str| schema[key].as_f64();
        let choices = |values: &Value, list: &'static str| {
            choices(values).map_err(|problem| FormError::List {
                name: name.to_owned(),
                list,
                problem,
            })
        };
        let one_of = |list: &'static str| choices(&schema[list], list).map(Self::OneOf);
        match schema["type"].as_str() {
            Some("string") if !schema["oneOf"].is_null() => one_of("oneOf"),
            Some("string") if !schema["enum"].is_null() => one_of("enum"),
            Some("string") => Ok(Self::Text {
                length_min: schema["minLength"].as_u64().unwrap_or(0),
                length_max: schema["maxLength"].as_u64(),
            }),
            Some(word @ ("number" | "integer")) => Ok(Self::Number {
                is_integer: word == "integer",
                min: number("minimum"),
                max: number("maximum"),
            }),
            Some("boolean") => Ok(Self::Boolean),
            Some("array") => {
                let items = &schema["items"];
                let list = if items["anyOf"].is_null() {
                    &items["enum"]
                } else {
                    &items["anyOf"]
                };
                Ok(Self::SomeOf {
                    choices: choices(list, "items")?,
                    items_min: schema["minItems"].as_u64().unwrap_or(0),
                    items_max: schema["maxItems"].as_u64(),
                })
            }
            _ => Err(FormError::UnknownType(name.to_owned())),
        }
    }
}

/// Parses a list of values, with or without titles.
fn choices(list: &Value) -> Result<Vec<Choice>, ListProblem> {
    let list = list
        .as_array()
        .filter(|list| !list.is_empty())
        .ok_or(ListProblem::Missing)?;
    let read = |entry: &Value| {
        let value = entry.as_str().or_else(|| entry["const"].as_str())?;
        let title = entry["title"]
            .as_str()
            .filter(|title| !title.trim().is_empty())
            .unwrap_or(value);
        (!value.trim().is_empty() && title.len() <= limits::OPTION_BYTES_MAX).then(|| Choice {
            value: value.to_owned(),
            title: title.to_owned(),
        })
    };
    list.iter()
        .map(read)
        .collect::<Option<Vec<_>>>()
        .ok_or(ListProblem::BadValue)
}

/// Finds the choice with this value or title. Letter case is ignored if the match is then still
/// unique.
fn find<'a>(choices: &'a [Choice], word: &str) -> Option<&'a Choice> {
    let exactly = choices
        .iter()
        .find(|choice| choice.value == word)
        .or_else(|| choices.iter().find(|choice| choice.title == word));
    let mut alike = choices.iter().filter(|choice| {
        choice.title.eq_ignore_ascii_case(word) || choice.value.eq_ignore_ascii_case(word)
    });
    exactly.or_else(|| alike.next().filter(|_| alike.next().is_none()))
}

fn range<T: std::fmt::Display>(min: Option<&T>, max: Option<&T>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(properties: Value, required: &[&str]) -> Form {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        Form::read(&json!({"mode": "form", "message": "How?", "requestedSchema": schema}))
            .expect("a form")
    }

    fn answered(properties: Value, answer: &str) -> FormReply {
        form(properties, &["x"]).answer(&[answer.to_owned()])
    }

    #[test]
    fn answer_is_converted_to_the_type_of_its_field() {
        let titled =
            json!([{"const": "pg", "title": "PostgreSQL"}, {"const": "my", "title": "MySQL"}]);
        for (field, answer, expected) in [
            (
                json!({"type": "string"}),
                " as it is\n",
                json!(" as it is\n"),
            ),
            (
                json!({"type": "string", "enum": ["red", "blue"]}),
                "BLUE",
                json!("blue"),
            ),
            (
                json!({"type": "string", "oneOf": titled}),
                "PostgreSQL",
                json!("pg"),
            ),
            (
                json!({"type": "string", "enum": ["decline", "go"]}),
                "decline",
                json!("decline"),
            ),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
                " 7 ",
                json!(7),
            ),
            (json!({"type": "number"}), "2.5", json!(2.5)),
            (json!({"type": "boolean"}), "Yes", json!(true)),
            (
                json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2}),
                "a, c",
                json!(["a", "c"]),
            ),
            (
                json!({"type": "array", "items": {"anyOf": titled}}),
                "mysql",
                json!(["my"]),
            ),
        ] {
            assert_eq!(
                answered(json!({ "x": field }), answer),
                FormReply::Accepted(json!({ "x": expected })),
                "{field}"
            );
        }
    }

    #[test]
    fn wrong_answer_is_asked_for_again_with_the_reason() {
        for (field, answer) in [
            (json!({"type": "string", "enum": ["red", "blue"]}), "green"),
            (json!({"type": "string", "minLength": 3}), "ab"),
            (json!({"type": "integer"}), "2.5"),
            (json!({"type": "integer", "maximum": 9}), "10"),
            (json!({"type": "number"}), "NaN"),
            (json!({"type": "boolean"}), "perhaps"),
            (
                json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 1}),
                "a,b",
            ),
        ] {
            let FormReply::Retry(again) = answered(json!({ "x": field }), answer) else {
                panic!("{field}")
            };
            assert!(
                again.len() == 1
                    && again[0]
                        .context
                        .as_ref()
                        .is_some_and(|context| context.contains("was invalid")),
                "{again:?}"
            );
        }
        let mut form = form(
            json!({"a": {"type": "integer"}, "b": {"type": "boolean"}}),
            &["a", "b"],
        );
        let FormReply::Retry(again) = form.answer(&["1".to_owned(), "?".to_owned()]) else {
            panic!("one is wrong")
        };
        assert!(
            again.len() == 1 && again[0].text.ends_with("\nb"),
            "{again:?}"
        );
        assert_eq!(
            form.answer(&["no".to_owned()]),
            FormReply::Accepted(json!({"a": 1, "b": false}))
        );
    }

    #[test]
    fn shortened_texts_are_marked() {
        let long = "x".repeat(LABEL_BYTES_MAX + 1);
        let field = json!({"type": "boolean", "title": long, "description": long});
        let mut form = form(json!({ "x": field }), &["x"]);
        let marks = |context: Option<&String>| {
            context.map_or(0, |context| context.matches(shorten::MARK).count())
        };
        let question = &form.questions()[0];
        assert_eq!(marks(question.context.as_ref()), 2, "{question:?}");
        let FormReply::Retry(again) = form.answer(std::slice::from_ref(&long)) else {
            panic!("it is no answer")
        };
        assert_eq!(marks(again[0].context.as_ref()), 3, "{again:?}");
        let refused = Form::read(&json!({ "mode": long, "message": "x" })).expect_err("a mode");
        assert!(refused.to_string().contains(shorten::MARK), "{refused}");
        let exact = "x".repeat(LABEL_BYTES_MAX);
        let refused = Form::read(&json!({ "mode": exact, "message": "x" })).expect_err("a mode");
        assert!(!refused.to_string().contains(shorten::MARK), "{refused}");
    }

    #[test]
    fn form_is_declined_and_optional_fields_are_skipped() {
        assert_eq!(
            answered(json!({"x": {"type": "boolean"}}), " Decline "),
            FormReply::Declined
        );
        assert_eq!(
            form(json!({"x": {"type": "boolean"}}), &[]).answer(&["skip".to_owned()]),
            FormReply::Accepted(json!({}))
        );
        assert!(matches!(
            answered(json!({"x": {"type": "boolean"}}), "skip"),
            FormReply::Retry(_)
        ));
        let mut empty = form(json!({}), &[]);
        assert_eq!(empty.questions()[0].options, ["accept", "decline"]);
        assert!(matches!(
            empty.answer(&["what?".to_owned()]),
            FormReply::Retry(_)
        ));
        assert_eq!(
            empty.answer(&["accept".to_owned()]),
            FormReply::Accepted(json!({}))
        );
        let options =
            &form(json!({"x": {"type": "string", "enum": ["a", "b"]}}), &[]).questions()[0].options;
        assert_eq!(options, &["a", "b", "decline", "skip"]);
    }

    #[test]
    fn unsupported_form_is_refused() {
        let many: Map<String, Value> = (0..=FIELDS_MAX)
            .map(|n| (n.to_string(), json!({"type": "string"})))
            .collect();
        for (params, why) in [
            (
                json!({"mode": "url", "message": "x", "url": "https://example.com", "elicitationId": "1"}),
                "URL",
            ),
            (json!({"mode": "_own", "message": "x"}), "_own"),
            (json!({"mode": "form", "requestedSchema": {}}), "no message"),
            (
                json!({"mode": "form", "message": "x", "requestedSchema": {"properties": {"a": {"type": "object"}}}}),
                "\"a\"",
            ),
            (
                json!({"mode": "form", "message": "x", "requestedSchema": {"properties": {"a": {"type": "string", "enum": []}}}}),
                "no list",
            ),
            (
                json!({"mode": "form", "message": "x", "requestedSchema": {"properties": many}}),
                "limit",
            ),
        ] {
            assert!(
                Form::read(&params).is_err_and(|error| error.to_string().contains(why)),
                "{params}"
            );
        }
    }
}
