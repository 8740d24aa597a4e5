use super::permission::CHANGES_MAX;
use super::*;
use crate::harness::own_tools::ServedTool;
use crate::harness::step::{Decision, Permission};
use std::path::Path;

fn begin(session: Option<&str>) -> SessionStart {
    SessionStart {
        cwd: PathBuf::from("/w"),
        session: session.map(str::to_owned),
        new_session_prompt: None,
        mode: Some("yolo".to_owned()),
        permissions: Permissions::Edit,
        authenticate: None,
        edit_titles: Vec::new(),
        input_in_content: false,
        input_in_titles: false,
        mcp_url: "http://127.0.0.1:1/mcp".to_owned(),
        mcp_token: "t".to_owned(),
        mcp_command: vec!["/adj".to_owned(), "mcp".to_owned()],
        own_tools: OwnTools(vec![ServedTool {
            name: "ask_parent".to_owned(),
            title: "Ask the parent".to_owned(),
            arguments: vec!["question".to_owned()],
        }]),
    }
}

fn written(steps: &[Step]) -> Value {
    let [Step::Write(bytes)] = steps else {
        panic!("{steps:?}")
    };
    serde_json::from_slice(bytes).expect("one JSON object")
}

#[test]
fn session_starts_with_the_mcp_server_and_the_mode() {
    let mut acp = Acp::new(begin(None));
    assert_eq!(acp.answers_after(), 4);
    let opening: Value = serde_json::from_slice(&acp.opening("/quit @/etc/passwd")).expect("JSON");
    assert_eq!(opening["params"]["protocolVersion"], 1);
    let new = written(&acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": true}}}})));
    assert_eq!(
        (&new["method"], &new["params"]["mcpServers"][0]["type"]),
        (&json!("session/new"), &json!("http"))
    );
    let mode = written(&acp.receive(&json!({"id": 3, "result": {"sessionId": "s", "modes": {"availableModes": [{"id": "yolo"}]}}})));
    assert_eq!(mode["params"], json!({"sessionId": "s", "modeId": "yolo"}));
    let prompt = written(&acp.receive(&json!({"id": 4, "result": {}})));
    assert_eq!(
        prompt["params"]["prompt"],
        json!([{"type": "text", "text": "/quit @/etc/passwd"}])
    );
    assert_eq!(
        acp.receive(&json!({"id": 5, "result": {"stopReason": "end_turn"}})),
        [Step::Close]
    );
}

#[test]
fn agent_without_http_gets_a_command() {
    let mut acp = Acp::new(begin(None));
    acp.opening("x");
    let new = written(&acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1}})));
    assert_eq!(
        new["params"]["mcpServers"][0],
        json!({"name": "adj", "command": "/adj", "args": ["mcp"], "env": []})
    );
    let mut acp = Acp::new(begin(Some("old")));
    acp.opening("x");
    assert!(
        matches!(acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1}})).as_slice(), [Step::Failed(why), Step::Close] if why.contains("session not found"))
    );
}

#[test]
fn lost_session_restarts_with_the_whole_task() {
    let mut acp = Acp::new(SessionStart {
        new_session_prompt: Some("the whole task".to_owned()),
        mode: None,
        ..begin(Some("old"))
    });
    acp.opening("go on");
    let load = written(&acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}})));
    assert_eq!(
        (&load["method"], &load["params"]["sessionId"]),
        (&json!("session/load"), &json!("old"))
    );
    let new = written(
        &acp.receive(&json!({"id": 3, "error": {"code": -32603, "message": "Internal error"}})),
    );
    assert_eq!(new["method"], "session/new");
    let prompt = written(&acp.receive(&json!({"id": 3, "result": {"sessionId": "new"}})));
    assert_eq!(
        (
            &prompt["params"]["sessionId"],
            &prompt["params"]["prompt"][0]["text"]
        ),
        (&json!("new"), &json!("the whole task"))
    );
}

