//! Attention: all lists and waits use the same rule, and every notification arrives.

use crate::mcp::{Session, text};
use crate::support::TestHome;
use adjutant_api::view::{
    AttentionList, ConfirmNotified, GetRun, ListAttention, NotifiedRun, Wait, Waited, codes,
};
use serde_json::{Value, json};

/// A run that states what it needs before it stops. The last line of its output says nothing.
const BLOCKED: &str = "say working on it\ntool stop_work {\"stop_reason\":\"blocker\",\"blocker_type\":\"external_dependency\",\
    \"details\":\"node_modules is missing\",\"resume_requirements\":\"npm install\"}\nsay [/STOP_WORK]";

fn blocked(home: &TestHome, name: &str) {
    home.start(name, BLOCKED);
    home.until_status(name, "stopped");
}

fn parent(home: &TestHome) -> Session {
    Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true)
}

/// Starts a run of a client and waits until it has this status, as the person sees it.
fn client_run(home: &TestHome, session: &mut Session, name: &str, script: &str, status: &str) {
    session.done(
        "run_subagent",
        json!({"agent": "echo", "name": name, "prompt": format!("---\n{script}")}),
    );
    home.until_status(name, status);
}

fn names(runs: &Value) -> Vec<&str> {
    runs.as_array()
        .into_iter()
        .flatten()
        .filter_map(|run| run["name"].as_str())
        .collect()
}

#[test]
fn wait_until_all_reports_an_earlier_failure_once() {
    let home = TestHome::new();
    home.start("bad", "fail 3");
    home.start("good", "say fine");
    home.finished("bad");
    home.finished("good");
    let waited = home.adj(&["wait", "--until", "all"]);
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(
        waited.out.contains("bad") && waited.out.contains("good"),
        "{waited:?}"
    );
    let again = home.adj(&["wait", "--until", "all"]);
    assert!(
        again.code == 0 && again.err.contains("nothing to wait for"),
        "{again:?}"
    );
    assert_eq!(
        home.adj(&["wait", "--until", "all", "bad"]).code,
        1,
        "by name it is reported as often as it is asked for"
    );
}

#[test]
fn earlier_failure_counts_with_a_later_success() {
    let home = TestHome::new();
    home.start("bad", "fail 3");
    home.finished("bad");
    home.start("good", "ask \"Go on?\"\ndone");
    home.until_status("good", "waiting_parent_reply");
    home.ok(&["reply", "good", "yes"]);
    let waited = home.adj(&["wait", "--until", "all"]);
    assert_eq!(waited.code, 1, "{waited:?}");
}

#[test]
fn wait_after_a_success_returns_it_with_0() {
    let home = TestHome::new();
    home.start("good", "say fine");
    home.finished("good");
    assert!(
        home.adj(&["inbox"]).err.contains("nothing needs you"),
        "a success needs nobody"
    );
    let waited = home.adj(&["wait", "--until", "all"]);
    assert!(
        waited.code == 0 && waited.out.contains("good"),
        "{waited:?}"
    );
    assert!(home.adj(&["wait"]).err.contains("nothing to wait for"));
}

#[test]
fn failed_end_is_in_the_inbox_until_the_owner_is_notified() {
    let home = TestHome::new();
    home.start("bad", "fail 3");
    home.finished("bad");
    let value: Value = serde_json::from_str(&home.ok(&["--json", "inbox"])).expect("JSON");
    assert_eq!(
        (
            &value["runs"][0]["name"],
            &value["runs"][0]["attention"]["why"]
        ),
        (&json!("bad"), &json!("failed")),
        "{value}"
    );
    let ps = home.adj(&["ps"]);
    assert!(ps.err.contains("Needs you: 1 run → adj show bad"), "{ps:?}");
    // Showing a run does not count as a notification: a script that waits later is still notified.
    home.show("bad");
    assert!(home.ok(&["inbox"]).contains("bad"));
    assert_eq!(home.adj(&["wait"]).code, 1);
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
    assert!(!home.adj(&["ps"]).err.contains("Needs you"));
}

