//! Agents that answer: their prompts, the order of answers, failures and kills.

use super::{client, home_with, said, start};
use crate::mcp::text;
use serde_json::json;

/// An agent that answers with the number of messages in the history, and saves its prompt.
const COUNTS: &str = "cat > prompt.$$; mv prompt.$$ prompt; n=$(sed -n '/^=== CHAT HISTORY/,/^=== END/p' prompt | grep -c '^\\['); echo \"I see $n\"";

#[test]
fn answering_agent_gets_history_and_message_once() {
    let home = home_with(&[("gemini", COUNTS)], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "Debug", &["gemini"]);
    let one = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "first words", "wait_s": 30}),
    );
    assert_eq!(
        (&one["status"], &one["response"]),
        (&json!("answered"), &json!("I see 0")),
        "{one}"
    );
    let two = alice.done("send_message", json!({"chat_id": chat, "agentName": "Orchestrator", "message": "second words", "wait_s": 30}));
    assert_eq!(two["response"], "I see 2", "{two}");
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    assert_eq!(prompt.matches("second words").count(), 1, "{prompt}");
    assert!(prompt.contains("=== CHAT HISTORY - \"Debug\" ===\n[client alice]: first words\n[gemini]: I see 0\n=== END CHAT HISTORY ===\n\n[client alice as \"Orchestrator\"]: second words\n"), "{prompt}");
    let names: Vec<String> = said(&home, chat)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "client alice",
            "gemini",
            "client alice as \"Orchestrator\"",
            "gemini"
        ]
    );
}

#[test]
fn failed_answer_keeps_the_message_and_adds_an_entry() {
    let home = home_with(
        &[("broken", "cat > /dev/null; echo 'quota exceeded'; exit 3")],
        "[agents.gone]\nharness = \"plain\"\ncommand = [\"/no/such/program\"]\n",
    );
    let mut alice = client(&home, "alice", &[]);
    for (agent, why) in [("broken", "exit 3"), ("gone", "not found")] {
        let chat = start(&mut alice, "t", &[agent]);
        let sent = alice.done(
            "send_message",
            json!({"chat_id": chat, "message": "hello", "wait_s": 30}),
        );
        assert_eq!(sent["status"], "failed", "{sent}");
        let all = said(&home, chat);
        assert_eq!(all.len(), 2);
        assert!(all[0].1 == "hello" && all[1].1.contains(why), "{all:?}");
    }
    assert!(said(&home, 1)[1].1.contains("quota exceeded"));
}

#[test]
fn messages_to_one_agent_are_answered_in_order() {
    let home = home_with(
        &[(
            "slow",
            "prompt=$(cat); mkdir busy || { echo overlap; exit 0; }; sleep 0.05; rmdir busy; printf '%s' \"$prompt\" | tail -n 1",
        )],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["slow"]);
    let ids: Vec<u64> = (0..5)
        .map(|n| alice.send("tools/call", json!({"name": "send_message", "arguments": {"chat_id": chat, "message": format!("m{n}"), "wait_s": 30}})))
        .collect();
    for id in ids {
        alice.reply(id);
    }
    let all = said(&home, chat);
    let asked: Vec<&str> = all
        .iter()
        .filter(|(name, _)| name == "client alice")
        .map(|(_, text)| text.as_str())
        .collect();
    let answered: Vec<String> = all
        .iter()
        .filter(|(name, _)| name == "slow")
        .map(|(_, text)| text.clone())
        .collect();
    let expected: Vec<String> = asked
        .iter()
        .map(|text| format!("[client alice]: {text}"))
        .collect();
    assert_eq!(answered, expected, "{all:?}");
}

#[test]
fn answer_survives_a_hub_kill_and_is_posted_once() {
    let home = home_with(
        &[(
            "slow",
            "cat > /dev/null; touch here; while [ ! -e go ]; do sleep 0.02; done; echo done",
        )],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["slow"]);
    let sent = alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "hello", "wait_s": 0}),
    );
    assert_eq!(sent["status"], "answering");
    let place = home.work();
    home.until("the agent works", || {
        place.join("here").exists().then_some(())
    });
    crate::support::kill(home.hub_pid());
    std::fs::write(place.join("go"), "").expect("a file");
    home.ok(&["chat", "ls"]);
    home.until("the answer is there", || {
        (said(&home, chat).len() == 2).then_some(())
    });
    crate::support::kill(home.hub_pid());
    assert_eq!(said(&home, chat)[1], ("slow".to_owned(), "done".to_owned()));
}

