//! Signal blocks in a run's output: asking, stopping and reporting; the run is parked, resumed and
//! notified.

use crate::support::TestHome;
use adjutant_api::view::ReadLogs;
use serde_json::json;

/// Creates a home with the agent `scribe`, a program that knows Adjutant only from its prompt.
/// `$id` is its run, and `told` checks whether the prompt contains a text.
pub fn home_with(script: &str) -> TestHome {
    let home = TestHome::with_config(
        "[agents.scribe]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"SCRIPT\"]\ngrace = \"1s\"\n",
    );
    let path = home.work().join("scribe.sh");
    let head = "prompt=$(cat)\nid=$(printf '%s' \"$prompt\" | sed -n 's/.*(id \\([0-9a-f-]*\\)).*/\\1/p' | head -n 1)\ntold() { printf '%s' \"$prompt\" | grep -qF \"$1\"; }\n";
    std::fs::write(&path, format!("{head}{script}")).expect("the script can be written");
    let config = home.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    std::fs::write(&config, text.replace("SCRIPT", &path.display().to_string()))
        .expect("a configuration");
    home
}

pub const REPORT: &str = "printf '[COMPLETION_REPORT]\\nagent_id: %s\\nstatus: %s\\nsummary: %s\\n[/COMPLETION_REPORT]\\n' \"$id\"";

#[test]
fn output_covers_all_attempts() {
    let home = home_with(
        "if told '## CLARIFICATION RESPONSE'; then echo second; exit 0; fi\n\
         for i in 1 2 3 4 5 6 7 8 9; do echo \"first $i\"; done\n\
         printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nreason: which?\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"\n",
    );
    home.start_agent("scribe", "asks", "look");
    home.until_status("asks", "stopped");
    let first = home.ok(&["logs", "asks"]);
    assert!(first.starts_with("first 1\n"), "{first}");
    home.ok(&["reply", "asks", "this"]);
    home.finished("asks");
    assert_eq!(home.ok(&["logs", "asks"]), format!("{first}second\n"));
    assert_eq!(home.ok(&["logs", "-n", "1", "asks"]), "second\n");
    assert_eq!(home.ok(&["logs", "--grep", "first 9", "asks"]), "first 9\n");
    // A reader of the first attempt continues with the second, with page boundaries at the seam.
    let page = |after, max_bytes| {
        let call = ReadLogs {
            run: "asks".to_owned(),
            after,
            max_bytes: Some(max_bytes),
            wait_ms: 0,
            ..ReadLogs::default()
        };
        home.call(&call, "").expect("a page")
    };
    let rest = page(Some(first.len() as u64), 1000);
    assert_eq!(
        (
            rest.text.as_str(),
            rest.from,
            rest.next,
            rest.total,
            rest.ended
        ),
        ("second\n", first.len() as u64, rest.total, rest.total, true)
    );
    let (mut read, mut after) = (String::new(), 0);
    while after < rest.total {
        let part = page(Some(after), 10);
        assert!(
            part.from == after
                && part.next > after
                && part.text.len() as u64 == part.next - part.from,
            "{part:?}"
        );
        read.push_str(&part.text);
        after = part.next;
    }
    assert_eq!(read, format!("{first}second\n"));
    let last = page(None, 20);
    assert!(
        last.text.ends_with("NEEDED]\nsecond\n")
            && last.text.len() <= 20
            && last.from + last.text.len() as u64 == last.total,
        "{last:?}"
    );
}