#[test]
fn permission_is_answered_with_one_of_its_options() {
    let mut acp = Acp::new(begin(None));
    let options = json!([{"optionId": "a", "kind": "allow_always"}, {"optionId": "o", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"}]);
    let ask = |id: u64, title: &str, kind: &str| json!({"id": id, "method": "session/request_permission", "params": {"toolCall": {"title": title, "kind": kind, "rawInput": {"command": "ls"}}, "options": options}});
    let steps = acp.receive(&ask(0, "ls", "execute"));
    let operation = Box::new(crate::harness::operation::shell(
        "execute",
        &json!({"command": "ls"}),
        Path::new("/w"),
        &[],
    ));
    let input = "{\"command\":\"ls\"}".to_owned();
    let expected = Permission {
        id: "0".to_owned(),
        tool: "ls".to_owned(),
        input,
        is_own_tool: false,
        edits: Vec::new(),
        operation,
    };
    assert_eq!(steps, [Step::Permission(expected)]);
    let answer: Value =
        serde_json::from_slice(&acp.decide("0", &Decision::Allow).expect("it was asked"))
            .expect("JSON");
    assert_eq!(
        answer,
        json!({"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "o"}}})
    );
}

#[test]
fn turn_ended_by_a_denial_continues_with_the_reason() {
    let options =
        json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
    let asked = |acp: &mut Acp| {
        let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "x"}});
        acp.receive(&json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": call, "options": options}}));
        acp.decide("0", &Decision::Deny("not here\n# Task".to_owned()))
            .expect("it was asked")
    };
    let end = json!({"id": 5, "result": {"stopReason": "end_turn"}});
    let mut acp = Acp::new(begin(None));
    acp.opening("x");
    acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1}}));
    acp.receive(&json!({"id": 3, "result": {"sessionId": "s"}}));
    acp.receive(&json!({"id": 4, "result": {}}));
    asked(&mut acp);
    let steps = acp.receive(&end);
    assert_eq!(steps[0], Step::TurnEnded);
    let again = written(&steps[1..]);
    let text = again["params"]["prompt"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(
        again["method"] == "session/prompt"
            && text.contains("not here")
            && !text.contains("\n# Task"),
        "{text}"
    );
    // An agent that continued after the denial ends normally.
    asked(&mut acp);
    acp.note_model_text();
    assert_eq!(acp.receive(&end), [Step::Close]);
}

#[test]
fn turn_of_a_cancelled_run_does_not_continue() {
    let mut acp = Acp::new(begin(None));
    acp.opening("x");
    acp.receive(&json!({"id": 1, "result": {"protocolVersion": 1}}));
    acp.receive(&json!({"id": 3, "result": {"sessionId": "s"}}));
    acp.receive(&json!({"id": 4, "result": {}}));
    acp.receive(&json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": {"title": "x"}, "options": []}}));
    acp.decide("0", &Decision::Deny("no".to_owned()));
    acp.cancel();
    assert_eq!(
        acp.receive(&json!({"id": 5, "result": {"stopReason": "cancelled"}})),
        [Step::Close]
    );
}

#[test]
fn question_to_a_person_is_not_answered_by_an_approval() {
    let mut acp = Acp::new(begin(None));
    let options = json!([{"optionId": "red", "kind": "allow_once"}, {"optionId": "blue", "kind": "allow_once"}, {"optionId": "skip", "kind": "reject_once"}]);
    let asked = json!({"id": 0, "method": "session/request_permission", "params": {"toolCall": {"title": "AskUser"}, "options": options}});
    assert_eq!(
        written(&acp.receive(&asked))["result"]["outcome"],
        json!({"outcome": "selected", "optionId": "skip"})
    );
}

fn permission(acp: &mut Acp, call: Value) -> Permission {
    let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": call, "options": []}});
    let steps = acp.receive(&asked);
    acp.permissions.clear();
    match steps.as_slice() {
        [Step::Permission(asked)] => asked.clone(),
        steps => panic!("{steps:?}"),
    }
}

fn reported(acp: &mut Acp, update: Value) {
    assert_eq!(receive_update(acp, &update), []);
}

fn receive_update(acp: &mut Acp, update: &Value) -> Vec<Step> {
    acp.receive(&json!({"method": "session/update", "params": {"update": update}}))
}

fn ask_for(acp: &mut Acp, id: u64, call: &Value) -> Vec<Step> {
    let options =
        json!([{"optionId": "o", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"}]);
    acp.receive(&json!({"id": id, "method": "session/request_permission", "params": {"toolCall": call, "options": options}}))
}

#[test]
fn pending_call_that_changes_is_requested_again() {
    let mut acp = Acp::new(begin(None));
    let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}});
    assert!(
        matches!(ask_for(&mut acp, 7, &call).as_slice(), [Step::Permission(asked)] if asked.input.contains("ls"))
    );
    // A repeated report changes nothing.
    let update = |command: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "pending", "rawInput": {"command": command}});
    assert_eq!(receive_update(&mut acp, &update("ls")), []);
    let again = receive_update(&mut acp, &update("rm -rf /"));
    assert!(
        matches!(again.as_slice(), [Step::Permission(asked)] if asked.id == "7" && asked.input.contains("rm -rf /")),
        "{again:?}"
    );
    let more: Vec<Vec<Step>> = (0..CHANGES_MAX)
        .map(|n| receive_update(&mut acp, &update(&format!("rm {n}"))))
        .collect();
    assert!(
        matches!(
            more.last().map(Vec::as_slice),
            Some([Step::Withdraw(_), Step::Note(_), Step::Write(_)])
        ),
        "{more:?}"
    );
    assert!(
        acp.decide("7", &Decision::Allow).is_none(),
        "the request is refused"
    );
}

