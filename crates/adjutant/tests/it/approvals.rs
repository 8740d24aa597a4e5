//! Approvals: a run asks for approval; its parent or the person approves or denies, and may revoke
//! an approval until it is used.

use crate::mcp::{Session, text};
use crate::support::TestHome;
use crate::terminal::Terminal;
use serde_json::{Value, json};

/// Returns the answers that a run received, from its log.
fn answers(home: &TestHome, run: &str) -> Vec<String> {
    home.log(run)
        .lines()
        .filter_map(|line| line.strip_prefix("answer: "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn run_waits_for_approval_and_gets_the_decision() {
    let home = TestHome::new();
    home.start("asks", "approve \"drop the table\" [preview: DROP TABLE users] [risk: high] [options: once|always]\napprove \"push\"\nsay end");
    home.until_status("asks", "waiting_parent_reply");
    let inbox = home.inbox(&[]);
    let asked = &inbox[0];
    assert_eq!(
        (&asked["kind"], &asked["question"], &asked["preview"]),
        (
            &json!("approval"),
            &json!("drop the table"),
            &json!("DROP TABLE users")
        )
    );
    assert_eq!(
        (&asked["risk"], &asked["options"]),
        (&json!("high"), &json!(["once", "always"]))
    );
    let shown = home.ok(&["show", "asks"]);
    assert!(
        shown.contains("asks for approval")
            && shown.contains("DROP TABLE users")
            && shown.contains("risk: high"),
        "{shown}"
    );

    let refused = home.adj(&["reply", "Q1", "yes"]);
    assert!(
        refused.code == 2
            && refused
                .err
                .contains("an approval cannot be answered in words")
            && refused.err.contains("adj approve"),
        "{refused:?}"
    );
    let waited = home.adj(&["wait", "asks"]);
    assert!(
        waited.code == 3 && waited.err.contains("adj approve Q1"),
        "{waited:?}"
    );

    home.ok(&["approve", "Q1", "--note", "once"]);
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    home.ok(&["deny", "asks", "not on a Friday"]);
    assert_eq!(home.finished("asks")["outcome"], "succeeded");
    assert_eq!(
        answers(&home, "asks"),
        ["approved: once", "denied: not on a Friday"]
    );
    let again = home.adj(&["approve", "Q2"]);
    assert_eq!(again.code, 7, "{again:?}");
}

#[test]
fn decision_fits_the_request_and_denial_needs_a_reason() {
    let home = TestHome::new();
    home.start(
        "asks",
        "tool ask_parent {\"question\": \"which?\", \"wait_s\": 0}\napprove \"push\"",
    );
    home.until("both are open", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let refused = home.adj(&["approve", "Q1"]);
    assert!(
        refused.code == 2
            && refused.err.contains("a question cannot be approved")
            && refused.err.contains("adj reply"),
        "{refused:?}"
    );
    let refused = home.adj(&["approve", "Q2", "--agent", "echo"]);
    assert!(
        refused.code == 2 && refused.err.contains("what was shown"),
        "{refused:?}"
    );
    assert_eq!(home.adj(&["deny", "Q2", " "]).code, 2);
    assert!(
        home.inbox(&[])
            .as_array()
            .is_some_and(|open| open.len() == 2),
        "bad input changes nothing"
    );
}

#[test]
fn approval_is_revocable_until_used() {
    let home = TestHome::with_config("[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n");
    // The run reads the answer only after it receives a message.
    let script = "tool request_approval {\"action\": \"deploy\", \"wait_s\": 0}\nexpect-message\ntool check_answer {\"message_id\": \"Q1\"}";
    home.start_agent("stream", "asks", script);
    home.until_status("asks", "waiting_parent_reply");
    home.ok(&["approve", "Q1"]);
    let told = home.ok(&["deny", "Q1", "the build is red"]);
    assert!(told.contains("denied: the build is red"), "{told}");
    assert_eq!(
        home.adj(&["approve", "Q1"]).code,
        7,
        "a revocation is final"
    );
    home.ok(&["send", "asks", "look now"]);
    home.finished("asks");
    let log = home.log("asks");
    assert!(
        log.contains("denied: the build is red") && !log.contains("\"approved\""),
        "{log}"
    );
    assert!(home.ok(&["events", "asks"]).contains("request.vetoed"));

    home.start("uses", "approve \"deploy\"\nhang");
    home.until_status("uses", "waiting_parent_reply");
    home.ok(&["approve", "uses"]);
    home.until_log("uses", "answer: approved");
    let late = home.adj(&["deny", "Q2", "too late"]);
    assert!(
        late.code == 7 && late.err.contains("has already been used"),
        "{late:?}"
    );
}

#[test]
fn silence_never_approves() {
    let home = TestHome::with_config("expiry = \"1s\"\n");
    let with_default = |word: &str| {
        format!(
            "tool request_approval {}",
            json!({"action": "tidy up", "default": word})
        )
    };
    let script = format!(
        "{}\n{}\napprove \"push\" [expires: 1s]\ndelegate \"say x\" [blocks]",
        with_default("deny"),
        with_default("approve")
    );
    home.start("silent", &script);
    home.finished("silent");
    let log = home.log("silent");
    assert!(
        log.contains("default: cannot be approve: an undecided approval is denied"),
        "{log}"
    );
    assert!(
        !log.contains("\"approved\"") && log.matches("denied: nobody decided in time").count() >= 3,
        "{log}"
    );
    let all = home.inbox(&["--all"]);
    assert!(
        all.as_array().is_some_and(|all| all.len() == 3
            && all
                .iter()
                .all(|request| request["answered_by"] == "default")),
        "{all}"
    );
}

#[test]
fn run_cannot_set_a_near_deadline_for_a_decision() {
    let home = TestHome::new();
    let approval = json!({"action": "push", "expires_s": 59});
    let delegation = json!({"new_task_description": "say x", "expires_s": 1});
    home.start(
        "hasty",
        &format!("tool request_approval {approval}\ntool delegate_work {delegation}\nhang"),
    );
    home.until("both are refused", || {
        (home.log("hasty").matches("use 60 to 2592000").count() == 2).then_some(())
    });
    assert_eq!(home.inbox(&["--all"]), json!([]));
}

#[test]
fn block_cannot_ask_for_approval_by_default() {
    let home = TestHome::with_config("expiry = \"2s\"\n");
    home.start("asks", "block APPROVAL_NEEDED {\"action\": \"drop the table\", \"default\": \"approve\"}\nresume-here\nsay after");
    assert_eq!(home.finished("asks")["attempt"], 2);
    let log = home.log("asks");
    assert!(
        log.contains("## APPROVAL DENIED") && !log.contains("## APPROVAL GRANTED"),
        "{log}"
    );
    let events = home.ok(&["events", "asks"]);
    assert!(events.contains("default approve ignored"), "{events}");
}

#[test]
fn approval_is_bound_to_its_preview_and_key() {
    let home = TestHome::new();
    let key = |action: &str| {
        format!(
            "tool request_approval {}",
            json!({"action": action, "wait_s": 0, "idempotency_key": "k"})
        )
    };
    home.start(
        "asks",
        &format!(
            "{}\n{}\n{}\nhang",
            key("push"),
            key("push"),
            key("push --force")
        ),
    );
    home.until_log("asks", "refused: error[key_reused]");
    assert_eq!(
        home.inbox(&[]).as_array().map(Vec::len),
        Some(1),
        "the same key is the same request"
    );
    let decide = |hash: Value| {
        let one =
            json!({"answers": [{"message_id": "Q1", "decision": "approve", "content_hash": hash}]});
        let call: adjutant_api::view::AnswerRequests = serde_json::from_value(one).expect("a call");
        home.call(&call, &format!("decide-{hash}"))
    };
    let shown = home.inbox(&[])[0]["content_hash"].clone();
    assert_eq!(
        decide(json!("00")).map(|_| ()).map_err(|error| error.code),
        Err("conflict".to_owned())
    );
    assert!(decide(shown.clone()).is_ok());
    assert!(
        decide(shown).is_ok(),
        "a repeated call has one effect and one reply"
    );
}

#[test]
fn approval_block_parks_the_run_until_decided() {
    let home = TestHome::new();
    for (name, way, heading) in [
        ("granted", vec!["approve"], "## APPROVAL GRANTED"),
        ("denied", vec!["deny"], "## APPROVAL DENIED"),
    ] {
        home.start(
            name,
            "approve-block \"drop the table\" [risk: high]\nresume-here\nsay after",
        );
        let view = home.until_status(name, "stopped");
        assert_eq!(view["reason"], "parked");
        let mut args = vec![way[0], name];
        if way[0] == "deny" {
            args.push("keep it");
        }
        home.ok(&args);
        assert_eq!(home.finished(name)["outcome"], "succeeded");
        let log = home.log(name);
        assert!(
            log.contains(heading) && log.contains("drop the table") && log.contains("after"),
            "{log}"
        );
    }
    assert!(home.log("denied").contains("Reason: keep it"));
}

#[test]
fn expired_question_is_reported_to_its_run() {
    let home = TestHome::new();
    // The tool does not wait, so the process exits while the question is open.
    let ask = json!({"question": "left or right?", "wait_s": 0, "expires_s": 2});
    home.start(
        "asks",
        &format!("tool ask_parent {ask}\nresume-here\nsay after"),
    );
    assert_eq!(home.finished("asks")["attempt"], 2);
    let log = home.log("asks");
    assert!(
        log.contains("left or right?\nNobody answered in time."),
        "{log}"
    );
}

#[test]
fn parent_decides_over_mcp() {
    let home = TestHome::new();
    let mut parent = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    let prompt = "---\napprove \"push\" [preview: git push]\napprove \"force\"";
    parent.done(
        "run_subagent",
        json!({"agent": "echo", "name": "asks", "prompt": prompt}),
    );
    let waited = parent.done(
        "wait_for_subagents",
        json!({"run_ids": ["asks"], "wait_s": 30}),
    );
    assert_eq!(
        (&waited["needs"][0]["kind"], &waited["needs"][0]["preview"]),
        (&json!("approval"), &json!("git push"))
    );
    assert!(
        waited["next"]
            .as_str()
            .is_some_and(|next| next.contains("decision=approve")),
        "{waited}"
    );
    let words = parent.tool(
        "reply_subagent",
        json!({"message_id": "Q1", "answer": "yes"}),
    );
    assert!(
        text(&words).contains("error[unfitting]") && text(&words).contains("decision approve"),
        "{words}"
    );
    let silent = parent.tool(
        "reply_subagent",
        json!({"message_id": "Q1", "decision": "deny"}),
    );
    assert!(text(&silent).contains("reason"), "{silent}");
    let done = parent.done(
        "reply_subagent",
        json!({"message_id": "Q1", "decision": "approve"}),
    );
    assert_eq!(done["requests"][0]["decision"], "approved");
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    parent.done(
        "reply_subagent",
        json!({"answers": [{"message_id": "Q2", "decision": "deny", "reason": "never"}]}),
    );
    home.finished("asks");
    assert_eq!(answers(&home, "asks"), ["approved", "denied: never"]);
}

/// What an approval is about, behind a harmless and long text.
const HIDDEN: [&str; 4] = [
    "rm -rf /",
    "/etc/passwd",
    "https://evil.example/x",
    "DROP TABLE users",
];

#[test]
fn every_interface_shows_what_an_approval_allows() {
    let home = TestHome::new();
    let mut parent = Session::open(&home.home.dir, &home.work(), &[], false);
    let action = format!("Look at the files{}", " of the project".repeat(40));
    let asked = json!({"action": action, "command": HIDDEN[0], "paths": [HIDDEN[1]], "url": HIDDEN[2], "preview": HIDDEN[3]});
    let script = format!("---\ntool request_approval {asked}");
    let started = parent.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": script, "name": "sly", "cwd": home.work()}),
    );
    home.until_status("sly", "waiting_parent_reply");
    let whole = |what: &str, shown: &str| {
        for part in HIDDEN {
            assert!(shown.contains(part), "{what} does not show {part}: {shown}");
        }
    };
    for args in [
        ["inbox"].as_slice(),
        &["inbox", "-a"],
        &["show", "sly"],
        &["wait", "sly"],
        &["events", "sly"],
    ] {
        let ran = home.adj(args);
        whole(&format!("{args:?}"), &format!("{}{}", ran.out, ran.err));
    }
    whole("wait --json", &home.adj(&["--json", "wait", "sly"]).err);
    for args in [["next"].as_slice(), &["inbox"]] {
        let mut command = home.command(args);
        command.env("TERM", "xterm");
        let mut terminal = Terminal::of(command);
        for part in HIDDEN {
            terminal.shows(part);
        }
        if args == ["next"] {
            terminal.shows("Approve Q1 (Look at the files");
            for part in HIDDEN {
                terminal.shows(part);
            }
            terminal.shows("[y]es [n]o REASON [v]iew [s]kip [q]uit > ");
            terminal.types("\n");
        }
        terminal.ends();
    }
    for (tool, arguments) in [
        ("get_pending_questions", json!({})),
        ("get_pending_questions", json!({"message_id": "Q1"})),
        ("check_subagent_status", json!({"run_id": "sly"})),
        (
            "wait_for_subagents",
            json!({"run_ids": [started["run_id"]]}),
        ),
    ] {
        let result = parent.tool(tool, arguments.clone());
        whole(&format!("the text of {tool} {arguments}"), text(&result));
        whole(
            &format!("the structured content of {tool} {arguments}"),
            &result["structuredContent"].to_string(),
        );
    }
    home.ok(&["approve", "Q1", "--same"]);
    let grants = home.ok(&["grants", "--all"]);
    assert!(
        HIDDEN[..3].iter().all(|part| grants.contains(part)),
        "{grants}"
    );
    home.finished("sly");
    whole("show of a decided one", &home.ok(&["show", "sly"]));
    whole("inbox -a of a decided one", &home.ok(&["inbox", "-a"]));
}

#[test]
fn long_parts_of_an_approval_are_cut_with_a_mark() {
    let home = TestHome::new();
    let paths: Vec<String> = (0..30).map(|n| format!("/tmp/f{n}")).collect();
    let command = format!("true{}; rm -rf /", " ".repeat(1_000));
    let asked = json!({"action": "tidy up", "command": command, "paths": paths, "url": HIDDEN[2]});
    home.start("sly", &format!("tool request_approval {asked}"));
    home.until_status("sly", "waiting_parent_reply");
    let inbox = home.ok(&["inbox"]);
    for part in [
        "… (714 more characters)",
        "file: /tmp/f4",
        "address: https://evil.example/x",
        "… 25 more",
        "all of it: adj show sly",
    ] {
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    let shown = home.ok(&["show", "sly"]);
    assert!(
        shown.contains("; rm -rf /") && shown.contains("file: /tmp/f29"),
        "{shown}"
    );
}

#[test]
fn approval_for_no_time_is_refused() {
    let home = TestHome::new();
    home.start("asks", "approve \"push\"");
    home.until_status("asks", "waiting_parent_reply");
    let refused = home.adj(&["approve", "Q1", "--for", "0s"]);
    assert!(
        refused.code == 2 && refused.err.contains("\"0s\" is zero"),
        "{refused:?}"
    );
    assert_eq!(
        home.inbox(&[]).as_array().map(Vec::len),
        Some(1),
        "nothing was approved"
    );
    let refused = home.adj(&["run", "-a", "echo", "--timeout", "0s", "say x"]);
    assert!(
        refused.code == 2 && refused.err.contains("is zero"),
        "{refused:?}"
    );
    std::fs::write(home.home.dir.join("config.toml"), "expiry = \"0s\"\n")
        .expect("a configuration");
    let refused = home.adj(&["config", "show"]);
    assert!(
        refused.code == 2
            && refused
                .err
                .contains("line 1: expiry: \"0s\" is zero, which is too short: write 90s"),
        "{refused:?}"
    );
}

#[test]
fn unknown_grant_names_the_list_of_grants() {
    let home = TestHome::new();
    let refused = home.adj(&["grants", "revoke", "G9"]);
    assert!(
        refused.code == 5 && refused.err.contains("hint: list grants: adj grants --all"),
        "{refused:?}"
    );
    let refused = home.adj(&["adopt", "x", "--client", ""]);
    assert!(
        refused.code == 2 && refused.err.contains("--client is empty"),
        "{refused:?}"
    );
}
