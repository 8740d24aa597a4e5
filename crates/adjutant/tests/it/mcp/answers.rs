//! Questions, answers and messages through tools.

use super::{Session, names, run_of, text};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn original_protocol_names_work_and_are_listed_on_demand() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--compat"], false);
    let list = session.request("tools/list", json!({}));
    for name in [
        "run_subagent_echo",
        "check_status",
        "get_logs",
        "update_status",
    ] {
        assert!(names(&list).contains(&name), "{name}: {:?}", names(&list));
    }
    let reply = list["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .find(|tool| tool["name"] == "reply_subagent")
        .expect("listed");
    assert!(
        reply["inputSchema"]["properties"]["runId"].is_object()
            && reply["inputSchema"]["properties"]["run_id"].is_null()
    );

    let script = "---\ntool ask_parent {\"runId\":\"seed\",\"question\":\"Which one?\",\"wait_s\":0}\nask \"Wait?\"\n\
                  tool check_message_status {\"runId\":\"seed\",\"messageId\":\"Q1\"}\ndone ok";
    let work = home.work();
    let started = session.done(
        "run_subagent_echo",
        json!({"input": script, "cwd": work, "name": "seed"}),
    );
    let run = started["runId"].as_str().expect("runId").to_owned();
    home.until("both questions are asked", || {
        (home.show("seed")["pending"].as_array().map_or(0, Vec::len) == 2).then_some(())
    });
    let status = session.done("check_status", json!({"runId": run}));
    assert_eq!(
        (&status["runId"], &status["agentName"], &status["status"]),
        (&json!(run), &json!("echo"), &json!("waiting_parent_reply"))
    );
    let first = &status["messages"][0];
    assert_eq!(
        (&first["questionContent"], &first["messageStatus"]),
        (&json!("Which one?"), &json!("pending_parent_reply"))
    );
    let ids: Vec<Value> = (0..2)
        .map(|n| status["messages"][n]["messageId"].clone())
        .collect();
    for id in ids {
        let replied = session.done(
            "reply_subagent",
            json!({"runId": run, "messageId": id, "answer": "config.json"}),
        );
        assert_eq!(replied["success"], true);
        assert_eq!(
            replied["updatedMetadata"]["messages"][0]["answerContent"],
            "config.json"
        );
    }
    home.finished("seed");
    let log = session.done("get_logs", json!({"runId": run}));
    assert!(
        log["text"]
            .as_str()
            .is_some_and(|text| text.contains("result: Q1 asked at")),
        "{log}"
    );
    let ended = session.done("check_status", json!({"runId": run}));
    assert_eq!(
        ended["messages"][0]["messageStatus"],
        "acknowledged_by_subagent"
    );
    let noted = session.done(
        "update_status",
        json!({"runId": run, "status": "error", "summary": "looked wrong to me"}),
    );
    assert_eq!(
        noted["annotation"], "error: looked wrong to me",
        "a remark, and no change of its end: {noted}"
    );
}

/// Writes a script into a home's directory, and returns its path.
fn script(home: &TestHome, name: &str, text: &str) -> String {
    let path = home.work().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a script");
    path.display().to_string()
}

#[test]
fn original_call_without_permissions_takes_the_only_supported_ones() {
    let home = TestHome::with_config("");
    let command = script(&home, "cli.sh", "echo \"it works: $*\"\n");
    let agents: String = ["q", "aider"]
        .iter()
        .map(|name| format!("[agents.{name}]\ncommand = [\"{command}\"]\n"))
        .collect();
    std::fs::write(home.home.dir.join("config.toml"), agents).expect("a configuration");
    let mut compat = Session::open(&home.home.dir, &home.work(), &["--compat"], true);
    for agent in ["q", "aider"] {
        let started = compat.tool(
            &format!("run_subagent_{agent}"),
            json!({"input": "look", "cwd": home.work(), "name": format!("by-{agent}")}),
        );
        assert!(
            text(&started).contains("permissions full")
                && started["structuredContent"]["permissions"] == "full",
            "{started}"
        );
        let ended = home.finished(&format!("by-{agent}"));
        assert_eq!(
            (&ended["outcome"], &ended["permissions"]),
            (&json!("succeeded"), &json!("full")),
            "{ended}"
        );
        // What a call or another tool states is not widened.
        let named = compat.tool(
            &format!("run_subagent_{agent}"),
            json!({"input": "look", "permissions": "edit"}),
        );
        assert!(
            named["isError"] == true && text(&named).contains("does not support edit"),
            "{named}"
        );
        let general = compat.tool("run_subagent", json!({"agent": agent, "prompt": "look"}));
        assert!(general["isError"] == true, "{general}");
    }
    let mut plain = Session::open(&home.home.dir, &home.work(), &[], true);
    let refused = plain.tool("run_subagent_q", json!({"input": "look"}));
    assert!(refused["isError"] == true, "only with --compat: {refused}");
    // An agent that supports its configured profile keeps it.
    let kept = compat.done("run_subagent_echo", json!({"input": "---\ndone ok"}));
    assert_eq!(home.finished(&run_of(&kept))["permissions"], "edit");
}