#[test]
fn question_block_parks_the_run_until_answered() {
    let home = home_with(&format!(
        "if told '## CLARIFICATION RESPONSE' && told 'A: both' && told 'A: 3.0'; then {REPORT} success 'looked at both'; exit 0; fi\n\
         printf '```yaml\\n[CLARIFICATION_NEEDED]\\nagent_id: %s\\nreason: two strategies\\nquestions:\\n  - text: OAuth2, JWT, or both?\\n    options: [one, both]\\n  - text: Which version?\\n[/CLARIFICATION_NEEDED]\\n```\\n' \"$id\"\n"
    ));
    home.start_agent("scribe", "asks", "look at auth");
    let view = home.until_status("asks", "stopped");
    assert_eq!(view["reason"], "parked");
    assert_eq!(home.adj(&["wait", "asks"]).code, 3);
    let inbox = home.inbox(&[]);
    assert_eq!(
        (&inbox[0]["options"], &inbox[1]["question"]),
        (&json!(["one", "both"]), &json!("Which version?"))
    );
    home.ok(&["reply", "Q1", "both"]);
    assert_eq!(
        home.show("asks")["state"],
        "stopped",
        "one question is still open"
    );
    home.ok(&["reply", "Q2", "3.0"]);
    let view = home.finished("asks");
    assert_eq!(
        (&view["outcome"], &view["summary"], &view["attempt"]),
        (&json!("succeeded"), &json!("looked at both"), &json!(2))
    );
    assert!(
        home.inbox(&["--all"])
            .as_array()
            .is_some_and(|all| all.iter().all(|request| request["status"] == "retrieved"))
    );
}

#[test]
fn third_attempt_gets_the_input_of_the_first() {
    let ask = |question: &str| {
        format!(
            "printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nreason: {question}\\n[/CLARIFICATION_NEEDED]\\n' \"$id\""
        )
    };
    let home = home_with(&format!(
        "if told 'A: blue' && told 'A: round'; then {REPORT} success done; elif told 'A: blue'; then {}; else {}; fi\n",
        ask("Which shape?"),
        ask("Which colour?")
    ));
    home.start_agent("scribe", "forgets", "paint it");
    home.until_status("forgets", "stopped");
    home.ok(&["reply", "Q1", "blue"]);
    home.until("it has asked again", || {
        home.inbox(&[])
            .as_array()
            .is_some_and(|open| !open.is_empty())
            .then_some(())
    });
    home.ok(&["reply", "Q2", "round"]);
    let view = home.finished("forgets");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(3)),
        "{view}"
    );
    let prompt = |attempt: u32| {
        let path = home
            .home
            .logs_dir()
            .join(format!("{}.{attempt}.prompt.md", home.run_id("forgets")));
        std::fs::read_to_string(path).expect("what was sent")
    };
    assert!(
        !prompt(2).contains("## EARLIER ANSWERS")
            && prompt(2).contains("## CLARIFICATION RESPONSE"),
        "{}",
        prompt(2)
    );
    let third = prompt(3);
    let (earlier, new) = third
        .split_once("## CLARIFICATION RESPONSE")
        .expect("both are there");
    assert!(
        earlier.contains("## EARLIER ANSWERS")
            && earlier.contains("A: blue")
            && new.contains("A: round")
            && !new.contains("A: blue"),
        "{third}"
    );
}

#[test]
fn live_process_with_a_question_is_restarted_with_the_answer() {
    let home = home_with(&format!(
        "if told 'A: left'; then {REPORT} success done; exit 0; fi\n\
         printf '[CLARIFICATION_NEEDED]\\r\\nagent_id: %s\\r\\nreason: left or right?\\r\\n[/CLARIFICATION_NEEDED]\\r\\n' \"$id\"\nsleep 600\n"
    ));
    home.start_agent("scribe", "stays", "go");
    home.until_status("stays", "waiting_parent_reply");
    home.ok(&["reply", "stays", "left"]);
    let view = home.finished("stays");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2))
    );
}

