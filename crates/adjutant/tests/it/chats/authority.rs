//! Who may add participants, the permissions of answering agents, and which output is posted.

use super::{client, home_with, said, start};
use crate::mcp::text;
use crate::support::TestHome;
use serde_json::{Value, json};

/// Declares an agent with Claude's preset whose program is a script. `$as` contains its
/// permissions.
fn vendor(home: &TestHome, name: &str, script: &str) {
    let path = home.work().join(format!("{name}.sh"));
    let as_what = "read -r first; case \"$*\" in *NotebookEdit*) as=read;; *acceptEdits*) as=edit;; *) as=full;; esac";
    std::fs::write(&path, format!("{as_what}\n{script}\n")).expect("the script can be written");
    let config = home.home.dir.join("config.toml");
    let mut text = std::fs::read_to_string(&config).expect("a configuration");
    let command = path.display();
    text.push_str(&format!(
        "[agents.{name}]\nharness = \"claude\"\npermissions = \"full\"\ncommand = [\"/bin/sh\", \"{command}\"]\ngrace = \"1s\"\n"
    ));
    std::fs::write(&config, text).expect("the configuration can be written");
}

const SAYS: &str =
    r#"printf '{"type":"result","subtype":"success","is_error":false,"result":"%s"}\n'"#;

fn texts(home: &TestHome, chat: i64) -> Vec<String> {
    said(home, chat).into_iter().map(|(_, text)| text).collect()
}

fn participants(home: &TestHome, chat: i64) -> Vec<String> {
    let page = home.json(&["chat", "show", &chat.to_string()]);
    let all = page["chat"]["participants"]
        .as_array()
        .expect("participants")
        .iter();
    let mut names: Vec<String> = all
        .map(|one| one["name"].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn only_the_answer_of_a_long_run_is_posted() {
    let home = home_with(
        &[(
            "plain",
            "cat > /dev/null; i=0; while [ $i -lt 2000 ]; do echo \"stderr: line $i\"; i=$((i+1)); done; echo aside >&2",
        )],
        "",
    );
    let secret = r#"echo '{"type":"user","message":{"content":[{"type":"tool_result","content":"SECRET"}]}}'"#;
    vendor(
        &home,
        "structured",
        &format!(
            "{secret}\nlong=$(head -c 20000 /dev/zero | tr '\\0' x)\n{SAYS} \"stderr: mine $long end\""
        ),
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    for agent in ["structured", "plain"] {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "to": agent, "message": "go", "wait_s": 30}),
        );
    }
    let all = texts(&home, chat);
    assert_eq!(all[1], format!("stderr: mine {} end", "x".repeat(20_000)));
    assert!(
        all[3].lines().count() == 2000
            && all[3].starts_with("stderr: line 0\n")
            && all[3].ends_with("stderr: line 1999"),
        "{} bytes",
        all[3].len()
    );
}

#[test]
fn oversized_answer_is_marked_as_cut() {
    let home = home_with(
        &[(
            "long",
            "cat > /dev/null; echo start; head -c 2000000 /dev/zero | tr '\\0' y; echo end",
        )],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["long"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "go", "wait_s": 30}),
    );
    let answer = texts(&home, chat).remove(1);
    assert!(
        answer.len() <= 1_048_576
            && answer.len() > 1_000_000
            && answer.starts_with("(The beginning")
            && answer.ends_with("yend"),
        "{} bytes",
        answer.len()
    );
}

#[test]
fn answer_for_a_run_keeps_its_limits_and_permissions() {
    let home = home_with(&[], "[delegation]\nchildren_max = 1\n");
    vendor(&home, "helper", &format!("{SAYS} \"as $as\""));
    let send = |message: &str| {
        format!(
            "tool send_message {{\"to\": \"helper\", \"message\": \"{message}\", \"wait_s\": 30}}"
        )
    };
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "asker",
        "--permissions",
        "read",
        &format!("{}\n{}\ndone ok", send("one"), send("two")),
    ]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
    let all = texts(&home, 1);
    assert_eq!(
        (all[0].as_str(), all[1].as_str(), all[2].as_str()),
        ("one", "as read", "two"),
        "no more than the asking run itself may do"
    );
    assert!(
        all.len() == 4 && all[3].contains("the limit for"),
        "the message is kept: {all:?}"
    );
    let runs = home.json(&["ps", "-a"]);
    let children = runs
        .as_array()
        .expect("runs")
        .iter()
        .filter(|run| run["parent"] == home.run_id("asker").as_str())
        .count();
    assert_eq!(children, 1, "{runs}");
}

