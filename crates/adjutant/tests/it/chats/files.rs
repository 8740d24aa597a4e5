//! Export and import: claims in a file are shown as such, and a rejected file leaves nothing
//! behind.

use super::{client, home_with, said, start};
use crate::mcp::text;
use crate::support::TestHome;
use adjutant_api::view::{CarriedChat, CarriedEntry, ImportChat};
use serde_json::{Value, json};

/// Returns an exported chat of a client with an agent, as editable lines.
fn exported() -> Vec<Value> {
    let home = home_with(&[("gemini", "cat > /dev/null; echo yes")], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Plans", &["gemini", "person"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@gemini first", "wait_s": 30}),
    );
    home.ok(&["chat", "post", "1", "I agree", "--at", "person"]);
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn write(home: &TestHome, lines: &[Value]) -> String {
    let path = home.work().join("chat.jsonl");
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(&path, text.join("\n")).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn imported_authors_have_no_identity() {
    let home = home_with(&[("gemini", "cat > prompt; echo answered")], "");
    let file = write(&home, &exported());
    assert_eq!(home.ok(&["chat", "import", &file]).trim(), "1");
    let mut alice = client(&home, "alice", &[]);
    assert_eq!(
        alice.tool("show_chat", json!({"chat_id": 1}))["isError"],
        true,
        "who is named in a file is not let in"
    );
    assert_eq!(
        alice.done("list_chats", json!({"status": "all"}))["chats"],
        json!([])
    );
    let names: Vec<String> = said(&home, 1).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "client alice (from a file)",
            "gemini (from a file)",
            "person (from a file)",
            "gemini (from a file)"
        ]
    );
    assert_ne!(
        home.adj(&["chat", "edit", "1.3", "not mine"]).code,
        0,
        "what a file says of the person is not the person's"
    );
    assert!(
        home.ok(&["chat", "show", "1"]).contains("imported")
            && home.ok(&["chat", "ls"]).contains("imported")
    );
    home.ok(&["chat", "post", "1", "anybody?"]);
    assert_eq!(
        home.json(&["ps", "-a"]),
        json!([]),
        "an agent of a file does not answer"
    );
    home.ok(&[
        "chat",
        "post",
        "1",
        "now you",
        "--at",
        "gemini",
        "--at",
        "client:alice",
    ]);
    home.until("the answer is there", || {
        (said(&home, 1).len() == 7).then_some(())
    });
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    assert!(
        prompt.contains("This chat was imported")
            && prompt.contains("[person (from a file)]: I agree")
            && prompt.contains("[person]: anybody?"),
        "{prompt}"
    );
    let shown = alice.tool("show_chat", json!({"chat_id": 1, "after": 0}));
    let data = &shown["structuredContent"];
    assert!(
        text(&shown).contains("from a file")
            && data["imported"] == true
            && data["messages"][2]["from"] == "file:person",
        "{shown}"
    );
}

#[test]
fn unread_count_is_capped() {
    let home = home_with(&[], "");
    let mut lines = exported();
    let last = lines.last().expect("entries").clone();
    let seq = last["seq"].as_i64().expect("a number");
    lines.extend((1..=1_100).map(|n| {
        let mut entry = last.clone();
        entry["seq"] = json!(seq + n);
        entry
    }));
    let file = write(&home, &lines);
    home.ok(&["chat", "import", &file]);
    assert_eq!(home.json(&["chat", "ls"])[0]["unread"], 1_000);
    assert!(home.ok(&["chat", "ls"]).contains("1000+"));
    let shown = home.adj(&["chat", "show", "1"]);
    assert!(shown.err.contains("1000+ earlier unread"), "{shown:?}");
}

#[test]
fn invalid_import_is_refused_whole() {
    let good = exported();
    let change = |line: usize, change: &dyn Fn(&mut Value)| {
        let mut lines = good.clone();
        change(&mut lines[line]);
        lines
    };
    let twice = |head: &mut Value| {
        let member = head["members"][0].clone();
        head["members"]
            .as_array_mut()
            .expect("members")
            .push(member);
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
        assert!(
            refused.code == 2 && refused.err.contains("line"),
            "{refused:?}"
        );
    }
    assert_eq!(
        home.json(&["chat", "ls", "--all"]),
        json!([]),
        "nothing half imported"
    );
    let file = write(&home, &good);
    assert_eq!(
        home.ok(&["chat", "import", &file]),
        home.ok(&["chat", "import", &file]),
        "a repeated import makes no second chat"
    );
    assert_eq!(
        home.json(&["chat", "ls", "--all"]).as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn messages_of_maximum_size_are_delivered() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    for letter in ["\u{1}", "b", "\u{2}", "d", "\u{3}", "f", "\u{4}"] {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "message": letter.repeat(1_048_576)}),
        );
    }
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    let other = TestHome::new();
    let file = other.work().join("chat.jsonl");
    std::fs::write(&file, &lines).expect("a file");
    other.ok(&["chat", "import", file.to_str().expect("UTF-8")]);
    assert!(
        other.ok(&["chat", "export", "1", "--format", "jsonl"]) == lines,
        "it is another"
    );
}