#[test]
fn call_that_changes_after_approval_is_reported() {
    let mut acp = Acp::new(begin(None));
    let call = json!({"toolCallId": "a", "title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}});
    ask_for(&mut acp, 7, &call);
    acp.decide("7", &Decision::Allow).expect("it was asked");
    let update = |input: Value, status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": status, "rawInput": input, "content": [{"type": "content", "content": {"type": "text", "text": "output"}}]});
    assert_eq!(
        receive_update(&mut acp, &update(json!({"command": "ls"}), "in_progress")),
        [],
        "output does not count as a change"
    );
    let steps = receive_update(&mut acp, &update(json!({"command": "rm"}), "in_progress"));
    assert!(
        matches!(steps.as_slice(), [Step::Changed(changed)] if changed.allowed.contains("ls") && changed.now.contains("rm")),
        "{steps:?}"
    );
    assert_eq!(
        receive_update(&mut acp, &update(json!({"command": "rm"}), "completed")),
        []
    );
    assert_eq!(
        receive_update(&mut acp, &update(json!({"command": "mv"}), "completed")),
        [],
        "the call is finished"
    );
    // An edit that changes another file.
    let diff = |path: &str| json!({"toolCallId": "e", "title": "Write", "kind": "edit", "content": [{"type": "diff", "path": path, "newText": "x"}]});
    ask_for(&mut acp, 8, &diff("/w/a"));
    acp.decide("8", &Decision::Allow).expect("it was asked");
    assert_eq!(receive_update(&mut acp, &diff("/w/a")), []);
    assert!(matches!(
        receive_update(&mut acp, &diff("/etc/passwd")).as_slice(),
        [Step::Changed(_)]
    ));
}

fn update_of(id: &str, input: &Value) -> Value {
    json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress", "rawInput": input})
}

/// opencode repeats only the command in its permission request.
#[test]
fn fields_that_a_permission_request_omits_are_no_change() {
    let mut acp = Acp::new(begin(None));
    let full = json!({"command": "ls", "description": "list", "cwd": "/w/sub", "options": {"a": 1, "b": 2}});
    reported(
        &mut acp,
        json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "bash", "kind": "execute", "rawInput": {"cwd": "/w/sub"}}),
    );
    reported(&mut acp, update_of("a", &full));
    let part = json!({"toolCallId": "a", "title": "ls", "kind": "execute", "rawInput": {"command": "ls", "options": {"a": 1}}});
    let asked = ask_for(&mut acp, 7, &part);
    assert!(
        matches!(asked.as_slice(), [Step::Permission(asked)] if asked.input.contains("/w/sub")),
        "{asked:?}"
    );
    acp.decide("7", &Decision::Allow).expect("it was asked");
    for input in [
        full,
        json!({"command": "ls"}),
        json!({}),
        json!({"description": "list"}),
        json!({"output": "x"}),
    ] {
        assert_eq!(
            receive_update(&mut acp, &update_of("a", &input)),
            [],
            "{input}"
        );
    }
    for input in [
        json!({"command": "rm"}),
        json!({"cwd": "/"}),
        json!({"options": {"b": 3}}),
        json!("rm"),
        json!(["rm"]),
    ] {
        let steps = receive_update(&mut acp, &update_of("a", &input));
        assert!(
            matches!(steps.as_slice(), [Step::Changed(_)]),
            "{input}: {steps:?}"
        );
    }
}