#[test]
fn line_for_mcp_server_subagent_works_as_its_page_says() {
    let page = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coming-from.md"),
    )
    .expect("the page");
    let section = page
        .split("## mcp-server-subagent and Amazon Q")
        .nth(1)
        .expect("its section");
    let block = section
        .split("```json")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("its line");
    let entry: Value = serde_json::from_str(block).expect("JSON");
    let server = &entry["mcpServers"]["subagent"];
    let words: Vec<&str> = server["args"]
        .as_array()
        .expect("arguments")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        (&server["command"], words.first()),
        (&json!("adj"), Some(&"mcp"))
    );

    let home = TestHome::with_config("[agents.q]\ncommand = [\"/bin/cat\"]\n");
    let mut parent = Session::open(&home.home.dir, &home.work(), &words[1..], false);
    let list = parent.request("tools/list", json!({}));
    for name in [
        "run_subagent_q",
        "check_status",
        "get_logs",
        "ask_parent",
        "reply_subagent",
        "check_message_status",
    ] {
        let is_of_worker = matches!(name, "ask_parent" | "check_message_status");
        assert!(
            section.contains(name) && (is_of_worker || names(&list).contains(&name)),
            "{name}: {:?}",
            names(&list)
        );
    }
    let started = parent.done(
        "run_subagent_echo",
        json!({"input": "---\nask \"Which?\"\ndone ok", "cwd": home.work(), "name": "job"}),
    );
    let run = started["runId"].clone();
    home.until_status("job", "waiting_parent_reply");
    let message =
        parent.done("check_status", json!({"runId": run}))["messages"][0]["messageId"].clone();
    assert_eq!(
        parent.done(
            "reply_subagent",
            json!({"runId": run, "messageId": message, "answer": "this"})
        )["success"],
        true
    );
    home.finished("job");
    assert!(
        parent.done("get_logs", json!({"runId": run}))["text"]
            .as_str()
            .is_some_and(|log| log.contains("this"))
    );

    // The file that the page names is the one that `adj install` writes.
    assert!(
        section.contains("`adj install amazon-q`") && section.contains("`~/.aws/amazonq/mcp.json`")
    );
    home.ok(&["install", "amazon-q", "--yes"]);
    let file = home
        .home
        .dir
        .parent()
        .expect("a directory")
        .join(".aws/amazonq/mcp.json");
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("Q's file")).expect("JSON");
    assert_eq!(
        written["mcpServers"]["adjutant"]["args"][0], "mcp",
        "{written}"
    );
}

#[test]
fn run_finds_its_answers_in_its_own_original_status() {
    let adj = env!("CARGO_BIN_EXE_adj");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let call = |name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let through = |call: &Value, out: &str| {
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        format!("printf '%s\\n' '{hello}' '{begun}' '{call}' | {adj} mcp --compat > {out}\n")
    };
    let home = TestHome::with_config("");
    let (ask, status) = (
        call("ask_parent", json!({"question": "Which?"})),
        call("check_status", json!({})),
    );
    let wait = "while [ ! -e answered ]; do sleep 0.05; done\n";
    let command = script(
        &home,
        "cli.sh",
        &format!(
            "cat > /dev/null\n{}{wait}{}{}",
            through(&ask, "asked"),
            through(&status, "first"),
            through(&status, "second")
        ),
    );
    std::fs::write(
        home.home.dir.join("config.toml"),
        format!("[agents.cli]\nharness = \"plain\"\ncommand = [\"{command}\"]\n"),
    )
    .expect("a configuration");
    home.start_agent("cli", "job", "look");
    home.until_status("job", "waiting_parent_reply");
    home.ok(&["reply", "job", "this"]);
    std::fs::write(home.work().join("answered"), "").expect("a file");
    home.finished("job");
    for file in ["first", "second"] {
        let lines = std::fs::read_to_string(home.work().join(file)).expect("its output");
        let replies: Vec<Value> = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let found = &replies
            .iter()
            .find(|reply| reply["id"] == 2)
            .unwrap_or_else(|| panic!("{file}: {lines}"))["result"]["structuredContent"];
        let message = &found["messages"][0];
        assert_eq!(
            (&message["questionContent"], &message["answerContent"]),
            (&json!("Which?"), &json!("this")),
            "{file}: {found}"
        );
        assert!(
            found["runId"].is_string() && found["command"] == "cli",
            "{found}"
        );
    }
}

