//! What a new hub says and decides about runs that went on without a hub.

use crate::support::{TestHome, kill, lock_pid};
use adjutant_core::Time;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::{Duration, Instant};

const SH: &str = "[agents.sh]\nharness = \"plain\"\nidentity = \"none\"\ncommand = [\"/bin/sh\"]\n";

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), signal)
        .expect("it is signalled");
}

fn kinds(home: &TestHome, run: &str) -> Vec<String> {
    home.json(&["events", run])
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|event| event["kind"].as_str().map(ToOwned::to_owned))
        .collect()
}

fn time(view: &Value, field: &str) -> Time {
    adjutant_os::clock::parse_rfc3339(
        view[field]
            .as_str()
            .unwrap_or_else(|| panic!("{field}: {view}")),
    )
    .expect("a time")
}

/// Starts a run of two seconds, kills the hub once it works, and waits until its budget of four
/// seconds is long over.
fn work_without_a_hub(home: &TestHome, more: &[&str]) {
    let begun = Instant::now();
    let task = "touch begun; sleep 1; date +%s%3N > ended";
    home.ok(&[
        &[
            "run", "--detach", "--agent", "sh", "--name", "a", "--budget", "time=4s",
        ],
        more,
        &[task],
    ]
    .concat());
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    kill(home.hub_pid());
    home.until("it has ended long ago", || {
        (home.work().join("ended").exists() && begun.elapsed() > Duration::from_secs(7))
            .then_some(())
    });
}

/// Checks the first reply of a new hub. `latest`: how long after its last command the run may have
/// ended.
fn assert_done_in_time(home: &TestHome, latest: i64) {
    let first = home.ok(&["ps", "--all"]);
    assert!(
        first.contains("done") && !first.contains("budget"),
        "{first}"
    );
    let view = home.show("a");
    assert_eq!(
        (&view["outcome"], &view["attempt"], &view["reason"]),
        (&"succeeded".into(), &1.into(), &Value::Null),
        "{view}"
    );
    assert!(
        view["active_ms"]
            .as_i64()
            .is_some_and(|ms| (900..4_000).contains(&ms)),
        "what its supervisor measured: {view}"
    );
    assert!(
        view["budgets"][0]["used"]
            .as_i64()
            .is_some_and(|ms| ms < 4_000),
        "{view}"
    );
    let ended = std::fs::read_to_string(home.work().join("ended"))
        .expect("it has written it")
        .trim()
        .parse()
        .expect("milliseconds");
    let late = time(&view, "ended_at").ms_since(Time(ended));
    assert!(
        (-1_000..latest).contains(&late),
        "dated by its exit: {late} ms after it: {view}"
    );
    let kinds = kinds(home, "a");
    assert!(
        !kinds
            .iter()
            .any(|kind| kind == "budget.warned" || kind == "run.stopping"),
        "{kinds:?}"
    );
    assert_eq!(
        home.adj(&["budget", "a", "--add", "time=60s"]).code,
        7,
        "it has finished"
    );
    assert_eq!(home.show("a")["attempt"], 1);
}

#[test]
fn work_that_ended_without_a_hub_counts_as_its_supervisor_measured_it() {
    let home = TestHome::with_config(SH);
    work_without_a_hub(&home, &[]);
    assert_done_in_time(&home, 1_000);
}

#[test]
fn work_that_is_checked_without_a_hub_is_not_done_again() {
    let home = TestHome::with_config(SH);
    work_without_a_hub(&home, &["--accept", "true"]);
    assert_done_in_time(&home, 15_000);
    let view = home.show("a");
    assert!(view["acceptance"]["passed"] == true, "{view}");
}

