//! Several questions asked together form a group, answered separately or together.

use crate::signals::{REPORT, home_with};
use crate::support::TestHome;
use serde_json::{Value, json};

/// Returns the prompt of a run's second attempt.
fn second_prompt(home: &TestHome, run: &str) -> String {
    std::fs::read_to_string(
        home.home
            .logs_dir()
            .join(format!("{}.2.prompt.md", home.run_id(run))),
    )
    .expect("what was sent")
}

/// Returns the states of all requests, in order.
fn states(home: &TestHome) -> Vec<Value> {
    home.inbox(&["--all"])
        .as_array()
        .expect("a list")
        .iter()
        .map(|request| request["status"].clone())
        .collect()
}

#[test]
fn blocked_call_returns_all_answers_together() {
    let home = TestHome::new();
    let questions = json!([{"question": "Which way?", "options": ["left", "right"]}, "How far?", {"question": "Colour?", "blocking": false}]);
    home.start(
        "asks",
        &format!(
            "tool ask_parent {}\nsay end",
            json!({"questions": questions})
        ),
    );
    home.until("all are asked", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(3)).then_some(())
    });
    let inbox = home.inbox(&[]);
    assert_eq!(
        (&inbox[0]["group"], &inbox[2]["group"]["place"]),
        (&json!({"first": "Q1", "place": 1, "size": 3}), &json!(3)),
        "{inbox}"
    );
    assert_eq!(
        (&inbox[1]["blocking"], &inbox[2]["blocking"]),
        (&json!(true), &json!(false))
    );
    let shown = home.ok(&["show", "asks"]);
    assert!(shown.contains("Q2 (2 of 3): asks asks"), "{shown}");

    home.ok(&["reply", "Q1", "2"]);
    assert_eq!(
        states(&home),
        ["answered", "pending", "pending"],
        "nothing is read before all that block are settled"
    );
    home.ok(&["reply", "Q2", "a mile"]);
    assert_eq!(home.finished("asks")["outcome"], "succeeded");
    let log = home.log("asks");
    assert!(
        log.contains("answer to Q1 by person: \"right\"")
            && log.contains("answer to Q2 by person: \"a mile\""),
        "{log}"
    );
    assert!(
        log.contains("Q3: pending") && !log.contains("Q1: pending"),
        "{log}"
    );
}

#[test]
fn group_by_tool_resumes_once_with_all_answers() {
    let home = TestHome::new();
    home.start("asks", "tool ask_parent {\"questions\": [\"One?\", \"Two?\", \"Three?\"], \"wait_s\": 0}\nresume-here\nsay after");
    home.until_status("asks", "stopped");
    for given in [
        ["reply", "--group", "Q2", "a", "b"].as_slice(),
        &["reply", "--group", "Q2", "a", " ", "c"],
    ] {
        assert_eq!(home.adj(given).code, 2, "{given:?}");
    }
    assert_eq!(
        states(&home),
        ["pending", "pending", "pending"],
        "bad input changes nothing"
    );
    home.ok(&["reply", "--group", "Q2", "a", "b", "c"]);
    let view = home.finished("asks");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2))
    );
    let prompt = second_prompt(&home, "asks");
    assert!(
        ["A: a", "A: b", "A: c"]
            .iter()
            .all(|answer| prompt.contains(answer)),
        "{prompt}"
    );
}

#[test]
fn group_by_block_resumes_when_none_is_open() {
    let home = home_with(&format!(
        "if told '## CLARIFICATION RESPONSE'; then {REPORT} success done; exit 0; fi\n\
         printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nquestions:\\n  - text: One?\\n  - text: Two?\\n  - text: Three?\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"\n"
    ));
    home.start_agent("scribe", "asks", "go");
    home.until_status("asks", "stopped");
    assert_eq!(
        home.inbox(&[])[1]["group"],
        json!({"first": "Q1", "place": 2, "size": 3})
    );
    for (number, answer) in [("Q2", "b"), ("Q1", "a")] {
        home.ok(&["reply", number, answer]);
        let view = home.show("asks");
        assert_eq!(
            (&view["state"], &view["attempt"]),
            (&json!("stopped"), &json!(1)),
            "after {number}"
        );
    }
    home.ok(&["reply", "--group", "Q1", "c"]);
    let view = home.finished("asks");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2))
    );
    let prompt = second_prompt(&home, "asks");
    assert!(
        ["A: a", "A: b", "A: c"]
            .iter()
            .all(|answer| prompt.contains(answer)),
        "{prompt}"
    );
}
