//! The page for authors of agents matches the code: its examples are parsed, its grammar names
//! every signal, and what its schema accepts is parsed exactly.

use adjutant_core::signal::{Own, Reading, SignalError, SignalKind};
use adjutant_core::{RunId, Time};
use adjutant_stream::signal::{FoundSignal, Scanner, interpret};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::HashMap;

const PAGE: &str = include_str!("../../../../docs/speaking.md");
const SCHEMA: &str = include_str!("../../../../docs/signal.schema.json");
/// The placeholder for the run's id on the page.
const ID: &str = "<the run's id>";

fn own() -> RunId {
    RunId::new(Time(1), [1; 10])
}

fn read(text: &str) -> Vec<Reading> {
    let mut scanner = Scanner::default();
    let mut found: Vec<FoundSignal> = Vec::new();
    scanner.feed(text, &mut |one| found.push(one));
    scanner.end(&mut |one| found.push(one));
    found
        .iter()
        .map(|one| {
            interpret(
                one,
                Own {
                    id: own(),
                    name: "fond-mouse",
                },
            )
        })
        .collect()
}

#[test]
fn examples_on_the_page_parse() {
    let mut signals = read(&PAGE.replace(ID, &own().to_string()));
    // The page also names markers in its text.
    signals.retain(|reading| *reading != Reading::Ignored(SignalError::NoBlock));
    assert_eq!(signals.len(), PAGE.matches(ID).count(), "{signals:?}");
    for signal in &signals {
        assert!(matches!(signal, Reading::Exact(_)), "{signal:?}");
    }
    assert!(signals.len() >= 4);
}

/// Returns the required fields of each kind.
fn needed(kind: SignalKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        SignalKind::Clarification => &[("reason", "why?")],
        SignalKind::Stop => &[("stop_reason", "blocker"), ("details", "x")],
        SignalKind::Delegation => &[("new_task_description", "x")],
        SignalKind::Completion => &[("status", "success"), ("summary", "x")],
        SignalKind::Progress => &[("percent", "40")],
        SignalKind::Approval => &[("action", "x")],
    }
}

#[test]
fn grammar_on_the_page_matches_the_parser() {
    let grammar = PAGE
        .split("```abnf\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("a grammar");
    let rules: Vec<&str> = grammar
        .lines()
        .filter_map(|line| line.split_once("= %s"))
        .map(|(_, rule)| rule)
        .collect();
    assert_eq!(rules.len(), SignalKind::ALL.len());
    for kind in SignalKind::ALL {
        let tag = kind.tag();
        let rule = rules
            .iter()
            .find(|rule| rule.starts_with(&format!("\"[{tag}]\"")))
            .unwrap_or_else(|| panic!("no rule for {tag}"));
        let fields: String = needed(kind)
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        for eol in ["\n", "\r\n"] {
            let fields = format!("agent_id: {}\n{fields}", own()).replace('\n', eol);
            // The rule with its parts substituted.
            let text: String = format!("%s{rule}")
                .split(' ')
                .map(|part| match part {
                    "eol" => eol.to_owned(),
                    "signal-fields" => fields.clone(),
                    literal => literal
                        .trim_start_matches("%s")
                        .trim_matches('"')
                        .to_owned(),
                })
                .collect();
            let signals = read(&text);
            assert!(
                matches!(signals.as_slice(), [Reading::Exact(_)]),
                "{text}: {signals:?}"
            );
        }
    }
}

/// Returns the values that replace a field, one after the other.
fn values() -> Vec<Value> {
    let mut all = vec![
        json!(null),
        json!(""),
        json!("  "),
        json!("x"),
        json!("blocker: no network"),
        json!(5),
        json!(true),
        json!([]),
        json!([""]),
        json!(["a", "b"]),
        json!([null]),
        json!([5]),
        json!({}),
        json!({"a": 1}),
        json!({"text": "why?"}),
        json!({"text": ""}),
        json!([{"text": "why?"}]),
        json!([{"text": "why?", "type": "blocking"}, {"text": "how?", "type": "optional"}]),
        json!([{"text": "why?", "type": "sometimes"}]),
        json!([{"text": null}]),
        json!([{"question": "why?"}]),
        json!(["a", {"text": ["b"]}]),
        json!([["a"]]),
        json!(0),
        json!(100),
        json!(101),
        json!(-1),
        json!(40.5),
        json!(true),
    ];
    let words = [
        "blocker",
        "error",
        "completion",
        "Blocker",
        "success",
        "partial_success",
        "failed",
        "done",
        "can_proceed_parallel",
        "blocks_current_work",
        "optional",
        "P0",
        "P1",
        "P2",
        "P3",
        "40",
        "40 %",
        "040%",
        "+4",
        "101",
        "1000",
        "-4",
        "4.5",
        "2026-01-11",
        "2026-01-11T08:45:00-05:00",
        " 2026-01-11T08:45Z ",
        "2026-01-11T08:45:00.123+0200",
        "2026-1-1",
        "yesterday",
        "2026-01-11T",
    ];
    all.extend(words.into_iter().map(Value::from));
    all
}

#[test]
fn what_the_schema_accepts_is_parsed_exactly() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let fields = [
        "timestamp",
        "reason",
        "questions",
        "stop_reason",
        "details",
        "blocker_type",
        "new_task_description",
        "independence",
        "priority",
        "status",
        "summary",
        "deliverables",
        "percent",
        "note",
        "eta",
        "action",
        "risk",
    ];
    let (mut taken, mut refused, mut read_besides) = (0, 0, 0);
    let mut hold = |object: &Value| {
        let text = format!("{object}\n");
        let signals = read(&text);
        // The schema describes what to write. Adjutant also reads words that differ from it in ways
        // that leave no doubt.
        let is_valid = fits(&schema, &schema, object);
        match signals.as_slice() {
            [Reading::Exact(_)] if is_valid => taken += 1,
            [reading] if !is_valid && reading.signal().is_some() => read_besides += 1,
            [_] if !is_valid => refused += 1,
            other => panic!("{object}: {other:?}"),
        }
    };
    for kind in SignalKind::ALL {
        let head = |with: &[(&str, Value)]| {
            let mut object = json!({"signal_type": kind.tag(), "agent_id": own().to_string()});
            for (name, value) in with {
                object[*name] = value.clone();
            }
            object
        };
        let base: Map<String, Value> = needed(kind)
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let both_forms = |fields: &Map<String, Value>| {
            let mut flat = head(&[]);
            flat.as_object_mut()
                .expect("an object")
                .extend(fields.clone());
            // The timestamp is not part of the payload.
            let mut payload = fields.clone();
            let mut nested = head(&[]);
            if let Some(time) = payload.remove("timestamp") {
                nested["timestamp"] = time;
            }
            nested["payload"] = Value::Object(payload);
            [flat, nested]
        };
        both_forms(&base).iter().for_each(&mut hold);
        for field in fields {
            let mut without = base.clone();
            without.remove(field);
            both_forms(&without).iter().for_each(&mut hold);
            for value in values() {
                let mut changed = base.clone();
                changed.insert(field.to_owned(), value);
                both_forms(&changed).iter().for_each(&mut hold);
            }
        }
        for payload in [json!(null), json!("x"), json!([])] {
            hold(&head(&[("payload", payload)]));
        }
    }
    hold(&json!({"signal_type": "SOMETHING", "agent_id": own().to_string(), "note": "x"}));
    hold(&json!({"signal_type": "PROGRESS", "note": "x"}));
    hold(&json!({"signal_type": "PROGRESS", "agent_id": "me", "note": "x"}));
    assert!(
        taken > 1_000 && refused > 500 && read_besides < 1_000,
        "{taken} taken, {refused} refused, {read_besides} read besides"
    );
}