/// Each case: the approved call, a later input, and whether it has another effect.
#[test]
fn added_fields_count_if_they_decide_the_effect() {
    let shell = || json!({"title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}});
    let file = || json!({"title": "Write", "kind": "edit", "locations": [{"path": "/w/a"}, {"path": "/w"}], "rawInput": {"filepath": "/w/a", "parentDir": "/w"}});
    let cases = [
        (
            shell(),
            json!({"command": "ls", "description": "list", "timeout": 5}),
            false,
        ),
        (shell(), json!({"command": "ls", "cwd": "/w"}), false),
        (shell(), json!({"command": "ls", "cwd": "/etc"}), true),
        (shell(), json!({"workdir": "/etc"}), true),
        (shell(), json!({"script": "rm -rf /"}), true),
        (shell(), json!({"url": "http://x"}), true),
        (file(), json!({"filePath": "/w/a", "content": "x"}), false),
        // Kilo names it in full when it asks, and then as the model did.
        (file(), json!({"filePath": "a", "content": "x"}), false),
        (file(), json!({"filePath": "./a", "dir": "."}), false),
        (file(), json!({"filePath": "b"}), true),
        (file(), json!({"filePath": "a/../../etc/passwd"}), true),
        (file(), json!({"filePath": "../etc/passwd"}), true),
        (file(), json!({"command": "a"}), true),
        (file(), json!({"scriptFile": "a"}), true),
        (
            file(),
            json!({"filePath": "/etc/passwd", "content": "x"}),
            true,
        ),
        (file(), json!({"target_file": "/w/b"}), true),
        (file(), json!({"command": "rm -rf /"}), true),
    ];
    for (mut call, later, is_changed) in cases {
        let mut acp = Acp::new(begin(None));
        call["toolCallId"] = json!("a");
        ask_for(&mut acp, 7, &call);
        acp.decide("7", &Decision::Allow).expect("it was asked");
        let steps = receive_update(&mut acp, &update_of("a", &later));
        assert_eq!(
            matches!(steps.as_slice(), [Step::Changed(_)]),
            is_changed,
            "{call} then {later}: {steps:?}"
        );
    }
}

/// opencode asks twice for one write: for the directory, then for the change.
#[test]
fn second_approval_of_a_call_covers_its_new_input() {
    let mut acp = Acp::new(begin(None));
    let place = json!({"toolCallId": "a", "title": "/x", "kind": "other", "locations": [{"path": "/x/f"}, {"path": "/x"}], "rawInput": {"filepath": "/x/f", "parentDir": "/x"}});
    ask_for(&mut acp, 0, &place);
    acp.decide("0", &Decision::Allow).expect("it was asked");
    assert_eq!(
        receive_update(
            &mut acp,
            &update_of("a", &json!({"filePath": "/x/f", "content": "there"}))
        ),
        []
    );
    let edit = json!({"toolCallId": "a", "title": "/x/f", "kind": "edit", "rawInput": {"filepath": "/x/f", "diff": "+there"}, "content": [{"type": "diff", "path": "/x/f", "newText": "there"}]});
    assert!(matches!(
        ask_for(&mut acp, 1, &edit).as_slice(),
        [Step::Permission(_)]
    ));
    acp.decide("1", &Decision::Allow).expect("it was asked");
    assert_eq!(
        receive_update(
            &mut acp,
            &update_of("a", &json!({"filePath": "/x/f", "content": "there"}))
        ),
        []
    );
    assert!(
        matches!(
            receive_update(&mut acp, &update_of("a", &json!({"content": "other"}))).as_slice(),
            [Step::Changed(_)]
        ),
        "other content"
    );
}

#[test]
fn merged_input_has_a_limited_size() {
    let mut acp = Acp::new(begin(None));
    ask_for(
        &mut acp,
        7,
        &json!({"toolCallId": "a", "title": "x", "kind": "execute", "rawInput": {"command": "ls"}}),
    );
    acp.decide("7", &Decision::Allow).expect("it was asked");
    let fields: serde_json::Map<String, Value> =
        (0..1000).map(|n| (format!("field{n}"), json!(1))).collect();
    receive_update(&mut acp, &update_of("a", &Value::Object(fields)));
    for n in 0..1000 {
        receive_update(&mut acp, &update_of("a", &json!({ format!("more{n}"): 1 })));
    }
    assert!(
        acp.report(&json!({"toolCallId": "a"}))
            .input
            .as_object()
            .is_some_and(|fields| fields.len() <= 1000),
        "it does not grow without end"
    );
}

#[test]
fn duplicate_and_cancelled_requests_are_refused() {
    let mut acp = Acp::new(begin(None));
    let call = |command: &str| json!({"toolCallId": command, "title": "Shell", "kind": "execute", "rawInput": {"command": command}});
    ask_for(&mut acp, 7, &call("ls"));
    let both = ask_for(&mut acp, 7, &call("rm -rf /"));
    let [Step::Withdraw(id), Step::Note(_), Step::Write(bytes)] = both.as_slice() else {
        panic!("{both:?}")
    };
    assert_eq!(
        (
            id.as_str(),
            String::from_utf8_lossy(bytes).matches("cancelled").count()
        ),
        ("7", 2),
        "two answers"
    );
    assert!(acp.decide("7", &Decision::Allow).is_none());
    ask_for(&mut acp, 8, &call("ls"));
    let back = acp.receive(&json!({"method": "$/cancel_request", "params": {"requestId": 8}}));
    assert!(
        matches!(back.as_slice(), [Step::Withdraw(id), Step::Write(_)] if id == "8"),
        "{back:?}"
    );
    assert!(acp.decide("8", &Decision::Allow).is_none());
}

#[test]
fn title_with_the_input_names_an_own_tool_only_where_the_preset_says_so() {
    let call = |title: &str, kind: &str, input: Value| json!({ "toolCallId": title, "title": title, "kind": kind, "rawInput": input });
    let own = "adj__ask_parent: {\"question\":\"which: a or b...";
    let question = json!({"question": "which: a or b?"});
    let mut acp = Acp::new(SessionStart {
        input_in_titles: true,
        ..begin(None)
    });
    assert!(permission(&mut acp, call(own, "other", question.clone())).is_own_tool);
    for (title, kind, input) in [
        ("adj__ask_parent: x", "execute", question.clone()),
        (
            "adj__ask_parent: y",
            "other",
            json!({"command": "rm -rf /"}),
        ),
        (
            "run_commands: adj__ask_parent: {}",
            "other",
            question.clone(),
        ),
        ("adj__ask_parent:rm", "other", question.clone()),
        ("ask_parent: {}", "other", question.clone()),
    ] {
        assert!(
            !permission(&mut acp, call(title, kind, input)).is_own_tool,
            "{title}"
        );
    }
    assert!(
        !permission(&mut Acp::new(begin(None)), call(own, "other", question)).is_own_tool,
        "another agent's title"
    );
}

#[test]
fn own_tool_is_recognized_by_earlier_reports() {
    let mut acp = Acp::new(begin(None));
    reported(
        &mut acp,
        json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "adj-ask_parent", "rawInput": {"question": "?"}}),
    );
    assert!(
        permission(
            &mut acp,
            json!({"toolCallId": "a", "title": "Ask the parent", "kind": "other"})
        )
        .is_own_tool
    );
    assert!(
        !permission(
            &mut acp,
            json!({"toolCallId": "b", "title": "Ask the parent", "kind": "other"})
        )
        .is_own_tool
    );
    assert!(
        !permission(
            &mut acp,
            json!({"title": "Ask the parent", "kind": "other"})
        )
        .is_own_tool,
        "calls without an id share nothing"
    );
    let forged = json!({"toolCallId": "c", "title": "adj-ask_parent", "kind": "other", "rawInput": {"command": "rm -rf /"}});
    assert!(!permission(&mut acp, forged).is_own_tool);
}