#[test]
fn cancelled_call_ends_the_answering_run() {
    let home = home_with(&[("slow", "cat > /dev/null; touch here; sleep 600")], "");
    let mut alice = client(&home, "alice", &["--max-wait", "30"]);
    let chat = start(&mut alice, "t", &["slow"]);
    let call = alice.send(
        "tools/call",
        json!({"name": "send_message", "arguments": {"chat_id": chat, "message": "hello"}}),
    );
    let place = home.work();
    home.until("the agent works", || {
        place.join("here").exists().then_some(())
    });
    alice.write(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}));
    home.until("the failure is there", || {
        said(&home, chat)
            .get(1)
            .is_some_and(|(_, text)| text.contains("cancelled"))
            .then_some(())
    });
    assert_eq!(said(&home, chat)[0].1, "hello", "the message is kept");
}

#[test]
fn agents_answer_agents_when_named_within_a_limit() {
    let home = home_with(
        &[
            ("ping", "cat > /dev/null; echo '@pong your turn'"),
            ("pong", "cat > /dev/null; echo '@ping your turn'"),
        ],
        "[chats]\nturns_max = 3\n",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["ping", "pong"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "@ping go", "wait_s": 0}),
    );
    let all = home.until("the limit is reached", || {
        let all = said(&home, chat);
        all.iter().any(|(name, _)| name == "hub").then_some(all)
    });
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["client alice", "ping", "pong", "ping", "hub"],
        "{all:?}"
    );
}

#[test]
fn answer_of_any_size_is_kept_whole() {
    let home = home_with(
        &[(
            "long",
            "cat > /dev/null; i=0; while [ $i -lt 6000 ]; do echo \"line $i of a long answer\"; i=$((i+1)); done; echo aside >&2",
        )],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["long"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "go", "wait_s": 30}),
    );
    let answer = said(&home, chat).remove(1).1;
    assert!(
        answer.lines().count() == 6000
            && answer.starts_with("line 0 ")
            && answer.ends_with("line 5999 of a long answer"),
        "{} bytes",
        answer.len()
    );
}

#[test]
fn window_holds_whole_messages_and_notes_omissions() {
    let home = home_with(&[("gemini", "cat > prompt; echo ok")], "");
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "Decision: use SQLite"}),
    );
    for n in 0..40 {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "message": format!("{n:02} {}", "x".repeat(1_000))}),
        );
    }
    alice.done(
        "send_message",
        json!({"chat_id": chat, "to": "gemini", "message": "and now?", "wait_s": 30}),
    );
    let prompt = std::fs::read_to_string(home.work().join("prompt")).expect("its prompt");
    let taken = prompt
        .lines()
        .filter(|line| line.starts_with("[client alice]: ") && line.len() > 1_000)
        .count();
    assert_eq!(taken, 29, "30,000 characters");
    assert!(
        prompt.contains("(11 earlier messages are left out here)")
            && prompt.contains("[client alice, pinned]: Decision: use SQLite"),
        "{}",
        &prompt[..2_000]
    );
    assert_eq!(said(&home, chat).len(), 43, "nothing stored is dropped");
}

#[test]
fn token_window_holds_whole_messages_and_is_summarised() {
    let config =
        "[chats]\nwindow = { tokens = 1000 }\nsummariser = \"scribe\"\nsummarise_left_out = true\n";
    let home = home_with(
        &[
            ("gemini", "cat > prompt; echo ok"),
            ("scribe", "cat > told; echo 'It went on and on.'"),
        ],
        config,
    );
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &[]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "message": "Decision: use SQLite"}),
    );
    for n in 0..30 {
        // A hundred words of one token each, and the number.
        alice.done(
            "send_message",
            json!({"chat_id": chat, "message": format!("{n:02}{}", " the".repeat(100))}),
        );
    }
    let prompt = |alice: &mut crate::mcp::Session| {
        alice.done(
            "send_message",
            json!({"chat_id": chat, "to": "gemini", "message": "and now?", "wait_s": 30}),
        );
        std::fs::read_to_string(home.work().join("prompt")).expect("its prompt")
    };
    let first = prompt(&mut alice);
    let taken = first
        .lines()
        .filter(|line| line.starts_with("[client alice]: ") && line.len() > 400)
        .count();
    assert_eq!(
        taken, 9,
        "1,000 tokens, a decision of 5 and messages of 103: {first}"
    );
    assert!(
        first.contains("(21 earlier messages are left out here)")
            && first.contains("pinned]: Decision: use SQLite"),
        "{first}"
    );
    home.until("it is summed up", || {
        said(&home, chat)
            .iter()
            .any(|(_, text)| text == "It went on and on.")
            .then_some(())
    });
    let second = prompt(&mut alice);
    assert!(
        second.contains("[summary of earlier messages, by scribe]: It went on and on."),
        "{second}"
    );
    assert_eq!(
        said(&home, chat)
            .iter()
            .filter(|(_, text)| text == "It went on and on.")
            .count(),
        1,
        "a summary is not asked for again at once"
    );
}

