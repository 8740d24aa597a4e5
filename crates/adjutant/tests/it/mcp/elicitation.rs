//! Elicitation: the client's person is asked about a request that was escalated to a person.

use super::Session;
use crate::support::TestHome;
use serde_json::{Value, json};

pub(super) const ESCALATES: &str = "[escalation]\nafter = \"100ms\"\n";

/// Starts a run of the client whose question is escalated.
pub(super) fn escalated(session: &mut Session, home: &TestHome, script: &str) -> String {
    let run = session.done(
        "run_subagent",
        json!({"agent": "echo", "name": "asks", "prompt": script}),
    );
    home.until("it is escalated", || {
        home.ok(&["events", "asks"])
            .contains("request.escalated")
            .then_some(())
    });
    run["run_id"].as_str().expect("an id").to_owned()
}

fn legacy(home: &TestHome, capabilities: Value) -> Session {
    initialized(
        Session::start(&home.home.dir, &home.work(), &[]),
        capabilities,
    )
}

fn initialized(mut session: Session, capabilities: Value) -> Session {
    let about = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
    session.request("initialize", about);
    session.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    session
}

fn wait(session: &mut Session) -> u64 {
    session.send(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"run_ids": ["asks"]}}),
    )
}

#[test]
fn person_answers_an_escalated_question_through_the_client() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = legacy(&home, json!({"elicitation": {}}));
    escalated(
        &mut session,
        &home,
        "ask \"Which one?\" [options: red|green]\ndone",
    );
    let call = wait(&mut session);
    let asked = session.notification("elicitation/create");
    let form = &asked["params"];
    assert!(
        form["message"]
            .as_str()
            .is_some_and(|text| text.contains("asks asks (Q1):\nWhich one?")),
        "{asked}"
    );
    assert_eq!(
        form["requestedSchema"]["properties"]["answer"]["enum"],
        json!(["red", "green"])
    );
    session.answer(
        &asked,
        json!({"action": "accept", "content": {"answer": "green"}}),
    );
    let reply = session.reply(call);
    assert_eq!(
        reply["result"]["structuredContent"]["ended"][0]["name"], "asks",
        "{reply}"
    );
    assert!(home.log("asks").contains("answer: green"));
    assert_eq!(home.inbox(&["--all"])[0]["answer"], "green");
}

#[test]
fn declined_request_stays_open_and_is_not_asked_again() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = legacy(&home, json!({"elicitation": {"form": {}}}));
    escalated(
        &mut session,
        &home,
        "approve \"drop the table\" preview: rm -rf build\ndone",
    );
    let call = wait(&mut session);
    let asked = session.notification("elicitation/create");
    assert!(
        asked["params"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("rm -rf build")),
        "{asked}"
    );
    session.answer(&asked, json!({"action": "decline"}));
    assert_eq!(
        session.reply(call)["result"]["structuredContent"]["needs"][0]["message_id"],
        "Q1"
    );
    let call = wait(&mut session);
    assert_eq!(
        session.reply(call)["result"]["structuredContent"]["needs"][0]["message_id"],
        "Q1"
    );
    assert!(
        session
            .aside
            .iter()
            .all(|message| message["method"] != "elicitation/create"),
        "asked once"
    );
    assert_eq!(home.inbox(&["--all"])[0]["status"], "pending");
    home.ok(&["cancel", "asks"]);
}

#[test]
fn person_is_asked_again_after_the_time_of_a_call() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = initialized(
        Session::start(&home.home.dir, &home.work(), &["--max-wait", "1"]),
        json!({"elicitation": {}}),
    );
    escalated(&mut session, &home, "ask \"Which one?\"\ndone");
    let call = wait(&mut session);
    let asked = session.notification("elicitation/create");
    // The call ends before its client cancels it.
    assert_eq!(
        session.reply(call)["result"]["structuredContent"]["needs"][0]["message_id"],
        "Q1"
    );
    assert_eq!(
        session.notification("notifications/cancelled")["params"]["requestId"],
        asked["id"]
    );
    session.answer(
        &asked,
        json!({"action": "accept", "content": {"answer": "late"}}),
    );
    assert_eq!(home.inbox(&["--all"])[0]["status"], "pending");
    let call = wait(&mut session);
    let asked = session.notification("elicitation/create");
    session.answer(
        &asked,
        json!({"action": "accept", "content": {"answer": "green"}}),
    );
    session.reply(call);
    assert_eq!(home.finished("asks")["outcome"], "succeeded");
    assert_eq!(home.inbox(&["--all"])[0]["answer"], "green");
}

