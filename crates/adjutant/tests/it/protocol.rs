//! The original protocol's checklist: its four protocol tests and all its validation criteria, as a
//! parent over MCP, with agents that know Adjutant only from their prompt.

use crate::mcp::Session;
use crate::signals::{REPORT, home_with};
use crate::support::{PATIENCE, TestHome, kill};
use serde_json::{Value, json};
use std::time::Instant;

fn parent(home: &TestHome) -> Session {
    Session::open(&home.home.dir, &home.work(), &["--client", "parent"], true)
}

/// Starts a run of the scripted program and returns its id.
fn started(parent: &mut Session, name: &str, prompt: &str, more: &Value) -> String {
    let mut call = json!({"agent": "scribe", "name": name, "prompt": prompt});
    if let (Some(call), Some(more)) = (call.as_object_mut(), more.as_object()) {
        call.extend(more.clone());
    }
    parent.done("run_subagent", call)["run_id"]
        .as_str()
        .expect("an id")
        .to_owned()
}

/// Waits until the run needs its parent or has ended.
fn attention(parent: &mut Session, run: &str) -> Value {
    loop {
        let found = parent.done(
            "wait_for_subagents",
            json!({"run_ids": [run], "wait_s": 30}),
        );
        if found["outcome"] == "event" {
            return found;
        }
    }
}

fn status(parent: &mut Session, run: &str) -> Value {
    parent.done("check_subagent_status", json!({"run_id": run}))
}

fn ended(parent: &mut Session, run: &str) -> Value {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "{run} does not end");
        let view = status(parent, run);
        if view["state"] == "finished" {
            return view;
        }
        parent.done(
            "wait_for_subagents",
            json!({"run_ids": [run], "until": "all", "wait_s": 30}),
        );
    }
}

/// An agent that stops until a missing dependency exists.
const AUDIT: &str = "if told '## BLOCKER RESOLVED' && told 'State:' && told '47/120 files' && [ -d node_modules ]; then REPORT success 'audited'; exit 0; fi\n\
    [ -d node_modules ] || printf '[STOP_WORK]\\nagent_id: %s\\ntimestamp: 2026-01-11T09:15:00-05:00\\nstop_reason: blocker\\nblocker_type: external_dependency\\ndetails: The audit needs node_modules, which is missing\\ncompleted_work: |\\n  secrets: 0 found\\n  queries: no risks\\nblocked_work: |\\n  npm audit\\nstate_snapshot: |\\n  47/120 files\\nresume_requirements: |\\n  Run npm install\\n[/STOP_WORK]\\n' \"$id\"\n";

fn audit() -> String {
    AUDIT.replace("REPORT", REPORT)
}

