//! Hard budgets: agents whose usage cannot be known.

use super::{SPENDER, start, stopped};
use crate::support::TestHome;
use std::os::unix::fs::PermissionsExt;

/// An agent that can state its usage and does not, and one with a gate that delegates to `echo`.
fn config(home: &TestHome) -> String {
    let key = home.work().join("../key");
    std::fs::write(&key, "sk-1").expect("a key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let mute = r#"
[presets.mute]
title = "Mute"
driver = "jsonl"
command = ["/bin/sh", "-c", '''cat > /dev/null; printf '{"type":"done","text":"ok"}\n' ''']
can = { usage = true }
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.mute.stream]
rules = [
  { when = { type = "usage" }, usage = { input = "in", output = "out", cost_usd = "usd" } },
  { when = { type = "done" }, result = "text", end = "success" },
]
[agents.mute]
harness = "mute"
permissions = "full"
[presets.boss]
driver = "plain"
command = ["/bin/sh", "-c", '''
cat > prompt
id=$(grep -oE "[0-9a-f]{8}-[0-9a-f-]{27}" prompt | head -n 1)
printf '[DELEGATE_WORK]\nagent_id: %s\nnew_task_description: say hello\nagent: echo\nindependence: can_proceed_parallel\nbudget: %s\n[/DELEGATE_WORK]\n' "$id" "$AMOUNT"
exec sleep 600
''']
[presets.boss.gate]
base_url = "http://127.0.0.1:9/v1"
env = { MODEL_URL = "{gate_url}", MODEL_KEY = "{gate_token}" }
"#;
    let boss = |name: &str, amount: &str| {
        format!(
            "[agents.{name}]\nharness = \"boss\"\npermissions = \"full\"\ngate = true\nkey = {{ file = {:?} }}\nenv = {{ AMOUNT = \"{amount}\" }}\n",
            key.display().to_string()
        )
    };
    format!(
        "{mute}{}{}",
        boss("boss", "time=1m"),
        boss("lender", "tokens=1k")
    )
}

fn home() -> TestHome {
    let home = TestHome::new();
    std::fs::write(home.home.dir.join("config.toml"), config(&home)).expect("a configuration");
    home
}

#[test]
fn agent_that_states_nothing_uses_up_a_hard_budget() {
    let home = home();
    start(
        &home,
        "a",
        &["--agent", "mute", "--budget", "tokens=50k,cost=9,hard", "x"],
    );
    let view = home.finished("a");
    assert_eq!(
        (&view["outcome"], &view["reason"]),
        (&"succeeded".into(), &serde_json::Value::Null),
        "{view}"
    );
    for budget in view["budgets"].as_array().expect("budgets") {
        assert!(
            budget["left"] == 0
                && budget["unknown"]
                    .as_str()
                    .is_some_and(|why| why.contains("no usage")),
            "{budget}"
        );
    }
    let told: Vec<String> = home
        .json(&["events", "a"])
        .as_array()
        .into_iter()
        .flatten()
        .map(|event| event["text"].to_string())
        .collect();
    assert!(
        told.iter()
            .any(|text| text.contains("mute does not report its usage: all of it counts as used")),
        "{told:?}"
    );
    // Without `hard`, it is charged the floor.
    start(
        &home,
        "b",
        &["--agent", "mute", "--budget", "tokens=50k", "x"],
    );
    assert_eq!(home.finished("b")["budgets"][0]["used"], 1_000);
}

/// Plays Claude Code: it ends a turn without stating its usage, and goes on because a sub-agent of
/// its own works.
const TURN: &str = r#"#!/bin/sh
case "$1" in --version) echo "99.0.0 (Claude Code)"; exit 0;; esac
printf '{"type":"system","subtype":"init","session_id":"3b241101-e2bb-4255-8caf-4136c566a962"}\n'
read -r prompt
printf '{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_type":"local_agent"}]}\n'
printf '{"type":"result","subtype":"success","is_error":false,"result":"one"USAGE}\n'
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"another turn"}]}}\n'
exec sleep 600
"#;

