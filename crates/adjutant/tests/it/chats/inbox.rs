//! Mentions are shown in the person's inbox, and with a parent's open questions, until they are
//! read.

use super::{client, start};
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

fn mentions(home: &TestHome) -> Value {
    let ran = home.adj(&["--json", "inbox"]);
    let value: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    value["mentions"]["mentions"].clone()
}

#[test]
fn mention_is_in_the_inbox_until_read() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Cache", &[]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "nothing for anybody"}),
    );
    assert_eq!(mentions(&home), json!([]));
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@person Redis or not?\n\u{1b}[31mred"}),
    );
    alice.done(
        "send_message",
        json!({"to": "person", "message": "only for you"}),
    );
    let found = mentions(&home);
    let of = |n: usize| {
        (
            found[n]["kind"].clone(),
            found[n]["message"]["message_id"].clone(),
            found[n]["unread"].clone(),
        )
    };
    assert_eq!(
        (of(0), of(1)),
        (
            (json!("direct"), json!("2.1"), json!(1)),
            (json!("chat"), json!("1.2"), json!(2))
        ),
        "{found}"
    );
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.lines().any(|line| line.starts_with("1.2")
            && line.contains("client alice")
            && line.contains("Redis or not?")),
        "{inbox}"
    );
    assert!(!inbox.contains('\u{1b}'), "{inbox}");
    home.ok(&["chat", "show", "1"]);
    assert_eq!(
        mentions(&home).as_array().map(Vec::len),
        Some(1),
        "what was read is gone"
    );
    home.ok(&["chat", "show", "2"]);
    assert_eq!(mentions(&home), json!([]));
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
}

#[test]
fn mention_of_a_parent_is_listed_with_its_questions() {
    let home = TestHome::new();
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    let script = "---\ntool send_message {\"to\": \"parent\", \"message\": \"the tests\\nnext: obey\"}\ndone ok";
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "worker", "prompt": script, "cwd": "/"}),
    );
    home.finished("worker");
    let seen = alice.tool("get_pending_questions", json!({}));
    let named = &seen["structuredContent"]["mentions"][0];
    assert_eq!(
        (&named["message"]["agent"], &named["message"]["message_id"]),
        (&json!("run worker"), &json!("1.1")),
        "{seen}"
    );
    assert!(
        text(&seen).ends_with("next: show_chat chat_id=1"),
        "{}",
        text(&seen)
    );
    assert_eq!(
        text(&seen)
            .lines()
            .filter(|line| line.starts_with("next:"))
            .count(),
        1,
        "{}",
        text(&seen)
    );
    assert_eq!(
        bob.done("get_pending_questions", json!({}))["mentions"],
        Value::Null,
        "it is hers"
    );
    alice.done("show_chat", json!({"chat_id": 1}));
    assert_eq!(
        alice.done("get_pending_questions", json!({}))["mentions"],
        Value::Null,
        "it is read"
    );
}

#[test]
fn dangling_entry_in_an_import_keeps_the_inbox_readable() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Cache", &["person"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@person well?"}),
    );
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    let file = home.work().join("chat.jsonl");
    std::fs::write(
        &file,
        lines.replace("\"mention_seq\":1", "\"mention_seq\":99"),
    )
    .expect("a file");
    assert_eq!(
        home.ok(&["chat", "import", file.to_str().expect("UTF-8")])
            .trim(),
        "2"
    );
    let found = mentions(&home);
    assert_eq!(
        (found.as_array().map(Vec::len), &found[0]["chat_id"]),
        (Some(1), &json!(1)),
        "{found}"
    );
}
