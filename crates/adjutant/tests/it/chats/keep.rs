//! Search, export and import, statistics, and summaries of chats.

use super::{client, home_with, said, start};
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

fn hits(home: &TestHome, words: &[&str]) -> Vec<String> {
    let mut all = vec!["chat", "search"];
    all.extend(words);
    home.json(&all)["hits"]
        .as_array()
        .expect("hits")
        .iter()
        .map(|hit| hit["message_id"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn search_finds_messages_by_any_words() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let (one, two) = (start(&mut alice, "one", &[]), start(&mut alice, "two", &[]));
    for (chat, message) in [
        (one, "The parser is slow"),
        (two, "Is the Parser slow?"),
        (one, "unrelated"),
        (two, "Größe of the table"),
    ] {
        alice.done("send_message", json!({"chat_id": chat, "message": message}));
    }
    home.ok(&["chat", "post", "2", "parser again"]);
    assert_eq!(
        hits(&home, &["parser"]),
        ["2.3", "2.1", "1.1"],
        "the newest first"
    );
    assert_eq!(hits(&home, &["parser", "slow"]), ["2.1", "1.1"]);
    assert_eq!(hits(&home, &["parser", "--chat", "1"]), ["1.1"]);
    assert_eq!(hits(&home, &["parser", "--from", "person"]), ["2.3"]);
    assert_eq!(hits(&home, &["parser", "--questions"]), ["2.1"]);
    assert_eq!(hits(&home, &["parser", "--since", "1h", "--best"]).len(), 3);
    assert_eq!(hits(&home, &["grosse"]), Vec::<String>::new());
    assert_eq!(hits(&home, &["größe"]), ["2.2"]);
    for hostile in [
        "\"",
        "parser OR",
        "NEAR(",
        "text:parser",
        "chat : c1",
        "*",
        "a\" OR \"parser",
        "(",
        "^parser",
        "-parser",
        "';--",
    ] {
        assert_eq!(
            home.adj(&["--json", "chat", "search", "--", hostile]).code,
            0,
            "{hostile:?}"
        );
    }
    assert_eq!(
        hits(&home, &["chat", "c1"]),
        Vec::<String>::new(),
        "what the index is made of is not text"
    );
    alice.done(
        "send_message",
        json!({"chat_id": one, "edit_of": "1", "message": "The lexer is slow"}),
    );
    assert_eq!(
        (hits(&home, &["parser"]).len(), hits(&home, &["lexer"])),
        (2, vec!["1.1".to_owned()]),
        "an edit is what counts"
    );
    let found = alice.tool("list_chats", json!({"query": "lexer"}));
    assert!(
        text(&found).contains("«lexer»") && found["structuredContent"]["hits"][0]["chat_id"] == 1,
        "{found}"
    );
    let mut bob = client(&home, "bob", &[]);
    assert_eq!(
        bob.done("list_chats", json!({"query": "slow"}))["hits"],
        json!([]),
        "nobody finds what is not theirs"
    );
}

#[test]
fn exported_chat_is_imported_without_loss() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo yes")], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Ünïcode \"title\"", &["gemini"]);
    alice.done("send_message", json!({"chat_id": chat, "message": "frist\n# heading", "agentName": "Orchestrator", "wait_s": 30}));
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "first\u{0}\u{202e}", "edit_of": "1", "pin": true}),
    );
    home.ok(&[
        "chat",
        "post",
        "1",
        "reply",
        "--reply-to",
        "1",
        "--at",
        "person",
    ]);
    let lines = home.ok(&["chat", "export", "1", "--format", "jsonl"]);
    let other = TestHome::new();
    let file = other.work().join("chat.jsonl");
    std::fs::write(&file, &lines).expect("a file");
    assert_eq!(
        other
            .ok(&["chat", "import", file.to_str().expect("UTF-8")])
            .trim(),
        "1"
    );
    assert_eq!(
        other.ok(&["chat", "export", "1", "--format", "jsonl"]),
        lines
    );
    assert_eq!(other.json(&["chat", "show", "1"])["chat"]["imported"], true);
    assert_eq!(hits(&other, &["reply"]), ["1.3"]);
    std::fs::write(
        &file,
        lines
            .lines()
            .chain(["{\"seq\":"])
            .collect::<Vec<_>>()
            .join("\n"),
    )
    .expect("a file");
    let torn = other.adj(&["chat", "import", file.to_str().expect("UTF-8")]);
    assert!(torn.code != 0 && torn.err.contains("line"), "{torn:?}");
    assert_eq!(
        other
            .json(&["chat", "ls", "--all"])
            .as_array()
            .map(Vec::len),
        Some(1),
        "nothing half imported"
    );
    let markdown = home.ok(&["chat", "export", "1"]);
    assert_eq!(
        markdown
            .lines()
            .filter(|line| line.starts_with('#'))
            .count(),
        5,
        "{markdown}"
    );
    let mut bob = client(&other, "bob", &[]);
    assert_eq!(
        bob.tool("show_chat", json!({"chat_id": 1}))["isError"],
        true,
        "an imported chat is the person's"
    );
}