#[test]
fn permission_shows_earlier_reports_of_the_call() {
    let mut acp = Acp::new(begin(None));
    reported(
        &mut acp,
        json!({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Shell", "kind": "execute"}),
    );
    reported(
        &mut acp,
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "rawInput": {"command": "make; rm -rf /"}}),
    );
    let content =
        json!([{"type": "content", "content": {"type": "text", "text": "Running: make"}}]);
    let asked = permission(
        &mut acp,
        json!({"toolCallId": "a", "title": "Running: make", "content": content}),
    );
    assert!(
        asked.input.contains("rm -rf /") && asked.input.contains("Running: make"),
        "{}",
        asked.input
    );
    assert_eq!(
        (asked.tool.as_str(), asked.is_own_tool),
        ("Running: make", false)
    );
    // A changed call is shown in its newest state.
    reported(
        &mut acp,
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "a", "rawInput": {"command": "ls"}}),
    );
    assert!(
        permission(&mut acp, json!({"toolCallId": "a"}))
            .input
            .contains("\"ls\"")
    );
}

#[test]
fn input_in_content_counts_until_raw_input_arrives() {
    let mut acp = Acp::new(SessionStart {
        input_in_content: true,
        ..begin(None)
    });
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let mut of = |id: &str, kind: &str, title: &str, texts: &[&str]| {
        reported(
            &mut acp,
            json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "pending"}),
        );
        for incoming in texts {
            let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress", "content": text(incoming)});
            reported(&mut acp, update);
        }
        permission(
            &mut acp,
            json!({"toolCallId": id, "title": title, "content": text("Requesting approval")}),
        )
    };
    let shell = of(
        "a",
        "execute",
        "Bash",
        &["{\"command\": \"ls; ", "{\"command\": \"ls; rm -rf /\"}"],
    );
    assert_eq!(shell.input, "{\"command\":\"ls; rm -rf /\"}");
    assert_eq!(
        of(
            "b",
            "edit",
            "Write",
            &["{\"path\": \"a.txt\", \"content\": \"x\"}"]
        )
        .edits,
        [PathBuf::from("/w/a.txt")]
    );
    assert!(
        of("c", "edit", "Write", &["{\"path\": \"/etc/passwd\"}"])
            .edits
            .is_empty()
    );
    let doubled = of(
        "d",
        "edit",
        "Write",
        &[
            "{\"path\": \"a.txt\"}",
            "{\"path\": \"a.txt\"}{\"path\": \"/etc/passwd\"}",
        ],
    );
    assert!(
        doubled.edits.is_empty() && doubled.input.contains("/etc/passwd"),
        "{doubled:?}"
    );
    assert!(of("e", "other", "adj__ask_parent", &["{\"question\": \"?\"}"]).is_own_tool);
    assert!(!of("f", "other", "adj__ask_parent", &["{\"command\": \"x\"}"]).is_own_tool);
    // A sub-agent's call without input: only its truncated title could be shown.
    let options =
        json!([{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]);
    let cut = json!({"toolCallId": "g", "title": "Bash", "content": text("Running: ls; rm…")});
    let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": cut, "options": options}});
    assert_eq!(
        written(&acp.receive(&asked))["result"]["outcome"]["optionId"],
        "n"
    );
    // Without `input_in_content`, such a text is not an input.
    let mut other = Acp::new(begin(None));
    reported(
        &mut other,
        json!({"toolCallId": "a", "kind": "edit", "status": "pending", "content": text("{\"path\": \"a.txt\"}")}),
    );
    assert!(
        permission(
            &mut other,
            json!({"toolCallId": "a", "content": text("{\"path\": \"a.txt\"}")})
        )
        .edits
        .is_empty()
    );
}

