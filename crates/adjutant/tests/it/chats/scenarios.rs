//! The scenarios of the original protocol, with its own tools and spellings: a basic conversation,
//! several agents, a history beyond the limit, concurrent participants, and errors.

use super::{client, home_with, said};
use crate::mcp::{Session, text};
use serde_json::{Value, json};

/// Prints the number of messages in the history and the first line of the new message.
const GEMINI: &str = "cat > prompt.$$; n=$(sed -n '/^=== CHAT HISTORY/,/^=== END/p' prompt.$$ | grep -c '^\\['); \
    echo \"after $n: $(sed '1,/^=== END/d' prompt.$$ | sed '/^$/d' | head -n 1)\"; mv prompt.$$ prompt";
const RESPONDER: &str = "[chats]\ndefault_responder = \"gemini\"\n";

fn send(session: &mut Session, chat: i64, agent: &str, message: &str) -> Value {
    session.done(
        "send-message",
        json!({"chatId": chat, "agentName": agent, "message": message}),
    )
}

fn start(session: &mut Session, title: &str) -> i64 {
    session.done("start-chat", json!({"title": title}))["chatId"]
        .as_i64()
        .expect("a number")
}

#[test]
fn chat_is_created_used_and_viewed() {
    let home = home_with(&[("gemini", GEMINI)], RESPONDER);
    let mut orchestrator = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let chat = start(&mut orchestrator, "Debug API Performance");
    let first = send(
        &mut orchestrator,
        chat,
        "Orchestrator",
        "Please analyze the slow API endpoints",
    );
    assert_eq!(
        first["response"],
        "after 0: [client orchestrator as \"Orchestrator\"]: Please analyze the slow API endpoints"
    );
    let second = send(&mut orchestrator, chat, "Orchestrator", "And the database?");
    assert_eq!(
        second["response"],
        "after 2: [client orchestrator as \"Orchestrator\"]: And the database?"
    );
    let listed = orchestrator.done("list-chats", json!({}));
    let of = &listed["chats"][0];
    assert_eq!(
        (&of["title"], &of["participantCount"]),
        (&json!("Debug API Performance"), &json!(2)),
        "{of}"
    );
    assert!(of["lastActivity"].is_string());
    let shown = orchestrator.tool("show-chat", json!({"chatId": chat}));
    let lines: Vec<String> = text(&shown)
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 4, "{}", text(&shown));
    assert!(
        lines[0].contains("Please analyze")
            && lines[1].starts_with("#2 gemini")
            && lines[3].contains("after 2"),
        "{lines:?}"
    );
}

#[test]
fn orchestrator_runs_and_gemini_share_a_chat() {
    let home = home_with(&[("gemini", GEMINI)], "");
    let mut orchestrator = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let started = orchestrator.done(
        "start-chat",
        json!({"title": "Release plan", "participants": ["gemini"]}),
    );
    let chat = started["chatId"].as_i64().expect("a number");
    assert_eq!(
        send(&mut orchestrator, chat, "Orchestrator", "What is left?")["status"],
        "answered"
    );
    for (agent, finding) in [
        ("frontend", "the form has no error state"),
        ("backend", "three queries scan"),
        ("security", "the token is logged"),
    ] {
        let script = format!(
            "---\ntool show-chat {{\"chatId\": {chat}}}\ntool send-message {{\"chatId\": {chat}, \"agentName\": \"{agent}-agent\", \"message\": \"{finding}\"}}\ndone ok"
        );
        orchestrator.done(
            "run_subagent",
            json!({"agent": "echo", "name": agent, "prompt": script, "cwd": home.work()}),
        );
        assert_eq!(home.finished(agent)["outcome"], "succeeded");
    }
    assert!(
        home.log("security")
            .contains("run backend as \"backend-agent\": three queries scan"),
        "each has read what the others found"
    );
    let last = send(&mut orchestrator, chat, "Orchestrator", "Sum it up");
    assert_eq!(
        last["response"],
        "after 8: [client orchestrator as \"Orchestrator\"]: Sum it up"
    );
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    let lines = [
        "[gemini]: after 0: ",
        "[run frontend as \"frontend-agent\"]: the form",
        "[run backend as \"backend-agent\"]: three",
        "[run security as \"security-agent\"]: the token",
    ];
    let places: Vec<Option<usize>> = lines.iter().map(|line| prompt.find(line)).collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{places:?} in {prompt}"
    );
    assert_eq!(
        orchestrator.done("list-chats", json!({}))["chats"][0]["participantCount"],
        5
    );
}