#[test]
fn summariser_summarises_and_flags() {
    let home = home_with(
        &[(
            "scribe",
            "cat > prompt; echo 'They agreed on SQLite.'; echo 'FLAG: two people want different disks'",
        )],
        "[chats]\nsummariser = \"scribe\"\n",
    );
    home.ok(&["chat", "start", "disks"]);
    home.ok(&["chat", "post", "1", "Decision: SQLite"]);
    let came = home.json(&["chat", "summarise", "1"]);
    let kinds: Vec<(&Value, &Value, &Value)> = came
        .as_array()
        .expect("entries")
        .iter()
        .map(|one| (&one["kind"], &one["from"], &one["text"]))
        .collect();
    let by = json!("agent:scribe");
    assert_eq!(
        kinds,
        [
            (
                &json!("flag"),
                &by,
                &json!("two people want different disks")
            ),
            (&json!("summary"), &by, &json!("They agreed on SQLite."))
        ]
    );
    assert_eq!(home.json(&["chat", "ls"])[0]["mentioned"], true);
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    assert!(
        prompt.contains("[person, pinned]: Decision: SQLite"),
        "{prompt}"
    );
    // A summariser is not a participant, so nobody answers the next message.
    let said = home.json(&["chat", "post", "1", "and now?"]);
    assert_eq!(
        (
            &said["waiting"],
            &home.json(&["chat", "stats", "1"])["messages"]
        ),
        (&json!([]), &json!(2)),
        "{said}"
    );
    let names: Vec<String> = home.json(&["chat", "show", "1"])["chat"]["participants"]
        .as_array()
        .expect("participants")
        .iter()
        .map(|one| one["name"].to_string())
        .collect();
    assert_eq!(names, ["\"person\""]);
}

#[test]
fn archiving_does_not_depend_on_the_summary() {
    let scribe = "cat > /dev/null; while [ ! -e go ]; do sleep 0.02; done; echo 'They chose SQLite.'; echo 'FLAG: nobody asked the owner'";
    let home = home_with(
        &[("scribe", scribe)],
        "[chats]\nsummariser = \"scribe\"\nsummarise_on_archive = true\n",
    );
    home.ok(&["chat", "start", "disks"]);
    home.ok(&["chat", "archive", "1"]);
    assert_eq!(
        home.json(&["ps", "-a"]),
        json!([]),
        "there was nothing to sum up"
    );
    home.ok(&["chat", "archive", "1", "--undo"]);
    home.ok(&["chat", "post", "1", "SQLite it is"]);
    home.ok(&["chat", "archive", "1"]);
    assert_eq!(
        home.json(&["chat", "ls", "--all"])[0]["status"],
        "archived",
        "the agent still works"
    );
    std::fs::write(home.work().join("go"), "").expect("a file");
    let all = home.until("the summary is there", || {
        let page = home.json(&["chat", "show", "1", "--after", "0"]);
        (page["messages"].as_array().map(Vec::len) == Some(3)).then_some(page["messages"].clone())
    });
    let of = |n: usize| {
        (
            all[n]["kind"].clone(),
            all[n]["from"].clone(),
            all[n]["text"].clone(),
        )
    };
    let by = json!("agent:scribe");
    assert_eq!(
        of(1),
        (json!("flag"), by.clone(), json!("nobody asked the owner"))
    );
    assert_eq!(of(2), (json!("summary"), by, json!("They chose SQLite.")));

    let home = home_with(
        &[("scribe", "exit 4")],
        "[chats]\nsummariser = \"scribe\"\nsummarise_on_archive = true\n",
    );
    home.ok(&["chat", "start", "disks"]);
    home.ok(&["chat", "post", "1", "SQLite it is"]);
    home.ok(&["chat", "archive", "1"]);
    let all = home.until("the failure is there", || {
        Some(said(&home, 1)).filter(|all| all.len() == 2)
    });
    assert!(
        all[1].1.contains("could not summarise") && all[1].1.contains("exit 4"),
        "{all:?}"
    );
    assert_eq!(home.json(&["chat", "ls", "--all"])[0]["status"], "archived");
}

#[test]
fn run_cannot_archive() {
    let home = TestHome::new();
    home.ok(&["chat", "start", "disks"]);
    home.start("one", "adj chat archive 1\ndone tried");
    home.finished("one");
    assert!(
        home.log("one").contains("may not archive chats"),
        "{}",
        home.log("one")
    );
    assert_eq!(home.json(&["chat", "ls"])[0]["status"], "active");
}