#[test]
fn answering_run_ends_with_its_requester() {
    let home = home_with(&[("slow", "cat > /dev/null; touch here; sleep 600")], "");
    home.start(
        "asker",
        "tool send_message {\"to\": \"slow\", \"message\": \"x\", \"wait_s\": 0}\nask \"go on?\"",
    );
    let place = home.work();
    home.until("the agent works", || {
        place.join("here").exists().then_some(())
    });
    home.until_status("asker", "waiting_parent_reply");
    home.ok(&["cancel", "asker"]);
    home.until("its answering run is over", || {
        let runs = home.json(&["ps", "-a"]);
        runs.as_array()
            .expect("runs")
            .iter()
            .all(|run| run["outcome"] == "cancelled")
            .then_some(())
    });
}

#[test]
fn answer_chain_through_a_run_is_counted() {
    let home = home_with(
        &[("relay", "cat > /dev/null; echo '@worker pass it on'")],
        "[chats]\nturns_max = 2\n",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    let send = format!(
        "tool send_message {{\"chat_id\": {chat}, \"to\": \"relay\", \"message\": \"again\", \"wait_s\": 30}}"
    );
    let prompt = format!("---\nask \"ready?\"\n{send}\n{send}\ndone ok");
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "worker", "prompt": prompt, "cwd": home.work()}),
    );
    home.until_status("worker", "waiting_parent_reply");
    alice.done(
        "send_message",
        json!({"chat_id": chat, "to": ["relay", "worker"], "message": "go", "wait_s": 30}),
    );
    home.ok(&["reply", "worker", "yes"]);
    home.finished("worker");
    let names: Vec<String> = said(&home, chat)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "client alice",
            "relay",
            "run worker",
            "relay",
            "run worker",
            "hub"
        ]
    );
}

#[test]
fn run_pair_stops_at_the_turn_limit() {
    let home = home_with(
        &[],
        "[chats]\nturns_max = 3\n[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n",
    );
    let say = |to: Value| {
        let mut message = json!({"message": "your turn", "wait_s": 0});
        message
            .as_object_mut()
            .expect("an object")
            .extend(to.as_object().expect("an object").clone());
        format!("tool send_message {message}")
    };
    // Each run answers everything, without a reply reference.
    let child = format!(
        "---\n{}",
        format!("{}\nexpect-message\n", say(json!({"to": "boss"}))).repeat(20)
    );
    let boss = format!("expect-message\n{}\n", say(json!({"chat_id": 1}))).repeat(20);
    home.start_agent(
        "stream",
        "boss",
        &format!("delegate {}\n{boss}", Value::from(child)),
    );
    home.until("it wants a child", || {
        home.inbox(&[])
            .as_array()
            .filter(|open| !open.is_empty())
            .map(|_| ())
    });
    home.ok(&["approve", "boss", "--agent", "stream"]);
    let names = |hubs: usize| {
        home.until("the limit is reached", || {
            let names: Vec<String> = home
                .json(&["chat", "ls", "--all"])
                .get(0)
                .map(|_| said(&home, 1).into_iter().map(|(name, _)| name).collect())?;
            (names.iter().filter(|name| *name == "hub").count() >= hubs).then_some(names)
        })
    };
    let first = names(1);
    let child = first[0].clone();
    assert_eq!(first, [&child, "run boss", &child, "run boss", "hub"]);
    home.until_log("boss", "is not notified until a person or a client writes");
    home.ok(&["chat", "post", "1", "go on"]);
    let second = names(2);
    assert_eq!(
        (&second[..5], second[5].as_str()),
        (&first[..], "person"),
        "nobody spoke in between"
    );
    assert!(
        second[6..].contains(&child) && second[6..].contains(&"run boss".to_owned()),
        "{second:?}"
    );
}

#[test]
fn mention_adds_no_participant_to_a_private_chat() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo '@outsider look'")], "");
    let mut alice = client(&home, "alice", &[]);
    alice.done("run_subagent", json!({"agent": "echo", "name": "outsider", "prompt": "---\nask \"ready?\"\nstatus\ndone ok", "cwd": home.work()}));
    home.until_status("outsider", "waiting_parent_reply");
    let private = alice.done(
        "start_chat",
        json!({"title": "p", "private": true, "participants": ["gemini"]}),
    )["chat_id"]
        .as_i64()
        .expect("a number");
    alice.done(
        "send_message",
        json!({"chat_id": private, "message": "@gemini and @outsider, a secret", "wait_s": 30}),
    );
    assert_eq!(participants(&home, private), ["client alice", "gemini"]);
    let direct = alice.done(
        "send_message",
        json!({"to": "gemini", "message": "@outsider too", "wait_s": 30}),
    )["chat_id"]
        .as_i64()
        .expect("a number");
    assert_eq!(participants(&home, direct).len(), 2);
    home.ok(&["reply", "outsider", "yes"]);
    home.finished("outsider");
    assert!(
        !home.log("outsider").contains("secret"),
        "{}",
        home.log("outsider")
    );
    alice.done(
        "send_message",
        json!({"chat_id": private, "to": "outsider", "message": "come in"}),
    );
    assert_eq!(participants(&home, private).len(), 3, "said on purpose");
}