#[test]
fn retry_counts_as_notification_of_the_end() {
    let home = TestHome::new();
    home.start("bad", "fail 3");
    home.finished("bad");
    let again = home.ok(&["retry", "bad"]);
    home.finished(again.trim());
    let value: Value = serde_json::from_str(&home.ok(&["--json", "inbox"])).expect("JSON");
    assert_eq!(names(&value["runs"]), [again.trim()], "{value}");
}

#[test]
fn unaccepted_success_needs_its_owner() {
    let home = TestHome::new();
    home.ok(&[
        "run", "-d", "-a", "echo", "-n", "refused", "--accept", "false", "say z\n",
    ]);
    home.finished("refused");
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.contains("refused") && inbox.contains("its acceptance command failed"),
        "{inbox}"
    );
    assert_eq!(home.adj(&["wait", "--until", "all"]).code, 1);
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
}

#[test]
fn contradicted_report_needs_its_owner_and_is_no_failure() {
    let home = TestHome::new();
    home.start(
        "boasts",
        "tool update_subagent_status {\"status\":\"completed\",\"summary\":\"wrote it\",\"deliverables\":[\"not/there.txt\"]}\nsay done",
    );
    assert_eq!(home.finished("boasts")["report"]["verdict"], "contradicted");
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.contains("boasts") && inbox.contains("contradicts"),
        "{inbox}"
    );
    assert_eq!(home.adj(&["wait", "--until", "all"]).code, 0);
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
}

#[test]
fn stopped_run_is_in_every_list_with_its_reason_and_need() {
    let home = TestHome::new();
    blocked(&home, "stuck");
    for told in [false, true] {
        let inbox = home.adj(&["inbox"]);
        for words in [
            "stuck",
            "stopped: blocker",
            "node_modules is missing",
            "needs: npm install",
        ] {
            assert!(
                inbox.out.contains(words),
                "{words:?}, told {told}: {inbox:?}"
            );
        }
        assert!(inbox.err.contains("next: adj resume stuck"), "{inbox:?}");
        let ps = home.adj(&["ps"]);
        assert!(
            ps.err
                .contains("! stuck: node_modules is missing; needs: npm install")
                && ps.err.contains("Needs you: 1 run → adj resume stuck"),
            "{ps:?}"
        );
        for args in [
            vec!["wait"],
            vec!["wait", "--until", "all"],
            vec!["wait", "--until", "any", "stuck"],
            vec!["wait", "stuck"],
        ] {
            let waited = home.adj(&args);
            assert_eq!(waited.code, 3, "{args:?}, told {told}: {waited:?}");
            assert!(
                waited.out.contains("node_modules is missing")
                    && waited.out.contains("needs: npm install"),
                "{args:?}: {waited:?}"
            );
            assert!(
                !waited.out.contains("STOP_WORK") && waited.err.contains("adj resume stuck"),
                "{args:?}: {waited:?}"
            );
        }
    }
    let refused = home.adj(&["--json", "wait", "stuck"]);
    assert!(
        refused.code == 3
            && refused.err.contains("needs_input")
            && refused.err.contains("npm install"),
        "{refused:?}"
    );
    home.ok(&["cancel", "stuck"]);
    assert!(
        home.adj(&["inbox"]).err.contains("nothing needs you"),
        "it was ended on purpose"
    );
    let waited = home.adj(&["wait"]);
    assert!(
        waited.code == 0 && waited.out.contains("stuck  × cancelled"),
        "a wait reports it, and nothing has failed: {waited:?}"
    );
}

#[test]
fn run_with_wait_ends_with_3_and_the_stops_details() {
    let home = TestHome::new();
    let ran = home.adj(&[
        "run",
        "-w",
        "-a",
        "echo",
        "-n",
        "stuck",
        &format!("{BLOCKED}\n"),
    ]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.contains("node_modules is missing")
            && ran.err.contains("npm install")
            && !ran.err.contains("STOP_WORK"),
        "{ran:?}"
    );
    assert_eq!(ran.out, "", "a stop has no result");
}