#[test]
fn stats_count_messages_answers_and_calls() {
    let home = home_with(
        &[("good", "cat > /dev/null; echo yes"), ("bad", "exit 1")],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["good", "bad"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@good hello", "wait_s": 30}),
    );
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@bad hello", "wait_s": 30}),
    );
    alice.tool("send_message", json!({"chat_id": 77, "message": "x"}));
    let stats = home.json(&["chat", "stats", &chat.to_string()]);
    assert_eq!(
        (
            &stats["messages"],
            &stats["participants"],
            &stats["answered"],
            &stats["failed"]
        ),
        (&json!(3), &json!(3), &json!(1), &json!(1))
    );
    assert!(
        stats["answer_ms_p50"].as_i64().is_some_and(|ms| ms > 0)
            && stats["calls_refused"] == 1
            && stats["calls_failed"] == 0,
        "{stats}"
    );
    assert_eq!(home.json(&["chat", "stats"])["chats"], 1);
    // Each participant with its outcome, the times of the calls and the hub's memory.
    let of = |name: &str| {
        stats["by_participant"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(
        (&of("alice")["messages"], &of("alice")["turns"]),
        (&json!(2), &Value::Null),
        "{stats}"
    );
    assert_eq!(
        (
            &of("good")["messages"],
            &of("good")["turns"]["answered"],
            &of("good")["turns"]["failed"]
        ),
        (&json!(1), &json!(1), &json!(0)),
        "{stats}"
    );
    assert_eq!(
        (
            &of("bad")["turns"]["answered"],
            &of("bad")["turns"]["failed"]
        ),
        (&json!(0), &json!(1)),
        "{stats}"
    );
    let number = |name: &str| stats[name].as_u64().unwrap_or(0);
    assert!(
        number("call_us_p50") > 0
            && number("call_us_p50") <= number("call_us_p95")
            && number("call_us_p95") <= number("call_us_max"),
        "{stats}"
    );
    assert!(
        number("call_us_max") < 20_000_000,
        "the waits for the answers are left out: {stats}"
    );
    assert!(
        (1_000_000..1_000_000_000).contains(&number("hub_memory_bytes")),
        "{stats}"
    );
    let text = home.ok(&["chat", "stats", &chat.to_string()]);
    assert!(
        text.contains("memory ")
            && text.contains("good: 1 message; 1 answered")
            && text.contains("0 answered, 1 failed"),
        "{text}"
    );
}

#[test]
fn branch_and_origin_refer_to_each_other() {
    let home = home_with(&[("gemini", "cat > prompt; echo ok")], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "main", &[]);
    for message in ["one", "two", "three"] {
        alice.done("send_message", json!({"chat_id": chat, "message": message}));
    }
    let branch = alice.done(
        "start_chat",
        json!({"title": "side", "branch_from": format!("{chat}.2")}),
    )["chat_id"]
        .as_i64()
        .expect("a number");
    alice.done(
        "send_message",
        json!({"chat_id": branch, "to": "gemini", "message": "go on", "wait_s": 30}),
    );
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    assert!(
        prompt.contains("[client alice]: one\n[client alice]: two\n=== END")
            && !prompt.contains("three"),
        "{prompt}"
    );
    assert_eq!(
        alice.done("show_chat", json!({"chat_id": chat}))["branches"],
        json!([branch])
    );
    assert_eq!(
        alice.done("show_chat", json!({"chat_id": branch}))["branch_of"],
        format!("{chat}.2")
    );
    assert!(
        said(&home, chat)
            .last()
            .is_some_and(|(name, text)| name == "hub" && text.contains("side"))
    );
}

#[test]
fn template_sets_participants_and_instructions() {
    let home = home_with(
        &[("gemini", "cat > prompt; echo ok")],
        "[chats.templates.triage]\nparticipants = [\"gemini\"]\ninstructions = \"Sort it by urgency.\"\n",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = alice.done("start_chat", json!({"title": "t", "template": "triage"}))["chat_id"]
        .as_i64()
        .expect("a number");
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "a bug", "wait_s": 30}),
    );
    assert!(
        std::fs::read_to_string(home.work().join("prompt"))
            .expect("its prompt")
            .contains("Sort it by urgency.")
    );
    alice.done("start_chat", json!({"title": "t", "template": "review"}));
}