#[test]
fn answer_in_a_persons_chat_reaches_no_client_run() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo '@victim obey'")], "");
    let mut alice = client(&home, "alice", &[]);
    alice.done("run_subagent", json!({"agent": "echo", "name": "victim", "prompt": "---\nask \"ready?\"\nstatus\ndone ok", "cwd": home.work()}));
    home.until_status("victim", "waiting_parent_reply");
    home.ok(&["chat", "start", "mine", "--with", "gemini"]);
    home.ok(&["chat", "post", "1", "hello"]);
    home.until("the answer is there", || {
        (said(&home, 1).len() == 2).then_some(())
    });
    assert_eq!(participants(&home, 1), ["gemini", "person"]);
    let refused = home.adj(&["chat", "post", "1", "look", "--at", "victim"]);
    assert!(
        refused.code == 2 && refused.err.contains("has no access to this chat"),
        "{refused:?}"
    );
    home.ok(&["reply", "victim", "yes"]);
    home.finished("victim");
    assert!(
        !home.log("victim").contains("obey"),
        "{}",
        home.log("victim")
    );
}

#[test]
fn answer_waits_for_an_unshared_directory() {
    let alone = "cat > /dev/null; mkdir busy && echo alone && rmdir busy";
    let home = home_with(
        &[
            ("gemini", alone),
            ("claude2", alone),
            ("slow", "cat > /dev/null; touch here; sleep 600"),
        ],
        "refuse_shared_directory = true\n",
    );
    home.start_agent("slow", "first", "x");
    let place = home.work();
    home.until("the agent works", || {
        place.join("here").exists().then_some(())
    });
    let mut alice = client(&home, "alice", &["--max-wait", "30"]);
    let chat = start(&mut alice, "t", &["gemini", "claude2"]);
    let sent = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "go", "wait_s": 0}),
    );
    assert_eq!(sent["waiting"].as_array().map(Vec::len), Some(2), "{sent}");
    // The turn is considered again with the next message, and still waits.
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "hello?", "to": ["person"], "wait_s": 0}),
    );
    assert_eq!(
        home.json(&["ps", "-a"]).as_array().map(Vec::len),
        Some(1),
        "nothing was started beside it"
    );
    home.ok(&["cancel", "first"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "now", "to": ["gemini", "claude2"], "wait_s": 30}),
    );
    let answers: Vec<String> = texts(&home, chat)
        .into_iter()
        .filter(|text| !["go", "hello?", "now"].contains(&text.as_str()))
        .collect();
    assert_eq!(answers, ["alone"; 4], "one after the other");
}

#[test]
fn run_in_its_own_directory_is_refused_an_answer() {
    let home = home_with(
        &[("gemini", "cat > /dev/null; echo here")],
        "refuse_shared_directory = true\n",
    );
    home.start(
        "asker",
        "tool send_message {\"to\": \"gemini\", \"message\": \"x\", \"wait_s\": 30}\ndone ok",
    );
    home.finished("asker");
    let said = texts(&home, 1);
    assert!(
        said[1].contains("asker asked and is working in"),
        "{said:?}"
    );
}

#[test]
fn answer_waits_out_a_rate_limit() {
    let home = home_with(&[], "");
    let limited = r#"if [ ! -e limited ]; then touch limited; echo '{"type":"result","subtype":"success","is_error":true,"result":"API Error: 429 rate limit reached, try again in 1 seconds"}'; exit 1; fi"#;
    vendor(&home, "limited", &format!("{limited}\n{SAYS} 'here I am'"));
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["limited"]);
    let sent = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "go", "wait_s": 30}),
    );
    assert_eq!(
        (&sent["status"], &sent["response"]),
        (&json!("answered"), &json!("here I am")),
        "{sent}"
    );
}

#[test]
fn blocked_turn_delays_no_other() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo fine")], "");
    home.ok(&["chat", "start", "broken", "--with", "gemini"]);
    home.ok(&["stop"]);
    let store = rusqlite::Connection::open(home.home.database()).expect("the store");
    let place = home.work().display().to_string();
    let sql = "INSERT INTO chat_turns (chat, agent, message, hops, cwd, env, at) VALUES (1, 'gemini', 999, 0, ?1, '{}', 0)";
    store
        .execute(sql, [&place])
        .expect("a turn whose message no longer exists");
    drop(store);
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["gemini"]);
    let sent = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "go", "wait_s": 30}),
    );
    assert_eq!(sent["response"], "fine", "{sent}");
    assert!(
        texts(&home, 1)[0].contains("message no longer exists"),
        "{:?}",
        said(&home, 1)
    );
}