/// Creates a file of one chat with this many messages.
fn long_chat(home: &TestHome, messages: i64) -> (String, Vec<Value>) {
    let mut lines = exported();
    let one = lines[1].clone();
    lines.truncate(1);
    lines[0]["members"] = json!([]);
    for seq in 1..=messages {
        let mut line = one.clone();
        line["seq"] = json!(seq);
        line["text"] = json!(format!("message {seq} {}", "x".repeat(1_000)));
        lines.push(line);
    }
    (write(home, &lines), lines)
}

#[test]
fn partial_import_is_hidden_until_complete() {
    let home = TestHome::new();
    let (_, lines) = long_chat(&home, 4);
    let part = |of: &[Value]| {
        of.iter()
            .map(|line| serde_json::from_value(line.clone()).expect("an entry"))
            .collect::<Vec<CarriedEntry>>()
    };
    let head: CarriedChat = serde_json::from_value(lines[0].clone()).expect("a head");
    home.ok(&["ps"]);
    let first = ImportChat {
        head: Some(head),
        entries: part(&lines[1..3]),
        more: true,
        ..ImportChat::default()
    };
    let id = home.call(&first, "first").expect("imported").chat_id;
    let number = id.to_string();
    assert_eq!(home.json(&["chat", "ls", "--all"]), json!([]));
    for there in [
        &["chat", "show", &number][..],
        &["chat", "post", &number, "x"],
        &["chat", "export", &number],
        &["chat", "stats", &number],
    ] {
        let refused = home.adj(there);
        assert!(
            refused.code != 0 && refused.err.contains("no such chat"),
            "{refused:?}"
        );
    }
    assert_eq!(home.json(&["search", "message"])["hits"], json!([]));
    assert_eq!(home.json(&["chat", "stats"])["chats"], 0);

    let rest = ImportChat {
        chat_id: Some(id),
        entries: part(&lines[3..]),
        ..ImportChat::default()
    };
    home.call(&rest, "rest").expect("imported");
    let exported: Vec<Value> = home
        .ok(&["chat", "export", &number, "--format", "jsonl"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(exported[1..], lines[1..]);
    assert_eq!(
        home.json(&["search", "message"])["hits"]
            .as_array()
            .map(Vec::len),
        Some(4)
    );
    let late = home
        .call(
            &ImportChat {
                chat_id: Some(id),
                entries: part(&lines[4..]),
                ..ImportChat::default()
            },
            "late",
        )
        .expect_err("refused");
    assert!(
        late.message
            .contains("is complete: nothing can be imported"),
        "{late:?}"
    );
}

#[test]
fn killed_import_is_atomic_and_continues_when_repeated() {
    let home = TestHome::new();
    let (file, _) = long_chat(&home, 2_000);
    home.ok(&["ps"]);
    let log = home.home.dir.join("adj.db-wal");
    let written = || std::fs::metadata(&log).map_or(0, |meta| meta.len());
    for round in 1..=3 {
        let before = written();
        let mut import = home
            .command(&["chat", "import", &file])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("adj can be started");
        // Somewhere in the file, or at its end.
        home.until("some of it was written", || {
            (written() >= before + round * 400_000 || import.try_wait().expect("a child").is_some())
                .then_some(())
        });
        import.kill().ok();
        import.wait().expect("a child");
        let chats = home.json(&["chat", "ls", "--all"]);
        let said: Vec<i64> = chats
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|chat| chat["last_seq"].as_i64())
            .collect();
        assert!(said.is_empty() || said == [2_000], "{chats}");
    }
    let number = home.ok(&["chat", "import", &file]);
    let chats = home.json(&["chat", "ls", "--all"]);
    assert_eq!(chats.as_array().map(Vec::len), Some(1), "{chats}");
    assert_eq!(
        home.ok(&["chat", "export", number.trim(), "--format", "jsonl"])
            .lines()
            .count(),
        2_001
    );
}
