//! Read cursors, and the entries that a reader is shown.

use super::{client, home_with, start};
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

fn unread(home: &TestHome) -> Value {
    home.json(&["chat", "ls"])[0]["unread"].clone()
}

#[test]
fn timed_out_chat_wait_moves_its_cursor() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    alice.done(
        "send_chat_message",
        json!({"chat_id": chat, "message": "first"}),
    );
    let mut after = "1".to_owned();
    for expected in ["1.1", "1.2", "1.3"] {
        let shown = alice.done(
            "show_chat",
            json!({"chat_id": chat, "after": after, "wait_s": 0}),
        );
        assert_eq!(
            (&shown["messages"], &shown["cursor"]),
            (&json!([]), &json!(1)),
            "the same position: {shown}"
        );
        assert!(
            shown["next"]
                .as_str()
                .is_some_and(|next| next.contains(&format!("show_chat after={expected} "))),
            "{shown}"
        );
        after = expected.to_owned();
    }
    alice.done(
        "send_chat_message",
        json!({"chat_id": chat, "message": "second"}),
    );
    assert_eq!(
        alice.done("show_chat", json!({"chat_id": chat, "after": after}))["messages"][0]["message"],
        "second"
    );
}

#[test]
fn only_messages_shown_without_a_gap_count_as_read() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "long", &[]);
    for n in 1..=60 {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "message": format!("message {n}")}),
        );
    }
    let shown = home.adj(&["chat", "show", "1"]);
    assert!(
        shown
            .err
            .contains("10 earlier unread: adj chat show 1 --after 0")
            && shown.out.contains("message 60"),
        "{shown:?}"
    );
    assert_eq!(unread(&home), 60, "ten were never shown");
    let rest = home.ok(&["chat", "show", "1", "--after", "0"]);
    assert!(
        rest.contains("message 1\n") && rest.contains("message 60\n"),
        "{rest}"
    );
    assert_eq!(unread(&home), 0);

    for n in 61..=90 {
        home.ok(&["chat", "post", "1", &format!("message {n}")]);
    }
    let shown = alice.tool("show_chat", json!({"chat_id": chat}));
    let found = (
        shown["structuredContent"]["unread_before"].clone(),
        text(&shown).contains("10 earlier ones are unread: after=60 shows them"),
    );
    assert_eq!(found, (json!(10), true), "{shown}");
    assert_eq!(
        alice.done("list_chats", json!({}))["chats"][0]["unread"],
        30
    );
}

#[test]
fn printed_answer_counts_as_read() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo yes")], "");
    home.ok(&["chat", "start", "t", "--with", "gemini"]);
    assert!(home.ok(&["chat", "post", "1", "well?"]).contains("yes"));
    assert_eq!(unread(&home), 0);
    let mut alice = client(&home, "alice", &[]);
    let other = start(&mut alice, "two", &["gemini"]);
    alice.done(
        "send_message",
        json!({"chat_id": other, "message": "well?", "wait_s": 30}),
    );
    assert_eq!(alice.done("list_chats", json!({}))["chats"][0]["unread"], 0);
    home.ok(&["chat", "post", &other.to_string(), "me, too", "--detach"]);
    alice.done(
        "send_message",
        json!({"chat_id": other, "message": "@gemini again?", "wait_s": 30}),
    );
    let unread = alice.done("list_chats", json!({}))["chats"][0]["unread"].as_i64();
    assert!(
        unread.is_some_and(|unread| unread >= 2),
        "what lies before the answer is unread: {unread:?}"
    );
}

#[test]
fn edits_and_pins_reach_waiters_and_readers() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["person"]);
    alice.done("send_message", json!({"chat_id": chat, "message": "first"}));
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "second"}),
    );
    assert_eq!(
        alice.done("show_chat", json!({"chat_id": chat}))["cursor"],
        2
    );
    let mut bob = client(&home, "alice", &[]);
    bob.done(
        "send_message",
        json!({"chat_id": chat, "edit_of": "1", "message": "first, corrected"}),
    );
    let came = alice.tool("show_chat", json!({"chat_id": chat, "after": 2}));
    assert_eq!(
        came["structuredContent"]["changed"][0]["message"], "first, corrected",
        "between two calls: {came}"
    );
    assert!(text(&came).contains("changed: #1"), "{came}");
    assert_eq!(
        alice.done("show_chat", json!({"chat_id": chat, "after": 2}))["changed"],
        Value::Null,
        "each change once"
    );
    let waiting = alice.send(
        "tools/call",
        json!({"name": "show_chat", "arguments": {"chat_id": chat, "after": 2, "wait_s": 30}}),
    );
    home.ok(&["chat", "pin", "1.2"]);
    let came = alice.reply(waiting);
    let changed = &came["result"]["structuredContent"]["changed"][0];
    assert_eq!(
        (&changed["seq"], &changed["pinned"]),
        (&json!(2), &json!(true)),
        "during a call: {came}"
    );
}

#[test]
fn summary_wait_ignores_other_messages() {
    let home = home_with(
        &[
            (
                "slow",
                "cat > /dev/null; while [ ! -e go ]; do sleep 0.1; done; echo late",
            ),
            ("scribe", "cat > /dev/null; echo sum"),
        ],
        "",
    );
    home.ok(&["chat", "start", "t", "--with", "slow"]);
    home.ok(&["chat", "post", "1", "well?", "--detach"]);
    let came = home.json(&["chat", "summarise", "1", "--agent", "scribe"]);
    assert_eq!(came[0]["kind"], "summary", "{came}");
    assert_eq!(
        home.json(&["chat", "stats", "1"])["open"],
        1,
        "the other answer is still open"
    );
    std::fs::write(home.work().join("go"), "").expect("a file");
}

#[test]
fn structured_content_has_no_terminal_control() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "a\u{1b}[2J\u{202e}b\r\u{2028}c\nd"}),
    );
    let shown = alice.done("show_chat", json!({"chat_id": chat, "after": 0}));
    let message = shown["messages"][0]["message"].as_str().expect("a text");
    assert!(
        !message
            .chars()
            .any(|c| c.is_control() && c != '\n' || c == '\u{202e}' || c == '\u{2028}')
            && message.ends_with("c\nd"),
        "{message:?}"
    );
}

#[test]
fn only_the_author_edits_a_message() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    alice.done("send_message", json!({"chat_id": chat, "message": "mine"}));
    let refused = home.adj(&["chat", "edit", "1.1", "yours"]);
    assert!(
        refused.code == 4
            && refused
                .err
                .contains("you may not edit another author's message"),
        "{refused:?}"
    );
}

#[test]
fn messages_of_a_removed_run_are_found() {
    let home = home_with(
        &[("gemini", "cat > /dev/null; echo the parser is slow")],
        "",
    );
    home.ok(&["chat", "start", "t", "--with", "gemini"]);
    home.ok(&["chat", "post", "1", "well?"]);
    std::fs::write(home.home.dir.join("config.toml"), "").expect("the agent is removed");
    let found = home.json(&["chat", "search", "parser", "--from", "gemini"]);
    assert_eq!(found["hits"][0]["message_id"], "1.2", "{found}");
    assert_eq!(
        home.adj(&["chat", "search", "parser", "--from", "nobody"])
            .code,
        5
    );
    let many = vec!["word"; 33].join(" ");
    let refused = home.adj(&["chat", "search", &many]);
    assert!(
        refused.code == 2 && refused.err.contains("at most 32 words"),
        "{refused:?}"
    );
}