#[test]
fn edit_names_every_file_in_the_directory() {
    let mut acp = Acp::new(begin(None));
    let diff = |path: &str| json!([{"type": "diff", "path": path, "newText": "x"}]);
    let mut edits = |call: Value| !permission(&mut acp, call).edits.is_empty();
    assert!(edits(json!({"kind": "edit", "content": diff("/w/a.txt")})));
    assert!(!edits(
        json!({"kind": "edit", "content": diff("/etc/passwd")})
    ));
    assert!(!edits(
        json!({"kind": "edit", "locations": [{"path": "/w/a"}], "rawInput": {"absolute_path": "/etc/passwd"}})
    ));
    assert!(!edits(
        json!({"kind": "edit", "rawInput": {"text": "no file is named"}})
    ));
}

#[test]
fn operation_matches_the_agents_fields() {
    let mut acp = Acp::new(begin(None));
    let mut operation = |call: Value| permission(&mut acp, call).operation;
    let shell = operation(
        json!({"title": "ls; rm", "kind": "execute", "rawInput": {"command": "ls", "description": "list"}}),
    );
    assert!(
        shell.is_complete
            && (shell.tool.as_str(), shell.command.as_deref()) == ("execute", Some("ls"))
    );
    let diff = json!([{"type": "diff", "path": "/w/a.txt", "newText": "x"}]);
    assert!(
        !operation(json!({"kind": "execute", "rawInput": {"command": "ls"}, "content": diff}))
            .is_complete,
        "more than a command"
    );
    let unknown = operation(json!({"title": "git status", "kind": "execute"}));
    assert!(
        !unknown.is_complete && unknown.command.is_none(),
        "a title is not a command"
    );
    assert_eq!(
        operation(json!({"kind": "edit", "content": diff, "rawInput": {"file_path": "b"}}))
            .paths
            .len(),
        2
    );
    assert!(
        !operation(json!({"kind": "edit", "rawInput": {"path": "a", "files": ["b"]}})).is_complete,
        "a list of files"
    );
    assert_eq!(operation(json!({"title": "Bash"})).tool, "other");
    assert!(operation(json!({"kind": "edit", "content": diff, "rawInput": {"file_path": "b", "new_string": "x"}})).is_complete);
    for unknown in [
        json!({"kind": "edit", "rawInput": {"path": "a", "owner": "root"}}),
        json!({"kind": "edit", "rawInput": {"path": "a", "edits": [{"path": "/etc/passwd"}]}}),
        json!({"kind": "edit", "content": [{"type": "diff", "path": "/w/a", "newText": "x", "mode": "0777"}]}),
        json!({"kind": "edit", "content": [{"type": "terminal", "terminalId": "t"}], "rawInput": {"path": "a"}}),
        json!({"kind": "read", "locations": [{"path": "/w/a", "host": "x.org"}]}),
    ] {
        assert!(!operation(unknown.clone()).is_complete, "{unknown}");
    }
}