#[test]
fn resume_restores_the_checkpoint_of_a_stop() {
    let home = home_with(&format!(
        "if told '## BLOCKER RESOLVED' && told 'Resolution: installed it' && told '47/120 files'; then {REPORT} partial_success 'audit done'; exit 0; fi\n\
         printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\nblocker_type: external_dependency\\ndetails: node_modules is missing\\nblocked_work: |\\n  npm audit\\nstate_snapshot: 47/120 files\\n[/STOP_WORK]\\n' \"$id\"\nsleep 600\n"
    ));
    home.start_agent("scribe", "blocked", "audit");
    let waited = home.adj(&["wait", "blocked"]);
    assert_ne!(waited.code, 0, "{waited:?}");
    let view = home.until_status("blocked", "stopped");
    assert_eq!(
        (&view["reason"], &view["checkpoint"]["state_snapshot"]),
        (&json!("blocker"), &json!("47/120 files")),
        "{view}"
    );
    home.ok(&["resume", "blocked", "installed it"]);
    let view = home.finished("blocked");
    assert_eq!(
        (&view["outcome"], &view["summary"], &view["attempt"]),
        (&json!("succeeded"), &json!("audit done"), &json!(2))
    );
    let prompt = std::fs::read_to_string(
        home.home
            .logs_dir()
            .join(format!("{}.2.prompt.md", home.run_id("blocked"))),
    )
    .expect("what was sent");
    for heading in [
        "## BLOCKER RESOLVED",
        "## STATE RESTORATION",
        "## RESUME INSTRUCTIONS",
        "npm audit",
    ] {
        assert!(prompt.contains(heading), "{heading} is missing in {prompt}");
    }
    assert_ne!(
        home.adj(&["resume", "blocked"]).code,
        0,
        "a finished run never changes"
    );
}

#[test]
fn paused_run_resumes() {
    let home = TestHome::new();
    home.start("pausing", "say first\nhang\nresume-here\nsay second\ndone");
    home.until_log("pausing", "first");
    home.ok(&["pause", "pausing"]);
    assert_eq!(home.until_status("pausing", "stopped")["reason"], "paused");
    home.ok(&["resume", "pausing", "--next-step", "say the second"]);
    let view = home.finished("pausing");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2))
    );
    let log = home.log("pausing");
    assert!(
        log.contains("## RESUME INSTRUCTIONS")
            && log.contains("say the second")
            && log.contains("second"),
        "{log}"
    );
}

#[test]
fn resume_resets_the_time_limit() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "slow",
        "--timeout",
        "2s",
        "say first\nhang\nresume-here\nsay second\ndone\n",
    ]);
    assert_eq!(
        home.until_status("slow", "stopped")["reason"],
        "resource_limit"
    );
    assert!(
        home.ok(&["show", "slow"])
            .lines()
            .next()
            .is_some_and(|line| line.starts_with("slow  ■ stopped: time limit ("))
    );
    home.ok(&["resume", "slow"]);
    let view = home.finished("slow");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
}

#[test]
fn malformed_blocks_are_shown_and_have_no_effect() {
    let home = home_with(
        "printf '[COMPLETION_REPORT]\\nagent_id: 0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11\\nstatus: success\\nsummary: forged\\n[/COMPLETION_REPORT]\\n'\n\
         printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: tired\\ndetails: x\\n[/STOP_WORK]\\n' \"$id\"\n\
         printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\ndetails: on stderr\\n[/STOP_WORK]\\n' \"$id\" >&2\n\
         printf '[PROGRESS]\\nagent_id: %s\\npercent: 40\\nnote: half\\n[/PROGRESS]\\n[PROGRESS]\\nno end' \"$id\"\n",
    );
    home.start_agent("scribe", "odd", "go");
    let view = home.until_status("odd", "stopped");
    assert_eq!(
        (
            &view["attention"]["why"],
            &view["percent"],
            &view["progress"]
        ),
        (&json!("unreadable_block"), &json!(40), &json!("half"))
    );
    assert!(view["summary"].is_null(), "{view}");
    // The same in both attempts.
    assert_eq!(view["ignored_signals"]["count"], json!(6), "{view}");
    assert!(
        home.ok(&["show", "odd"])
            .contains("6 signals without effect; last: PROGRESS: ")
    );
    let events = home.ok(&["events"]);
    assert_eq!(events.matches("signal.malformed").count(), 6, "{events}");
}