/// Test 1 of the checklist: an ambiguous prompt.
#[test]
fn ambiguous_prompt_leads_to_questions_and_resume() {
    let home = home_with(&format!(
        "if told 'A1: both' && told 'A2: 3.0'; then {REPORT} success 'looked at both with 3.0'; exit 0; fi\n\
         printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nblocked_at: src/auth/\\nreason: Several strategies found\\nquestions:\\n  - question_id: Q1\\n    text: OAuth2, JWT, or both?\\n    context: Found oauth.ts and jwt.ts\\n  - question_id: Q2\\n    text: Which version, 2.0 or 3.0?\\n    context: Both are among the dependencies\\ncan_resume_with: Both answers\\ncurrent_state: Secrets are done\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"\n"
    ));
    let mut parent = parent(&home);
    let run = started(&mut parent, "ambiguous", "Analyze the codebase", &json!({}));
    let found = attention(&mut parent, &run);
    let needs = found["needs"].as_array().expect("needs");
    assert_eq!(needs.len(), 2, "{found}");
    for (need, (question, context)) in needs.iter().zip([
        ("OAuth2, JWT, or both?", "Found oauth.ts and jwt.ts"),
        (
            "Which version, 2.0 or 3.0?",
            "Both are among the dependencies",
        ),
    ]) {
        assert_eq!(need["question"], question);
        assert!(
            need["context"]
                .as_str()
                .is_some_and(|told| told.contains(context)),
            "{need}"
        );
    }
    let said = json!({"reason": "Several strategies found", "blocked_at": "src/auth/", "can_resume_with": "Both answers", "current_state": "Secrets are done"});
    assert_eq!(
        (
            &needs[0]["question_id"],
            &needs[1]["question_id"],
            &needs[0]["clarification"]
        ),
        (&json!("Q1"), &json!("Q2"), &said)
    );
    let answers: Vec<Value> = needs
        .iter()
        .zip(["both", "3.0"])
        .map(|(need, answer)| json!({"message_id": need["message_id"], "answer": answer}))
        .collect();
    parent.done("reply_subagent", json!({"answers": answers}));
    let view = ended(&mut parent, &run);
    assert_eq!(
        (&view["outcome"], &view["report"]["summary"]),
        (&json!("succeeded"), &json!("looked at both with 3.0")),
        "{view}"
    );
    let prompt = std::fs::read_to_string(home.home.logs_dir().join(format!("{run}.2.prompt.md")))
        .expect("what was sent");
    for text in [
        "Q1: OAuth2, JWT, or both?\nA1: both\nContext: Found oauth.ts and jwt.ts\n",
        "You asked because: Several strategies found\nYou needed: Both answers\n",
        "the heading `## CLARIFICATION RECEIVED`",
        "## RESUME INSTRUCTIONS\n\nContinue from: src/auth/\nCurrent state: Secrets are done\nNext step: Continue with these answers.",
    ] {
        assert!(prompt.contains(text), "{text} is missing in {prompt}");
    }
}

/// Test 2 of the checklist: a known blocker.
#[test]
fn resolved_blocker_lets_the_run_succeed() {
    let home = home_with(&audit());
    let mut parent = parent(&home);
    let run = started(
        &mut parent,
        "blocked",
        "Run npm audit on the codebase",
        &json!({}),
    );
    let found = attention(&mut parent, &run);
    assert_eq!(found["stopped"][0]["status"], "stopped", "{found}");
    let view = status(&mut parent, &run);
    let checkpoint = &view["checkpoint"];
    assert_eq!(
        (&checkpoint["blocker_type"], &checkpoint["details"]),
        (
            &json!("external_dependency"),
            &json!("The audit needs node_modules, which is missing")
        )
    );
    std::fs::create_dir(home.work().join("node_modules")).expect("a directory");
    parent.done(
        "steer_subagent",
        json!({"run_id": run, "action": "resume", "text": "Ran npm install"}),
    );
    let view = ended(&mut parent, &run);
    assert_eq!(
        (
            &view["outcome"],
            &view["report"]["summary"],
            &view["attempt"]
        ),
        (&json!("succeeded"), &json!("audited"), &json!(2)),
        "{view}"
    );
}

/// Test 4 of the checklist: a completion report.
#[test]
fn well_defined_task_ends_with_a_verified_report() {
    let home = home_with(
        "grep -rn TODO src > TODO_LIST.md\nprintf '[COMPLETION_REPORT]\\nagent_id: %s\\ntimestamp: 2026-01-11T12:00:00-05:00\\nstatus: success\\ndeliverables: |\\n  Generated files:\\n  - TODO_LIST.md (all of them)\\nsummary: Listed them\\nmetrics_achieved: Every TODO is listed\\nissues_encountered: none\\nrecommendations: Do them\\ntotal_duration: 1s\\n[/COMPLETION_REPORT]\\n' \"$id\"\n",
    );
    std::fs::create_dir(home.work().join("src")).expect("a directory");
    std::fs::write(home.work().join("src/a.rs"), "// TODO one\n// TODO two\n").expect("a file");
    let mut parent = parent(&home);
    let more = json!({"criteria": "Every TODO is listed", "accept": ["grep", "-c", "TODO two", "TODO_LIST.md"]});
    let run = started(
        &mut parent,
        "todo",
        "Scan the codebase for TODO comments, generate TODO_LIST.md",
        &more,
    );
    let view = ended(&mut parent, &run);
    let report = &view["report"];
    assert_eq!(
        (&report["status"], &report["verdict"], &view["criteria"]),
        (
            &json!("success"),
            &json!("verified"),
            &json!("Every TODO is listed")
        ),
        "{view}"
    );
    assert_eq!(
        (&report["files"][0]["path"], &report["files"][0]["verdict"]),
        (&json!("TODO_LIST.md"), &json!("verified"))
    );
    for field in ["deliverables", "metrics_achieved"] {
        let finding = report["checked"]
            .as_array()
            .and_then(|all| all.iter().find(|finding| finding["field"] == field));
        assert_eq!(
            finding.map(|finding| &finding["verdict"]),
            Some(&json!("verified")),
            "{field}: {report}"
        );
    }
    for (field, text) in [
        ("issues_encountered", "none"),
        ("recommendations", "Do them"),
        ("total_duration", "1s"),
    ] {
        assert_eq!(report[field], text);
    }
}

