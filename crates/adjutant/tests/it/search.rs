//! Searching chats, questions with their answers, and completion reports.

use crate::chats::client;
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

/// Returns the hits of a search: their kinds and names.
fn found(home: &TestHome, args: &[&str]) -> Vec<(String, String)> {
    let mut all = vec!["search"];
    all.extend(args);
    let data = home.json(&all);
    assert_eq!(data["incomplete"], false, "{data}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |hit: &Value| {
        let name = if hit["number"].is_null() {
            if hit["message_id"].is_null() {
                &hit["run_name"]
            } else {
                &hit["message_id"]
            }
        } else {
            &hit["number"]
        };
        (text(&hit["kind"]), text(name))
    };
    data["hits"]
        .as_array()
        .expect("hits")
        .iter()
        .map(of)
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned()))
        .collect()
}

#[test]
fn search_covers_questions_reports_and_messages() {
    let home = TestHome::new();
    home.ok(&["chat", "start", "parsers"]);
    home.ok(&["chat", "post", "1", "the parser is slow"]);
    home.start(
        "otter",
        "ask \"which parser?\"\nreport success \"replaced the parser by a lexer\"",
    );
    home.until("it has asked", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(1)).then_some(())
    });
    assert_eq!(
        found(&home, &["parser"]),
        pairs(&[("question", "Q1"), ("message", "1.1")]),
        "an open question is found"
    );
    home.ok(&["reply", "Q1", "the yellow one"]);
    home.finished("otter");
    assert_eq!(
        found(&home, &["parser"]),
        pairs(&[("report", "otter"), ("question", "Q1"), ("message", "1.1")]),
        "the newest first"
    );
    assert_eq!(
        found(&home, &["which", "yellow"]),
        pairs(&[("question", "Q1")]),
        "a question goes with its answer"
    );
    assert_eq!(
        found(&home, &["parser", "--in", "reports"]),
        pairs(&[("report", "otter")])
    );
    assert_eq!(
        found(&home, &["parser", "--in", "chats", "--in", "questions"]),
        pairs(&[("question", "Q1"), ("message", "1.1")])
    );
    assert_eq!(
        found(&home, &["parser", "--from", "otter"]),
        pairs(&[("report", "otter"), ("question", "Q1")])
    );
    assert_eq!(
        found(&home, &["parser", "--from", "person"]),
        pairs(&[("question", "Q1"), ("message", "1.1")]),
        "who answered counts, too"
    );
    assert_eq!(
        found(&home, &["parser", "--questions"]),
        pairs(&[("question", "Q1")])
    );
    assert_eq!(
        found(&home, &["parser", "--chat", "1"]),
        pairs(&[("message", "1.1")])
    );
    assert_eq!(found(&home, &["parser", "--until", "1h"]), []);
    assert_eq!(
        found(&home, &["parser", "--since", "1h", "--best"]).len(),
        3
    );
    assert_eq!(found(&home, &["nowhere"]), []);
    let shown = home.ok(&["search", "yellow"]);
    assert!(
        shown.contains("Q1 run otter") && shown.contains("«yellow»"),
        "{shown}"
    );

    // The next hub finds it too, and what is removed is no longer found.
    home.ok(&["stop"]);
    assert_eq!(found(&home, &["parser"]).len(), 3);
    home.ok(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(found(&home, &["parser"]), pairs(&[("message", "1.1")]));
}

#[test]
fn search_shows_only_the_callers_data() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let mut bob = client(&home, "bob", &[]);
    let script = "ask \"a secret?\"\nreport success \"the secret is kept\"\n";
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "mole", "prompt": script}),
    );
    home.until("it has asked", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(1)).then_some(())
    });
    home.ok(&["reply", "Q1", "yes, a secret"]);
    home.finished("mole");
    let hits = |data: &Value| data["hits"].as_array().map_or(0, Vec::len);
    let theirs = alice.tool("list_chats", json!({"query": "secret"}));
    assert!(
        hits(&theirs["structuredContent"]) == 2 && text(&theirs).contains("report of run mole"),
        "{theirs}"
    );
    assert_eq!(hits(&bob.done("list_chats", json!({"query": "secret"}))), 0);
    // A run of the same client finds neither its sibling's questions nor its report.
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "spy", "prompt": "ask \"my own secret?\" [nowait]\ntool list_chats {\"query\": \"secret\"}\n"}),
    );
    home.finished("spy");
    let log = home.log("spy");
    assert!(
        log.contains("my own") && !log.contains("kept") && !log.contains("a secret?"),
        "{log}"
    );
    // The new owner of the runs finds their reports and questions.
    home.ok(&["adopt", "mole", "--client", "bob"]);
    assert_eq!(
        hits(&bob.done("list_chats", json!({"query": "secret kept"}))),
        1
    );
    assert_eq!(
        hits(&alice.done("list_chats", json!({"query": "secret kept"}))),
        0
    );
}