#[test]
fn answer_elsewhere_ends_the_elicitation() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = legacy(&home, json!({"elicitation": {}}));
    escalated(&mut session, &home, "ask \"Which one?\"\ndone");
    let call = wait(&mut session);
    let asked = session.notification("elicitation/create");
    home.ok(&["reply", "Q1", "mine"]);
    assert_eq!(
        session.reply(call)["result"]["structuredContent"]["ended"][0]["name"],
        "asks"
    );
    session.answer(
        &asked,
        json!({"action": "accept", "content": {"answer": "late"}}),
    );
    assert_eq!(
        session.request("ping", json!({}))["result"],
        json!({}),
        "a late answer is harmless"
    );
    assert_eq!(home.inbox(&["--all"])[0]["answer"], "mine");
}

#[test]
fn nobody_is_asked_without_escalation_or_capability() {
    for (config, capabilities) in [
        ("", json!({"elicitation": {}})),
        (ESCALATES, json!({})),
        (ESCALATES, json!({"elicitation": {"url": {}}})),
    ] {
        let home = TestHome::with_config(config);
        let mut session = legacy(&home, capabilities);
        if config.is_empty() {
            session.done(
                "run_subagent",
                json!({"agent": "echo", "name": "asks", "prompt": "ask \"Which one?\"\ndone"}),
            );
        } else {
            escalated(&mut session, &home, "ask \"Which one?\"\ndone");
        }
        let call = wait(&mut session);
        assert_eq!(
            session.reply(call)["result"]["structuredContent"]["needs"][0]["message_id"],
            "Q1"
        );
        assert!(
            session
                .aside
                .iter()
                .all(|message| message["method"] != "elicitation/create")
        );
        home.ok(&["cancel", "asks"]);
    }
}

#[test]
fn result_requires_input_in_the_stateless_protocol() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true).with_elicitation();
    escalated(
        &mut session,
        &home,
        "ask \"Which one?\"\nask \"And then?\"\ndone",
    );
    let arguments = json!({"run_ids": ["asks"]});
    let required = session.tool("wait_for_subagents", arguments.clone());
    assert_eq!(required["resultType"], "input_required", "{required}");
    let (id, input) = required["inputRequests"]
        .as_object()
        .and_then(|all| all.iter().next())
        .expect("an input");
    assert_eq!(
        (&input["method"], &input["params"]["mode"]),
        (&json!("elicitation/create"), &json!("form"))
    );
    let repeat = |session: &mut Session, required: &Value, id: &str, reply: Value| {
        let params = json!({"name": "wait_for_subagents", "arguments": arguments, "inputResponses": {id: reply}, "requestState": required["requestState"]});
        session.request("tools/call", params)["result"].clone()
    };
    // Until the next question, which may be escalated meanwhile or not.
    repeat(
        &mut session,
        &required,
        id,
        json!({"action": "accept", "content": {"answer": "this"}}),
    );
    home.until("the next one is escalated", || {
        Some(home.inbox(&[]))
            .filter(|open| open[0]["number"] == "Q2" && open[0]["escalated"].is_array())
    });
    let required = session.tool("wait_for_subagents", arguments.clone());
    let id = required["inputRequests"]
        .as_object()
        .and_then(|all| all.keys().next())
        .expect("an input")
        .clone();
    let declined = repeat(&mut session, &required, &id, json!({"action": "cancel"}));
    assert_eq!(
        declined["structuredContent"]["needs"][0]["message_id"], "Q2",
        "{declined}"
    );
    home.ok(&["cancel", "asks"]);
    assert_eq!(home.inbox(&["--all"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn repeated_run_subagent_starts_no_second_run() {
    let home = TestHome::with_config(ESCALATES);
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true).with_elicitation();
    escalated(&mut session, &home, "ask \"Which one?\"\ndone");
    let state = json!({"run": home.json(&["show", "asks"])["run_id"], "content_hash": home.inbox(&[])[0]["content_hash"]}).to_string();
    let id = home.inbox(&[])[0]["message_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let params = json!({
        "name": "run_subagent",
        "arguments": {"agent": "echo", "name": "asks", "prompt": "say x", "wait_s": 20},
        "inputResponses": {id: {"action": "accept", "content": {"answer": "this"}}},
        "requestState": state,
    });
    let reply = session.request("tools/call", params);
    assert_eq!(
        reply["result"]["structuredContent"]["status"], "success",
        "{reply}"
    );
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(1));
}
