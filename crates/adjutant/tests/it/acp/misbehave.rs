//! Agents that break the protocol: each run ends with a cause, no process is left, and no call
//! waits forever.

use super::{Rig, line};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The response to a prompt, sent without the SDK.
const END: &str = r#"do: ["reply",{"stopReason":"end_turn"}]"#;

fn outcome(view: &Value) -> (&str, &str) {
    (
        view["outcome"].as_str().unwrap_or_default(),
        view["reason"].as_str().unwrap_or_default(),
    )
}

#[test]
fn other_output_has_no_effect() {
    let Some(rig) = Rig::with(&["--greet"]) else {
        return;
    };
    for (name, steps) in [
        (
            "garbage",
            vec![r#"do: ["raw","}{ not JSON\n\u0000\u001b[2J\n[]\n1\nnull\n{}\n"]"#],
        ),
        (
            "replies",
            vec![
                r#"do: ["line",{"id":3,"result":{"sessionId":"other"}}]"#,
                r#"do: ["line",{"id":99,"result":{}}]"#,
                r#"do: ["line",{"id":"5","result":{"stopReason":"refusal"}}]"#,
                r#"do: ["line",{"id":4,"error":{"code":1,"message":"late"}}]"#,
            ],
        ),
        ("huge", vec![r#"do: ["flood",9000000]"#]),
        (
            "cut",
            vec![
                r#"do: ["raw","{\"jsonrpc\":\"2.0\",\"meth"]"#,
                r#"do: ["sleep",50]"#,
                r#"do: ["raw","od\":\"nothing\"}\n"]"#,
            ],
        ),
        (
            "unknown",
            vec![
                r#"do: ["request","fs/read_text_file",{"sessionId":"x","path":"/etc/passwd"}]"#,
                r#"do: ["request","no/such_method",{}]"#,
            ],
        ),
    ] {
        let steps: Vec<&str> = steps
            .into_iter()
            .chain([r#"do: ["say","still here"]"#, r#"do: ["say","bye"]"#])
            .collect();
        rig.start("mine", name, &steps, &[]);
        let view = rig.home.finished(name);
        let log = rig.home.log(name);
        assert!(
            view["outcome"] == "succeeded" && log.contains("still here"),
            "{name} {view} {log}"
        );
        assert!(
            !log.contains('\u{1b}') && !log.contains("root:x:"),
            "{name} {log}"
        );
        if name == "unknown" {
            assert_eq!(log.matches("refused: -32601").count(), 2, "{log}");
        }
        rig.until_none_is_left(name);
    }
}

#[test]
fn every_end_has_a_cause() {
    let Some(rig) = Rig::with(&[]) else { return };
    for (name, steps, expected, why) in [
        ("quits", vec![r#"do: ["exit",3]"#], "failed", "exit code 3"),
        (
            "dies",
            vec![r#"do: ["child"]"#, r#"do: ["crash"]"#],
            "failed",
            "signal",
        ),
        (
            "silent-end",
            vec![r#"do: ["exit",0]"#],
            "failed",
            "exit code 0",
        ),
        (
            "half",
            vec![
                r#"do: ["raw","{\"jsonrpc\":\"2.0\",\"id\":5,\"resu"]"#,
                r#"do: ["exit",0]"#,
            ],
            "failed",
            "exit code 0",
        ),
        (
            "error",
            vec![r#"do: ["no such thing"]"#],
            "failed",
            "Invalid params",
        ),
        (
            "refusal",
            vec![
                r#"do: ["reply",{"stopReason":"refusal"}]"#,
                r#"do: ["hang"]"#,
            ],
            "failed",
            "the model refused to continue",
        ),
        (
            "full",
            vec![
                r#"do: ["reply",{"stopReason":"max_tokens"}]"#,
                r#"do: ["hang"]"#,
            ],
            "failed",
            "maximum number of tokens",
        ),
        (
            "many-calls",
            vec![
                r#"do: ["reply",{"stopReason":"max_turn_requests"}]"#,
                r#"do: ["hang"]"#,
            ],
            "failed",
            "limit of model calls",
        ),
        (
            "cancels",
            vec![
                r#"do: ["reply",{"stopReason":"cancelled"}]"#,
                r#"do: ["hang"]"#,
            ],
            "failed",
            "cancelled its turn",
        ),
        (
            "nothing",
            vec![r#"do: ["sleep",10]"#],
            "failed",
            "without reporting a result",
        ),
        // Two responses, and messages after the end.
        (
            "doubled",
            vec![
                END,
                END,
                r#"do: ["say","after the end"]"#,
                r#"do: ["hang"]"#,
            ],
            "succeeded",
            "",
        ),
        (
            "late",
            vec![
                r#"do: ["later",300,{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk"}}}]"#,
                r#"do: ["say","bye"]"#,
            ],
            "succeeded",
            "",
        ),
    ] {
        rig.start("mine", name, &steps, &[]);
        let view = rig.home.finished(name);
        let (outcome, reason) = outcome(&view);
        assert!(outcome == expected && reason.contains(why), "{name} {view}");
        assert!(
            outcome == "succeeded" || !reason.is_empty(),
            "{name} {view}"
        );
        rig.until_none_is_left(name);
    }
}

#[test]
fn agent_that_never_starts_fails_once_silent() {
    for method in ["initialize", "session/new"] {
        let Some(rig) =
            Rig::new(&(line("mine", "my-agent", &["--mute", method]) + "stall = \"1s\"\n"))
        else {
            return;
        };
        let (view, _) = rig.ran(&[r#"do: ["say","x"]"#], &[]);
        let (outcome, reason) = outcome(&view);
        assert!(
            outcome == "failed" && reason.contains("does it speak ACP?"),
            "{method} {view}"
        );
        rig.until_none_is_left("job");
    }
    // An agent with another protocol.
    let Some(rig) =
        Rig::new("[agents.mine]\nharness = \"acp\"\ncommand = [\"/bin/cat\"]\nstall = \"1s\"\n")
    else {
        return;
    };
    let (view, _) = rig.ran(&["x"], &[]);
    assert_eq!(view["outcome"], "failed", "{view}");
    let Some(rig) = Rig::with(&["--version", "7"]) else {
        return;
    };
    let (view, _) = rig.ran(&["x"], &[]);
    assert!(outcome(&view).1.contains("speaks version 7"), "{view}");
}

fn call(id: &str, command: &str) -> Value {
    json!({"toolCallId": id, "title": "Shell", "kind": "execute", "rawInput": {"command": command}})
}

#[test]
fn approval_of_an_earlier_state_allows_nothing() {
    let Some(rig) = Rig::with(&[]) else { return };
    let step = json!(["ask-and-change", call("c1", "make all"), {"rawInput": {"command": "rm -rf ."}}, 300]);
    rig.start("mine", "job", &[&format!("do: {step}")], &[]);
    let asks_for = |asked: &Value, text: &str| {
        asked["preview"]
            .as_str()
            .is_some_and(|preview| preview.contains(text))
    };
    // The call changes: its request is withdrawn, and approving that has no effect.
    let second = rig.home.until("it asks for the other command", || {
        let asked = rig.home.inbox(&[]).get(0).cloned()?;
        asks_for(&asked, "rm -rf .").then_some(asked)
    });
    let all = rig.home.inbox(&["--all"]);
    let first = all
        .as_array()
        .expect("a list")
        .iter()
        .find(|asked| asks_for(asked, "make all"))
        .expect("it was asked for");
    assert_ne!(first["message_id"], second["message_id"]);
    let late = rig
        .home
        .adj(&["approve", first["number"].as_str().expect("a number")]);
    assert_eq!(late.code, 7, "{late:?}");
    assert!(
        !rig.home.log("job").contains("decided"),
        "{}",
        rig.home.log("job")
    );
    rig.home.ok(&[
        "deny",
        second["number"].as_str().expect("a number"),
        "not that",
    ]);
    rig.home.finished("job");
    assert!(
        rig.home.log("job").contains("decided: no"),
        "{}",
        rig.home.log("job")
    );
}

#[test]
fn call_that_changes_after_approval_is_reported() {
    let Some(rig) = Rig::with(&[]) else { return };
    let changed = json!(["update", {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress", "rawInput": {"command": "rm -rf ."}}]);
    rig.start(
        "mine",
        "job",
        &[
            &format!("do: {}", json!(["ask", call("c1", "make all")])),
            &format!("do: {changed}"),
            r#"do: ["hang"]"#,
        ],
        &[],
    );
    rig.home
        .until("it asks", || rig.home.inbox(&[]).get(0).cloned());
    rig.home.ok(&["approve", "Q1"]);
    let log = rig.home.until_log("job", "! changed after approval: Shell");
    assert!(
        log.contains("rm -rf .") && log.contains("(approved: {\"command\":\"make all\"})"),
        "{log}"
    );
    let told = rig.home.until("the approver is notified", || {
        rig.home.inbox(&[]).get(0).cloned()
    });
    assert!(
        told["question"]
            .as_str()
            .is_some_and(|text| text.starts_with("Shell changed after it was approved")),
        "{told}"
    );
    rig.home.ok(&["cancel", "job"]);
    assert_eq!(rig.home.finished("job")["outcome"], "cancelled");
}

#[test]
fn two_requests_with_one_id_are_refused() {
    let Some(rig) = Rig::with(&[]) else { return };
    let step = json!(["ask-twice", call("c1", "ls"), call("c2", "rm -rf .")]);
    let (view, log) = rig.ran(&[&format!("do: {step}")], &[]);
    assert!(
        view["outcome"] == "succeeded" && log.contains("two permission requests with one id"),
        "{log}"
    );
    assert!(
        log.contains(r#"answers: [{"outcome":"cancelled"},{"outcome":"cancelled"}]"#),
        "{log}"
    );
}

#[test]
fn refused_request_is_withdrawn_before_the_run_ends() {
    let Some(rig) = Rig::with(&[]) else { return };
    let twice = format!(
        "do: {}",
        json!(["ask-twice", call("c1", "ls"), call("c2", "rm -rf .")])
    );
    rig.start(
        "mine",
        "job",
        &[
            r#"do: ["say","ready"]"#,
            r#"do: ["await-file","go"]"#,
            &twice,
        ],
        &[],
    );
    rig.home.until_log("job", "ready");
    let run = rig.home.run_id("job");
    let log = adjutant_home::logs::log_path(&rig.home.home.dir, &run, 1);
    let hub = i32::try_from(rig.home.hub_pid())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    kill_process(hub, Signal::STOP).expect("it is stopped");
    std::fs::write(rig.home.work().join("go"), "").expect("a file");
    let is_answered = || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("answers: ["));
    let has_ended = || {
        !rig.home
            .processes_of(&run)
            .iter()
            .any(|(_, line)| line.contains("agent.mjs"))
    };
    rig.home
        .until("both are refused and the agent has ended", || {
            (is_answered() && has_ended()).then_some(())
        });
    kill_process(hub, Signal::CONT).expect("it continues");
    let view = rig.home.finished("job");
    assert!(
        view["outcome"] == "succeeded" && rig.home.inbox(&["--all"])[0]["status"] == "withdrawn",
        "{view}"
    );
}

#[test]
fn log_has_one_line_for_a_call() {
    let Some(rig) = Rig::with(&[]) else { return };
    let update = |update: Value| format!("do: {}", json!(["update", update]));
    let begins = update(
        json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "bash", "status": "pending", "rawInput": {"cwd": "/w"}}),
    );
    let goes_on = update(
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress", "rawInput": {"command": "ls"}}),
    );
    let ends = update(
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed", "content": [{"type": "content", "content": {"type": "text", "text": "a.txt"}}]}),
    );
    let plan = update(
        json!({"sessionUpdate": "plan", "entries": [{"content": "look", "priority": "high", "status": "completed"}, {"content": "fix it", "priority": "high", "status": "in_progress"}]}),
    );
    let cost = update(
        json!({"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": {"amount": 0.0061, "currency": "USD"}}),
    );
    let (view, log) = rig.ran(
        &[
            &begins,
            &goes_on,
            &ends,
            &plan,
            &plan,
            &cost,
            r#"do: ["say","done"]"#,
        ],
        &[],
    );
    assert!(
        log.contains("→ bash {\"command\":\"ls\"}\n← a.txt\n· fix it\ndone"),
        "{log}"
    );
    assert_eq!(
        view["usage"]["cost_usd"]
            .as_f64()
            .map(|cost| (cost * 10_000.0).round()),
        Some(61.0),
        "{view}"
    );
}

#[test]
fn agent_on_the_python_sdk_works_too() {
    let Some(rig) = Rig::new(&line("mine", "py-agent", &[])) else {
        return;
    };
    rig.start(
        "mine",
        "job",
        &[
            r#"do: ["who"]"#,
            r#"do: ["edit","in.txt","x"]"#,
            r#"do: ["ask","make",{"command":"make"}]"#,
        ],
        &[],
    );
    let asked = rig
        .home
        .until("it asks", || rig.home.inbox(&[]).get(0).cloned());
    assert!(
        asked["preview"]
            .as_str()
            .is_some_and(|shown| shown.contains("make")),
        "{asked}"
    );
    rig.home.ok(&["approve", "Q1"]);
    let view = rig.home.finished("job");
    let log = rig.home.log("job");
    assert!(
        view["outcome"] == "succeeded"
            && log.contains("mode ask")
            && log.contains("edit: yes")
            && log.contains("decided: yes"),
        "{log}"
    );
    assert_eq!(
        std::fs::read_to_string(rig.home.work().join("in.txt")).expect("it was written"),
        "x"
    );
    rig.start(
        "mine",
        "hangs",
        &[r#"do: ["say","hanging"]"#, r#"do: ["hang"]"#],
        &[],
    );
    rig.home.until_log("hangs", "hanging");
    rig.home.ok(&["pause", "hangs"]);
    rig.home.until_status("hangs", "stopped");
    let session = rig.home.show("hangs")["session"]
        .as_str()
        .expect("a session")
        .to_owned();
    rig.home.ok(&["resume", "hangs"]);
    let view = rig.home.finished("hangs");
    assert!(
        view["session"] == session.as_str() && view["attempt"] == 2,
        "{view}"
    );
    rig.until_none_is_left("hangs");
}

#[test]
fn imitated_own_tool_needs_approval() {
    let Some(rig) = Rig::with(&[]) else { return };
    let question = json!({"question": "?"});
    let imitations = [
        json!({"title": "adj__ask_parent", "kind": "execute", "rawInput": {"command": "touch pwned"}}),
        json!({"title": "adj__ask_parent", "kind": "other", "rawInput": {"question": "?", "command": "touch pwned"}}),
        json!({"title": "mcp__adj__ask_parent", "kind": "edit", "rawInput": question}),
        json!({"title": "adj__ask_parent; touch pwned", "kind": "other", "rawInput": question}),
        json!({"title": "adj: ask parent and touch pwned", "kind": "other"}),
        json!({"title": "touch pwned (adj MCP Server)", "kind": "other"}),
        json!({"title": "adj-pwned", "kind": "other", "rawInput": {}}),
        json!({"title": "Ask the parent", "kind": "other", "rawInput": question}),
        json!({"title": "adj__ask_parent", "kind": "other", "rawInput": question, "_meta": {"agent": {"toolName": "shell"}}}),
        json!({"title": "touch pwned", "kind": "execute", "rawInput": question, "_meta": {"toolName": "adj__ask_parent"}}),
        json!({"title": "adj__ask_parent", "kind": "other", "rawInput": question, "content": [{"type": "diff", "path": "pwned", "newText": "x"}]}),
        json!({"title": "adj__ask_parent", "kind": "other", "rawInput": question, "locations": [{"path": "/etc/passwd"}]}),
    ];
    let call = |n: usize, imitation: &Value| {
        let mut call = imitation.clone();
        call["toolCallId"] = format!("c{n}").into();
        format!("do: {}", json!(["ask", call]))
    };
    let steps: Vec<String> = imitations
        .iter()
        .enumerate()
        .map(|(n, imitation)| call(n, imitation))
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    for profile in ["read", "edit"] {
        rig.start("mine", profile, &steps, &["--permissions", profile]);
        for (n, imitation) in imitations.iter().enumerate() {
            let asked = rig
                .home
                .until(&format!("{imitation} is asked for in {profile}"), || {
                    assert_ne!(
                        rig.home.show(profile)["state"],
                        "finished",
                        "{imitation} was allowed in {profile}: {}",
                        rig.home.log(profile)
                    );
                    rig.home.inbox(&[]).get(0).cloned()
                });
            let title = imitation["title"].as_str().expect("a title");
            assert!(
                asked["kind"] == "approval"
                    && asked["question"]
                        .as_str()
                        .is_some_and(|text| text.contains(title)),
                "{n} {asked}"
            );
            rig.home
                .ok(&["deny", asked["number"].as_str().expect("a number"), "no"]);
        }
        rig.home.finished(profile);
        let log = rig.home.log(profile);
        assert_eq!(
            (
                log.matches("decided: no").count(),
                log.matches("decided: ").count()
            ),
            (imitations.len(), imitations.len()),
            "{profile} {log}"
        );
    }
    // With `full`, nothing needs approval; Adjutant's own tool never does.
    rig.start("mine", "full", &steps, &["--permissions", "full"]);
    rig.home.finished("full");
    let log = rig.home.log("full");
    assert!(
        log.matches("decided: once").count() == imitations.len(),
        "{log}"
    );
    let own = call(
        0,
        &json!({"title": "adj__ask_parent", "kind": "other", "rawInput": question}),
    );
    rig.start("mine", "own", &[&own], &["--permissions", "read"]);
    rig.home.finished("own");
    assert!(
        rig.home.log("own").contains("decided: once"),
        "{}",
        rig.home.log("own")
    );
}

#[test]
fn own_tool_that_becomes_another_call_is_reported() {
    let Some(rig) = Rig::with(&[]) else { return };
    let own = json!({"toolCallId": "c1", "title": "adj__ask_parent", "kind": "other", "rawInput": {"question": "?"}});
    let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "title": "Shell", "kind": "execute", "rawInput": {"command": "rm -rf ."}});
    for profile in ["read", "edit"] {
        rig.start(
            "mine",
            profile,
            &[
                &format!("do: {}", json!(["ask", own])),
                &format!("do: {}", json!(["update", update])),
                r#"do: ["hang"]"#,
            ],
            &["--permissions", profile],
        );
        let log = rig
            .home
            .until_log(profile, "! changed after approval: adj__ask_parent");
        assert!(log.contains("rm -rf ."), "{log}");
        let told = rig.home.until("the parent is notified", || {
            rig.home.inbox(&[]).get(0).cloned()
        });
        assert!(
            told["question"]
                .as_str()
                .is_some_and(|text| text.contains("changed after it was approved")),
            "{told}"
        );
        // Requested again, it no longer counts as Adjutant's tool.
        rig.home.ok(&["cancel", profile]);
        assert_eq!(rig.home.finished(profile)["outcome"], "cancelled");
    }
    let again = json!({"toolCallId": "c1", "title": "Shell", "kind": "execute", "rawInput": {"command": "rm -rf ."}});
    rig.start(
        "mine",
        "again",
        &[
            &format!("do: {}", json!(["ask", own])),
            &format!("do: {}", json!(["ask", again])),
        ],
        &[],
    );
    let asked = rig
        .home
        .until("it is asked for", || rig.home.inbox(&[]).get(0).cloned());
    assert!(
        asked["preview"]
            .as_str()
            .is_some_and(|preview| preview.contains("rm -rf .")),
        "{asked}"
    );
    rig.home
        .ok(&["deny", asked["number"].as_str().expect("a number"), "no"]);
    rig.home.finished("again");
}
