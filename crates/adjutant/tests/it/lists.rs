//! What the lists of runs contain, and what their columns say.

use crate::support::TestHome;
use serde_json::Value;

const SH: &str = "[agents.sh]\nharness = \"plain\"\nidentity = \"none\"\ncommand = [\"/bin/sh\"]\n";

fn names(runs: &Value) -> Vec<&str> {
    runs.as_array()
        .into_iter()
        .flatten()
        .filter_map(|run| run["name"].as_str())
        .collect()
}

#[test]
fn unfinished_run_is_listed_whatever_the_size_of_the_page() {
    let home = TestHome::new();
    home.start("old", "hang");
    home.until_status("old", "running");
    home.start("asks", "ask \"Which?\"");
    home.until_status("asks", "waiting_parent_reply");
    for name in ["a", "b", "c", "d"] {
        home.ok(&["run", "--wait", "--agent", "echo", "--name", name, "say x"]);
    }
    assert_eq!(
        names(&home.json(&["ps", "--all", "--limit", "3"])),
        ["asks", "old", "d"],
        "those that need the person first"
    );
    let shown = home.adj(&["ps", "--all", "--limit", "2"]);
    assert!(
        shown.out.contains("old") && shown.out.contains("asks") && shown.err.contains("4 more"),
        "{shown:?}"
    );
    home.ok(&["cancel", "old", "asks"]);
}

#[test]
fn run_that_needs_the_person_is_a_row() {
    let home = TestHome::with_config(SH);
    home.ok(&[
        "run", "--detach", "--agent", "sh", "--name", "bad", "exit 3",
    ]);
    home.finished("bad");
    let shown = home.adj(&["ps"]);
    assert!(
        shown.out.contains("bad")
            && shown.out.contains("failed: exit 3")
            && shown.err.contains("Needs you: 1 run → adj show bad"),
        "{shown:?}"
    );
    assert_eq!(names(&home.json(&["ps"])), ["bad"]);
    assert_eq!(names(&home.json(&["ps", "--all"])), ["bad"], "once");
    assert_eq!(home.adj(&["wait"]).code, 1);
    let shown = home.adj(&["ps"]);
    assert!(
        shown.out.is_empty() && shown.err.contains("no live runs"),
        "its owner was notified: {shown:?}"
    );
}

#[test]
fn task_column_is_the_task_of_a_failed_run() {
    let home = TestHome::with_config(SH);
    let task = "echo building; echo first >&2; echo 'error: linker failed' >&2; exit 3";
    home.ok(&["run", "--detach", "--agent", "sh", "--name", "bad", task]);
    let view = home.finished("bad");
    assert_eq!(
        view["reason"], "exit 3: stderr: error: linker failed",
        "{view}"
    );
    let shown = home.adj(&["ps"]);
    assert!(
        shown.out.contains("echo building; echo first"),
        "the task: {shown:?}"
    );
    assert!(
        shown.err.contains("! bad: stderr: error: linker failed"),
        "the reason apart: {shown:?}"
    );
    let inbox = home.ok(&["inbox"]);
    assert!(
        inbox.contains("failed: exit 3") && inbox.contains("stderr: error: linker failed"),
        "{inbox}"
    );
    let show = home.ok(&["show", "bad"]);
    assert!(
        show.contains("error: linker failed")
            && show.contains("final output (stdout)")
            && show.contains("building"),
        "{show}"
    );
    let waited = home.adj(&["wait", "bad"]);
    assert!(
        waited.code == 1
            && waited
                .out
                .contains("✗ failed: exit 3 – stderr: error: linker failed"),
        "{waited:?}"
    );
}

#[test]
fn failure_without_standard_error_shows_the_final_output() {
    let home = TestHome::with_config(SH);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--name",
        "quiet",
        "echo almost; exit 4",
    ]);
    let view = home.finished("quiet");
    assert_eq!(view["reason"], "exit 4", "{view}");
    assert!(
        home.adj(&["wait", "quiet"])
            .out
            .contains("✗ failed: exit 4 – almost")
    );
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "sh",
        "--name",
        "fine",
        "echo warning >&2; echo done",
    ]);
    let view = home.finished("fine");
    assert!(
        view["outcome"] == "succeeded" && view["reason"].is_null(),
        "a warning is no reason: {view}"
    );
}

#[test]
fn cancelled_run_does_not_fail_the_next_wait() {
    let home = TestHome::new();
    home.start("k", "hang");
    home.until_status("k", "running");
    home.ok(&["cancel", "k"]);
    home.finished("k");
    home.start("fine", "say x");
    home.finished("fine");
    let waited = home.adj(&["wait", "--until", "all"]);
    assert!(
        waited.code == 0 && waited.out.contains("k  × cancelled") && waited.out.contains("fine"),
        "{waited:?}"
    );
    assert_eq!(
        home.adj(&["wait", "k"]).code,
        1,
        "a wait for it by name says that it did not succeed"
    );
    home.start("bad", "fail 3");
    home.finished("bad");
    assert_eq!(
        home.adj(&["wait", "--until", "all"]).code,
        1,
        "a failure does"
    );
}
