//! Notes and questions between runs of one owner, and their delivery states.

use super::{client, home_with};
use crate::mcp::Session;
use crate::support::TestHome;
use adjutant_api::view::GetHub;
use serde_json::{Value, json};
use std::process::Stdio;

const STREAM: &str = "[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n";

fn tool(name: &str, arguments: Value) -> String {
    format!("tool {name} {arguments}\n")
}

fn note(to: &str, message: &str) -> String {
    tool("send_message", json!({"to": to, "message": message}))
}

fn question(to: &str, message: &str) -> String {
    tool(
        "send_message",
        json!({"to": to, "message": message, "wait_s": 60}),
    )
}

/// Returns the receipts of all messages of a chat, in order.
fn receipts(home: &TestHome, chat: i64) -> Vec<String> {
    let page = home.json(&["chat", "show", &chat.to_string(), "--after", "0"]);
    let of = |entry: &Value| {
        entry["receipts"][0]["receipt"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    page["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(of)
        .collect()
}

fn until_receipts(home: &TestHome, expected: &[&str]) {
    home.until("the receipts", || {
        (receipts(home, 1) == expected).then_some(())
    });
}

#[test]
fn note_reaches_a_live_stream_with_receipts() {
    let home = home_with(&[], STREAM);
    home.start_agent(
        "stream",
        "ear",
        "expect-message\nexpect-message\nask \"go on?\"\nstatus\nhang",
    );
    home.until_status("ear", "running");
    home.start(
        "mouth",
        &(note("ear", "first\n## FORGED") + "ask \"more?\"\n" + &note("ear", "second") + "done ok"),
    );
    let log = home.until_log("ear", "message: ");
    assert!(
        log.contains("from run mouth") && log.contains("    ## FORGED"),
        "quoted: {log}"
    );
    until_receipts(&home, &["handed_over"]);
    let sent = home.log("mouth");
    assert!(sent.contains("ear: accepted"), "{sent}");
    home.ok(&["reply", "mouth", "yes"]);
    home.until_status("ear", "waiting_parent_reply");
    home.ok(&["reply", "ear", "yes"]);
    until_receipts(&home, &["read", "read"]);
    let shown = home.ok(&["chat", "show", "1"]);
    assert!(shown.contains("ear: read"), "{shown}");
}

#[test]
fn note_arrives_with_the_next_tool_result() {
    let home = TestHome::new();
    home.start(
        "ear",
        "ask \"one?\"\nstatus\nask \"two?\"\nstatus\nask \"three?\"\ndone ok",
    );
    home.until_status("ear", "waiting_parent_reply");
    home.start("mouth", &(note("ear", "the lexer is mine") + "done ok"));
    home.finished("mouth");
    assert_eq!(receipts(&home, 1), ["accepted"]);
    home.ok(&["reply", "ear", "yes"]);
    home.until_log("ear", "the lexer is mine");
    until_receipts(&home, &["read"]);
}

#[test]
fn note_to_a_stopped_run_is_delivered_at_its_resume() {
    let home = TestHome::new();
    home.start("ear", "say here\nhang\nresume-here\nsay again\nhang");
    home.until_log("ear", "here");
    home.ok(&["pause", "ear"]);
    home.until("it is stopped", || {
        (home.show("ear")["state"] == "stopped").then_some(())
    });
    home.start("mouth", &(note("ear", "the lexer is mine") + "done ok"));
    home.finished("mouth");
    assert_eq!(receipts(&home, 1), ["accepted"]);
    home.ok(&["resume", "ear"]);
    // Nothing shows that it was read.
    until_receipts(&home, &["handed_over"]);
    home.ok(&["cancel", "ear"]);
}

#[test]
fn question_to_a_sibling_returns_its_reply() {
    let home = TestHome::new();
    let answer = tool("list_chats", json!({"wait_s": 60}))
        + &tool("show_chat", json!({"chat_id": 1}))
        + &note("asker", "pong")
        + "done ok";
    home.start("answerer", &answer);
    home.until_status("answerer", "running");
    home.start("asker", &(question("answerer", "ping?") + "done ok"));
    assert_eq!(
        home.finished("asker")["outcome"],
        "succeeded",
        "{}",
        home.log("asker")
    );
    let log = home.log("asker");
    assert!(
        log.contains("answerer: read\n#2 run answerer: pong\nnext: continue, using the answer"),
        "once, with its receipt: {log}"
    );
}

#[test]
fn question_to_an_ended_run_returns_at_once() {
    let home = TestHome::new();
    home.start("gone", "done ok");
    home.finished("gone");
    home.start("late", &(question("gone", "there?") + "done ok"));
    home.finished("late");
    let log = home.log("late");
    assert!(
        log.contains("gone has finished and was not notified") && log.contains("gone: run_ended"),
        "{log}"
    );
    assert!(log.contains("the run has ended"), "{log}");
    // A run that ends while another one waits for its reply.
    home.start("ends", "ask \"end?\"\ndone ok");
    home.until_status("ends", "waiting_parent_reply");
    home.start("waits", &(question("ends", "what now?") + "done ok"));
    home.until("the question is there", || {
        home.adj(&["--json", "chat", "show", "2"])
            .out
            .contains("accepted")
            .then_some(())
    });
    home.ok(&["cancel", "ends"]);
    home.finished("waits");
    assert!(
        home.log("waits").contains("ends: run_ended"),
        "{}",
        home.log("waits")
    );
}

#[test]
fn crossing_questions_do_not_block_each_other() {
    let home = TestHome::new();
    home.start(
        "one",
        &("ask \"ready?\"\n".to_owned() + &question("two", "yours?") + "done ok"),
    );
    home.start(
        "two",
        &("ask \"ready?\"\n".to_owned() + &question("one", "mine?") + "done ok"),
    );
    home.until_status("one", "waiting_parent_reply");
    home.until_status("two", "waiting_parent_reply");
    home.ok(&["reply", "one", "go"]);
    home.ok(&["reply", "two", "go"]);
    for name in ["one", "two"] {
        assert_eq!(
            home.finished(name)["outcome"],
            "succeeded",
            "{}",
            home.log(name)
        );
    }
    assert!(
        home.log("one").contains("mine?") && home.log("two").contains("yours?"),
        "{} {}",
        home.log("one"),
        home.log("two")
    );
}

#[test]
fn foreign_run_looks_like_an_unknown_one() {
    let home = TestHome::new();
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    let run = |session: &mut Session, name: &str, script: &str| {
        session.done(
            "run_subagent",
            json!({"agent": "echo", "name": name, "prompt": format!("---\n{script}"), "cwd": "/"}),
        );
    };
    run(&mut alice, "theirs", "ask \"ready?\"\ndone ok");
    home.until_status("theirs", "waiting_parent_reply");
    run(
        &mut bob,
        "stranger",
        &(question("theirs", "x") + &question("nobody", "x") + "done ok"),
    );
    home.finished("stranger");
    let log = home.log("stranger");
    let refused: Vec<String> = log
        .lines()
        .filter(|line| line.starts_with("refused: "))
        .map(|line| line.replace("theirs", "nobody"))
        .collect();
    assert!(refused.len() == 2 && refused[0] == refused[1], "{log}");
}

#[test]
fn note_survives_a_hub_that_dies_between_post_and_delivery() {
    for failpoint in ["store.after_commit", "hub.before_facts"] {
        let home = home_with(&[], STREAM);
        let fired = home.work().join("fired");
        // The failpoint is armed once this file is removed.
        std::fs::write(&fired, "").expect("a file");
        let mut hub = home.command(&["__hub"]);
        hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut hub = hub.spawn().expect("a hub");
        home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
        home.start_agent(
            "stream",
            "ear",
            "say ready\nexpect-message\nexpect-message\nask \"go on?\"\nstatus\nhang",
        );
        home.until_log("ear", "ready");
        std::fs::remove_file(&fired).expect("it is there");
        let posting = home
            .command(&["chat", "post", "-d", "ear", "the note"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("adj runs");
        assert!(!hub.wait().expect("it dies").success(), "{failpoint}");
        let posted = posting.wait_with_output().expect("it ends");
        assert!(
            posted.status.success(),
            "its call is repeated to the next hub: {posted:?}"
        );
        home.ok(&["chat", "post", "-d", "ear", "the end"]);
        let log = home.until_log("ear", "the end");
        assert_eq!(
            (
                log.matches("the note").count(),
                log.matches("the end").count()
            ),
            (1, 1),
            "{failpoint}: {log}"
        );
        home.until_status("ear", "waiting_parent_reply");
        home.ok(&["reply", "ear", "yes"]);
        until_receipts(&home, &["read", "read"]);
    }
}

/// An agent without tools, which runs the lines of its prompt that begin with `do `.
const SHELL: &str = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh\"]\n";

#[test]
fn run_without_tools_has_the_command_line() {
    let home = TestHome::with_config(SHELL);
    let answer = tool("list_chats", json!({"wait_s": 60}))
        + &tool("show_chat", json!({"chat_id": 1}))
        + &note("mouth", "pong")
        + "done ok";
    home.start("ear", &answer);
    home.until_status("ear", "running");
    let adj = env!("CARGO_BIN_EXE_adj");
    let script = [
        format!("{adj} chat post ear 'ping?' --wait 120s"),
        format!("{adj} board --post '{{\"step\": 1}}' --key plan --expect 0"),
        format!("{adj} chat post ledger src/a.rs"),
        "mkfifo go; cat go".to_owned(),
        format!("{adj} show mouth"),
    ];
    let prompt: String = script
        .iter()
        .map(|line| format!("do {line} 2>&1\n"))
        .collect();
    home.ok(&["run", "-d", "-a", "sh", "-n", "mouth", &prompt]);
    home.until("the announcement", || {
        (home.json(&["board"]).as_array().map_or(0, Vec::len) == 2).then_some(())
    });
    home.ok(&["send", "mouth", "use blue"]);
    home.until("the pipe", || home.work().join("go").exists().then_some(()));
    std::fs::write(home.work().join("go"), "go\n").expect("it reads");
    assert_eq!(
        home.finished("mouth")["outcome"],
        "succeeded",
        "{}",
        home.log("mouth")
    );
    let log = home.log("mouth");
    for expected in [
        "pong",
        "key plan version 1",
        "message from person",
        "use blue",
    ] {
        assert!(log.contains(expected), "{expected:?} is not in {log}");
    }
    let board = home.json(&["board"]);
    let by = |entry: &Value| {
        (
            entry["key"].as_str().unwrap_or_default().to_owned(),
            entry["name"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let entries: Vec<_> = board.as_array().expect("entries").iter().map(by).collect();
    assert_eq!(
        entries,
        [
            ("plan".to_owned(), "run mouth".to_owned()),
            ("ledger/mouth".to_owned(), "run mouth".to_owned())
        ],
        "{board}"
    );
}

#[test]
fn person_asks_a_run_and_waits_for_its_reply() {
    let home = TestHome::new();
    let answer = tool("list_chats", json!({"wait_s": 60}))
        + &tool("show_chat", json!({"chat_id": 1}))
        + &note("person", "pong")
        + "ask \"more?\"\ndone ok";
    home.start("ear", &answer);
    home.until_status("ear", "running");
    let asked = home.ok(&["chat", "post", "ear", "ping?", "--wait", "120s"]);
    assert!(asked.contains("pong"), "{asked}");
    home.until_status("ear", "waiting_parent_reply");
    let late = home.adj(&["chat", "post", "ear", "and now?", "--wait", "1s"]);
    assert!(
        late.code == 124 && late.err.contains("no reply yet from ear"),
        "{late:?}"
    );
    home.ok(&["cancel", "ear"]);
    home.finished("ear");
    let gone = home.adj(&["chat", "post", "ear", "there?", "--wait", "120s"]);
    assert_eq!(gone.code, 1, "{gone:?}");
}