fn matches(pattern: &str, text: &str) -> bool {
    thread_local! {
        static MADE: RefCell<HashMap<String, regex::Regex>> = RefCell::default();
    }
    MADE.with_borrow_mut(|made| {
        made.entry(pattern.to_owned())
            .or_insert_with(|| regex::Regex::new(pattern).expect("a pattern"))
            .is_match(text)
    })
}

/// Validates a value against a schema. Supports only the keywords that the page's schema uses.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else {
        return schema == &json!(true);
    };
    let all = |list: &Value, test: &dyn Fn(&Value) -> bool| {
        list.as_array().expect("a list").iter().all(test)
    };
    let count = |given: &Value| usize::try_from(given.as_u64().expect("a count")).expect("small");
    keywords
        .iter()
        .all(|(keyword, given)| match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => true,
            "$ref" => {
                let name = given
                    .as_str()
                    .and_then(|name| name.strip_prefix("#/$defs/"))
                    .expect("a definition");
                fits(root, &root["$defs"][name], value)
            }
            "type" => match given.as_str().expect("a word") {
                "string" => value.is_string(),
                "number" => value.is_number(),
                "integer" => value.as_i64().is_some(),
                "boolean" => value.is_boolean(),
                "array" => value.is_array(),
                "object" => value.is_object(),
                "null" => value.is_null(),
                other => panic!("{other}"),
            },
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches(given.as_str().expect("a pattern"), text)),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= given.as_f64().expect("a number")),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| number <= given.as_f64().expect("a number")),
            "minItems" => value
                .as_array()
                .is_none_or(|list| list.len() >= count(given)),
            "maxItems" => value
                .as_array()
                .is_none_or(|list| list.len() <= count(given)),
            "items" => value
                .as_array()
                .is_none_or(|list| list.iter().all(|item| fits(root, given, item))),
            "minProperties" => value
                .as_object()
                .is_none_or(|object| object.len() >= count(given)),
            "maxProperties" => value
                .as_object()
                .is_none_or(|object| object.len() <= count(given)),
            "required" => value.as_object().is_none_or(|object| {
                all(given, &|name| {
                    object.contains_key(name.as_str().expect("a name"))
                })
            }),
            "properties" => value.as_object().is_none_or(|object| {
                given
                    .as_object()
                    .expect("properties")
                    .iter()
                    .all(|(name, schema)| {
                        object
                            .get(name)
                            .is_none_or(|value| fits(root, schema, value))
                    })
            }),
            "const" => value == given,
            "enum" => given.as_array().expect("a list").contains(value),
            "anyOf" => given
                .as_array()
                .expect("a list")
                .iter()
                .any(|schema| fits(root, schema, value)),
            "allOf" => all(given, &|schema| fits(root, schema, value)),
            "not" => !fits(root, given, value),
            other => panic!("the test knows no {other}"),
        })
}