#[test]
fn several_answers_are_recorded_all_or_none() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nasks 3 Colour?\ndone ok"}),
    ));
    home.until("three questions are asked", || {
        (home.show(&run)["pending"].as_array().map_or(0, Vec::len) == 3).then_some(())
    });
    let vague = session.tool("reply_subagent", json!({"run_id": run, "answer": "red"}));
    assert!(
        vague["isError"] == true && text(&vague).contains("Q1") && text(&vague).contains("Q3"),
        "it lists them: {vague}"
    );
    let half = session.tool("reply_subagent", json!({"answers": [{"message_id": "Q1", "answer": "red"}, {"message_id": "Q77", "answer": "blue"}]}));
    assert!(
        half["isError"] == true && text(&half).contains("Q77: no such question"),
        "it says which one: {half}"
    );
    assert_eq!(
        session.done("get_pending_questions", json!({}))["questions"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    let answers: Vec<Value> = (1..=3)
        .map(|n| json!({"message_id": format!("Q{n}"), "answer": format!("colour {n}")}))
        .collect();
    session.done("reply_subagent", json!({"answers": answers}));
    assert_eq!(home.finished(&run)["outcome"], "succeeded");
}

#[test]
fn reply_timeout_ends_a_check_and_not_the_question() {
    let home = TestHome::with_config("[agents.hasty]\nharness = \"echo\"\npatience = \"1s\"\n");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let script = "---\ntool ask_parent {\"question\":\"Anyone?\",\"blocking\":false}\ntool check_answer {\"message_id\":\"Q1\"}\n\
                  ask \"Go on?\"\ntool check_answer {\"message_id\":\"Q1\"}\ntool check_answer {\"message_id\":\"Q1\"}\ndone ok";
    let run = run_of(&session.done("run_subagent", json!({"agent": "hasty", "prompt": script})));
    home.until("it asks again", || {
        (home.show(&run)["pending"].as_array().map_or(0, Vec::len) == 2).then_some(())
    });
    let log = session.done("get_subagent_logs", json!({"run_id": run}));
    assert!(
        log["text"]
            .as_str()
            .is_some_and(|text| text.contains("Stalled: Parent No-Response")),
        "{log}"
    );
    session.done("reply_subagent", json!({"answers": [{"message_id": "Q1", "answer": "late but here"}, {"message_id": "Q2", "answer": "yes"}]}));
    home.finished(&run);
    let log = home.log(&run);
    assert_eq!(
        log.matches("late but here").count(),
        2,
        "a late answer is still delivered and stays readable: {log}"
    );
}

#[test]
fn status_check_of_a_run_delivers_answers_and_messages() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let script = "---\ntool ask_parent {\"question\":\"Side question?\",\"blocking\":false}\nask \"Main question?\"\n\
                  tool check_subagent_status {}\ntool check_subagent_status {}\ndone ok";
    let run = run_of(&session.done("run_subagent", json!({"agent": "echo", "prompt": script})));
    home.until("both are asked", || {
        (home.show(&run)["pending_total"] == 2).then_some(())
    });
    session.done(
        "reply_subagent",
        json!({"message_id": "Q1", "answer": "by the way"}),
    );
    session.done(
        "steer_subagent",
        json!({"run_id": run, "action": "message", "text": "look out"}),
    );
    session.done("reply_subagent", json!({"run_id": run, "answer": "go"}));
    home.finished(&run);
    let log = home.log(&run);
    assert_eq!(
        log.matches("by the way").count(),
        1,
        "read once by looking: {log}"
    );
    assert_eq!(
        log.matches("look out").count(),
        1,
        "a message is given once: {log}"
    );
}

#[test]
fn resume_of_a_run_that_is_stopping_says_what_to_wait_for() {
    let stubborn = "[agents.stubborn]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"trap '' TERM; echo ready; while :; do sleep 0.1; done\"]\n";
    let home = TestHome::with_config(stubborn);
    let mut session = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    session.done(
        "run_subagent",
        json!({"agent": "stubborn", "name": "slow", "prompt": "go"}),
    );
    home.until("its trap", || {
        home.log("slow").contains("ready").then_some(())
    });
    session.done(
        "steer_subagent",
        json!({"run_id": "slow", "action": "stop"}),
    );
    let refused = session
        .tool(
            "steer_subagent",
            json!({"run_id": "slow", "action": "resume"}),
        )
        .to_string();
    assert!(
        refused.contains("is stopping and cannot be resumed")
            && refused.contains("wait_for_subagents returns when it has stopped"),
        "{refused}"
    );
    session.done(
        "wait_for_subagents",
        json!({"run_ids": ["slow"], "until": "all", "wait_s": 60}),
    );
    session.done(
        "steer_subagent",
        json!({"run_id": "slow", "action": "resume"}),
    );
    let again = session
        .tool(
            "steer_subagent",
            json!({"run_id": "slow", "action": "resume"}),
        )
        .to_string();
    assert!(
        again.contains("slow is ")
            && again.contains("send_chat_message to=NAME")
            && !again.contains("adj send"),
        "{again}"
    );
    home.ok(&["cancel", "slow"]);
}