/// Signal format: all required fields present, YAML valid, timestamps ISO-8601, delimiters matched.
#[test]
fn malformed_signal_names_the_rule_and_is_no_success() {
    let home = home_with(
        "printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\n[/STOP_WORK]\\n' \"$id\"\n",
    );
    let mut parent = parent(&home);
    started(&mut parent, "odd", "go", &json!({}));
    // It is notified once, and prints the same again.
    let view = home.until_status("odd", "stopped");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&Value::Null, &json!(2)),
        "{view}"
    );
    let events = home.json(&["events", "odd"]);
    let malformed: Vec<&Value> = events
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["kind"] == "signal.malformed")
        .collect();
    assert!(!malformed.is_empty(), "{events}");
    for event in malformed {
        assert!(
            event["text"]
                .as_str()
                .is_some_and(|text| text.contains("details is missing")),
            "{event}"
        );
        assert_eq!(
            (&event["signal"], &event["source"]),
            (&json!("STOP_WORK"), &json!("block"))
        );
    }
}

/// Parent detection: signals detected, extraction works, field parsing accurate, response
/// appropriate.
#[test]
fn each_signal_reaches_the_parent_once_with_every_field() {
    let home = home_with(&format!(
        "printf 'noise [STOP_WORK] noise\\n```\\n[PROGRESS]\\nagent_id: %s\\npercent: 40\\nnote: half\\neta: 5 min\\n[/PROGRESS]\\n```\\n' \"$id\"\n{}",
        audit()
    ));
    let mut parent = parent(&home);
    let run = started(&mut parent, "seen", "audit", &json!({}));
    let found = attention(&mut parent, &run);
    let next = found["next"].as_str().expect("what to do");
    assert!(next.contains("action=resume run_id=seen"), "{found}");
    let view = status(&mut parent, &run);
    assert_eq!(
        (&view["percent"], &view["progress"], &view["eta"]),
        (&json!(40), &json!("half"), &json!("5 min")),
        "{view}"
    );
    let expected = [
        ("blocker_type", "external_dependency"),
        ("details", "The audit needs node_modules, which is missing"),
        ("completed_work", "secrets: 0 found\nqueries: no risks"),
        ("blocked_work", "npm audit"),
        ("state_snapshot", "47/120 files"),
        ("resume_requirements", "Run npm install"),
    ];
    for (field, text) in expected {
        assert_eq!(view["checkpoint"][field], text, "{field}");
    }
    let events = home.json(&["events", "seen"]);
    let of = |signal: &str, kind: &str| {
        events
            .as_array()
            .expect("events")
            .iter()
            .filter(|event| event["signal"] == signal && event["kind"] == kind)
            .count()
    };
    assert_eq!(
        (
            of("STOP_WORK", "run.checkpoint"),
            of("STOP_WORK", "run.stopping"),
            of("PROGRESS", "run.progress")
        ),
        (1, 1, 1),
        "{events}"
    );
}

