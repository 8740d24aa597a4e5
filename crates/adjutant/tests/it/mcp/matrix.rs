//! The authorization matrix: every tool, by every kind of caller, on every kind of object, compared
//! with the rules that the tools declare.

use super::{Session, text};
use crate::support::TestHome;
use adjutant_api::view::ListRequests;
use adjutant_core::principal::{Verdict, may};
use adjutant_core::{Action, ClientName, Principal, Relation, RunId, Time};
use adjutant_mcp::mcp::Role;
use adjutant_mcp::mcp::catalog::{self, ToolRow};
use serde_json::{Value, json};

const UNKNOWN: &str = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11";

/// A run and its open or former question.
#[derive(Debug, Clone)]
struct Object {
    what: &'static str,
    run: String,
    question: String,
    relation: Relation,
}

/// Returns the calls that exercise one tool on one object, each with its authorization rule.
fn calls(row: &ToolRow, object: &Object) -> Vec<(Action, Value)> {
    let run = &object.run;
    let arguments: Vec<Value> = match row.name {
        "run_subagent" => vec![json!({"agent": "echo", "prompt": "---\nsay child", "cwd": "/"})],
        "wait_for_subagents" => vec![json!({"run_ids": [run], "wait_s": 0})],
        "check_subagent_status" if row.actions.contains(&Action::Events) => {
            vec![
                json!({"run_id": run}),
                json!({}),
                json!({"run_id": run, "history": true}),
            ]
        }
        "check_subagent_status" => vec![json!({"run_id": run}), json!({})],
        "get_subagent_logs" => vec![json!({"run_id": run})],
        "review_changes" => vec![json!({"run_id": run, "action": "stat"})],
        "merge_changes" => ["merge", "discard"]
            .iter()
            .map(|action| json!({"run_id": run, "action": action}))
            .collect(),
        "get_pending_questions" => vec![
            json!({"run_id": run}),
            json!({"message_id": object.question}),
        ],
        "reply_subagent" => vec![json!({"message_id": object.question, "answer": "42"})],
        "steer_subagent" => ["message", "stop", "resume", "cancel", "retry"]
            .iter()
            .map(|action| json!({"run_id": run, "action": action, "text": "x"}))
            .collect(),
        "update_subagent_status" => {
            vec![json!({"run_id": run, "status": "running", "summary": "x"})]
        }
        "list_coding_agents" => vec![json!({})],
        // Does not stop the run: a completed run continues to its end.
        "stop_work" => vec![json!({"stop_reason": "completion", "details": "x", "run_id": run})],
        "ask_parent" => {
            vec![json!({"question": "?", "wait_s": 0, "blocking": false, "run_id": run})]
        }
        "request_approval" => {
            vec![json!({"action": "push", "wait_s": 0, "blocking": false, "run_id": run})]
        }
        "delegate_work" => {
            vec![json!({"new_task_description": "say child", "wait_s": 0, "run_id": run})]
        }
        "check_answer" => vec![json!({"message_id": object.question, "wait_s": 0})],
        "start_chat" => vec![json!({"title": "matrix"})],
        "list_chats" => vec![json!({})],
        // The first chat is the worker's own, and its owner sees it too.
        "show_chat" => vec![json!({"chat_id": 1})],
        "send_chat_message" => vec![json!({"chat_id": 1, "message": "x"})],
        other => panic!("{other} is a tool without a place in this matrix"),
    };
    assert!(
        arguments.len() >= row.actions.len(),
        "{}: a rule that is not exercised",
        row.name
    );
    arguments
        .into_iter()
        .enumerate()
        .map(|(n, arguments)| (row.actions[n.min(row.actions.len() - 1)], arguments))
        .collect()
}

/// Returns the outcome that the rules expect. `None` if it depends on the state of the object.
fn expected(
    who: &Principal,
    action: Action,
    relation: Relation,
    arguments: &Value,
) -> Option<&'static str> {
    let names_one = ["run_id", "run_ids", "message_id"]
        .iter()
        .any(|name| !arguments[*name].is_null());
    match may(who, action, relation) {
        Verdict::NotAllowed => Some("not_allowed"),
        Verdict::NotFound if names_one => Some("not_found"),
        // Lists are filtered by the same relation; naming a foreign run finds nothing.
        Verdict::Yes if names_one && relation == Relation::Foreign => Some("not_found"),
        Verdict::NotFound | Verdict::Yes => None,
    }
}

fn check(what: &str, expected: Option<&str>, told: &str) {
    match expected {
        Some(code) => assert!(
            told.contains(&format!("error[{code}]")),
            "{what}: expected {code}, got {told}"
        ),
        None => assert!(
            !told.contains("error[not_allowed]") && !told.contains("error[not_found]"),
            "{what}: refused: {told}"
        ),
    }
}

fn started(session: &mut Session, name: &str, script: &str) -> String {
    let run = session.done(
        "run_subagent",
        json!({"agent": "echo", "name": name, "prompt": format!("---\n{script}")}),
    );
    run["run_id"].as_str().expect("an id").to_owned()
}

fn asked(session: &mut Session, run: &str) -> String {
    let waited = session.done(
        "wait_for_subagents",
        json!({"run_ids": [run], "wait_s": 30}),
    );
    waited["needs"][0]["message_id"]
        .as_str()
        .unwrap_or_else(|| panic!("no question: {waited}"))
        .to_owned()
}

