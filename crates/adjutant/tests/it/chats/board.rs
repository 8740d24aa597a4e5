//! Boards: entries in JSON by key, merged in one list.

use super::client;
use crate::support::TestHome;
use serde_json::{Value, json};

fn post(to: &str, arguments: Value) -> String {
    let mut all = json!({"to": to});
    all.as_object_mut()
        .expect("an object")
        .extend(arguments.as_object().expect("an object").clone());
    format!("tool send_message {all}\n")
}

#[test]
fn boards_are_merged_in_order_for_the_parent() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let script = post("board", json!({"message": "{\"finding\": 1}"}))
        + &post(
            "root-board",
            json!({"key": "plan", "message": "[\"a\", \"b\"]"}),
        )
        + &post("board", json!({"message": "just text"}))
        + &post(
            "root-board",
            json!({"key": "plan", "message": "[\"b\"]", "expect": 1}),
        )
        + "done ok";
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "one", "prompt": format!("---\n{script}"), "cwd": "/"}),
    );
    home.finished("one");
    let merged = |entries: &Value| -> Vec<Value> {
        entries
            .as_array()
            .expect("entries")
            .iter()
            .map(|entry| {
                json!([
                    entry["board"],
                    entry["key"],
                    entry["version"],
                    entry["value"]
                ])
            })
            .collect()
    };
    let expected = [
        json!(["Board", null, 1, {"finding": 1}]),
        json!(["Board", null, 1, "just text"]),
        json!(["Board of one", "plan", 2, ["b"]]),
    ];
    assert_eq!(merged(&home.json(&["board", "one"])), expected);
    assert_eq!(
        merged(&home.json(&["board"])),
        expected,
        "the person sees all boards"
    );
    let listed = alice.done("list_chats", json!({"board": "all"}));
    assert_eq!(merged(&listed["entries"]), expected);
    assert_eq!(
        merged(&alice.done("list_chats", json!({"board": "one", "limit": 1}))["entries"]),
        expected[2..]
    );
    let shown = home.ok(&["board"]);
    assert!(
        shown.contains("run one  Board, ")
            && shown.contains("{\"finding\":1}")
            && shown.contains("key plan, version 2"),
        "{shown}"
    );
    let mut bob = client(&home, "bob", &[]);
    assert_eq!(
        bob.done("list_chats", json!({"board": "all"}))["entries"],
        json!([]),
        "another owner's boards"
    );
    let (foreign, unknown) = (
        bob.tool("list_chats", json!({"board": "one"})),
        bob.tool("list_chats", json!({"board": "nobody"})),
    );
    assert_eq!(
        foreign.to_string().replace("one", "nobody"),
        unknown.to_string().replace("one", "nobody")
    );
}

#[test]
fn person_posts_on_the_board_of_a_tree() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    alice.done("run_subagent", json!({"agent": "echo", "name": "one", "prompt": "---\nask \"ready?\"\ndone ok", "cwd": "/"}));
    home.until_status("one", "waiting_parent_reply");
    let set = |text: &str, expect: &str| {
        home.adj(&[
            "board", "one", "--post", text, "--key", "plan", "--expect", expect,
        ])
    };
    let first = set("{\"step\": 1}", "0");
    assert!(
        first.code == 0 && format!("{}{}", first.out, first.err).contains("key plan version 1"),
        "{first:?}"
    );
    let second = set("{\"step\": 2}", "0");
    assert!(
        second.code != 0 && second.err.contains("version 1") && second.err.contains("by person"),
        "{second:?}"
    );
    assert!(
        second.err.contains("step"),
        "with its current value: {second:?}"
    );
    let mine = alice.done("list_chats", json!({"board": "one"}));
    assert_eq!(
        mine["entries"][0]["value"],
        json!({"step": 1}),
        "it is the board of the run's owner: {mine}"
    );
    home.ok(&["board", "--post", "mine"]);
    assert_eq!(home.json(&["board"]).as_array().map(Vec::len), Some(2));
    assert_eq!(
        home.json(&["board", "one"]).as_array().map(Vec::len),
        Some(1),
        "a run does not see the person's board"
    );
}

#[test]
fn unusable_board_entries_are_refused() {
    let home = TestHome::new();
    let long = "x".repeat(64 * 1024 + 1);
    let reserved = home.adj(&["board", "--post", "x", "--key", "ledger/one"]);
    assert!(
        reserved.code != 0 && reserved.err.contains("announce"),
        "{reserved:?}"
    );
    for args in [
        vec!["board", "--post", &long],
        vec!["board", "--post", &long, "--key", "k"],
        vec!["board", "nobody", "--post", "x"],
    ] {
        let ran = home.adj(&args);
        assert!(ran.code != 0, "{ran:?}");
    }
    assert_eq!(home.json(&["board"]), json!([]));
}