#[test]
fn turn_without_a_statement_stops_a_run_with_a_hard_budget() {
    let home = TestHome::new();
    let mut config = String::new();
    let stated = r#","total_cost_usd":0.5,"usage":{"input_tokens":3,"output_tokens":6}"#;
    for (name, usage) in [("mute", ""), ("stating", stated)] {
        let program = home.work().join("..").join(name);
        std::fs::write(&program, TURN.replace("USAGE", usage)).expect("a program");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        config.push_str(&format!(
            "[agents.{name}]\nharness = \"claude\"\ncommand = [{:?}]\n",
            program.display().to_string()
        ));
    }
    std::fs::write(home.home.dir.join("config.toml"), config).expect("a configuration");
    start(
        &home,
        "a",
        &["--agent", "mute", "--budget", "cost=5,hard", "x"],
    );
    let view = stopped(&home, "a");
    assert_eq!(
        (&view["attention"]["why"], &view["budgets"][0]["left"]),
        (&"budget".into(), &0.into()),
        "{view}"
    );
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("is hard, and mute does not report its usage")),
        "{view}"
    );
    assert_eq!(home.adj(&["resume", "a"]).code, 8);
    start(
        &home,
        "b",
        &["--agent", "stating", "--budget", "cost=5,hard", "x"],
    );
    home.until_log("b", "another turn");
    let view = home.until("it is charged", || {
        Some(home.show("b")).filter(|view| view["budgets"][0]["used"] == 500_000)
    });
    assert_eq!(
        (&view["state"], &view["budgets"][0]["left"]),
        (&"running".into(), &4_500_000.into()),
        "{view}"
    );
    for run in ["a", "b"] {
        home.ok(&["cancel", run]);
    }
}

#[test]
fn raise_makes_no_budget_hard_whose_usage_cannot_be_known() {
    let home = TestHome::new();
    start(
        &home,
        "a",
        &["--agent", "echo", "--budget", "tokens=5k", "hang"],
    );
    let refused = home.adj(&["budget", "a", "--add", "tokens=1k,hard"]);
    assert!(
        refused.code == 2
            && refused
                .err
                .contains("the tokens of a (agent echo) cannot be measured"),
        "{refused:?}"
    );
    let view = home.show("a");
    assert_eq!(
        (&view["budgets"][0]["amount"], &view["budgets"][0]["hard"]),
        (&5_000.into(), &serde_json::Value::Null),
        "{view}"
    );
    home.ok(&["budget", "a", "--add", "time=1h,hard"]);
    home.ok(&["cancel", "a"]);
}

#[test]
fn delegated_run_under_a_hard_budget_must_state_its_usage() {
    let home = home();
    // Drawing on it, or with a part of it: the part is as hard as the whole.
    for agent in ["boss", "lender"] {
        start(
            &home,
            agent,
            &["--agent", agent, "--budget", "tokens=100k,hard", "lead"],
        );
        let request = home.until("it delegates", || home.inbox(&[])[0].as_object().cloned());
        let number = request["number"].as_str().expect("a number");
        let refused = home.adj(&["approve", number]);
        assert!(
            refused.code == 8
                && refused
                    .err
                    .contains("the budget is hard, but the tokens of echo cannot be measured"),
            "{refused:?}"
        );
        let view = home.show(agent);
        assert!(
            view["budgets"][0]["reserved"].is_null()
                && view["children"].as_array().is_none_or(Vec::is_empty),
            "{view}"
        );
        home.ok(&["deny", number, "no"]);
        home.ok(&["cancel", agent]);
    }
}

#[test]
fn run_does_not_start_once_its_usage_cannot_be_known() {
    let priced = SPENDER.replace("cost_usd = \"usd\", ", "");
    let home = TestHome::with_config(&priced);
    home.ok(&["pools", "pause", "default"]);
    start(
        &home,
        "a",
        &["--agent", "spender", "--budget", "cost=9,hard", "x"],
    );
    let unpriced = priced.replace("priced_as = \"m\"", "");
    std::fs::write(home.home.dir.join("config.toml"), unpriced).expect("a configuration");
    home.ok(&["pools", "resume", "default"]);
    let view = stopped(&home, "a");
    assert_eq!(
        (&view["attempt"], &view["attention"]["why"]),
        (&0.into(), &"budget".into()),
        "{view}"
    );
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|why| why.contains("the cost of spender cannot be measured")),
        "{view}"
    );
    std::fs::write(home.home.dir.join("config.toml"), priced).expect("a configuration");
    home.ok(&["resume", "a"]);
    home.until("it works", || {
        Some(home.show("a")).filter(|view| view["budgets"][0]["used"] == 3_000_000)
    });
    home.ok(&["cancel", "a"]);
}
