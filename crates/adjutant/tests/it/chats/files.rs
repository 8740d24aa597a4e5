//! Chats in files: what a file claims is shown as such, and a file that is refused leaves nothing behind.

use super::{client, home_with, said, start};
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

/// An exported chat of a client with an agent, as lines that can be changed.
fn exported() -> Vec<Value> {
    let home = home_with(&[("gemini", "cat > /dev/null; echo yes")], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Plans", &["gemini", "person"]);
    alice.done("send_message", json!({"chat_id": chat, "message": "@gemini first", "wait_s": 30}));
    home.ok(&["chat", "post", "1", "I agree", "--at", "person"]);
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn write(home: &TestHome, lines: &[Value]) -> String {
    let path = home.work().join("chat.jsonl");
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(&path, text.join("\n")).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_file_speaks_for_nobody_and_lets_nobody_in() {
    let home = home_with(&[("gemini", "cat > prompt; echo answered")], "");
    let file = write(&home, &exported());
    assert_eq!(home.ok(&["chat", "import", &file]).trim(), "1");
    let mut alice = client(&home, "alice", &[]);
    assert_eq!(alice.tool("show_chat", json!({"chat_id": 1}))["isError"], true, "who is named in a file is not let in");
    assert_eq!(alice.done("list_chats", json!({"status": "all"}))["chats"], json!([]));
    let names: Vec<String> = said(&home, 1).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["client alice (from a file)", "gemini (from a file)", "person (from a file)", "gemini (from a file)"]);
    assert_ne!(home.adj(&["chat", "edit", "1.3", "not mine"]).code, 0, "what a file says of the person is not the person's");
    assert!(home.ok(&["chat", "show", "1"]).contains("imported") && home.ok(&["chat", "ls"]).contains("from a file"));
    home.ok(&["chat", "post", "1", "anybody?"]);
    assert_eq!(home.json(&["ps", "-a"]), json!([]), "an agent of a file does not answer");
    home.ok(&["chat", "post", "1", "now you", "--at", "gemini", "--at", "client:alice"]);
    home.until("the answer is there", || (said(&home, 1).len() == 7).then_some(()));
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("what it was told");
    assert!(
        prompt.contains("This chat was imported") && prompt.contains("[person (from a file)]: I agree") && prompt.contains("[person]: anybody?"),
        "{prompt}"
    );
    let shown = alice.tool("show_chat", json!({"chat_id": 1, "after": 0}));
    let data = &shown["structuredContent"];
    assert!(text(&shown).contains("from a file") && data["imported"] == true && data["messages"][2]["from"] == "file:person", "{shown}");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_whole() {
    let good = exported();
    let change = |line: usize, change: &dyn Fn(&mut Value)| {
        let mut lines = good.clone();
        change(&mut lines[line]);
        lines
    };
    let twice = |head: &mut Value| {
        let member = head["members"][0].clone();
        head["members"].as_array_mut().expect("members").push(member);
    };
    let mut same_key = good.clone();
    for line in &mut same_key[1..3] {
        line["key"] = json!("k");
    }
    let wrong = [
        change(3, &|entry| entry["text"] = json!("x".repeat(1_048_577))),
        change(3, &|entry| entry["text"] = json!("")),
        change(3, &|entry| entry["at"] = json!(i64::MAX)),
        change(3, &|entry| entry["seq"] = json!(9)),
        change(3, &|entry| entry["author"] = json!("nobody at all")),
        change(3, &|entry| entry["reply_to"] = json!(77)),
        change(0, &|head| head["title"] = json!("")),
        change(0, &|head| head["last_at"] = json!(i64::MIN)),
        change(0, &twice),
        same_key,
    ];
    let home = TestHome::new();
    for lines in wrong {
        let file = write(&home, &lines);
        let refused = home.adj(&["chat", "import", &file]);
        assert!(refused.code == 2 && refused.err.contains("line"), "{refused:?}");
    }
    assert_eq!(home.json(&["chat", "ls", "--all"]), json!([]), "nothing half imported");
    let file = write(&home, &good);
    assert_eq!(home.ok(&["chat", "import", &file]), home.ok(&["chat", "import", &file]), "a repeated import makes no second chat");
    assert_eq!(home.json(&["chat", "ls", "--all"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn messages_of_the_largest_size_are_carried() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    for letter in ["\u{1}", "b", "\u{2}", "d", "\u{3}", "f", "\u{4}"] {
        alice.done("send_message", json!({"chat_id": chat, "message": letter.repeat(1_048_576)}));
    }
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    let other = TestHome::new();
    let file = other.work().join("chat.jsonl");
    std::fs::write(&file, &lines).expect("a file");
    other.ok(&["chat", "import", file.to_str().expect("UTF-8")]);
    assert!(other.ok(&["chat", "export", "1", "--format", "jsonl"]) == lines, "it is another");
}