#[test]
fn run_name_is_not_an_agent_name() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo 'it is me'")], "");
    let refused = home.adj(&[
        "run", "--detach", "--agent", "echo", "--name", "person", "done ok",
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let mut alice = client(&home, "alice", &[]);
    alice.done("run_subagent", json!({"agent": "echo", "name": "gemini", "prompt": "---\nask \"ready?\"\ndone ok", "cwd": home.work()}));
    home.until_status("gemini", "waiting_parent_reply");
    let chat = start(&mut alice, "t", &["run:gemini", "gemini"]);
    let sent = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@gemini who are you?", "wait_s": 30}),
    );
    assert_eq!(sent["response"], "it is me", "{sent}");
}

#[test]
fn default_responder_ignores_messages_to_others() {
    let home = home_with(
        &[("gemini", "cat > /dev/null; echo hello")],
        "[chats]\ndefault_responder = \"gemini\"\n",
    );
    let mut alice = client(&home, "alice", &["--compat", "--max-wait", "30"]);
    for arguments in [
        json!({"to": "person", "message": "for you alone"}),
        json!({"to": "board", "key": "k", "message": "noted"}),
    ] {
        let sent = alice.done("send_message", arguments);
        assert_eq!(
            (&sent["status"], &sent["waiting"]),
            (&json!("sent"), &json!([])),
            "{sent}"
        );
    }
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
}

#[test]
fn repeated_key_asks_once() {
    let home = home_with(&[("gemini", "cat > /dev/null; echo hello")], "");
    let mut alice = client(&home, "alice", &["--compat", "--max-wait", "30"]);
    let ask =
        || json!({"prompt": "what is new?", "agentName": "x", "idempotency_key": "k".repeat(200)});
    let one = alice.done("ask_gemini", ask());
    let two = alice.done("ask_gemini", ask());
    assert_eq!(
        (&one["chatId"], &one["response"]),
        (&two["chatId"], &two["response"]),
        "{two}"
    );
    assert_eq!(
        (
            home.json(&["chat", "ls"]).as_array().map(Vec::len),
            said(&home, 1).len()
        ),
        (Some(1), 2)
    );
}

#[test]
fn decision_message_is_pinned_for_any_author() {
    let home = home_with(
        &[("gemini", "cat > /dev/null; echo 'Decision: SQLite'")],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["gemini"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "which?", "wait_s": 30}),
    );
    alice.done(
        "send_message",
        json!({"chat_id": chat, "edit_of": "1", "message": "Conclusion: as below"}),
    );
    let page = home.json(&["chat", "show", &chat.to_string()]);
    let pinned: Vec<&Value> = page["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|one| &one["pinned"])
        .collect();
    assert_eq!(pinned, [&json!(true), &json!(true)]);
}

#[test]
fn concurrent_change_is_a_conflict() {
    let home = TestHome::new();
    let mut alice = client(&home, "alice", &[]);
    alice.done(
        "send_message",
        json!({"to": "board", "key": "plan", "message": "one"}),
    );
    let lost = alice.tool(
        "send_message",
        json!({"to": "board", "key": "plan", "message": "two", "expect": 7}),
    );
    assert!(text(&lost).contains("error[conflict]"), "{lost}");
    let chat = start(&mut alice, "t", &[]);
    let odd = alice.tool(
        "send_message",
        json!({"chat_id": chat, "message": "x", "expect": 1}),
    );
    assert!(
        odd["isError"] == true && text(&odd).contains("key"),
        "{odd}"
    );
    home.ok(&["chat", "archive", &chat.to_string()]);
    let refused = home.adj(&["chat", "post", &chat.to_string(), "x"]);
    assert!(
        refused.code == 7 && refused.err.contains("archived"),
        "{refused:?}"
    );
}

#[test]
fn answering_run_works_behind_the_fence_of_its_requester() {
    let home = home_with(
        &[(
            "helper",
            "cat > /dev/null; echo x > ../outside.txt; echo x > inside.txt; echo answered",
        )],
        "",
    );
    let script =
        "tool send_message {\"to\": \"helper\", \"message\": \"x\", \"wait_s\": 30}\ndone ok";
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "asker",
        "--fence",
        "workspace",
        script,
    ]);
    home.finished("asker");
    let runs = home.json(&["ps", "-a"]);
    let helper = runs
        .as_array()
        .and_then(|runs| runs.iter().find(|run| run["agent"] == "helper"))
        .expect("it answered")
        .clone();
    let view = home.finished(helper["name"].as_str().expect("a name"));
    assert_eq!(
        (&view["fence"]["asked"], &view["fence"]["enforced"]),
        (&json!("workspace"), &json!("mount_namespace")),
        "{view}"
    );
    assert!(
        home.work().join("inside.txt").exists()
            && !home.work().with_file_name("outside.txt").exists(),
        "{}",
        home.log("asker")
    );
}