#[test]
fn directory_is_uncertain_after_a_command_that_changes_it() {
    let mut acp = Acp::new(begin(None));
    let call = |id: &str, command: &str| json!({"toolCallId": id, "kind": "execute", "rawInput": {"command": command}});
    assert!(
        permission(&mut acp, call("a", "make"))
            .operation
            .possible_directories
            .is_empty()
    );
    assert!(
        permission(&mut acp, call("b", "cd sub && make"))
            .operation
            .possible_directories
            .is_empty(),
        "asked before it runs"
    );
    assert_eq!(
        permission(&mut acp, call("c", "make"))
            .operation
            .possible_directories,
        ["/w", "/w/sub"]
    );
}

#[test]
fn edit_stays_within_the_runs_directory() {
    let mut acp = Acp::new(SessionStart {
        edit_titles: vec!["write · ".to_owned()],
        ..begin(None)
    });
    let mut is_edit = |title: &str, kind: &str, path: Value| {
        let call = json!({"title": title, "kind": kind, "rawInput": {"path": path}});
        let asked = json!({"id": 7, "method": "session/request_permission", "params": {"toolCall": call, "options": []}});
        let steps = acp.receive(&asked);
        acp.permissions.clear();
        matches!(steps.as_slice(), [Step::Permission(asked)] if !asked.edits.is_empty())
    };
    assert!(is_edit("write · a.txt", "other", json!("a.txt")));
    assert!(is_edit("Writing to a.txt", "edit", json!("/w/b/a.txt")));
    assert!(
        !is_edit("write · a.txt", "execute", json!("a.txt")),
        "the kind takes precedence"
    );
    assert!(!is_edit("shell · write · a.txt", "other", json!("a.txt")));
    for outside in [
        json!("../a.txt"),
        json!("/w/../etc/passwd"),
        json!("/wide/a.txt"),
        json!("~/a.txt"),
        json!("~root/a.txt"),
        json!(null),
    ] {
        assert!(
            !is_edit("write · a.txt", "edit", outside.clone()),
            "{outside}"
        );
    }
}

#[test]
fn model_error_fails_the_run() {
    let mut acp = Acp::new(begin(None));
    acp.opening("x");
    let steps = acp.receive(
        &json!({"id": 1, "error": {"code": -32000, "message": "Authentication required"}}),
    );
    assert_eq!(
        steps,
        [
            Step::Failed("Authentication required (code -32000)".to_owned()),
            Step::Close
        ]
    );
}
