//! Runs that report their result while their process lives on.

use crate::chats::home_with;
use crate::mcp::{Session, text};
use crate::processes::kill;
use crate::support::TestHome;
use adjutant_api::view::{
    ConfirmNotified, NotifiedRun, ReadEvents, Wait, WaitOutcome, WaitUntil, Waited,
};
use adjutant_core::EventKind;
use serde_json::{Value, json};

/// A block by which a script reports its result.
const REPORT: &str = "printf '[COMPLETION_REPORT]\\nagent_id: %s\\nstatus: success\\nsummary: it builds\\n[/COMPLETION_REPORT]\\n' \"${ADJ_RUN%%/*}\"";

fn attention(home: &TestHome, after: Option<i64>, wait_ms: u64) -> Waited {
    home.call(
        &Wait {
            runs: vec!["job".to_owned()],
            until: WaitUntil::Attention,
            after,
            new_reports: true,
            wait_ms,
        },
        "",
    )
    .expect("it waits")
}

fn confirm(home: &TestHome, waited: &Waited) {
    home.call(
        &waited.confirmation(true),
        &format!("confirm-{}", waited.cursor),
    )
    .expect("it is confirmed");
}

/// Returns the runs in the inbox.
fn needy(home: &TestHome) -> Vec<Value> {
    let ran = home.adj(&["--json", "inbox"]);
    let list: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    list["runs"].as_array().cloned().unwrap_or_default()
}

fn kinds(home: &TestHome) -> Vec<EventKind> {
    let all = home
        .call(
            &ReadEvents {
                run: Some("job".to_owned()),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("it reads")
        .events;
    all.iter().filter_map(|event| event.kind.known()).collect()
}

fn reported(home: &TestHome) -> Value {
    home.until("it has reported", || {
        home.show("job").get("reported").cloned()
    })
}

#[test]
fn report_ends_a_wait_for_attention_once_while_the_process_lives() {
    let home = TestHome::with_config("[agents.a]\nharness = \"echo\"\nprompt = \"stream\"\n");
    home.start_agent(
        "a",
        "job",
        "expect-message\nreport success it builds\nexpect-message\nsay end",
    );
    home.until_status("job", "running");
    let woken = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| attention(&home, Some(0), 20_000));
        home.ok(&["send", "job", "go on"]);
        waiter.join().expect("it waits")
    });
    assert_eq!(
        (&woken.outcome, woken.ended.len()),
        (&WaitOutcome::Event.into(), 0),
        "{woken:?}"
    );
    let of = woken.working[0]
        .condition
        .reported
        .clone()
        .expect("its report");
    assert_eq!((of.line().as_str(), of.is_new), ("reports success", true));
    assert!(
        home.ok(&["ps"]).contains("reports success"),
        "{}",
        home.ok(&["ps"])
    );

    // An owner who was not notified gets it without a cursor too; after that, nobody is woken
    // again.
    assert_eq!(attention(&home, None, 0).outcome, WaitOutcome::Event);
    confirm(&home, &woken);
    for after in [None, Some(woken.cursor)] {
        assert_eq!(
            attention(&home, after, 0).outcome,
            WaitOutcome::Timeout,
            "{after:?}"
        );
    }
    assert!(
        !home.show("job")["reported"]["is_new"]
            .as_bool()
            .unwrap_or(true)
    );
    // A wait for ends is no wait for reports.
    let any = Wait {
        runs: vec!["job".to_owned()],
        until: WaitUntil::Any,
        after: Some(0),
        new_reports: true,
        wait_ms: 0,
    };
    assert_eq!(
        home.call(&any, "").expect("it waits").outcome,
        WaitOutcome::Timeout
    );

    home.ok(&["send", "job", "end"]);
    let ended = attention(&home, Some(woken.cursor), 20_000);
    assert_eq!(
        (
            ended.ended.len(),
            ended.ended[0].condition.reported.is_none()
        ),
        (1, true),
        "{ended:?}"
    );
    assert_eq!(home.finished("job")["outcome"], "succeeded");
}

