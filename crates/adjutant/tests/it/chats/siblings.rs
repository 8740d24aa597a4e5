//! Runs of one owner are siblings, whichever tree they belong to. They cannot see runs of another
//! owner.

use super::{client, home_with, said, start};
use crate::mcp::{Session, text};
use crate::support::TestHome;
use serde_json::{Value, json};

/// Starts a root run of a client.
fn run(session: &mut Session, name: &str, script: &str) {
    session.done(
        "run_subagent",
        json!({"agent": "echo", "name": name, "prompt": format!("---\n{script}"), "cwd": "/"}),
    );
}

/// Returns a script line that calls a tool.
fn tool(name: &str, arguments: Value) -> String {
    format!("tool {name} {arguments}\n")
}

/// Returns the lines of a run's log with the results of its tool calls.
fn results(home: &TestHome, run: &str) -> Vec<String> {
    let log = home.log(run);
    log.lines()
        .filter(|line| line.starts_with("result: ") || line.starts_with("refused: "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn siblings_invite_mention_and_message_each_other() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    run(&mut alice, "one", "ask \"ready?\"\nstatus\ndone ok");
    home.until_status("one", "waiting_parent_reply");
    let script = tool(
        "start_chat",
        json!({"title": "plan", "participants": ["one"]}),
    ) + &tool(
        "send_message",
        json!({"chat_id": 1, "message": "@one the parser is mine"}),
    ) + &tool(
        "send_message",
        json!({"to": "one", "message": "and the lexer?"}),
    ) + "done ok";
    run(&mut alice, "two", &script);
    assert_eq!(
        home.finished("two")["outcome"],
        "succeeded",
        "{}",
        home.log("two")
    );
    home.ok(&["reply", "one", "yes"]);
    home.finished("one");
    let log = home.log("one");
    assert!(
        log.contains("the parser is mine") && log.contains("and the lexer?"),
        "{log}"
    );
    assert_ne!(home.run_id("one"), home.run_id("two"));
    let direct = home.json(&["chat", "show", "2"]);
    assert_eq!(
        (&direct["chat"]["kind"], &direct["chat"]["owner"]),
        (&json!("direct"), &json!("client:alice")),
        "{direct}"
    );
}

#[test]
fn two_siblings_have_one_direct_chat() {
    let home = TestHome::new();
    home.start(
        "one",
        &format!(
            "ask \"ready?\"\n{}done ok",
            tool("send_message", json!({"to": "two", "message": "back"}))
        ),
    );
    home.until_status("one", "waiting_parent_reply");
    home.start(
        "two",
        &format!(
            "{}ask \"ready?\"\ndone ok",
            tool("send_message", json!({"to": "one", "message": "there"}))
        ),
    );
    home.until_status("two", "waiting_parent_reply");
    home.ok(&["reply", "one", "yes"]);
    home.finished("one");
    let all: Vec<String> = said(&home, 1).into_iter().map(|(_, text)| text).collect();
    assert_eq!(all, ["there", "back"]);
    assert_eq!(home.json(&["chat", "ls"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn runs_of_another_owner_are_strangers() {
    let home = TestHome::new();
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    let open = start(&mut alice, "open", &[]);
    alice.done(
        "send_message",
        json!({"chat_id": open, "message": "secret"}),
    );
    alice.done(
        "send_message",
        json!({"to": "board", "key": "plan", "message": "secret"}),
    );
    run(&mut alice, "one", "ask \"ready?\"\ndone ok");
    home.until_status("one", "waiting_parent_reply");
    let of = |name: &str, chat: i64| {
        tool("send_message", json!({"to": name, "message": "x"}))
            + &tool("start_chat", json!({"title": "t", "participants": [name]}))
            + &tool("show_chat", json!({"chat_id": chat}))
            + &tool("send_message", json!({"chat_id": chat, "message": "x"}))
            + &tool(
                "start_chat",
                json!({"title": "t", "branch_from": chat.to_string()}),
            )
    };
    let script = of("one", open)
        + &of("nobody", 999)
        + &tool("list_chats", json!({}))
        + &tool("list_chats", json!({"query": "secret"}))
        + "done ok";
    run(&mut bob, "stranger", &script);
    home.finished("stranger");
    let all = results(&home, "stranger");
    assert_eq!(all.len(), 12, "{all:?}");
    let anonymous = |line: &String, name: &str, chat: i64| {
        line.replace(name, "NAME").replace(&chat.to_string(), "N")
    };
    for (foreign, unknown) in all[..5].iter().zip(&all[5..10]) {
        assert!(
            foreign.starts_with("refused: ") && foreign.contains("error[not_found]"),
            "{foreign}"
        );
        assert_eq!(
            anonymous(foreign, "one", open),
            anonymous(unknown, "nobody", 999),
            "foreign differs from unknown"
        );
    }
    let log = home.log("stranger");
    assert!(
        all[10].contains("no chats yet") && !log.contains("secret\"") && !log.contains("one ("),
        "{log}"
    );
    // Another owner has its own board.
    run(
        &mut bob,
        "other",
        &(tool(
            "send_message",
            json!({"to": "board", "key": "plan", "message": "mine", "expect": 0}),
        ) + "done ok"),
    );
    home.finished("other");
    assert!(
        results(&home, "other")[0].starts_with("result: "),
        "{}",
        home.log("other")
    );
}

#[test]
fn private_chat_stays_private_among_siblings() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let private = json!({"title": "hidden", "private": true});
    let script = tool("start_chat", private)
        + &tool(
            "send_message",
            json!({"chat_id": 1, "message": "@two a secret word"}),
        )
        + &tool(
            "send_message",
            json!({"to": "person", "message": "another secret word"}),
        )
        + "ask \"ready?\"\n"
        + &tool(
            "send_message",
            json!({"chat_id": 1, "to": "two", "message": "come in"}),
        )
        + "done ok";
    run(&mut alice, "one", &script);
    home.until_status("one", "waiting_parent_reply");
    let look = tool("list_chats", json!({}))
        + &tool("show_chat", json!({"chat_id": 1}))
        + &tool("show_chat", json!({"chat_id": 2}))
        + &tool("list_chats", json!({"query": "secret"}));
    run(
        &mut alice,
        "two",
        &format!(
            "{look}ask \"again?\"\n{}done ok",
            tool("show_chat", json!({"chat_id": 1, "after": 0}))
        ),
    );
    home.until_status("two", "waiting_parent_reply");
    let log = home.log("two");
    assert!(
        !log.contains("hidden") && !log.contains("secret word"),
        "{log}"
    );
    assert_eq!(log.matches("error[not_found]").count(), 2, "{log}");
    // A participant may add a sibling explicitly.
    home.ok(&["reply", "one", "yes"]);
    home.finished("one");
    home.ok(&["reply", "two", "yes"]);
    home.finished("two");
    assert!(home.log("two").contains("come in"), "{}", home.log("two"));
    let found = alice.done("list_chats", json!({"query": "secret"}));
    assert!(
        found["hits"]
            .as_array()
            .expect("hits")
            .iter()
            .all(|hit| hit["chat_id"].is_null()),
        "not even the owner finds it: {found}"
    );
}

#[test]
fn lost_board_race_shows_the_current_entry() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let set = |text: &str, expect: u32| {
        tool(
            "send_message",
            json!({"to": "board", "key": "findings", "message": text, "expect": expect}),
        )
    };
    run(
        &mut alice,
        "one",
        &format!("{}done ok", set("modules 1-50: two queries scan", 0)),
    );
    home.finished("one");
    let script = set("modules 51-100: nothing", 0)
        + &set(
            "modules 1-50: two queries scan\\nmodules 51-100: nothing",
            1,
        )
        + "done ok";
    run(&mut alice, "two", &script);
    home.finished("two");
    let all = results(&home, "two");
    assert!(
        all[0].starts_with("refused: ")
            && all[0].contains("error[conflict]")
            && all[0].contains("version 1"),
        "{all:?}"
    );
    assert!(
        all[0].contains("modules 1-50: two queries scan") && all[0].contains("run one"),
        "{all:?}"
    );
    assert!(all[1].starts_with("result: "), "{all:?}");
    // The runs and their client share the same board.
    let board = alice.done(
        "send_message",
        json!({"to": "board", "key": "findings", "message": "both halves are done", "expect": 2}),
    );
    let listed = alice.done("list_chats", json!({}));
    assert_eq!(
        listed["chats"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
    let shown = alice.done("show_chat", json!({"chat_id": board["chat_id"]}));
    assert_eq!(
        (
            &shown["messages"][0]["message"],
            &shown["messages"][0]["revision"]
        ),
        (&json!("both halves are done"), &json!(3))
    );
    // The person has another board, shared by the person's own runs.
    home.start("mine", &format!("{}done ok", set("other", 0)));
    home.finished("mine");
    assert_eq!(home.json(&["chat", "ls"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn root_board_belongs_to_its_tree() {
    let home = TestHome::new();
    let note = |text: &str| {
        tool(
            "send_message",
            json!({"to": "root-board", "key": "k", "message": text, "expect": 0}),
        )
    };
    let child = format!("---\n{}", note("of the child"));
    home.start(
        "boss",
        &format!(
            "{}delegate {} blocks\ndone ok",
            note("of the boss"),
            Value::from(child)
        ),
    );
    home.until("it wants a child", || {
        home.inbox(&[])
            .as_array()
            .filter(|open| !open.is_empty())
            .map(|_| ())
    });
    home.ok(&["approve", "boss", "--agent", "echo"]);
    home.finished("boss");
    home.start(
        "sibling",
        &format!(
            "{}{}{}done ok",
            tool("list_chats", json!({})),
            tool("show_chat", json!({"chat_id": 1})),
            note("of the sibling")
        ),
    );
    home.finished("sibling");
    let all = results(&home, "sibling");
    assert!(
        all[0].contains("no chats yet")
            && all[1].contains("error[not_found]")
            && all[2].starts_with("result: "),
        "{all:?}"
    );
    let boards: Vec<(String, Value)> = home
        .json(&["chat", "ls"])
        .as_array()
        .expect("chats")
        .iter()
        .map(|chat| {
            (
                chat["title"].as_str().unwrap_or_default().to_owned(),
                chat["last_seq"].clone(),
            )
        })
        .collect();
    assert_eq!(
        boards,
        [
            ("Board of sibling".to_owned(), json!(1)),
            ("Board of boss".to_owned(), json!(1))
        ],
        "the child was refused there"
    );
    let mut alice = client(&home, "alice", &[]);
    let refused = alice.tool(
        "send_message",
        json!({"to": "root-board", "key": "k", "message": "x"}),
    );
    assert!(text(&refused).contains("error[invalid]"), "{refused}");
}

#[test]
fn unknown_mention_wakes_no_agent_and_is_reported() {
    let home = home_with(
        &[
            ("gemini", "cat > /dev/null; echo hello"),
            ("claude2", "cat > /dev/null; echo hi"),
        ],
        "",
    );
    home.ok(&[
        "chat", "start", "t", "--with", "gemini", "--with", "claude2",
    ]);
    let ran = home.adj(&["chat", "post", "1", "@nobody hi"]);
    assert!(
        ran.code == 0 && ran.err.contains("no participant is called nobody"),
        "{ran:?}"
    );
    assert_eq!(
        (said(&home, 1).len(), home.json(&["ps", "-a"])),
        (1, json!([]))
    );
    let said_to_one = home.json(&["chat", "post", "1", "@gemini and @nobody: hi"]);
    assert_eq!(
        said_to_one["answers"].as_array().map(Vec::len),
        Some(1),
        "{said_to_one}"
    );
    let code = home.json(&[
        "chat",
        "post",
        "1",
        "what does `@Override` do? And @types/node?",
    ]);
    assert_eq!(
        code["answers"].as_array().map(Vec::len),
        Some(2),
        "code and paths name nobody: {code}"
    );
}

#[test]
fn siblings_message_each_other_without_polling() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    let answer = tool("list_chats", json!({"wait_s": 60}))
        + &tool("show_chat", json!({"chat_id": 1}))
        + &tool("send_message", json!({"to": "asker", "message": "pong"}))
        + "done ok";
    run(&mut alice, "answerer", &answer);
    home.until_status("answerer", "running");
    let ask = tool("list_chats", json!({}))
        + &tool("send_message", json!({"to": "answerer", "message": "ping"}))
        + &tool("show_chat", json!({"chat_id": 1, "after": 1, "wait_s": 60}))
        + "done ok";
    run(&mut alice, "asker", &ask);
    assert_eq!(
        home.finished("asker")["outcome"],
        "succeeded",
        "{}",
        home.log("asker")
    );
    assert_eq!(
        home.finished("answerer")["outcome"],
        "succeeded",
        "{}",
        home.log("answerer")
    );
    let (asker, answerer) = (home.log("asker"), home.log("answerer"));
    assert!(
        asker.contains("run answerer (echo) running") && asker.contains("run answerer: pong"),
        "{asker}"
    );
    assert!(
        answerer.contains("1 unread, names you") && answerer.contains("run asker: ping"),
        "{answerer}"
    );
}

#[test]
fn run_sees_only_its_unfinished_siblings() {
    let home = home_with(&[("slow", "cat > /dev/null; touch here; sleep 600")], "");
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    run(&mut alice, "ended", "done ok");
    home.finished("ended");
    run(&mut alice, "waiting", "ask \"ready?\"\ndone ok");
    home.until_status("waiting", "waiting_parent_reply");
    run(&mut bob, "strange", "ask \"ready?\"\ndone ok");
    home.until_status("strange", "waiting_parent_reply");
    // Only participants see an agent that answers in a private chat.
    let private = alice.done(
        "start_chat",
        json!({"title": "p", "private": true, "participants": ["slow"]}),
    )["chat_id"]
        .clone();
    alice.done(
        "send_message",
        json!({"chat_id": private, "message": "a secret word", "wait_s": 0}),
    );
    let place = home.work();
    home.until("the agent works", || {
        place.join("here").exists().then_some(())
    });
    run(
        &mut alice,
        "looker",
        &(tool("list_chats", json!({})) + "done ok"),
    );
    home.finished("looker");
    let log = home.log("looker");
    assert!(
        log.contains("run waiting (echo) waiting_parent_reply: "),
        "{log}"
    );
    assert!(
        !["run ended", "run strange", "run looker", "(slow)", "secret"]
            .iter()
            .any(|text| log.contains(text)),
        "{log}"
    );
}

#[test]
fn message_is_delivered_once_by_chat_or_call() {
    let home = TestHome::new();
    let once = |name: &str| {
        home.finished(name);
        let log = home.log(name);
        assert!(
            log.matches("the lexer is done").count() == 1 && !log.contains("names you"),
            "{log}"
        );
    };
    // A message that was read in its chat is not delivered again with the next call.
    let read = tool("start_chat", json!({"title": "t"}))
        + &tool("show_chat", json!({"chat_id": 1, "wait_s": 300}))
        + "status\ndone ok";
    home.start("reader", &read);
    home.until("it waits", || {
        home.adj(&["--json", "chat", "show", "1"])
            .out
            .contains("\"reading\"")
            .then_some(())
    });
    home.start(
        "writer",
        &(tool(
            "send_message",
            json!({"chat_id": 1, "message": "@reader the lexer is done"}),
        ) + "done ok"),
    );
    once("reader");
    // A message delivered with a call counts as read.
    home.start(
        "caller",
        &format!(
            "ask \"ready?\"\nstatus\n{}done ok",
            tool("list_chats", json!({}))
        ),
    );
    home.until_status("caller", "waiting_parent_reply");
    home.start(
        "again",
        &(tool(
            "send_message",
            json!({"to": "caller", "message": "the lexer is done"}),
        ) + "done ok"),
    );
    home.finished("again");
    home.ok(&["reply", "caller", "yes"]);
    once("caller");
}

#[test]
fn run_waiting_in_a_chat_gets_direct_messages() {
    let home = TestHome::new();
    home.start(
        "waiter",
        &(tool("start_chat", json!({"title": "t"}))
            + &tool("show_chat", json!({"chat_id": 1, "wait_s": 300}))
            + "status\ndone ok"),
    );
    home.until("it waits", || {
        let page = home.adj(&["--json", "chat", "show", "1"]);
        page.out.contains("\"reading\"").then_some(())
    });
    home.start(
        "writer",
        &(tool(
            "send_message",
            json!({"to": "waiter", "message": "over here"}),
        ) + "done ok"),
    );
    home.finished("waiter");
    assert!(
        home.log("waiter").contains("over here"),
        "{}",
        home.log("waiter")
    );
    home.finished("writer");
    let late = tool(
        "send_message",
        json!({"to": "waiter", "message": "too late"}),
    ) + "done ok";
    home.start("late", &late);
    home.finished("late");
    assert!(
        home.log("late").contains("waiter has finished"),
        "{}",
        home.log("late")
    );
}

#[test]
fn ring_of_siblings_stops_at_the_turn_limit() {
    let home = home_with(
        &[],
        "[chats]\nturns_max = 3\n[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n",
    );
    let pass = |to: &str| {
        format!(
            "expect-message\n{}",
            tool(
                "send_message",
                json!({"to": to, "message": "your turn", "wait_s": 0})
            )
        )
        .repeat(20)
    };
    for (name, to) in [("one", "two"), ("two", "three"), ("three", "one")] {
        home.start_agent("stream", name, &pass(to));
    }
    for name in ["one", "two", "three"] {
        home.until_status(name, "running");
    }
    let begin = tool(
        "send_message",
        json!({"to": "one", "message": "begin", "wait_s": 0}),
    ) + "done ok";
    home.start("starter", &begin);
    home.finished("starter");
    let hub_notes = || {
        let chats = home.json(&["chat", "ls"]);
        let all = chats
            .as_array()
            .expect("chats")
            .iter()
            .filter_map(|chat| chat["chat_id"].as_i64())
            .flat_map(|chat| said(&home, chat));
        let all: Vec<(String, String)> = all.collect();
        (all.iter()
            .any(|(name, text)| name == "hub" && text.contains("3 times in a row")))
        .then_some(all)
    };
    let all = home.until("the limit is reached", hub_notes);
    // The chain goes from the starter to one, two and three, and no further.
    assert_eq!(
        all.iter().filter(|(name, _)| name != "hub").count(),
        4,
        "{all:?}"
    );
    home.until_log(
        "three",
        "one is not notified until a person or a client writes",
    );
}

#[test]
fn turn_limit_counts_until_a_person_or_client_posts() {
    let home = home_with(
        &[("relay", "cat > /dev/null; echo '@worker pass it on'")],
        "[chats]\nturns_max = 1\n",
    );
    let mut alice = client(&home, "alice", &[]);
    let send = tool(
        "send_message",
        json!({"chat_id": 2, "to": "relay", "message": "and now?", "wait_s": 30}),
    );
    let script = format!(
        "ask \"ready?\"\n{}{send}ask \"again?\"\n{send}done ok",
        tool("start_chat", json!({"title": "mine"}))
    );
    let chat = start(&mut alice, "t", &[]);
    run(&mut alice, "worker", &script);
    home.until_status("worker", "waiting_parent_reply");
    alice.done(
        "send_message",
        json!({"chat_id": chat, "to": "relay", "message": "go", "wait_s": 30}),
    );
    home.ok(&["reply", "worker", "yes"]);
    home.until_log(
        "worker",
        "relay answers again after a person or a client writes",
    );
    home.until_status("worker", "waiting_parent_reply");
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@person thanks", "wait_s": 0}),
    );
    home.ok(&["reply", "worker", "yes"]);
    home.finished("worker");
    let names: Vec<String> = said(&home, 2).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["run worker", "hub", "run worker", "relay"]);
}

#[test]
fn adopted_runs_take_only_their_chats() {
    let home = TestHome::new();
    let (mut alice, mut bob) = (client(&home, "alice", &[]), client(&home, "bob", &[]));
    let later = tool("show_chat", json!({"chat_id": 2}))
        + &tool("send_message", json!({"chat_id": 4, "message": "x"}))
        + &tool("send_message", json!({"to": "two", "message": "x"}))
        + &tool("show_chat", json!({"chat_id": 1, "after": 0}))
        + &tool(
            "send_message",
            json!({"to": "parent", "message": "second word"}),
        )
        + &tool(
            "send_message",
            json!({"to": "board", "key": "k", "message": "x", "expect": 0}),
        )
        + "status\ndone ok";
    let first = tool("start_chat", json!({"title": "alone"}))
        + &tool(
            "send_message",
            json!({"chat_id": 1, "message": "a lonely word"}),
        )
        + &tool(
            "start_chat",
            json!({"title": "shared", "participants": ["two"]}),
        )
        + &tool(
            "send_message",
            json!({"to": "parent", "message": "first word"}),
        )
        + &tool(
            "send_message",
            json!({"to": "two", "message": "between us"}),
        )
        + &tool(
            "send_message",
            json!({"to": "root-board", "key": "k", "message": "of the tree"}),
        );
    run(&mut alice, "two", "ask \"ready?\"\ndone ok");
    home.until_status("two", "waiting_parent_reply");
    run(
        &mut alice,
        "one",
        &format!("{first}ask \"ready?\"\n{later}"),
    );
    home.until_status("one", "waiting_parent_reply");
    assert_eq!(results(&home, "one").len(), 6, "{}", home.log("one"));
    home.ok(&["adopt", "one", "--client", "bob"]);
    let titles = |session: &mut Session| {
        let listed = session.done("list_chats", json!({}));
        let mut titles: Vec<(i64, String)> = listed["chats"]
            .as_array()
            .expect("chats")
            .iter()
            .map(|chat| {
                (
                    chat["chat_id"].as_i64().unwrap_or(0),
                    chat["title"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect();
        titles.sort();
        titles
    };
    let ids = |session: &mut Session| {
        titles(session)
            .into_iter()
            .map(|(id, _)| id)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (ids(&mut bob), ids(&mut alice)),
        (vec![1, 3, 5], vec![2]),
        "alone, the direct chat with the parent, the tree's board"
    );
    let found = |session: &mut Session| {
        let found = session.done("list_chats", json!({"query": "lonely"}));
        found["hits"]
            .as_array()
            .expect("hits")
            .iter()
            .filter(|hit| hit["chat_id"] == 1)
            .count()
    };
    assert_eq!((found(&mut bob), found(&mut alice)), (1, 0));
    // A message in a chat that is not moved does not follow the run.
    alice.done(
        "send_message",
        json!({"chat_id": 2, "message": "@one a secret of the team"}),
    );
    home.ok(&["chat", "post", "4", "a secret of the person"]);
    home.ok(&["reply", "one", "yes"]);
    home.finished("one");
    let all = results(&home, "one").split_off(6);
    assert!(
        all[..3]
            .iter()
            .all(|line| line.starts_with("refused: ") && line.contains("error[not_found]")),
        "{all:?}"
    );
    assert!(
        all[3..].iter().all(|line| line.starts_with("result: ")),
        "{all:?}"
    );
    assert!(
        home.log("one").contains("#1 run one: a lonely word"),
        "{}",
        home.log("one")
    );
    assert!(!home.log("one").contains("a secret"), "{}", home.log("one"));
    let direct: Vec<String> = said(&home, 3).into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        direct,
        ["first word", "second word"],
        "it continues with the new parent"
    );
    assert_eq!(ids(&mut alice), [2], "bob's board is another one");
    // Moved back, nothing is lost.
    home.ok(&["adopt", "one", "--client", "alice"]);
    assert_eq!(
        (found(&mut bob), found(&mut alice), ids(&mut alice)),
        (0, 1, vec![1, 2, 3, 5])
    );
}