#[test]
fn failed_answer_quotes_the_error_and_names_the_log() {
    let long = "for n in $(seq 2000); do printf 'noise %s ' $n >&2; done; echo >&2; ";
    let home = home_with(
        &[
            (
                "quiet",
                "cat > /dev/null; echo 'warming up' >&2; echo 'oops: model <b>x</b> not found' >&2; exit 7",
            ),
            ("loud", &format!("cat > /dev/null; {long}exit 7")),
            ("silent", "cat > /dev/null; exit 7"),
        ],
        "",
    );
    let mut alice = client(&home, "alice", &[]);
    for (agent, why) in [
        ("quiet", "oops: model <b>x</b> not found"),
        ("loud", "noise 5"),
        ("silent", "exit 7"),
    ] {
        let chat = start(&mut alice, "t", &[agent]);
        let sent = alice.tool(
            "send_message",
            json!({"chat_id": chat, "message": "hello", "wait_s": 30}),
        );
        let failure = said(&home, chat)[1].1.clone();
        assert!(
            failure.contains(why) && failure.contains("exit 7") && failure.contains("adj logs "),
            "{agent}: {failure}"
        );
        assert!(
            failure.len() < 3_000 && text(&sent).contains("get_subagent_logs"),
            "{agent}: {} bytes",
            failure.len()
        );
        let run = failure
            .split("adj logs ")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .expect("its run");
        assert_eq!(home.adj(&["logs", run]).code, 0, "{run}");
    }
}

#[test]
fn original_message_is_answered_without_a_setting() {
    let home = home_with(
        &[
            ("gemini", "cat > /dev/null; echo hello from gemini"),
            ("other", "cat > /dev/null; echo hello from other"),
        ],
        "",
    );
    let mut alice = client(&home, "alice", &["--compat", "--max-wait", "30"]);
    let chat = alice.done("start-chat", json!({"title": "t"}))["chatId"]
        .as_i64()
        .expect("a number");
    let sent = alice.tool(
        "send-message",
        json!({"chatId": chat, "agentName": "backend-agent", "message": "hi"}),
    );
    assert!(
        sent["structuredContent"]["response"] == "hello from gemini"
            && text(&sent).contains("hello from gemini"),
        "{sent}"
    );
    // Who is addressed answers, and other clients keep their own rules.
    let other = start(&mut alice, "u", &["other"]);
    assert_eq!(
        alice.done(
            "send-message",
            json!({"chatId": other, "agentName": "x", "message": "hi", "wait_s": 30})
        )["response"],
        "hello from other"
    );
    let mut bob = client(&home, "bob", &[]);
    let quiet = start(&mut bob, "v", &[]);
    let sent = bob.tool("send_message", json!({"chat_id": quiet, "message": "hi"}));
    assert!(
        sent["structuredContent"]["status"] == "sent"
            && text(&sent).contains("no agent is in this chat"),
        "{sent}"
    );
    let named = bob.done(
        "send_message",
        json!({"chat_id": quiet, "message": "hi", "to": ["other"], "wait_s": 30}),
    );
    assert_eq!(named["response"], "hello from other", "{named}");
}

#[test]
fn unanswered_original_message_says_what_to_set() {
    let home = home_with(&[("other", "cat > /dev/null; echo hello")], "");
    let mut alice = client(&home, "alice", &["--compat"]);
    let chat = alice.done("start-chat", json!({"title": "t"}))["chatId"]
        .as_i64()
        .expect("a number");
    let sent = alice.tool(
        "send-message",
        json!({"chatId": chat, "agentName": "x", "message": "hi"}),
    );
    assert_eq!(
        sent["structuredContent"]["status"], "sent",
        "Gemini is neither declared nor installed: {sent}"
    );
    assert!(
        text(&sent).contains("no agent is in this chat")
            && text(&sent).contains("chats.default_responder"),
        "{sent}"
    );
}

#[test]
fn default_responder_answers_under_compat() {
    let home = home_with(
        &[("gemini", "cat > /dev/null; echo hello from gemini")],
        "[chats]\ndefault_responder = \"gemini\"\n",
    );
    let mut alice = client(&home, "alice", &["--compat"]);
    let chat = alice.done("start-chat", json!({"title": "t"}))["chatId"]
        .as_i64()
        .expect("a number");
    let sent = alice.tool(
        "send-message",
        json!({"chatId": chat, "agentName": "backend-agent", "message": "hi"}),
    );
    assert!(
        text(&sent).contains("hello from gemini")
            && sent["structuredContent"]["response"] == "hello from gemini",
        "{sent}"
    );
    let asked = alice.done(
        "ask_gemini",
        json!({"prompt": "what is new?", "chatId": 0, "agentName": "x"}),
    );
    assert_eq!(
        (&asked["response"], &asked["chatId"]),
        (&json!("hello from gemini"), &json!(chat + 1)),
        "{asked}"
    );
    let missing = alice.tool("show-chat", json!({"chatId": 99}));
    assert!(
        missing["isError"] == true
            && text(&missing).contains("99")
            && text(&missing).contains("list_chats"),
        "{missing}"
    );
}