#[test]
fn every_tool_is_authorized_for_every_caller_and_object() {
    let home = TestHome::new();
    let mut alice = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    let mut bob = Session::open(&home.home.dir, &home.work(), &["--client", "bob"], false);

    let own = started(&mut alice, "own", "ask \"Own?\"\nask \"Again?\"");
    let own_question = asked(&mut alice, &own);
    let theirs = started(&mut bob, "theirs", "ask \"Theirs?\"");
    let their_question = asked(&mut bob, &theirs);
    let finished = started(&mut alice, "finished", "ask \"Before the end?\"");
    let old_question = asked(&mut alice, &finished);
    alice.done(
        "reply_subagent",
        json!({"message_id": old_question, "answer": "yes"}),
    );
    home.finished("finished");

    let object = |what, run: &str, question: &str, relation| Object {
        what,
        run: run.to_owned(),
        question: question.to_owned(),
        relation,
    };
    let foreign = object(
        "another client's run",
        &theirs,
        &their_question,
        Relation::Foreign,
    );
    let unknown = object("an unknown id", UNKNOWN, UNKNOWN, Relation::Foreign);
    let path = object(
        "a path",
        "../../etc/passwd",
        "../../etc/passwd",
        Relation::Foreign,
    );

    // A worker on itself, a sibling, a foreign run, and an unknown one. First, because the clients'
    // calls end runs.
    let itself = object("itself", "worker", "Q99999", Relation::Itself);
    let sibling = object("a sibling", &own, &own_question, Relation::Foreign);
    let who = Principal::Run(RunId::new(Time(1), [1; 10]));
    let mut script = String::new();
    let mut lines = Vec::new();
    for object in [&itself, &sibling, &foreign, &unknown, &path] {
        for row in catalog::tools(Role::Worker)
            .iter()
            .chain(catalog::tools(Role::Parent))
        {
            let shared = catalog::tools(Role::Worker)
                .iter()
                .any(|worker| worker.name == row.name);
            if shared
                && !catalog::tools(Role::Worker)
                    .iter()
                    .any(|worker| std::ptr::eq(worker, row))
            {
                continue;
            }
            for (action, mut arguments) in calls(row, object) {
                // Its own question is the first one in its script.
                if object.relation == Relation::Itself && arguments["message_id"].is_string() {
                    arguments["message_id"] = json!("OWN");
                }
                script.push_str(&format!("tool {} {arguments}\n", row.name));
                // A run cannot use a parent's tool, even for what it may do.
                let rule = if shared {
                    expected(&who, action, object.relation, &arguments)
                } else {
                    Some("not_allowed")
                };
                lines.push((
                    format!("a run, {}, {} {arguments}", row.name, object.what),
                    rule,
                ));
            }
        }
    }
    // Questions are numbered in order, and nobody else asks meanwhile.
    let next_number = format!("Q{}", count_questions(&home) + 1);
    let script = format!(
        "tool ask_parent {}\n{}say end",
        json!({"question": "Mine?", "wait_s": 0, "blocking": false}),
        script.replace("OWN", &next_number)
    );
    started(&mut alice, "worker", &script);
    home.finished("worker");
    let log = home.log("worker");
    let told: Vec<&str> = log
        .split("\n")
        .filter(|line| line.starts_with("result: ") || line.starts_with("refused: "))
        .collect();
    assert_eq!(told.len(), lines.len() + 1, "{log}");
    for ((what, expected), told) in lines.iter().zip(&told[1..]) {
        check(what, *expected, told);
    }

    // A client on its live run, its finished run, a foreign run, and an unknown one.
    let who = Principal::Client(ClientName::parse("alice").expect("a name"));
    let live = object("its own run", &own, &own_question, Relation::Owner);
    let ended = object(
        "its finished run",
        &finished,
        &old_question,
        Relation::Owner,
    );
    let mut unseen: Vec<String> = Vec::new();
    for object in [&unknown, &foreign, &path, &ended, &live] {
        for row in catalog::tools(Role::Parent) {
            for (action, arguments) in calls(row, object) {
                let what = format!("a client, {}, {} {arguments}", row.name, object.what);
                let result = alice.tool(row.name, arguments.clone());
                check(
                    &what,
                    expected(&who, action, object.relation, &arguments),
                    text(&result),
                );
                if object.relation == Relation::Foreign {
                    let anonymous = text(&result)
                        .replace(&object.run, "ID")
                        .replace(&object.question, "ID");
                    if result["isError"] == true {
                        unseen.push(format!("{} {action:?}: {anonymous}", row.name));
                    }
                }
            }
        }
        for row in catalog::tools(Role::Worker)
            .iter()
            .filter(|row| catalog::find(Role::Parent, row.name).is_none())
        {
            for (_, arguments) in calls(row, object) {
                let result = alice.tool(row.name, arguments);
                check(
                    &format!("a client, {}, {}", row.name, object.what),
                    Some("not_allowed"),
                    text(&result),
                );
            }
        }
    }
    let third = unseen.len() / 3;
    assert_eq!(
        unseen[..third],
        unseen[third..2 * third],
        "a foreign run differs from an unknown one"
    );
    assert_eq!(
        home.show("theirs")["status"],
        "waiting_parent_reply",
        "nobody but bob may touch it"
    );
    assert_eq!(
        home.finished("own")["outcome"],
        "cancelled",
        "the owner's calls had their effect"
    );
}

fn count_questions(home: &TestHome) -> usize {
    home.call(
        &ListRequests {
            run: None,
            all: true,
            limit: None,
        },
        "",
    )
    .expect("a person sees all questions")
    .requests
    .len()
}