#[test]
fn used_up_time_needs_attention_and_offers_the_choices() {
    let home = TestHome::new();
    home.ok(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "slow",
        "--timeout",
        "1s",
        "say first\nhang\n",
    ]);
    home.until_status("slow", "stopped");
    let waited = home.adj(&["wait"]);
    assert!(
        waited.code == 3 && waited.out.contains("slow  ■ stopped: time limit"),
        "{waited:?}"
    );
    assert!(
        waited
            .err
            .contains("adj resume slow --choice skip|retry|delegate|reduce"),
        "{waited:?}"
    );
}

#[test]
fn paused_run_needs_no_attention_and_its_wait_ends_with_3() {
    let home = TestHome::new();
    home.start("pausing", "say first\nhang");
    home.until_log("pausing", "first");
    home.ok(&["pause", "pausing"]);
    home.until_status("pausing", "stopped");
    assert!(home.adj(&["inbox"]).err.contains("nothing needs you"));
    let waited = home.adj(&["wait", "pausing"]);
    assert!(
        waited.code == 3 && waited.err.contains("adj resume pausing"),
        "{waited:?}"
    );
}

#[test]
fn notified_stop_does_not_end_waits_for_others() {
    let home = TestHome::new();
    blocked(&home, "stuck");
    assert_eq!(home.adj(&["wait"]).code, 3);
    home.start("works", "hang");
    home.until_status("works", "running");
    let waited = home.adj(&["wait", "--timeout", "1s"]);
    assert_eq!(waited.code, 124, "{waited:?}");
    assert!(
        waited
            .err
            .contains("timed out: 1 working, 1 waiting for you"),
        "{waited:?}"
    );
}

#[test]
fn timed_out_wait_counts_waiting_runs_separately() {
    let home = TestHome::new();
    home.start("works", "hang");
    home.start("asks", "ask \"Which?\"");
    home.until_status("asks", "waiting_parent_reply");
    home.until_status("works", "running");
    let waited = home.adj(&["wait", "--until", "all", "--timeout", "1s"]);
    assert!(
        waited.code == 124
            && waited
                .err
                .contains("timed out: 1 working, 1 waiting for you"),
        "{waited:?}"
    );
    let ps = home.adj(&["ps"]);
    assert!(
        ps.err.contains("Needs you: 1 request → adj reply Q1"),
        "{ps:?}"
    );
}

#[test]
fn approvals_and_delegations_are_named_and_the_oldest_hinted() {
    let home = TestHome::new();
    home.start("first", "approve \"rm -rf target/\"");
    home.until_status("first", "waiting_parent_reply");
    home.start("second", "ask \"Which?\"");
    home.until_status("second", "waiting_parent_reply");
    let ps = home.adj(&["ps"]);
    assert!(
        ps.out.contains("? approve Q1") && ps.out.contains("? asks Q2"),
        "{ps:?}"
    );
    assert!(
        ps.err.contains("Needs you: 2 requests → adj approve Q1"),
        "{ps:?}"
    );
}

#[test]
fn wait_first_reports_earlier_stops_and_failures() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "stuck", BLOCKED, "stopped");
    client_run(&home, &mut alice, "bad", "fail 3", "error");
    let first = alice.tool("wait_for_subagents", json!({}));
    let data = &first["structuredContent"];
    assert_eq!(
        (names(&data["stopped"]), names(&data["ended"])),
        (vec!["stuck"], vec!["bad"]),
        "{first}"
    );
    assert!(
        text(&first).contains("node_modules is missing") && text(&first).contains("npm install"),
        "{}",
        text(&first)
    );
    assert!(
        text(&first).contains("next: steer_subagent action=resume run_id=stuck"),
        "{}",
        text(&first)
    );
    let second = alice.tool("wait_for_subagents", json!({"cursor": data["cursor"]}));
    let data = &second["structuredContent"];
    assert_eq!(
        (names(&data["stopped"]), names(&data["ended"])),
        (vec!["stuck"], vec![]),
        "an end is reported once: {second}"
    );
    assert!(!text(&second).contains("no live run"), "{}", text(&second));
}