#[test]
fn summary_is_in_the_window_and_covers_a_branch() {
    let home = home_with(
        &[
            ("gemini", "cat > prompt; echo ok"),
            (
                "scribe",
                "cat > /dev/null; echo SUMMED; head -c 2000 /dev/zero | tr '\\0' s",
            ),
        ],
        "[chats]\nsummariser = \"scribe\"\nwindow = { chars = 3000 }\n",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "main", &[]);
    for _ in 0..5 {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "message": "x".repeat(900)}),
        );
    }
    home.json(&["chat", "summarise", &chat.to_string()]);
    let branch = alice.done(
        "start_chat",
        json!({"title": "side", "branch_from": chat.to_string()}),
    )["chat_id"]
        .as_i64()
        .expect("a number");
    for id in [chat, branch] {
        alice.done(
            "send_message",
            json!({"chat_id": id, "to": "gemini", "message": "and now?", "wait_s": 30}),
        );
        let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
        let taken = prompt
            .lines()
            .filter(|line| line.starts_with("[client alice]: xxx"))
            .count();
        assert!(
            prompt.contains("SUMMED") && taken == 1,
            "{taken} beside the summary in {prompt}"
        );
    }
}

#[test]
fn branch_export_includes_earlier_messages() {
    let home = TestHome::new();
    for command in [
        &["chat", "start", "main"][..],
        &["chat", "post", "1", "one"],
        &["chat", "post", "1", "two"],
        &["chat", "post", "1", "three"],
        &["chat", "branch", "1.2", "side"],
        &["chat", "post", "2", "aside"],
        &["chat", "branch", "2.1", "further"],
        &["chat", "post", "3", "last"],
    ] {
        home.ok(command);
    }
    let out = home.ok(&["chat", "export", "3"]);
    let places: Vec<Option<usize>> = [
        "# further",
        "From chat 1, main:",
        "> one",
        "> two",
        "From chat 2, side:",
        "> aside",
        "Chat 3:",
        "> last",
    ]
    .iter()
    .map(|text| out.find(text))
    .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted() && !out.contains("three"),
        "{out}"
    );
    assert!(!home.ok(&["chat", "export", "1"]).contains("From chat"));
}

#[test]
fn nfc_and_nfd_words_match() {
    let home = TestHome::new();
    home.ok(&["chat", "start", "t"]);
    // Composed, then decomposed: й, が, 한.
    for text in [
        "\u{439} \u{304c} \u{d55c}",
        "\u{438}\u{306} \u{304b}\u{3099} \u{1112}\u{1161}\u{11ab}",
    ] {
        home.ok(&["chat", "post", "1", text]);
    }
    for word in [
        "\u{439}",
        "\u{438}\u{306}",
        "\u{304c}",
        "\u{304b}\u{3099}",
        "\u{d55c}",
        "\u{1112}\u{1161}\u{11ab}",
    ] {
        assert_eq!(hits(&home, &[word]), ["1.2", "1.1"], "{word:?}");
    }
}

#[test]
fn parent_archives_only_its_own_chats() {
    let home = TestHome::new();
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    let chat = start(&mut alice, "t", &[]);
    assert!(
        text(&bob.tool("send_message", json!({"chat_id": chat, "archive": true})))
            .contains("error[not_found]")
    );
    assert_eq!(
        alice.done("send_message", json!({"chat_id": chat, "archive": true}))["status"],
        "archived"
    );
    assert_eq!(
        alice.done("list_chats", json!({"status": "archived"}))["chats"][0]["chat_id"],
        chat
    );
    assert_eq!(
        alice.done("send_message", json!({"chat_id": chat, "archive": false}))["status"],
        "active"
    );
    home.ok(&["chat", "start", "mine"]);
    home.ok(&["chat", "post", "2", "hello", "--at", "client:alice"]);
    let refused = alice.tool("send_message", json!({"chat_id": 2, "archive": true}));
    assert!(text(&refused).contains("error[not_allowed]"), "{refused}");
    home.start(
        "one",
        &format!(
            "tool send_message {}\ndone ok",
            json!({"chat_id": 2, "archive": true})
        ),
    );
    home.finished("one");
    assert!(
        home.log("one").contains("may not archive chats"),
        "{}",
        home.log("one")
    );
}

#[test]
fn message_without_its_chat_is_refused_with_an_example() {
    let home = TestHome::new();
    home.ok(&["chat", "start", "t"]);
    for args in [&["chat", "pin", "6"][..], &["chat", "edit", "6", "x"]] {
        let ran = home.adj(args);
        assert!(
            ran.code == 2
                && ran.err.contains("use CHAT.NUMBER, such as 3.17")
                && !ran.err.contains("edit_of"),
            "{ran:?}"
        );
    }
    let ran = home.adj(&["chat", "summarise", "1"]);
    assert!(ran.code == 2 && ran.err.contains("--agent NAME"), "{ran:?}");
}