#[test]
fn long_history_is_cut_for_the_agent_and_kept() {
    let home = home_with(&[("gemini", GEMINI)], "");
    let mut orchestrator = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let chat = start(&mut orchestrator, "Long");
    // Without --compat, no agent answers these.
    let mut quiet = client(&home, "orchestrator", &[]);
    for n in 0..35 {
        send(
            &mut quiet,
            chat,
            "Orchestrator",
            &format!("{n:02} {}", "ä".repeat(997)),
        );
    }
    let asked = orchestrator.done(
        "send-message",
        json!({"chatId": chat, "agentName": "Orchestrator", "message": "Go on", "to": "gemini"}),
    );
    assert_eq!(
        asked["response"], "after 30: [client orchestrator as \"Orchestrator\"]: Go on",
        "30 messages of 1,000 characters"
    );
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    assert!(prompt.contains("(5 earlier messages are left out here)\n[client orchestrator as \"Orchestrator\"]: 05 ä"), "whole messages only");
    let log = std::fs::read_to_string(home.home.hub_log()).expect("the hub's log");
    assert!(log.lines().any(|line| line.contains("left_out=5")), "{log}");
    assert_eq!(said(&home, chat).len(), 37, "nothing stored is dropped");
}

#[test]
fn twelve_concurrent_agents_get_their_own_answers() {
    let home = home_with(&[("gemini", GEMINI)], RESPONDER);
    let mut orchestrator = client(&home, "orchestrator", &["--compat", "--max-wait", "60"]);
    let chat = start(&mut orchestrator, "Crowd");
    let mut agents: Vec<Session> = (0..12)
        .map(|_| client(&home, "orchestrator", &["--compat", "--max-wait", "60"]))
        .collect();
    let calls: Vec<u64> = agents
        .iter_mut()
        .enumerate()
        .map(|(n, agent)| {
            let arguments = json!({"chatId": chat, "agentName": format!("agent-{n}"), "message": format!("question {n}")});
            agent.send("tools/call", json!({"name": "send-message", "arguments": arguments}))
        })
        .collect();
    for (n, (agent, call)) in agents.iter_mut().zip(calls).enumerate() {
        let reply = agent.reply(call);
        let response = reply["result"]["structuredContent"]["response"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            response.ends_with(&format!("as \"agent-{n}\"]: question {n}")),
            "{reply}"
        );
    }
    let page = orchestrator.done(
        "show-chat",
        json!({"chatId": chat, "after": 0, "limit": 100}),
    );
    let numbers: Vec<i64> = page["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|one| one["seq"].as_i64())
        .collect();
    assert_eq!(
        numbers,
        (1..=24).collect::<Vec<i64>>(),
        "one order, without gaps"
    );
}

#[test]
fn wrong_ids_and_messages_are_refused_with_hints() {
    let home = home_with(&[("gemini", "cat > /dev/null; exit 7")], RESPONDER);
    let mut orchestrator = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let chat = start(&mut orchestrator, "Errors");
    for id in [json!(99), json!("99"), json!(0), json!(-1), json!(i64::MAX)] {
        for (tool, arguments) in [
            ("show-chat", json!({"chatId": id})),
            (
                "send-message",
                json!({"chatId": id, "agentName": "x", "message": "y"}),
            ),
        ] {
            let refused = orchestrator.tool(tool, arguments);
            assert!(
                refused["isError"] == true && text(&refused).contains("list_chats"),
                "{refused}"
            );
        }
    }
    for arguments in [
        json!({}),
        json!({"chatId": "one"}),
        json!({"chatId": 1.5}),
        json!({"chatId": [1]}),
        json!({"chatId": null}),
    ] {
        assert_eq!(
            orchestrator.tool("show-chat", arguments.clone())["isError"],
            true,
            "{arguments}"
        );
    }
    for arguments in [
        json!({"chatId": chat}),
        json!({"chatId": chat, "message": ""}),
        json!({"chatId": chat, "message": ["a"]}),
        json!({"message": "x"}),
    ] {
        assert_eq!(
            orchestrator.tool("send-message", arguments.clone())["isError"],
            true,
            "{arguments}"
        );
    }
    assert_eq!(said(&home, chat), [], "nothing of that was written");
    let failed = send(&mut orchestrator, chat, "Orchestrator", "hello");
    assert_eq!(failed["status"], "failed");
    let all = said(&home, chat);
    assert!(
        all.len() == 2 && all[0].1 == "hello" && all[1].1.contains("exit 7"),
        "the message is kept when Gemini fails: {all:?}"
    );
}

#[test]
fn agents_that_share_a_connection_read_by_themselves() {
    let home = home_with(&[], "");
    let mut shared = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let chat = start(&mut shared, "Release");
    send(&mut shared, chat, "Orchestrator", "@Backend please start");
    let seen = |session: &mut Session, agent: Value| {
        let list = session.done("list-chats", json!({"agentName": agent}));
        (
            list["chats"][0]["unread"].as_i64(),
            list["chats"][0]["mentioned"].as_bool(),
        )
    };
    assert_eq!(
        seen(&mut shared, json!("Orchestrator")),
        (Some(0), Some(false)),
        "its own entry is read"
    );
    assert_eq!(seen(&mut shared, json!("Backend")), (Some(1), Some(true)));
    assert_eq!(seen(&mut shared, json!("Frontend")), (Some(1), Some(false)));
    let shown = shared.done("show-chat", json!({"chatId": chat, "agentName": "backend"}));
    assert_eq!(
        (&shown["unread"], &shown["messages"][0]["message"]),
        (&json!(0), &json!("@Backend please start"))
    );
    assert_eq!(seen(&mut shared, json!("Backend")), (Some(0), Some(false)));
    assert_eq!(
        seen(&mut shared, json!("Frontend")),
        (Some(1), Some(false)),
        "what one has read is new for the other"
    );
    send(&mut shared, chat, "Backend", "done, @Frontend");
    assert_eq!(seen(&mut shared, json!("Frontend")), (Some(2), Some(true)));
    assert_eq!(
        seen(&mut shared, json!("Orchestrator")),
        (Some(1), Some(false))
    );
    // Without a name, the connection reads, as before.
    let list = shared.done("list-chats", json!({}));
    assert_eq!(list["chats"][0]["unread"], 0, "{list}");
    // Names grant nothing: another client's Backend does not see the chat, and its cursors are its
    // own.
    let mut other = client(&home, "other", &["--compat", "--max-wait", "30"]);
    assert_eq!(
        other.done("list-chats", json!({"agentName": "Backend"}))["chats"],
        json!([])
    );
    let refused = other.tool(
        "show-chat",
        json!({"chatId": chat, "agentName": "Orchestrator"}),
    );
    assert_eq!(refused["isError"], true, "{refused}");
}

#[test]
fn chat_is_shown_whole() {
    let home = home_with(&[], "");
    let mut shared = client(&home, "orchestrator", &["--compat", "--max-wait", "30"]);
    let chat = start(&mut shared, "Long");
    for n in 1..=36 {
        send(&mut shared, chat, "Orchestrator", &format!("message {n}"));
    }
    let shown = shared.done("show-chat", json!({"chatId": chat}));
    assert_eq!(shown["messages"].as_array().map(Vec::len), Some(36));
    let listed = &shared.done("list-chats", json!({}))["chats"][0];
    assert!(
        listed["chatId"] == chat && listed["createdAt"].is_string(),
        "{listed}"
    );
    let mut plain = client(&home, "orchestrator", &[]);
    assert_eq!(
        plain.done("show_chat", json!({"chat_id": chat}))["messages"]
            .as_array()
            .map(Vec::len),
        Some(20)
    );
}
