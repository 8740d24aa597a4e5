//! Denied writes of a fenced run: events, and notifications of the parent.

use super::{SHELL, start};
use crate::mcp::{Session, text};
use crate::support::TestHome;
use adjutant_api::view::{ReadEvents, Wait, WaitUntil};
use adjutant_core::EventKind;
use serde_json::json;
use std::path::PathBuf;

/// Waits until the test writes to a pipe.
const WAITS_AND_WRITES: &str = "mkfifo gate; read x < gate; touch /usr/new; sleep 600";

fn gate(home: &TestHome) -> PathBuf {
    let gate = home.work().join("gate");
    home.until("it waits", || gate.exists().then_some(gate.clone()))
}

fn denied_events(home: &TestHome) -> usize {
    let events = home
        .call(
            &ReadEvents {
                limit: Some(5_000),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("events")
        .events;
    events
        .iter()
        .filter(|event| event.kind == EventKind::RunWriteDenied)
        .count()
}

#[test]
fn many_denied_writes_are_one_event_a_minute() {
    let home = TestHome::with_config(SHELL);
    let script = "do for n in $(seq 100); do touch /usr/new$n; done; echo all; sleep 600";
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "floods",
        "--fence",
        "workspace",
        script,
    ]);
    home.until_log("floods", "\nall");
    home.until("the event", || (denied_events(&home) > 0).then_some(()));
    assert_eq!(denied_events(&home), 1);
    home.ok(&["cancel", "floods"]);
    home.finished("floods");
    assert_eq!(denied_events(&home), 2, "the rest together, at the end");
    assert_eq!(home.show("floods")["fence"]["denied_writes"], 100);
}

#[test]
fn denied_write_wakes_the_parent() {
    let home = TestHome::with_config(SHELL);
    let mut parent = Session::open(&home.home.dir, &home.work(), &[], true);
    let script = format!("do {WAITS_AND_WRITES}");
    parent.done(
        "run_subagent",
        json!({"agent": "sh", "name": "kept", "prompt": script, "fence": "workspace"}),
    );
    let gate = gate(&home);
    let cursor = parent.done(
        "wait_for_subagents",
        json!({"run_ids": ["kept"], "wait_s": 1}),
    )["cursor"]
        .clone();
    std::fs::write(&gate, "go\n").expect("it reads");
    let waited = parent.tool(
        "wait_for_subagents",
        json!({"run_ids": ["kept"], "cursor": cursor, "wait_s": 60}),
    );
    let told = text(&waited);
    assert!(
        told.contains("DENIED: its output reports 1 write that the fence denied")
            && told.contains("/usr/new")
            && told.contains("steer_subagent"),
        "{told}"
    );
    // The next wait is not woken by the same write.
    let cursor = waited["structuredContent"]["cursor"].clone();
    let again = parent.tool(
        "wait_for_subagents",
        json!({"run_ids": ["kept"], "cursor": cursor, "wait_s": 1}),
    );
    assert!(
        text(&again).contains("nothing to report yet"),
        "{}",
        text(&again)
    );
    let listed = home.adj(&["ps"]);
    assert!(
        listed
            .err
            .contains("! kept: its output reports 1 write that the fence denied"),
        "{listed:?}"
    );
    assert!(
        home.ok(&["show", "kept"])
            .contains("denied       its output reports 1 write that the fence denied"),
        "{}",
        home.ok(&["show", "kept"])
    );
}

#[test]
fn denied_write_ends_the_wait_of_a_person() {
    let home = TestHome::with_config(SHELL);
    start(&home, "kept", WAITS_AND_WRITES, "workspace");
    let gate = gate(&home);
    std::fs::write(&gate, "go\n").expect("it reads");
    // From the beginning, since the write may be denied before the wait begins.
    let wait = Wait {
        runs: vec!["kept".to_owned()],
        until: WaitUntil::Attention,
        after: Some(0),
        new_reports: false,
        wait_ms: 60_000,
    };
    let woken = home.call(&wait, "").expect("it wakes");
    assert_eq!(
        (woken.outcome.as_str(), woken.ended.len(), woken.needs.len()),
        ("event", 0, 0),
        "{woken:?}"
    );
    assert_eq!(
        woken.working[0]
            .processes
            .fence
            .as_ref()
            .and_then(|fence| fence.denied_writes),
        Some(1),
        "{woken:?}"
    );
    home.ok(&["cancel", "kept"]);
}

#[test]
fn client_can_request_but_not_remove_a_fence() {
    let home = TestHome::with_config(&format!(
        "{SHELL}fence = \"workspace\"\n[agents.free]\nharness = \"echo\"\n"
    ));
    let mut parent = Session::open(&home.home.dir, &home.work(), &[], true);
    for fence in ["best-effort", "none"] {
        let refused = parent.tool(
            "run_subagent",
            json!({"agent": "sh", "prompt": "do true", "fence": fence}),
        );
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text(&refused).contains("fence"), "{}", text(&refused));
    }
    let run = parent.done(
        "run_subagent",
        json!({"agent": "free", "name": "asked", "prompt": "done ok", "fence": "workspace"}),
    );
    assert_eq!(run["name"], "asked", "{run}");
    assert_eq!(
        home.finished("asked")["fence"]["enforced"],
        "mount_namespace"
    );
    // The person can.
    home.ok(&[
        "run", "-d", "-a", "sh", "-n", "open", "--fence", "none", "do true",
    ]);
    assert_eq!(home.finished("open")["fence"], json!(null));
    let listed = parent.request("tools/list", json!({}));
    assert!(
        !listed.to_string().contains("\"fence\""),
        "it costs the parent no tokens"
    );
}
