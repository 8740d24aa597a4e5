//! Budgets of runs, with scripted agents.

mod clients;
mod ends;
mod hard;
mod trees;

use crate::support::TestHome;
use serde_json::Value;

/// An agent that states its usage as JSON lines, then works until it is stopped.
const SPENDER: &str = r#"
[presets.spender]
title = "Spender"
driver = "jsonl"
command = ["/bin/sh", "-c", '''
cat > /dev/null
printf '{"type":"usage","in":-5,"out":-7,"usd":-1}\n{"type":"usage","in":1000,"out":500}\n{"type":"usage","in":1000,"out":500}\n'
exec sleep 600
''']
can = { usage = true }
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.spender.stream]
rules = [{ when = { type = "usage" }, usage = { input = "in", output = "out", cost_usd = "usd", add = true } }]
[agents.spender]
harness = "spender"
permissions = "full"
priced_as = "m"
[prices]
date = "2026-11-23"
[prices.models.m]
input = 1000
output = 1000
"#;

fn start(home: &TestHome, name: &str, more: &[&str]) {
    home.ok(&[&["run", "--detach", "--name", name][..], more].concat());
}

fn stopped(home: &TestHome, run: &str) -> Value {
    home.until("it is stopped", || {
        Some(home.show(run)).filter(|view| view["state"] == "stopped")
    })
}

#[test]
fn raised_time_budget_resumes_the_run() {
    let home = TestHome::new();
    start(
        &home,
        "a",
        &["--agent", "echo", "--budget", "time=1500ms", "sleep 600"],
    );
    let view = stopped(&home, "a");
    assert_eq!(
        (
            &view["end_reason"],
            &view["attention"]["why"],
            &view["budgets"][0]["kind"]
        ),
        (&"limit".into(), &"budget".into(), &"time".into())
    );
    assert!(
        view["checkpoint"].is_object() && view["budgets"][0]["left"] == 0,
        "{view}"
    );
    let kinds: Vec<Value> = home
        .json(&["events", "a"])
        .as_array()
        .into_iter()
        .flatten()
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| **kind == "budget.warned")
            .count(),
        1,
        "{kinds:?}"
    );
    let refused = home.adj(&["resume", "a"]);
    assert!(
        refused.code == 8 && refused.err.contains("adj budget a --add time=30m"),
        "{refused:?}"
    );
    assert_eq!(
        view["checkpoint"]["resume_requirements"],
        "Raise the budget (adj budget a --add), which resumes it, or cancel it",
        "{view}"
    );
    let other = home.adj(&["budget", "a", "--add", "tokens=1"]);
    assert!(
        other
            .err
            .contains("the budget of time is still used up: adj budget a --add time=30m"),
        "{other:?}"
    );
    assert!(home.ok(&["ps"]).contains("over budget") && home.ok(&["budget", "a"]).contains("time"));
    home.ok(&["budget", "a", "--add", "time=1h"]);
    home.until("it works again", || {
        Some(home.show("a")).filter(|view| view["state"] == "running" && view["attempt"] == 2)
    });
    home.ok(&["cancel", "a"]);
}

#[test]
fn stated_usage_is_charged_and_stops_the_run() {
    let home = TestHome::with_config(SPENDER);
    start(
        &home,
        "a",
        &["--agent", "spender", "--budget", "tokens=2k,cost=9", "x"],
    );
    let view = stopped(&home, "a");
    let of = |kind: &str| {
        view["budgets"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|budget| budget["kind"] == kind)
            .cloned()
            .expect("a budget")
    };
    assert_eq!(
        (&of("tokens")["used"], &of("tokens")["left"]),
        (&3_000.into(), &0.into()),
        "what was negative has no effect: {view}"
    );
    assert_eq!(of("cost")["used"], 3_000_000, "by the configured price");
    assert!(
        view["usage"]["cost_by_prices"] == true
            && view["reason"]
                .as_str()
                .is_some_and(|text| text.contains("3k of 2k")),
        "{view}"
    );
}

#[test]
fn unusable_budgets_change_nothing() {
    let home = TestHome::new();
    for wrong in [
        "cost=-1",
        "cost=NaN",
        "tokens=1e99",
        "time=0s",
        "5",
        "cost=1,cost=2",
        "",
    ] {
        let refused = home.adj(&[
            "run", "--detach", "--agent", "echo", "--budget", wrong, "say x",
        ]);
        assert_eq!(refused.code, 2, "{wrong}: {refused:?}");
    }
    let refused = home.adj(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--budget",
        "cost=5,hard",
        "say x",
    ]);
    assert!(
        refused.code == 2 && refused.err.contains("cannot be measured"),
        "{refused:?}"
    );
    assert_eq!(home.ok(&["ps", "--all", "--quiet"]), "");
    start(
        &home,
        "a",
        &["--agent", "echo", "--budget", "cost=5", "say x"],
    );
    let view = home.finished("a");
    assert!(
        view["budgets"][0]["unknown"]
            .as_str()
            .is_some_and(|why| why.contains("no usage")),
        "unknown is not 0: {view}"
    );
    assert!(
        view["budgets"][0]["used"].is_null()
            && home.ok(&["show", "a"]).contains("cost unknown of $5.00"),
        "{view}"
    );
    assert_eq!(
        home.adj(&["budget", "a", "--add", "cost=1"]).code,
        7,
        "it has finished"
    );
}

#[test]
fn usage_of_a_working_run_is_unknown_until_it_is_stated() {
    let home = TestHome::new();
    start(
        &home,
        "a",
        &[
            "--agent",
            "echo",
            "--budget",
            "tokens=5k,cost=1",
            "say ready\nhang",
        ],
    );
    home.until_log("a", "ready");
    for budget in home.show("a")["budgets"].as_array().expect("budgets") {
        assert!(
            budget["used"].is_null() && budget["unknown"] == "not stated yet",
            "{budget}"
        );
    }
    assert!(home.ok(&["budget", "a"]).contains("not stated yet"));
    home.ok(&["cancel", "a"]);
    let view = home.finished("a");
    assert_eq!(
        (&view["budgets"][0]["kind"], &view["budgets"][0]["used"]),
        (&"tokens".into(), &1_000.into()),
        "at least: {view}"
    );
    assert!(
        home.ok(&["show", "a"])
            .contains("tokens at least 1k (20 %)")
    );
}