#[test]
fn parent_agent_is_woken_by_a_report_and_by_the_end() {
    let home = home_with(
        &[(
            "script",
            &format!("cat > /dev/null\n{REPORT}\nwhile [ ! -e go ]; do sleep 0.05; done"),
        )],
        "",
    );
    let mut parent = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    parent.done(
        "run_subagent",
        json!({"agent": "script", "name": "job", "prompt": "build", "cwd": home.work()}),
    );
    let woken = parent.tool("wait_for_subagents", json!({"wait_s": 20}));
    assert!(
        text(&woken).contains("reports success (not ended yet)")
            && text(&woken).contains("to wait for its end"),
        "{}",
        text(&woken)
    );
    let cursor = woken["structuredContent"]["cursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let again = parent.tool("wait_for_subagents", json!({"wait_s": 0, "cursor": cursor}));
    assert!(
        text(&again).contains("nothing to report yet"),
        "{}",
        text(&again)
    );
    let unnamed = parent.tool("wait_for_subagents", json!({"wait_s": 0}));
    assert!(
        text(&unnamed).contains("nothing to report yet"),
        "once, also without a cursor: {}",
        text(&unnamed)
    );
    std::fs::write(home.work().join("go"), "").expect("a file");
    let ended = parent.tool(
        "wait_for_subagents",
        json!({"wait_s": 20, "cursor": cursor}),
    );
    assert!(
        text(&ended).contains("nothing is left to wait for"),
        "{}",
        text(&ended)
    );
}

#[test]
fn silent_process_is_listed_after_its_report_and_never_ended_by_itself() {
    let home = TestHome::with_config(
        "[agents.a]\nharness = \"echo\"\nprompt = \"stream\"\nreport_grace = \"300ms\"\n",
    );
    home.start_agent(
        "a",
        "job",
        "report error it does not build\nexpect-message\nsay end",
    );
    let alive = home.until("it is listed", || needy(&home).first().cloned());
    let attention_view = &alive["attention"];
    assert_eq!(
        (&attention_view["kind"], &attention_view["why"]),
        (&json!("alive"), &json!("still_alive")),
        "{alive}"
    );
    assert!(
        attention_view["details"]
            .as_str()
            .is_some_and(|details| details.contains("reports failed")),
        "{alive}"
    );
    let shown = home.ok(&["ps"]);
    assert!(shown.contains("reports failed, still"), "{shown}");
    assert!(
        home.ok(&["inbox"])
            .contains("it reports failed, and its process"),
        "{}",
        home.ok(&["inbox"])
    );
    // The command waits for the end, and does not wait for what stays silent.
    let ended = home.adj(&["wait", "job", "--timeout", "20s"]);
    assert!(ended.code == 124 || ended.code == 3, "{ended:?}");
    let woken = attention(&home, None, 20_000);
    confirm(&home, &woken);
    let events = kinds(&home);
    assert_eq!(
        events
            .iter()
            .filter(|kind| **kind == EventKind::RunStalled)
            .count(),
        1,
        "{events:?}"
    );
    // What it does next takes it from the list.
    home.ok(&["send", "job", "go on"]);
    let end = home.finished("job");
    assert_eq!(
        (&end["outcome"], &end["status"]),
        (&json!("failed"), &json!("error")),
        "what it reported counts: {end}"
    );
}

#[test]
fn next_statement_supersedes_a_report() {
    let config = "[agents.a]\nharness = \"echo\"\nprompt = \"stream\"\nreport_grace = \"300ms\"\nend_after_report = true\n";
    for statement in ["progress 50 more to do", "ask \"Which?\"", "check_status"] {
        let home = TestHome::with_config(config);
        let is_statement = statement != "check_status";
        let command = if is_statement { statement } else { "status" };
        home.start_agent(
            "a",
            "job",
            &format!("report success done\n{command}\nexpect-message\nsay end"),
        );
        if statement.starts_with("ask") {
            home.until_status("job", "waiting_parent_reply");
            home.ok(&["reply", "job", "this"]);
        }
        if is_statement {
            home.until("the report no longer stands", || {
                (kinds(&home).contains(&EventKind::RunReported)
                    && home.show("job").get("reported").is_none())
                .then_some(())
            });
            // Longer than the grace.
            let quiet = ReadEvents {
                run: Some("job".to_owned()),
                after: home.show("job")["cursor"].as_i64().expect("a cursor"),
                wait_ms: 1_000,
                ..ReadEvents::default()
            };
            let events = home.call(&quiet, "").expect("it reads").events;
            assert!(
                events
                    .iter()
                    .all(|event| event.kind != EventKind::RunStalled
                        && event.kind != EventKind::RunFinished),
                "{statement}: {events:?}"
            );
            home.ok(&["send", "job", "end"]);
        }
        assert_eq!(home.finished("job")["outcome"], "succeeded", "{statement}");
        assert_eq!(
            home.log("job").contains("ended after its report"),
            !is_statement,
            "{statement}: {}",
            home.log("job")
        );
    }
}

#[test]
fn configured_agent_is_ended_after_its_report_with_the_reported_outcome() {
    for (status, outcome) in [
        ("success", "succeeded"),
        ("partial_success", "succeeded"),
        ("failed", "failed"),
    ] {
        let script = format!(
            "cat > /dev/null\n{}\nsleep 600",
            REPORT.replace("success", status)
        );
        let home = home_with(&[("script", &script)], "");
        let path = home.home.dir.join("config.toml");
        let config = std::fs::read_to_string(&path).expect("a file")
            + "report_grace = \"300ms\"\nend_after_report = true\n";
        std::fs::write(&path, config).expect("a file");
        home.start_agent("script", "job", "build");
        let end = home.finished("job");
        assert_eq!(end["outcome"], outcome, "{status}: {end}");
        assert!(
            home.log("job").contains("ended after its report"),
            "{}",
            home.log("job")
        );
        assert!(needy(&home).is_empty() || outcome == "failed");
    }
}

#[test]
fn report_stands_after_a_hub_restart() {
    let home = TestHome::with_config(
        "[agents.a]\nharness = \"echo\"\nprompt = \"stream\"\nreport_grace = \"1s\"\n",
    );
    home.start_agent(
        "a",
        "job",
        "report success it builds\nexpect-message\nsay end",
    );
    reported(&home);
    kill(home.hub_pid());
    assert!(reported(&home)["is_new"].as_bool().unwrap_or_default());
    assert_eq!(attention(&home, None, 20_000).outcome, WaitOutcome::Event);
    home.until("the next hub lists it", || {
        (needy(&home).len() == 1).then_some(())
    });
    // A confirmation of another run's position, or of an earlier one, confirms nothing.
    let early = ConfirmNotified {
        runs: vec![NotifiedRun {
            run_id: home.run_id("job"),
            cursor: 1,
        }],
        until: None,
    };
    assert_eq!(home.call(&early, "early").expect("it answers").runs, 0);
    home.ok(&["send", "job", "end"]);
    assert_eq!(home.finished("job")["outcome"], "succeeded");
}

#[test]
fn completed_work_that_stops_is_a_report_too() {
    let stop = "printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: completion\\ndetails: all done\\n[/STOP_WORK]\\n' \"${ADJ_RUN%%/*}\"";
    let home = home_with(
        &[(
            "script",
            &format!("cat > /dev/null\n{stop}\nwhile [ ! -e go ]; do sleep 0.05; done"),
        )],
        "",
    );
    home.start_agent("script", "job", "build");
    assert_eq!(
        attention(&home, Some(0), 20_000).outcome,
        WaitOutcome::Event
    );
    assert_eq!(reported(&home)["status"], "success");
    std::fs::write(home.work().join("go"), "").expect("a file");
    assert_eq!(home.finished("job")["outcome"], "succeeded");
}