#[test]
fn client_that_dies_with_the_reply_is_notified_again() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "bad", "fail 3", "error");
    assert_eq!(
        names(&alice.done("wait_for_subagents", json!({}))["ended"]),
        ["bad"]
    );
    drop(alice);
    let mut alice = parent(&home);
    assert_eq!(
        names(&alice.done("wait_for_subagents", json!({}))["ended"]),
        ["bad"],
        "nothing showed that it had the reply"
    );
    alice.done("list_coding_agents", json!({}));
    drop(alice);
    let mut alice = parent(&home);
    assert!(
        names(&alice.done("wait_for_subagents", json!({}))["ended"]).is_empty(),
        "its next call did"
    );
}

#[test]
fn wait_for_one_run_notifies_of_no_other() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "bad", "fail 3", "error");
    client_run(&home, &mut alice, "good", "say fine", "success");
    let named = alice.done("wait_for_subagents", json!({"run_ids": ["good"]}));
    assert_eq!(names(&named["ended"]), ["good"]);
    let all = alice.done("wait_for_subagents", json!({"cursor": named["cursor"]}));
    assert_eq!(names(&all["ended"]), ["bad"], "{all}");
}

#[test]
fn lists_of_a_client_show_how_to_resume_stopped_runs() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "stuck", BLOCKED, "stopped");
    for (tool, arguments) in [
        ("get_pending_questions", json!({})),
        ("get_pending_questions", json!({"run_id": "stuck"})),
        ("check_subagent_status", json!({})),
        ("check_subagent_status", json!({"run_id": "stuck"})),
    ] {
        let shown = alice.tool(tool, arguments);
        assert!(
            text(&shown).contains("next: steer_subagent action=resume run_id=stuck"),
            "{tool}: {}",
            text(&shown)
        );
    }
    let questions = alice.tool("get_pending_questions", json!({}));
    assert!(
        text(&questions).contains("node_modules is missing")
            && text(&questions).contains("npm install"),
        "{}",
        text(&questions)
    );
    assert_eq!(
        questions["structuredContent"]["runs"][0]["attention"]["why"], "blocker",
        "{questions}"
    );
    let mut bob = Session::open(&home.home.dir, &home.work(), &["--client", "bob"], true);
    assert_eq!(
        bob.done("get_pending_questions", json!({}))["runs"],
        Value::Null,
        "it is hers"
    );
}

#[test]
fn pending_questions_beyond_the_first_page_are_readable() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "many", "prompt": "---\nasks 25 nowait why\nhang"}),
    );
    home.until("25 questions are open", || {
        (home.show("many")["pending_total"] == 25).then_some(())
    });
    for arguments in [json!({}), json!({"run_id": "many"})] {
        let first = alice.tool("get_pending_questions", arguments.clone());
        let data = &first["structuredContent"];
        assert_eq!(
            (data["questions"].as_array().map(Vec::len), &data["more"]),
            (Some(20), &json!(5)),
            "{first}"
        );
        assert!(
            text(&first).contains("5 more questions: get_pending_questions after=Q20"),
            "{}",
            text(&first)
        );
        let mut rest = arguments;
        rest["after"] = json!("Q20");
        let rest = alice.done("get_pending_questions", rest);
        assert_eq!(
            (
                rest["questions"].as_array().map(Vec::len),
                &rest["questions"][0]["message_id"],
                &rest["more"]
            ),
            (Some(5), &json!("Q21"), &Value::Null)
        );
    }
    let list = home.ok(&["--json", "inbox"]);
    assert!(list.contains("\"number\":\"Q25\""), "{list}");
}

#[test]
fn person_sees_needs_of_clients_without_consuming_them() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "stuck", BLOCKED, "stopped");
    client_run(&home, &mut alice, "bad", "fail 3", "error");
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.contains("stuck") && !inbox.contains("bad"),
        "a client's end is reported to the client: {inbox}"
    );
    assert_eq!(home.adj(&["wait"]).code, 3);
    let told = alice.done("wait_for_subagents", json!({}));
    assert_eq!(
        (names(&told["stopped"]), names(&told["ended"])),
        (vec!["stuck"], vec!["bad"]),
        "{told}"
    );
}