/// State preservation: checkpoints capture full state, resuming restores it, no work is lost.
#[test]
fn state_survives_stop_hub_kill_and_resume() {
    let home = home_with(&format!(
        "[ -f AUTH.md ] || echo reviewed > AUTH.md\n{}",
        audit()
    ));
    let mut parent = parent(&home);
    let run = started(&mut parent, "kept", "audit", &json!({}));
    attention(&mut parent, &run);
    home.until_status("kept", "stopped");
    let before = status(&mut parent, &run)["checkpoint"].clone();
    assert_eq!(
        before["working_directory"],
        home.work()
            .canonicalize()
            .expect("a directory")
            .display()
            .to_string()
    );
    kill(home.hub_pid());
    assert_eq!(
        status(&mut parent, &run)["checkpoint"],
        before,
        "the checkpoint is as it was"
    );
    std::fs::create_dir(home.work().join("node_modules")).expect("a directory");
    parent.done(
        "steer_subagent",
        json!({"run_id": run, "action": "resume", "text": "Ran npm install"}),
    );
    let view = ended(&mut parent, &run);
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let prompt = std::fs::read_to_string(home.home.logs_dir().join(format!("{run}.2.prompt.md")))
        .expect("what was sent");
    for text in [
        "## BLOCKER RESOLVED\n\nIssue: The audit needs node_modules, which is missing\nResolution: Ran npm install",
        "\nYou needed: Run npm install\n",
        "Completed:\n    secrets: 0 found\n    queries: no risks\nNot started: npm audit\nState: 47/120 files\n",
        "## RESUME INSTRUCTIONS\n\nNext step: Continue with what was not started:\n    npm audit",
    ] {
        assert!(prompt.contains(text), "{text} is missing in {prompt}");
    }
    let logs = parent.done("get_subagent_logs", json!({"run_id": run, "after": 0}));
    assert!(
        logs["total"].as_u64().is_some_and(|total| total > 0),
        "the first attempt's words are still there: {logs}"
    );
    assert_eq!(
        std::fs::read_to_string(home.work().join("AUTH.md")).expect("its work"),
        "reviewed\n"
    );
}

/// Test 3 of the checklist, and coordination between agents: a task that should be delegated.
#[test]
fn delegated_task_returns_its_result() {
    let home = home_with(&format!(
        "if told '## DELEGATION APPROVED' && told 'Result: succeeded: refactored'; then {REPORT} success 'audited, with the refactoring'; exit 0; fi\n\
         if told 'Refactor src/auth' && told 'see AUTH.md'; then {REPORT} success refactored; exit 0; fi\n\
         printf '[DELEGATE_WORK]\\nagent_id: %s\\ndelegation_reason: A task of its own\\nnew_task_description: |\\n  Refactor src/auth\\nindependence: blocks_current_work\\npriority: P1\\ncontext_required: see AUTH.md\\ncoordination: I wait for it\\nestimated_duration: 2 h\\n[/DELEGATE_WORK]\\n' \"$id\"\n"
    ));
    let mut parent = parent(&home);
    let run = started(
        &mut parent,
        "audit",
        "Comprehensive security audit",
        &json!({}),
    );
    let found = attention(&mut parent, &run);
    assert_eq!(found["needs"][0]["kind"], "delegation", "{found}");
    let asked = &home.inbox(&[])[0];
    assert_eq!(
        (
            &asked["delegation"]["independence"],
            &asked["delegation"]["priority"]
        ),
        (&json!("blocks_current_work"), &json!("P1")),
        "{asked}"
    );
    parent.done(
        "reply_subagent",
        json!({"message_id": found["needs"][0]["message_id"], "decision": "approve"}),
    );
    let view = ended(&mut parent, &run);
    assert_eq!(
        (&view["outcome"], &view["report"]["summary"]),
        (&json!("succeeded"), &json!("audited, with the refactoring")),
        "{view}"
    );
    let all = home.json(&["ps", "-a"]);
    let child = all
        .as_array()
        .expect("runs")
        .iter()
        .find(|view| view["parent"] == run.as_str())
        .expect("a child");
    assert_eq!(
        (&child["outcome"], &child["summary"]),
        (&json!("succeeded"), &json!("refactored"))
    );
}
