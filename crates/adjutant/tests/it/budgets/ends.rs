//! How runs end under a budget.

use super::start;
use crate::support::{TestHome, kill, lock_pid};

/// An agent that uses up its budget, and completes its work when it is asked to stop.
const LAST: &str = r#"
[presets.last]
title = "Last"
driver = "jsonl"
command = ["/bin/sh", "-c", '''
cat > /dev/null
trap 'printf "{\"type\":\"done\",\"text\":\"all of it\"}\n"; exit 0' TERM
printf '{"type":"usage","in":5000,"out":5}\n'
while :; do sleep 0.1; done
''']
can = { usage = true }
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.last.stream]
rules = [
  { when = { type = "usage" }, usage = { input = "in", output = "out" } },
  { when = { type = "done" }, result = "text", end = "success" },
]
[agents.last]
harness = "last"
permissions = "full"
"#;

#[test]
fn run_that_completes_while_its_budget_stops_it_is_accepted() {
    let home = TestHome::with_config(LAST);
    start(
        &home,
        "a",
        &[
            "--agent",
            "last",
            "--budget",
            "tokens=2k",
            "--accept",
            "touch accepted",
            "x",
        ],
    );
    let view = home.finished("a");
    assert_eq!(
        (&view["outcome"], &view["result"]),
        (&"succeeded".into(), &"all of it".into()),
        "{view}"
    );
    assert!(
        view["reason"].is_null() && view["checkpoint"].is_null() && view["attention"].is_null(),
        "{view}"
    );
    assert!(
        view["acceptance"]["passed"] == true && home.work().join("accepted").exists(),
        "{view}"
    );
    assert!(home.ok(&["ps", "--all"]).contains("done"));
}

#[test]
fn active_time_of_a_lost_attempt_is_charged() {
    let home = TestHome::new();
    start(
        &home,
        "a",
        &["--agent", "echo", "--budget", "time=1h", "hang"],
    );
    let seen = home.until("it has worked a while", || {
        home.show("a")["active_ms"].as_u64().filter(|ms| *ms >= 300)
    });
    kill(lock_pid(&home.attempt_dir("a").supervisor_lock()));
    let view = home.until("it is lost", || {
        Some(home.show("a")).filter(|view| view["state"] == "stopped")
    });
    assert!(
        view["active_ms"].as_u64() >= Some(seen)
            && view["budgets"][0]["used"].as_u64() >= Some(seen),
        "{seen}: {view}"
    );
    home.ok(&["cancel", "a"]);
    let view = home.finished("a");
    assert!(
        view["budgets"][0]["used"].as_u64() >= Some(seen),
        "{seen}: {view}"
    );
}

#[test]
fn active_time_of_an_attempt_that_is_lost_without_a_hub_is_charged() {
    let home = TestHome::new();
    start(
        &home,
        "a",
        &[
            "--agent",
            "echo",
            "--budget",
            "time=1h",
            "say one\nsleep 1\nsay two\nhang",
        ],
    );
    home.until_log("a", "two");
    let dir = home.attempt_dir("a");
    kill(home.hub_pid());
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = home.until("it is lost", || {
        Some(home.show("a")).filter(|view| view["state"] == "stopped")
    });
    assert!(
        view["budgets"][0]["used"].as_u64() >= Some(900),
        "until its last output: {view}"
    );
    home.ok(&["cancel", "a"]);
}

/// A time budget is shared by a tree, so only a hub enforces it. A run's own time limit needs none.
#[test]
fn next_hub_stops_a_run_that_has_used_up_its_time_meanwhile() {
    let home = TestHome::new();
    let script = |name: &str| format!("write {name}.begun x\nsleep 4\nwrite {name}.late x\nhang");
    start(
        &home,
        "budget",
        &["--agent", "echo", "--budget", "time=3s", &script("budget")],
    );
    start(
        &home,
        "limit",
        &["--agent", "echo", "--timeout", "3s", &script("limit")],
    );
    let is_there = |name: &str| home.work().join(name).exists().then_some(());
    for name in ["budget.begun", "limit.begun"] {
        home.until(name, || is_there(name));
    }
    kill(home.hub_pid());
    home.until("it works beyond its budget", || is_there("budget.late"));
    let view = home.until("it is stopped", || {
        Some(home.show("budget")).filter(|view| view["state"] == "stopped")
    });
    assert!(
        view["attention"]["why"] == "budget" && view["budgets"][0]["used"].as_u64() >= Some(4_000),
        "{view}"
    );
    let view = home.until("it is stopped", || {
        Some(home.show("limit")).filter(|view| view["state"] == "stopped")
    });
    assert!(
        is_there("limit.late").is_none() && view["attention"]["why"] == "resource_limit",
        "its supervisor stopped it: {view}"
    );
}