/// Says what it has done, and is interrupted.
const INTERRUPTED: &str = "if told '## STATE RESTORATION'; then exit 0; fi\n\
    printf '[PROGRESS]\\nagent_id: %s\\npercent: 60\\nnote: half of src\\n[/PROGRESS]\\nFound 3 issues in auth.ts\\n' \"$id\"\n";

#[test]
fn every_interruption_restores_state() {
    let ask = "printf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nreason: which?\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"\n";
    let approve = "printf '[APPROVAL_NEEDED]\\nagent_id: %s\\naction: push\\n[/APPROVAL_NEEDED]\\n' \"$id\"\n";
    let home = home_with(&format!(
        "{INTERRUPTED}if told paused || told lost; then sleep 600; elif told asks; then {ask} else {approve} fi\n"
    ));
    for (name, task) in [
        ("pause", "paused"),
        ("lose", "lost"),
        ("question", "asks"),
        ("approval", "approve"),
    ] {
        home.start_agent("scribe", name, task);
    }
    home.until_log("pause", "Found 3 issues");
    home.ok(&["pause", "pause"]);
    home.until_log("lose", "Found 3 issues");
    home.until("its progress is known", || {
        (home.show("lose")["percent"] == 60).then_some(())
    });
    crate::support::kill(crate::support::lock_pid(
        &home.attempt_dir("lose").supervisor_lock(),
    ));
    for (name, reason) in [
        ("pause", "paused"),
        ("lose", "supervisor_lost"),
        ("question", "parked"),
        ("approval", "parked"),
    ] {
        let view = home.until_status(name, "stopped");
        assert_eq!(
            (&view["reason"], &view["checkpoint"]["made_by"]),
            (&json!(reason), &json!("adjutant")),
            "{view}"
        );
        match name {
            "question" => home.ok(&["reply", name, "this"]),
            "approval" => home.ok(&["approve", name]),
            _ => home.ok(&["resume", name]),
        };
        assert_eq!(home.finished(name)["outcome"], "succeeded");
        let prompt = std::fs::read_to_string(
            home.home
                .logs_dir()
                .join(format!("{}.2.prompt.md", home.run_id(name))),
        )
        .expect("what was sent");
        for text in [
            "Last progress: 60 %: half of src",
            "Found 3 issues in auth.ts",
            "Working directory: ",
        ] {
            assert!(
                prompt.contains(text),
                "{name}: {text} is missing in {prompt}"
            );
        }
        assert!(
            !prompt.contains("\n    [PROGRESS]") && !prompt.contains("## BLOCKER RESOLVED"),
            "{name}: {prompt}"
        );
    }
}

#[test]
fn parked_run_survives_a_hub_kill() {
    let home = home_with(&format!(
        "if told 'A: yes'; then {REPORT} success done; exit 0; fi\nprintf '[CLARIFICATION_NEEDED]\\nagent_id: %s\\nreason: go on?\\n[/CLARIFICATION_NEEDED]\\n' \"$id\"\n"
    ));
    home.start_agent("scribe", "parked", "go");
    home.until_status("parked", "stopped");
    crate::support::kill(home.hub_pid());
    home.ok(&["reply", "parked", "yes"]);
    assert_eq!(home.finished("parked")["outcome"], "succeeded");
}

