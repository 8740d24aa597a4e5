//! Tasks that require input: the client's person is asked about a request that was escalated to a
//! person.

use super::Session;
use super::elicitation::{ESCALATES, escalated};
use crate::support::TestHome;
use serde_json::{Value, json};

/// A Task that waits until all runs have ended: `asks`, whose question is escalated, and `hangs`.
struct AskingTask {
    home: TestHome,
    session: Session,
    id: Value,
}

impl AskingTask {
    fn new(script: &str) -> Self {
        let home = TestHome::with_config(ESCALATES);
        let mut session = open(&home);
        session.done(
            "run_subagent",
            json!({"agent": "echo", "name": "hangs", "prompt": "---\nhang"}),
        );
        let created = session.request(
            "tools/call",
            json!({"name": "wait_for_subagents", "arguments": {"until": "all"}}),
        );
        assert_eq!(
            (
                &created["result"]["resultType"],
                &created["result"]["status"]
            ),
            (&json!("task"), &json!("working")),
            "{created}"
        );
        escalated(&mut session, &home, script);
        Self {
            home,
            session,
            id: created["result"]["taskId"].clone(),
        }
    }

    fn get(&mut self) -> Value {
        let got = self
            .session
            .request("tasks/get", json!({"taskId": self.id}));
        assert!(got["error"].is_null(), "{got}");
        got["result"].clone()
    }

    /// Returns the key and the form of the only question to the person.
    fn asked(&mut self) -> (String, Value) {
        let task = self.get();
        assert_eq!(task["status"], "input_required", "{task}");
        let inputs = task["inputRequests"].as_object().expect("inputs");
        assert_eq!(inputs.len(), 1, "{task}");
        inputs
            .iter()
            .next()
            .map(|(key, input)| (key.clone(), input.clone()))
            .expect("an input")
    }

    fn update(&mut self, key: &str, reply: &Value) {
        let updated = self.session.request(
            "tasks/update",
            json!({"taskId": self.id, "inputResponses": {key: reply}}),
        );
        assert!(
            updated["error"].is_null() && updated["result"].is_object(),
            "{updated}"
        );
    }

    fn restart(&mut self) {
        crate::support::kill(self.home.hub_pid());
        self.session = open(&self.home);
    }
}

fn open(home: &TestHome) -> Session {
    Session::open(&home.home.dir, &home.work(), &[], true)
        .with_tasks()
        .with_elicitation()
}

fn accept(answer: &str) -> Value {
    json!({"action": "accept", "content": {"answer": answer}})
}

#[test]
fn persons_answer_reaches_the_run_and_the_task_goes_on() {
    let mut task = AskingTask::new("ask \"Which one?\" [options: red|green]\ndone");
    let (key, input) = task.asked();
    assert_eq!(
        (&input["method"], &input["params"]["mode"]),
        (&json!("elicitation/create"), &json!("form")),
        "{input}"
    );
    assert!(
        input["params"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("asks asks (Q1):\nWhich one?")),
        "{input}"
    );
    assert_eq!(
        input["params"]["requestedSchema"]["properties"]["answer"]["enum"],
        json!(["red", "green"])
    );
    task.restart();
    assert_eq!(
        task.asked(),
        (key.clone(), input),
        "the next hub asks the same"
    );
    // Keys that no Task has issued, and the right request with another content.
    let id = key.split(':').next().expect("an id").to_owned();
    for wrong in [
        "",
        "Q1",
        &id,
        &format!("{id}:0000"),
        "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11:0000",
    ] {
        task.update(wrong, &accept("red"));
    }
    assert_eq!(task.asked().0, key);
    task.update(&key, &accept("green"));
    assert_eq!(task.home.finished("asks")["outcome"], "succeeded");
    // Repeated, also with something else.
    for reply in [accept("green"), accept("red"), json!({"action": "decline"})] {
        task.update(&key, &reply);
    }
    let working = task.get();
    assert_eq!(
        (&working["status"], &working["inputRequests"]),
        (&json!("working"), &Value::Null),
        "{working}"
    );
    assert_eq!(task.home.inbox(&["--all"])[0]["answer"], "green");
    assert!(task.home.log("asks").contains("answer: green"));
    task.home.ok(&["cancel", "hangs"]);
    task.home.finished("hangs");
    let ended = task.get();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(
        ended["result"]["structuredContent"]["ended"]
            .as_array()
            .map(Vec::len),
        Some(2),
        "{ended}"
    );
}

#[test]
fn declined_request_is_left_to_the_parent() {
    let mut task = AskingTask::new("approve \"drop the table\" preview: rm -rf build\ndone");
    let (key, input) = task.asked();
    assert!(
        input["params"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("rm -rf build")),
        "{input}"
    );
    task.update(&key, &json!({"action": "decline"}));
    assert_eq!(task.get()["status"], "working");
    // What was declined is kept.
    task.restart();
    assert_eq!(task.get()["status"], "working");
    task.update(
        &key,
        &json!({"action": "accept", "content": {"decision": "approve"}}),
    );
    assert_eq!(
        task.home.inbox(&["--all"])[0]["status"],
        "pending",
        "the person has declined before"
    );
    task.home.ok(&["cancel", "hangs"]);
    task.home.finished("hangs");
    let ended = task.get();
    assert_eq!(
        ended["status"], "completed",
        "nothing continues without an answer: {ended}"
    );
    assert_eq!(
        ended["result"]["structuredContent"]["needs"][0]["message_id"], "Q1",
        "{ended}"
    );
}

#[test]
fn answer_elsewhere_is_named_by_the_task() {
    let mut task = AskingTask::new("ask \"Which one?\"\ndone");
    let (key, _) = task.asked();
    task.home.ok(&["reply", "Q1", "mine"]);
    task.home.finished("asks");
    task.update(&key, &accept("late"));
    let working = task.get();
    assert_eq!(working["status"], "working", "{working}");
    assert!(
        working["statusMessage"]
            .as_str()
            .is_some_and(|text| text.contains("Q1 was already answered by person")),
        "{working}"
    );
    assert_eq!(task.home.inbox(&["--all"])[0]["answer"], "mine");
}

#[test]
fn client_without_a_person_and_other_clients_are_not_asked() {
    let mut task = AskingTask::new("ask \"Which one?\"\ndone");
    let (key, _) = task.asked();
    let mut undeclared =
        Session::open(&task.home.home.dir, &task.home.work(), &[], true).with_tasks();
    let working = undeclared.request("tasks/get", json!({"taskId": task.id}));
    assert_eq!(
        (
            &working["result"]["status"],
            &working["result"]["inputRequests"]
        ),
        (&json!("working"), &Value::Null),
        "{working}"
    );
    let mut stranger = Session::open(
        &task.home.home.dir,
        &task.home.work(),
        &["--client", "stranger"],
        true,
    )
    .with_tasks()
    .with_elicitation();
    let foreign = json!({"taskId": task.id, "inputResponses": {key.clone(): accept("theirs")}});
    assert_eq!(
        stranger.request("tasks/update", foreign)["error"]["code"],
        -32602
    );
    // Nor through a Task of its own.
    stranger.done(
        "run_subagent",
        json!({"agent": "echo", "name": "other", "prompt": "---\nhang"}),
    );
    let created = stranger.request(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {}}),
    );
    let own = json!({"taskId": created["result"]["taskId"], "inputResponses": {key.clone(): accept("theirs")}});
    assert!(stranger.request("tasks/update", own)["error"].is_null());
    assert_eq!(task.asked().0, key);
    assert_eq!(task.home.inbox(&["--all"])[0]["status"], "pending");
}
