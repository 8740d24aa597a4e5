//! Elicitations: the fields of an agent's form become questions to its parent, and the answers
//! complete the form.

use super::{Rig, line};
use crate::support::kill;
use serde_json::{Value, json};

fn form(message: &str, properties: Value, required: &[&str]) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": properties, "required": required}})
}

fn elicit(request: &Value) -> String {
    format!("do: {}", json!(["elicit", request]))
}

/// Waits until a question with this text is open.
fn asked(rig: &Rig, text: &str) -> Value {
    rig.home.until(&format!("{text} is asked"), || {
        let open = rig.home.inbox(&[]);
        open.as_array()?
            .iter()
            .find(|asked| {
                asked["question"]
                    .as_str()
                    .is_some_and(|question| question.contains(text))
            })
            .cloned()
    })
}

fn reply(rig: &Rig, question: &Value, answer: &str) {
    rig.home.ok(&[
        "reply",
        question["number"].as_str().expect("a number"),
        answer,
    ]);
}

#[test]
fn answers_fill_the_form() {
    let Some(rig) = Rig::with(&[]) else { return };
    let colours = json!([{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]);
    let steps = [
        "do: [\"client\"]".to_owned(),
        elicit(&form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"])),
        elicit(&form(
            "Which colour?",
            json!({"colour": {"type": "string", "oneOf": colours}}),
            &["colour"],
        )),
        elicit(&form(
            "What name?",
            json!({"name": {"type": "string"}}),
            &["name"],
        )),
        elicit(&form(
            "How many?",
            json!({"count": {"type": "integer", "maximum": 9}}),
            &["count"],
        )),
    ];
    rig.start("mine", "job", &steps.each_ref().map(String::as_str), &[]);
    let question = asked(&rig, "Go on?");
    assert_eq!(
        (&question["kind"], &question["options"]),
        (&json!("question"), &json!(["yes", "no", "decline"]))
    );
    assert_eq!(rig.home.show("job")["status"], "waiting_parent_reply");
    reply(&rig, &question, "1");
    reply(&rig, &asked(&rig, "Which colour?"), "Blue");
    reply(&rig, &asked(&rig, "What name?"), "Ann & Bo");
    let first = asked(&rig, "How many?");
    reply(&rig, &first, "ten");
    // An invalid answer is asked for again, with the reason.
    let second = rig.home.until("it is asked again", || {
        rig.home
            .inbox(&[])
            .get(0)
            .filter(|asked| asked["message_id"] != first["message_id"])
            .cloned()
    });
    assert!(
        second["context"]
            .as_str()
            .is_some_and(|context| context.contains("\"ten\" is not a whole number")),
        "{second}"
    );
    reply(&rig, &second, "7");
    let view = rig.home.finished("job");
    let log = rig.home.log("job");
    assert_eq!(view["outcome"], "succeeded", "{log}");
    assert!(log.contains(r#""elicitation":{"form":{}}"#), "{log}");
    for content in [
        r#"{"ok":true}"#,
        r#"{"colour":"b"}"#,
        r#"{"name":"Ann & Bo"}"#,
        r#"{"count":7}"#,
    ] {
        assert!(
            log.contains(&format!(r#""content":{content}"#)),
            "{content} is not in {log}"
        );
    }
    assert_eq!(log.matches(r#""action":"accept""#).count(), 4, "{log}");
}

#[test]
fn fields_of_a_form_are_questions_of_a_group() {
    let Some(rig) = Rig::with(&[]) else { return };
    let fields = json!({"host": {"type": "string", "title": "The host"}, "port": {"type": "integer"}, "tls": {"type": "boolean"}});
    rig.start(
        "mine",
        "job",
        &[&elicit(&form("Where is it?", fields, &["host"]))],
        &[],
    );
    reply(&rig, &asked(&rig, "The host"), "example.com");
    reply(&rig, &asked(&rig, "port"), "443");
    reply(&rig, &asked(&rig, "tls"), "skip");
    rig.home.finished("job");
    let log = rig.home.log("job");
    assert!(
        log.contains(r#""action":"accept""#)
            && log.contains(r#""host":"example.com""#)
            && log.contains(r#""port":443"#),
        "{log}"
    );
    assert!(!log.contains("\"tls\":"), "{log}");
}

#[test]
fn form_is_declined_and_a_url_is_refused() {
    let Some(rig) = Rig::with(&[]) else { return };
    let url = json!({"mode": "url", "message": "Open this", "url": "https://example.com", "elicitationId": "e1"});
    let steps = [
        elicit(&url),
        elicit(&form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"])),
    ];
    rig.start("mine", "job", &steps.each_ref().map(String::as_str), &[]);
    reply(&rig, &asked(&rig, "Go on?"), "decline");
    rig.home.finished("job");
    let log = rig.home.log("job");
    assert!(
        log.contains("refused: -32602") && log.contains("elicitation by a URL is not supported"),
        "{log}"
    );
    assert!(log.contains(r#"elicited: {"action":"decline"}"#), "{log}");
}

#[test]
fn cancelled_elicitation_is_withdrawn() {
    let Some(rig) = Rig::with(&[]) else { return };
    let request = form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"]);
    rig.start(
        "mine",
        "job",
        &[&format!(
            "do: {}",
            json!(["elicit-and-cancel", request, 300])
        )],
        &[],
    );
    let question = asked(&rig, "Go on?");
    rig.home.finished("job");
    assert!(
        rig.home.log("job").contains("-32800"),
        "{}",
        rig.home.log("job")
    );
    let late = rig.home.adj(&[
        "reply",
        question["number"].as_str().expect("a number"),
        "yes",
    ]);
    assert_eq!(late.code, 7, "{late:?}");
}

#[test]
fn stopped_run_cancels_its_elicitation() {
    let Some(rig) = Rig::with(&[]) else { return };
    let request = form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"]);
    rig.start("mine", "job", &[&elicit(&request)], &[]);
    asked(&rig, "Go on?");
    rig.home.ok(&["cancel", "job"]);
    assert_eq!(rig.home.finished("job")["outcome"], "cancelled");
    assert!(
        rig.home
            .log("job")
            .contains(r#"elicited: {"action":"cancel"}"#),
        "{}",
        rig.home.log("job")
    );
    assert_eq!(rig.home.inbox(&[]), json!([]));
    rig.until_none_is_left("job");
}

#[test]
fn elicitation_outlives_a_killed_hub() {
    let Some(rig) = Rig::with(&[]) else { return };
    let request = form("Go on?", json!({"ok": {"type": "boolean"}}), &["ok"]);
    rig.start("mine", "job", &[&elicit(&request)], &[]);
    let before = asked(&rig, "Go on?");
    kill(rig.home.hub_pid());
    let question = asked(&rig, "Go on?");
    assert_eq!(question["message_id"], before["message_id"]);
    reply(&rig, &question, "no");
    assert_eq!(rig.home.finished("job")["outcome"], "succeeded");
    assert!(
        rig.home.log("job").contains(r#"{"ok":false}"#),
        "{}",
        rig.home.log("job")
    );
}

#[test]
fn agent_on_the_python_sdk_is_answered() {
    let Some(rig) = Rig::new(&line("mine", "py-agent", &[])) else {
        return;
    };
    let schema =
        json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
    rig.start(
        "mine",
        "job",
        &[&format!("do: {}", json!(["elicit", "Go on?", schema]))],
        &[],
    );
    reply(&rig, &asked(&rig, "Go on?"), "yes");
    assert_eq!(rig.home.finished("job")["outcome"], "succeeded");
    assert!(
        rig.home
            .log("job")
            .contains("elicited: accept {'ok': True}"),
        "{}",
        rig.home.log("job")
    );
}

#[test]
fn cancelled_prompt_is_cancelled_as_a_request_too() {
    let Some(rig) = Rig::with(&[]) else { return };
    rig.start(
        "mine",
        "job",
        &[
            r#"do: ["say","hanging"]"#,
            r#"do: ["await-cancel-request","told.txt"]"#,
        ],
        &[],
    );
    rig.home.until_log("job", "hanging");
    rig.home.ok(&["cancel", "job"]);
    assert_eq!(rig.home.finished("job")["outcome"], "cancelled");
    assert_eq!(
        std::fs::read_to_string(rig.home.work().join("told.txt")).expect("the notification"),
        "-32800"
    );
}