#[test]
fn only_the_owner_confirms_only_past_ends() {
    let home = TestHome::new();
    home.start("bad", "ask \"Go on?\"\nfail 3");
    home.until_status("bad", "waiting_parent_reply");
    let early = ConfirmNotified {
        until: Some(i64::MAX),
        ..ConfirmNotified::default()
    };
    assert_eq!(home.call(&early, "k1").expect("taken").runs, 0);
    home.ok(&["reply", "bad", "yes"]);
    home.finished("bad");
    let wait_now = || home.call(&Wait::default(), "").expect("a result");
    let (one, two): (Waited, Waited) = (wait_now(), wait_now());
    assert_eq!(
        (one.ended.len(), two.ended.len()),
        (1, 1),
        "a wait_now tells nobody, and a repeated call gets the same"
    );
    assert_eq!(
        home.call(
            &ConfirmNotified {
                until: Some(one.cursor),
                ..ConfirmNotified::default()
            },
            "k2"
        )
        .expect("taken")
        .runs,
        1
    );
    let left: AttentionList = home.call(&ListAttention::default(), "").expect("a list");
    assert_eq!((left.total(), wait_now().outcome.as_str()), (0, "idle"));
}

#[test]
fn confirming_what_is_known_commits_nothing() {
    let home = TestHome::new();
    home.start("done", "say hi");
    home.finished("done");
    let run = home
        .call(
            &GetRun {
                run: "done".to_owned(),
                ..GetRun::default()
            },
            "get",
        )
        .expect("the run");
    let confirm = ConfirmNotified {
        runs: vec![NotifiedRun::from(&run)],
        until: None,
    };
    assert_eq!(home.call(&confirm, "first").expect("taken").runs, 1);
    assert_eq!(home.call(&confirm, "second").expect("taken").runs, 0);
    assert_eq!(
        home.call(&confirm, "first").expect("the stored reply").runs,
        1
    );
    let other = ConfirmNotified {
        until: Some(0),
        ..ConfirmNotified::default()
    };
    assert_eq!(
        home.call(&other, "first")
            .expect_err("another call under the same key")
            .code,
        codes::KEY_REUSED
    );

    // What an agent is shown again and again is confirmed once. The stored replies are counted in
    // the file.
    if !home.home.database().exists() {
        return;
    }
    let mut alice = parent(&home);
    client_run(&home, &mut alice, "shown", "say hi", "success");
    let kept = || {
        let store = rusqlite::Connection::open(home.home.database()).expect("the store");
        store
            .query_row("SELECT max(no) FROM keys", [], |row| row.get::<_, i64>(0))
            .expect("the number of stored replies")
    };
    let mut check = || alice.done("check_subagent_status", json!({"run_id": "shown"}));
    // The second result confirms the first.
    check();
    check();
    let before = kept();
    check();
    check();
    assert_eq!(kept(), before);
}

#[test]
fn unread_message_needs_the_person() {
    let home = TestHome::new();
    let mut alice = parent(&home);
    alice.done(
        "send_message",
        json!({"to": "person", "message": "Redis or not?"}),
    );
    let ps = home.adj(&["ps"]);
    assert!(
        ps.err
            .contains("Needs you: 1 chat with a message → adj chat show 1"),
        "{ps:?}"
    );
    home.ok(&["chat", "show", "1"]);
    assert!(!home.adj(&["ps"]).err.contains("Needs you"));
}

#[test]
fn wait_ends_if_a_run_waits_for_a_stopped_child() {
    let home = TestHome::new();
    let stop = BLOCKED.replace('"', "\\\"").replace('\n', "\\n");
    let script = format!("delegate \"---\\n{stop}\" [blocks]\nsay after");
    home.start("above", &script);
    home.until_status("above", "waiting_parent_reply");
    home.ok(&["approve", "above"]);
    let child = home.until("the child has stopped", || {
        let inbox: Value = serde_json::from_str(&home.ok(&["--json", "inbox"])).expect("JSON");
        inbox["runs"][0]["name"].as_str().map(str::to_owned)
    });
    for args in [
        vec!["wait", "above"],
        vec!["wait", "above"],
        vec!["wait", "--until", "all", "above"],
        vec!["wait", "--until", "all"],
    ] {
        let waited = home.adj(&args);
        assert!(
            waited.code == 3 && waited.out.contains(&child) && waited.out.contains("npm install"),
            "{args:?}: {waited:?}"
        );
    }
}
