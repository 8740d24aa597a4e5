//! The main job: a run is dispatched, its agent asks, receives the answer, continues and finishes.

use crate::support::TestHome;
use adjutant_api::view::{AnswerOne, AnswerRequests, Dispatch, codes};
use adjutant_core::RunStateKind;
use serde_json::json;

#[test]
fn run_asks_gets_its_answer_and_finishes() {
    let home = TestHome::new();
    home.start(
        "first",
        "say hello\nask \"Which colour?\" options: red|green\nsay thanks\ndone painted",
    );

    let waited = home.adj(&["wait", "first"]);
    assert_eq!(waited.code, 3, "a question stops the wait: {waited:?}");
    let inbox = home.inbox(&[]);
    assert_eq!(inbox[0]["question"], "Which colour?", "{inbox}");
    assert_eq!(inbox[0]["options"], json!(["red", "green"]));
    let view = home.show("first");
    assert_eq!(view["status"], "waiting_parent_reply");
    assert_eq!(view["pending"][0]["message_status"], "pending_parent_reply");

    home.ok(&["reply", "first", "green"]);
    let waited = home.adj(&["wait", "--until", "all", "first"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let view = home.show("first");
    assert_eq!(
        (&view["state"], &view["outcome"], &view["exit_code"]),
        (&json!("finished"), &json!("succeeded"), &json!(0))
    );
    assert_eq!(view["summary"], "painted");
    let log = home.log("first");
    for line in ["hello", "answer: green", "thanks"] {
        assert!(log.contains(line), "{line:?} is missing in {log:?}");
    }
    let settled = home.inbox(&["--all"]);
    assert_eq!(
        (&settled[0]["status"], &settled[0]["answer"]),
        (&json!("retrieved"), &json!("green"))
    );
}

#[test]
fn concurrent_questions_are_answered_separately() {
    let home = TestHome::new();
    home.start("many", "asks 20 number");
    let inbox = home.until("twenty questions are open", || {
        let inbox = home.inbox(&[]);
        (inbox.as_array().map(Vec::len) == Some(20)).then_some(inbox)
    });
    let refused = home.adj(&["reply", "many", "which?"]);
    assert_ne!(
        refused.code, 0,
        "with several open questions, which one is meant has to be said: {refused:?}"
    );
    for request in inbox.as_array().expect("a list") {
        let number = request["number"].as_str().expect("a number");
        home.ok(&[
            "reply",
            number,
            &format!("re: {}", request["question"].as_str().expect("a text")),
        ]);
    }
    home.finished("many");
    let log = home.log("many");
    for number in 1..=20 {
        assert!(
            log.contains(&format!("answer: re: number {number}\n")),
            "{number} is missing in {log}"
        );
    }
}

#[test]
fn declared_default_answers_at_the_deadline() {
    let home = TestHome::new();
    home.start(
        "late",
        "ask \"Go on?\" default: yes expires: 1s\ndone went on",
    );
    let view = home.finished("late");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert!(home.log("late").contains("answer: yes"));
    assert_eq!(home.inbox(&["--all"])[0]["answered_by"], "default");
}

#[test]
fn expired_question_wakes_its_asker_and_takes_no_answer() {
    let home = TestHome::new();
    home.start("late", "ask \"Anyone?\" expires: 1s");
    let view = home.finished("late");
    assert_eq!(view["outcome"], "failed", "{view}");
    let request = home.inbox(&["--all"])[0].clone();
    assert_eq!(request["status"], "expired", "{request}");
    let refused = home.adj(&[
        "--json",
        "reply",
        request["number"].as_str().expect("a number"),
        "too late",
    ]);
    assert_eq!(refused.code, 7, "{refused:?}");
}

#[test]
fn first_answer_wins_and_the_other_is_refused() {
    let home = TestHome::new();
    home.start("one", "ask \"Who?\"\nsleep 60");
    home.until_status("one", "waiting_parent_reply");
    let number = home.inbox(&[])[0]["number"]
        .as_str()
        .expect("a number")
        .to_string();
    home.ok(&["reply", &number, "me"]);
    let refused = home.adj(&["--json", "reply", &number, "no, me"]);
    assert_eq!(refused.code, 7, "{refused:?}");
    assert!(refused.err.contains(codes::ALREADY_ANSWERED), "{refused:?}");
}

#[test]
fn repeated_answer_with_its_key_gets_the_same_reply() {
    let home = TestHome::new();
    home.start("again", "ask \"Which?\"\ndone");
    home.until_status("again", "waiting_parent_reply");
    let one = AnswerOne {
        run: Some("again".to_string()),
        answer: "this".to_string(),
        ..AnswerOne::default()
    };
    let call = AnswerRequests { answers: vec![one] };
    let first = home.call(&call, "the-key").expect("answered");
    assert_eq!(
        (
            first.requests[0].status.as_str(),
            first.runs[0].condition.state.as_str()
        ),
        ("answered", "running")
    );
    home.finished("again");
    let again = home.call(&call, "the-key").expect("the same reply");
    assert_eq!(
        again.requests, first.requests,
        "although the run has read it since"
    );
    assert_eq!(
        again.runs[0].condition.state,
        RunStateKind::Finished,
        "runs are shown as they are"
    );
    let other = AnswerRequests {
        answers: vec![AnswerOne {
            answer: "that".to_string(),
            ..call.answers[0].clone()
        }],
    };
    assert_eq!(
        home.call(&other, "the-key").expect_err("another body").code,
        codes::KEY_REUSED
    );
}

#[test]
fn exit_status_crash_and_claimed_failure_fail() {
    let home = TestHome::new();
    home.start("three", "fail 3");
    home.start("crash", "crash");
    home.start("claim", "report error it did not work");
    let view = home.finished("three");
    assert_eq!(
        (&view["outcome"], &view["exit_code"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(home.finished("crash")["outcome"], "failed");
    let claimed = home.finished("claim");
    assert_ne!(claimed["outcome"], "succeeded", "{claimed}");
    assert_eq!(claimed["summary"], "it did not work");
    assert_eq!(home.adj(&["wait", "--until", "all", "three"]).code, 1);
}

#[test]
fn exit_with_an_open_question_is_not_success() {
    let home = TestHome::new();
    home.start("gone", "asks 1 nowait\nsay leaving");
    // `nowait` makes the question non-blocking.
    assert_eq!(home.finished("gone")["outcome"], "succeeded");
    home.start(
        "blocked",
        "tool ask_parent {\"question\":\"And?\",\"wait_s\":0}\nsay leaving",
    );
    let view = home.until_status("blocked", "stopped");
    assert_eq!(
        (&view["state"], &view["reason"]),
        (&json!("stopped"), &json!("parked")),
        "{view}"
    );
    home.ok(&["cancel", "blocked"]);
    assert!(
        home.inbox(&[]).as_array().is_some_and(Vec::is_empty),
        "nobody is left to read an answer"
    );
}

#[test]
fn cancelled_run_leaves_no_process_behind() {
    let home = TestHome::with_config("[agents.stubborn]\nharness = \"echo\"\ngrace = \"500ms\"\n");
    let kinds = ["group", "setsid", "doublefork", "closedfds", "keep-stdout"];
    let spawns: String = kinds
        .iter()
        .map(|kind| format!("spawn {kind} ignore-term\n"))
        .collect();
    home.start_agent(
        "stubborn",
        "stubborn",
        &format!("ignore-term\n{spawns}say ready\nhang"),
    );
    home.until_log("stubborn", "ready");
    let id = home.run_id("stubborn");
    assert!(
        home.processes_of(&id).len() >= kinds.len(),
        "{:?}",
        home.processes()
    );
    home.ok(&["cancel", "stubborn"]);
    let view = home.finished("stubborn");
    assert_eq!(
        (&view["outcome"], &view["status"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    home.until("nothing of it is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn processes_left_by_an_agent_are_swept() {
    let home = TestHome::new();
    home.start("messy", "spawn setsid ignore-term\nspawn doublefork\nspawn closedfds ignore-term\nspawn keep-stdout ignore-term\ndone");
    let view = home.finished("messy");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let id = home.run_id("messy");
    home.until("nothing of it is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn messages_reach_a_process_with_input() {
    let home = TestHome::with_config("[agents.talker]\nharness = \"echo\"\nprompt = \"stream\"\n");
    home.start_agent(
        "talker",
        "talker",
        "say ready\nexpect-message\nexpect-message\ndone",
    );
    home.until_log("talker", "ready");
    home.ok(&["send", "talker", "one\ntwo"]);
    home.ok(&["send", "talker", "three"]);
    home.finished("talker");
    let log = home.log("talker");
    assert!(
        log.contains("message: one\ntwo") && log.contains("message: three"),
        "{log}"
    );
}

#[test]
fn progress_and_reports_are_shown() {
    let home = TestHome::new();
    home.start("busy", "progress 40 reading\nsay told\nsleep 60");
    home.until_log("busy", "told");
    let view = home.show("busy");
    assert_eq!(
        (&view["percent"], &view["progress"]),
        (&json!(40), &json!("reading")),
        "{view}"
    );
}

#[test]
fn runs_beyond_the_slots_are_queued_in_order() {
    let home = TestHome::with_config("live_runs_max = 1\n");
    home.start("a", "ask \"go?\"");
    home.start("b", "say b");
    home.start("c", "say c");
    assert_eq!(home.show("b")["status"], "queued");
    assert_eq!(home.show("c")["queue_place"], 2);
    home.until_status("a", "waiting_parent_reply");
    home.ok(&["reply", "a", "go"]);
    let (b, c) = (home.finished("b"), home.finished("c"));
    assert!(
        b["started_at"].as_str() <= c["started_at"].as_str(),
        "{b} {c}"
    );
}

#[test]
fn same_key_starts_one_run_and_refuses_another_body() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let cwd = home.work().display().to_string();
    let order = Dispatch {
        agent: "echo".into(),
        prompt: "say once\n".into(),
        cwd,
        ..Dispatch::default()
    };
    let first = home.call(&order, "key-1").expect("dispatched");
    let again = home.call(&order, "key-1").expect("the same again");
    assert_eq!(first.identity.run_id, again.identity.run_id);
    let other = Dispatch {
        prompt: "say twice\n".into(),
        ..order.clone()
    };
    assert_eq!(
        home.call(&other, "key-1").expect_err("another body").code,
        codes::KEY_REUSED
    );
    assert_ne!(
        home.call(&order, "key-2")
            .expect("another key")
            .identity
            .run_id,
        first.identity.run_id
    );
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn retry_makes_a_new_run() {
    let home = TestHome::new();
    home.start("one", "fail 1");
    home.finished("one");
    let made = home.json(&["retry", "one"]);
    assert_eq!(made["retry_of"], home.run_id("one"), "{made}");
    let again = home.finished(made["run_id"].as_str().expect("an id"));
    assert_eq!(
        (&again["outcome"], &again["attempt"]),
        (&json!("failed"), &json!(1))
    );
}

#[test]
fn run_files_are_private_and_carry_the_documented_names() {
    use std::os::unix::fs::PermissionsExt;
    let home = TestHome::new();
    home.start("files", "say hello\nask \"Which?\"\ndone fine");
    home.until_status("files", "waiting_parent_reply");
    home.ok(&["reply", "files", "this"]);
    home.finished("files");
    let id = home.run_id("files");
    let file = |kind: &str| home.home.logs_dir().join(format!("{id}.{kind}"));
    let meta = home.until("the last state is written", || {
        let meta: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file("meta.json")).ok()?)
                .expect("complete whenever it is read");
        (meta["status"] == "success" || meta["status"] == "completed").then_some(meta)
    });
    for field in [
        "runId",
        "agentName",
        "command",
        "startTime",
        "status",
        "exitCode",
        "endTime",
        "summary",
        "lastUpdated",
        "messages",
    ] {
        assert!(meta.get(field).is_some(), "{field} is missing in {meta}");
    }
    assert_eq!(
        (
            &meta["runId"],
            &meta["agentName"],
            &meta["exitCode"],
            &meta["summary"]
        ),
        (&json!(id), &json!("echo"), &json!(0), &json!("fine"))
    );
    let message = &meta["messages"][0];
    assert_eq!(
        (
            &message["questionContent"],
            &message["answerContent"],
            &message["messageStatus"]
        ),
        (
            &json!("Which?"),
            &json!("this"),
            &json!("acknowledged_by_subagent")
        )
    );
    for kind in ["messageId", "questionTimestamp", "answerTimestamp"] {
        assert!(message[kind].is_string(), "{kind} is missing in {message}");
    }
    assert!(
        std::fs::read_to_string(file("prompt.md"))
            .expect("the prompt")
            .contains("say hello")
    );
    assert!(
        std::fs::read_to_string(file("log"))
            .expect("the log")
            .contains("answer: this")
    );
    for kind in ["meta.json", "prompt.md", "log"] {
        let mode = std::fs::metadata(file(kind))
            .expect("is there")
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o600, "{kind}");
    }
}

#[test]
fn damaged_meta_file_has_no_effect() {
    let home = TestHome::new();
    home.start("meta", "say hello\nask \"Which?\"");
    home.until_status("meta", "waiting_parent_reply");
    let path = home
        .home
        .logs_dir()
        .join(format!("{}.meta.json", home.run_id("meta")));
    home.until("the file is there", || path.exists().then_some(()));
    std::fs::write(&path, "{ not JSON").expect("it can be damaged");
    assert_eq!(home.show("meta")["status"], "waiting_parent_reply");
    home.ok(&["reply", "meta", "this"]);
    home.finished("meta");
    home.until("it is whole again", || {
        serde_json::from_str::<serde_json::Value>(&std::fs::read_to_string(&path).ok()?).ok()
    });
}

#[test]
fn output_of_any_bytes_is_kept_readable() {
    let home = TestHome::new();
    home.start("bytes", "binary\nline 3000000\nsay end");
    let view = home.finished("bytes");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let shown = home.ok(&["logs", "-n", "1", "bytes"]);
    assert!(shown.contains("end"), "{shown:?}");
    let all = home.log("bytes");
    assert!(
        !all.contains('\u{1b}') && !all.contains('\0'),
        "nothing that steers a terminal is shown"
    );
    let pages = home.ok(&["--json", "logs", "bytes"]);
    assert!(
        pages
            .lines()
            .all(|page| serde_json::from_str::<serde_json::Value>(page).is_ok()),
        "{pages:.300}"
    );
    assert!(pages.contains("not text"), "{pages:.300}");
}

#[test]
fn bad_input_changes_nothing_and_has_a_hint() {
    let home = TestHome::new();
    let long = "x".repeat(4096);
    for id in ["../../etc/passwd", "nobody", long.as_str(), "a\u{1b}[31m"] {
        let refused = home.adj(&["show", id]);
        assert_eq!(refused.code, 5, "{id:?}: {refused:?}");
        assert!(!refused.err.contains('\u{1b}'), "{refused:?}");
    }
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "-d", "-a", "nobody", "task"], 127, "nobody"),
        (
            &["run", "-d", "-a", "echo", "-C", "/nonexistent", "task"],
            2,
            "/nonexistent",
        ),
        (
            &["run", "-d", "-a", "echo", "-C", "/etc/passwd", "task"],
            2,
            "/etc/passwd",
        ),
        (&["run", "-d", "-a", "echo", ""], 2, "prompt"),
        (&["reply", "Q99", "x"], 5, "Q99"),
        (&["cancel", "nobody"], 5, "nobody"),
    ];
    for (args, code, word) in cases {
        let refused = home.adj(args);
        assert!(
            refused.code == *code || (*code == 2 && refused.code == 1),
            "adj {args:?}: {refused:?}"
        );
        assert!(refused.err.contains(word), "adj {args:?}: {refused:?}");
    }
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
    home.start("over", "say done");
    home.finished("over");
    let refused = home.adj(&["cancel", "over"]);
    assert_eq!(refused.code, 7, "{refused:?}");
}

#[test]
fn unstartable_agent_differs_from_a_failed_one() {
    let home = TestHome::with_config(
        "[agents.missing]\nharness = \"plain\"\ncommand = [\"no-such-program\"]\n[agents.data]\nharness = \"plain\"\ncommand = [\"/etc/passwd\"]\n\
         [agents.cat]\nharness = \"plain\"\ncommand = [\"cat\"]\n",
    );
    assert_eq!(home.adj(&["run", "-d", "-a", "missing", "task"]).code, 127);
    assert_eq!(home.adj(&["run", "-d", "-a", "data", "task"]).code, 126);
    home.start_agent("cat", "cat", "just a text");
    assert_eq!(home.finished("cat")["outcome"], "succeeded");
    assert!(home.log("cat").contains("just a text"));
}