#[test]
fn budget_of_a_run_without_a_report_is_not_judged() {
    let home = TestHome::with_config(SH);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--name",
        "a",
        "--budget",
        "time=3s",
        "touch begun; sleep 1; touch ended",
    ]);
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    let supervisor = lock_pid(&home.attempt_dir("a").supervisor_lock());
    kill(home.hub_pid());
    send(supervisor, Signal::STOP);
    let stopped = Instant::now();
    home.until("its budget would be used up", || {
        (stopped.elapsed() > Duration::from_secs(4)).then_some(())
    });
    let (asked, first) = (Instant::now(), home.adj(&["ps"]));
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "the wait for it is bounded: {first:?}"
    );
    assert!(
        first.err.contains("has no report yet of a"),
        "it names the run: {first:?}"
    );
    let view = home.show("a");
    assert!(
        view["state"] == "running"
            && !kinds(&home, "a")
                .iter()
                .any(|kind| kind == "budget.warned" || kind == "run.stopping"),
        "{view}"
    );
    send(supervisor, Signal::CONT);
    let view = home.finished("a");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&"succeeded".into(), &1.into()),
        "it has ended by itself: {view}"
    );
    let after = home.adj(&["ps", "--all"]);
    assert!(
        after.err.is_empty() && after.out.contains("done"),
        "{after:?}"
    );
}

#[test]
fn supervisor_that_is_lost_before_its_report_is_settled() {
    let home = TestHome::with_config(SH);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--name",
        "a",
        "--budget",
        "time=1h",
        "touch begun; sleep 600",
    ]);
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    let dir = home.attempt_dir("a");
    let supervisor = lock_pid(&dir.supervisor_lock());
    kill(home.hub_pid());
    send(supervisor, Signal::STOP);
    assert!(home.adj(&["ps"]).err.contains("has no report yet of a"));
    kill(supervisor);
    let view = home.until("it is settled", || {
        Some(home.show("a")).filter(|view| view["state"] == "stopped")
    });
    assert_eq!(view["attention"]["why"], "supervisor_lost", "{view}");
    home.until("nothing more is expected of it", || {
        (!home.adj(&["ps"]).err.contains("has no report yet")).then_some(())
    });
    home.ok(&["cancel", "a"]);
}

#[test]
fn run_that_ended_before_a_pause_reached_it_is_finished() {
    let home = TestHome::with_config(SH);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--name",
        "a",
        "touch begun; sleep 1; echo once >> ended",
    ]);
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    let supervisor = lock_pid(&home.attempt_dir("a").supervisor_lock());
    send(supervisor, Signal::STOP);
    home.until("it has ended", || {
        home.work().join("ended").exists().then_some(())
    });
    let agent_is_gone = Instant::now();
    home.until("its process has exited", || {
        (agent_is_gone.elapsed() > Duration::from_millis(300)).then_some(())
    });
    home.ok(&["pause", "a"]);
    send(supervisor, Signal::CONT);
    let view = home.finished("a");
    assert_eq!(
        (&view["outcome"], &view["reason"]),
        (&"succeeded".into(), &Value::Null),
        "{view}"
    );
    assert_eq!(
        std::fs::read_to_string(home.work().join("ended")).expect("written"),
        "once\n"
    );
}

#[test]
fn question_that_waits_for_a_hub_is_in_its_first_inbox() {
    let home = TestHome::new();
    home.start(
        "a",
        "write begun x\nsleep 1\nwrite asking x\nask \"go on?\"",
    );
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    kill(home.hub_pid());
    home.until("it asks", || {
        home.work().join("asking").exists().then_some(())
    });
    let asking = Instant::now();
    home.until("its call has reached its supervisor", || {
        (asking.elapsed() > Duration::from_secs(1)).then_some(())
    });
    let inbox = home.inbox(&[]);
    assert_eq!(inbox.as_array().map(Vec::len), Some(1), "{inbox}");
    assert!(
        home.ok(&["ps"]).contains("1 question")
            || home.show("a")["status"] == "waiting_parent_reply"
    );
    home.ok(&["reply", "a", "yes"]);
    home.finished("a");
}