#[test]
fn stop_by_tool_equals_stop_by_block() {
    let home = TestHome::new();
    let stop = json!({"stop_reason": "error", "blocker_type": "error", "details": "TypeError in analysis.js:142", "completed_work": "46 files", "state": "47/120"});
    home.start("broken", &format!("progress 38 counting\ntool stop_work {stop}\nfail 0\nresume-here\ntool update_subagent_status {{\"status\": \"success\", \"summary\": \"went on\"}}"));
    let view = home.until_status("broken", "stopped");
    assert_eq!(
        (
            &view["reason"],
            &view["checkpoint"]["state_snapshot"],
            &view["checkpoint"]["made_by"]
        ),
        (&json!("error"), &json!("47/120"), &json!("run")),
        "{view}"
    );
    assert_eq!(view["checkpoint"]["working_directory"], view["cwd"]);
    let words: Vec<&str> = view["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .filter_map(|choice| choice["choice"].as_str())
        .collect();
    assert_eq!(words, ["skip", "retry", "delegate", "reduce"]);
    let shown = home.ok(&["show", "broken"]);
    assert!(shown.contains("adj resume broken --choice skip"), "{shown}");
    assert!(home.adj(&["resume", "broken", "--choice", "sing"]).code != 0);
    home.ok(&[
        "resume",
        "broken",
        "--choice",
        "skip",
        "Skip analysis.js:142",
    ]);
    assert_eq!(home.finished("broken")["outcome"], "succeeded");
    let prompt = std::fs::read_to_string(
        home.home
            .logs_dir()
            .join(format!("{}.2.prompt.md", home.run_id("broken"))),
    )
    .expect("what was sent");
    for text in [
        "## ERROR RECOVERY\n\nIssue: TypeError in analysis.js:142\nDecision: skip the failed part and continue with the rest\nResolution: Skip analysis.js:142",
        "Completed: 46 files\nState: 47/120\n",
        "## RESUME INSTRUCTIONS\n\nNext step: Skip the failed part",
    ] {
        assert!(prompt.contains(text), "{text} is missing in {prompt}");
    }
    let events = home.json(&["events", "broken"]);
    let of = |kind: &str| {
        let found = events
            .as_array()
            .expect("events")
            .iter()
            .find(|event| event["kind"] == kind)
            .cloned();
        found.unwrap_or_else(|| panic!("no {kind} in {events}"))
    };
    for (kind, signal) in [
        ("run.progress", "PROGRESS"),
        ("run.checkpoint", "STOP_WORK"),
        ("run.stopping", "STOP_WORK"),
        ("run.reported", "COMPLETION_REPORT"),
    ] {
        assert_eq!(
            (&of(kind)["signal"], &of(kind)["source"]),
            (&json!(signal), &json!("tool")),
            "{kind}"
        );
    }
    assert!(of("run.started")["signal"].is_null());
}

#[test]
fn run_stopped_by_an_error_resumes_without_a_choice() {
    let home = TestHome::new();
    home.start("broken", "tool stop_work {\"stop_reason\": \"error\", \"details\": \"npm missing\"}\nfail 0\nresume-here\nhang");
    home.until_status("broken", "stopped");
    home.ok(&["resume", "broken"]);
    let log = home.until_log("broken", "## RESUME INSTRUCTIONS");
    assert!(
        log.contains("## ERROR RECOVERY\n\nIssue: npm missing") && !log.contains("BLOCKER"),
        "{log}"
    );
    // The last stop was not caused by the error.
    home.ok(&["pause", "broken"]);
    home.until_status("broken", "stopped");
    home.ok(&["resume", "broken", "go on"]);
    let log = home.until_log("broken", "Resolution: go on");
    assert!(log.contains("## BLOCKER RESOLVED"), "{log}");
    home.ok(&["cancel", "broken"]);
}

#[test]
fn timed_out_run_gets_a_checkpoint() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "slow",
        "--timeout",
        "6s",
        "progress 40 half of src\nsay reading b.rs\nhang\n",
    ]);
    let view = home.until_status("slow", "stopped");
    let checkpoint = &view["checkpoint"];
    assert_eq!(
        (&view["reason"], &checkpoint["made_by"]),
        (&json!("resource_limit"), &json!("adjutant")),
        "{view}"
    );
    assert_eq!(
        checkpoint["completed_work"],
        "Last progress: 40 %: half of src"
    );
    assert!(
        checkpoint["state_snapshot"]
            .as_str()
            .is_some_and(|state| state.contains("reading b.rs")),
        "{checkpoint}"
    );
    assert_eq!(view["choices"].as_array().map(Vec::len), Some(4));
    home.ok(&["resume", "slow", "--choice", "reduce"]);
    let prompt = home.home.logs_dir().join(format!(
        "{}.2.prompt.md",
        view["run_id"].as_str().expect("an id")
    ));
    let prompt = home.until("the second prompt is there", || {
        std::fs::read_to_string(&prompt)
            .ok()
            .filter(|text| text.contains("RESUME"))
    });
    assert!(
        prompt.contains("## ERROR RECOVERY")
            && prompt.contains("You left no checkpoint")
            && prompt.contains("Reduce the scope"),
        "{prompt}"
    );
    home.ok(&["cancel", "slow"]);
}

