//! A run's time while it is active, and what is shown when it exceeds its estimate.

use crate::mcp::Session;
use crate::support::TestHome;
use serde_json::{Value, json};

fn active_ms(home: &TestHome, run: &str) -> u64 {
    home.show(run)["active_ms"].as_u64().expect("a number")
}

fn overdue_events(home: &TestHome, run: &str) -> usize {
    home.json(&["events", run])
        .as_array()
        .into_iter()
        .flatten()
        .filter(|event| event["kind"] == "run.overdue")
        .count()
}

#[test]
fn active_time_counts_only_while_working() {
    let home = TestHome::new();
    home.start("works", "sleep 0.4\nask \"go on?\"\nhang\n");
    home.until_status("works", "waiting_parent_reply");
    let asked = active_ms(&home, "works");
    assert!((300..10_000).contains(&asked), "{asked}");
    home.ok(&["inbox"]);
    assert_eq!(active_ms(&home, "works"), asked, "it waits");
    home.ok(&["reply", "works", "yes"]);
    home.until("it counts on", || {
        (active_ms(&home, "works") > asked + 200).then_some(())
    });
    home.ok(&["pause", "works"]);
    home.until_status("works", "stopped");
    let stopped = active_ms(&home, "works");
    assert!(stopped > asked, "{stopped}");
    assert_eq!(active_ms(&home, "works"), stopped);
}

#[test]
fn parent_is_notified_once_of_an_overdue_child() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let task = json!({"new_task_description": "---\nsay working\nhang", "estimated_duration": "about 1 second", "wait_s": 0});
    let run = session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": format!("---\ntool delegate_work {task}\nhang")}),
    );
    let run = run["run_id"].as_str().expect("an id").to_owned();
    home.until("it delegates", || {
        (home.inbox(&[])[0]["kind"] == "delegation").then_some(())
    });
    let answered = session.done(
        "reply_subagent",
        json!({"message_id": "Q1", "decision": "approve"}),
    );
    let child = answered["requests"][0]["child_name"]
        .as_str()
        .expect("a child")
        .to_owned();
    let cursor = home.show(&run)["cursor"].clone();
    let waited = session.tool(
        "wait_for_subagents",
        json!({"run_ids": [child], "cursor": cursor, "wait_s": 20}),
    );
    let text = waited["content"][0]["text"].as_str().expect("a text");
    assert!(
        text.contains("overdue") && text.contains("next: check the progress of the overdue run"),
        "{text}"
    );
    assert_eq!(waited["structuredContent"]["outcome"], "event");
    let again = session.done(
        "wait_for_subagents",
        json!({"run_ids": [child], "cursor": waited["structuredContent"]["cursor"], "wait_s": 1}),
    );
    assert_eq!(again["outcome"], "timeout", "it is reported once: {again}");
    assert_eq!(overdue_events(&home, &child), 1);
    let view = home.show(&child);
    assert!(
        view["overdue_since"].is_string()
            && view["estimate_ms"] == 1_000
            && view["state"] == "running",
        "it goes on: {view}"
    );
    assert!(
        home.ok(&["ps"]).contains("overdue")
            && home.ok(&["show", &child]).contains("longer than estimated")
    );
    home.ok(&["cancel", &run]);
    assert!(home.finished(&child)["overdue_since"].is_null());
}

#[test]
fn eta_is_an_estimate_and_a_newer_one_replaces_it() {
    let home = TestHome::new();
    let eta = |eta: &str| {
        format!(
            "tool update_subagent_status {}\n",
            json!({"status": "running", "eta": eta, "percent": 10})
        )
    };
    home.start("late", &format!("{}hang\n", eta("1 s")));
    let overdue = home.until("it is overdue", || {
        Some(home.show("late")).filter(|view| view["overdue_since"].is_string())
    });
    assert_eq!(
        (&overdue["eta"], overdue_events(&home, "late")),
        (&json!("1 s"), 1)
    );
    home.ok(&["cancel", "late"]);

    home.start("early", &format!("{}{}hang\n", eta("1 s"), eta("2 hours")));
    let view = home.until("it has said so", || {
        Some(home.show("early")).filter(|view| view["eta"] == "2 hours")
    });
    assert!(
        view["estimate_ms"]
            .as_u64()
            .is_some_and(|ms| ms >= 7_200_000),
        "{view}"
    );
    home.until("its first estimate is over", || {
        (active_ms(&home, "early") > 1_500).then_some(())
    });
    assert_eq!(
        (
            overdue_events(&home, "early"),
            &home.show("early")["overdue_since"]
        ),
        (0, &Value::Null)
    );
    home.ok(&["cancel", "early"]);
}