#[test]
fn failure_after_a_checkpoint_can_be_resumed() {
    let home = TestHome::new();
    home.start("fails", "tool stop_work {\"stop_reason\": \"completion\", \"details\": \"about to try\"}\nfail 3\nresume-here\nsay fine");
    let view = home.until_status("fails", "stopped");
    assert_eq!(
        (&view["reason"], &view["exit_code"]),
        (&json!("error"), &json!(3)),
        "{view}"
    );
    home.ok(&["resume", "fails", "--choice", "retry"]);
    assert_eq!(home.finished("fails")["outcome"], "succeeded");
}

#[test]
fn stopped_run_fails_after_its_retention() {
    let home = TestHome::with_config("stopped_retention = \"1s\"\n");
    home.start(
        "forgotten",
        "tool stop_work {\"stop_reason\": \"blocker\", \"details\": \"no network\"}\nfail 0",
    );
    let view = home.finished("forgotten");
    assert_eq!(view["outcome"], "failed");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("stopped (blocker) and not resumed")),
        "{view}"
    );
}

#[test]
fn criteria_and_eta_are_shown() {
    let home = TestHome::new();
    let run = [
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "measured",
        "--criteria",
        "All tests pass",
        "tool update_subagent_status {\"status\": \"running\", \"percent\": 40, \"eta\": \"10 min\", \"note\": \"half\"}\nask \"go on?\"\n",
    ];
    home.ok(&run);
    let view = home.until_status("measured", "waiting_parent_reply");
    assert_eq!(
        (
            &view["percent"],
            &view["eta"],
            &view["progress"],
            &view["criteria"]
        ),
        (
            &json!(40),
            &json!("10 min"),
            &json!("half"),
            &json!("All tests pass")
        )
    );
    home.ok(&["reply", "measured", "yes"]);
    home.finished("measured");
    let prompt = std::fs::read_to_string(
        home.home
            .logs_dir()
            .join(format!("{}.prompt.md", home.run_id("measured"))),
    )
    .expect("what was sent");
    assert!(
        prompt.contains("## SUCCESS CRITERIA\n    All tests pass\n---\n"),
        "{prompt}"
    );
}

#[test]
fn partial_success_is_shown_as_such() {
    let home = TestHome::new();
    home.start("partly", "tool update_subagent_status {\"status\": \"partial_success\", \"summary\": \"half of it\"}");
    home.start(
        "not",
        "tool update_subagent_status {\"status\": \"failed\", \"summary\": \"none of it\"}",
    );
    let partly = home.finished("partly");
    assert_eq!(
        (
            &partly["status"],
            &partly["report"]["status"],
            &partly["exit_code"]
        ),
        (
            &json!("partial_success"),
            &json!("partial_success"),
            &json!(0)
        )
    );
    let not = home.finished("not");
    assert_eq!(
        (&not["status"], &not["outcome"], &not["report"]["status"]),
        (&json!("error"), &json!("failed"), &json!("failed"))
    );
}
