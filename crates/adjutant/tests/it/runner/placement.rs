//! Which runner starts a run: labels, and the load of its machine.

use super::Pair;
use super::access::{post, token};
use serde_json::{Value, json};
use std::fs::File;
use std::process::Stdio;

fn add_to_config(pair: &Pair, text: &str) {
    let path = pair.hub.home.dir.join("config.toml");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(&path, config + text).expect("written");
}

#[test]
fn runner_with_labels_serves_the_pools_that_require_them() {
    let mut pair = Pair::without_runner("60s");
    add_to_config(
        &pair,
        "[pools.fast]\nrunners = true\nlabels = { gpu = \"a100\", arch = \"x86_64\" }\n[pools.arm]\nrunners = true\nlabels = { arch = \"arm64\" }\n",
    );
    let token = pair.token_file().display().to_string();
    let join = |more: &[&str]| {
        pair.there.adj(
            &[
                &["runner", "--join", &pair.url, "--token-file", &token],
                more,
            ]
            .concat(),
        )
    };
    for (more, expected) in [
        (
            &["--label", "gpu=a100"][..],
            "no pool for runners needs only labels that this runner has",
        ),
        (
            &["--pool", "fast", "--label", "gpu=a100"],
            "pool fast needs arch=x86_64: start the runner with --label arch=x86_64",
        ),
        (&["--label", "gpu"], "use NAME=VALUE"),
    ] {
        let refused = join(more);
        assert!(
            refused.code != 0 && refused.err.contains(expected),
            "{more:?}: {refused:?}"
        );
    }
    let log = File::create(pair.log_file()).expect("a log");
    let mut command = pair.there.command(&[
        "runner",
        "--join",
        &pair.url,
        "--token-file",
        &token,
        "--label",
        "gpu=a100",
        "--label",
        "arch=x86_64",
    ]);
    pair.runner = Some(
        command
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a runner"),
    );
    pair.until("it has joined", || {
        pair.runner_log()
            .contains("for pool fast (1 slots)")
            .then_some(())
    });
    for (pool, name) in [("arm", "elsewhere"), ("fast", "here")] {
        pair.hub.ok(&[
            "run",
            "--detach",
            "--agent",
            "echo",
            "--pool",
            pool,
            "--name",
            name,
            "done yes\n",
        ]);
    }
    assert_eq!(pair.hub.finished("here")["outcome"], "succeeded");
    assert_eq!(
        pair.hub.show("elsewhere")["queue"]["why"],
        "no runner of pool arm is connected"
    );
}

#[test]
fn labels_need_a_pool_for_runners() {
    let pair = Pair::without_runner("60s");
    add_to_config(
        &pair,
        "[pools.here]\nlabels = { gpu = \"a100\" }\n[pools.odd]\nrunners = true\nlabels = { gpu = \"a 100\" }\n",
    );
    let checked = pair.hub.adj(&["config", "show"]);
    let text = format!("{}{}", checked.out, checked.err);
    assert!(
        checked.code != 0
            && text.contains("pools.here.labels")
            && text.contains("pools.odd.labels"),
        "{text}"
    );
}

#[test]
fn runner_receives_orders_for_all_its_free_slots_at_once() {
    let pair = Pair::without_runner("60s");
    for name in ["one", "two", "three"] {
        pair.start(name, "done yes");
    }
    let (token, home) = (token(&pair, "played", "runner"), "00112233445566778899");
    let (_, joined) = post(
        &pair,
        &token,
        "/runner/join",
        &[],
        &json!({"home_id": home, "pools": ["gpu"], "slots": 2}),
    );
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    let session = joined["session"].as_str().expect("a session");
    let headers = [("adj-runner-session", session), ("adj-runner-home", home)];
    let (_, work) = post(
        &pair,
        &token,
        "/runner/work",
        &headers,
        &json!({"wait_ms": 10_000}),
    );
    let work: Value = serde_json::from_str(&work).expect("JSON");
    let names: Vec<&str> = work["orders"]
        .as_array()
        .expect("orders")
        .iter()
        .filter_map(|order| order["run_name"].as_str())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(pair.hub.show("three")["attempt"], 0);
}

#[test]
fn loaded_machine_starts_no_further_run() {
    let mut pair = Pair::without_runner("3s");
    let load = pair.there.work().join("load");
    std::fs::create_dir(&load).expect("a directory");
    let state = |memory: &str| {
        let line = |kind: &str| format!("{kind} avg10={memory} avg60=0.00 avg300=0.00 total=0\n");
        std::fs::write(load.join("memory"), line("some") + &line("full")).expect("written");
    };
    state("90.00");
    let log = File::create(pair.log_file()).expect("a log");
    let mut command = pair.runner_command();
    command.env("ADJ_FAILPOINT", format!("pressure={}", load.display()));
    pair.runner = Some(
        command
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a runner"),
    );
    pair.until("it has joined", || {
        pair.runner_log().contains("for pool gpu").then_some(())
    });
    // One may always start.
    pair.start("one", "ask \"Go on?\"\ndone yes");
    pair.until_status("one", "waiting_parent_reply");
    pair.start("two", "done yes");
    let view = pair.until("the reason is shown", || {
        Some(pair.hub.show("two")).filter(|view| view["queue"]["waiting_for"] == "memory_pressure")
    });
    let why = view["queue"]["why"].as_str().expect("a reason");
    assert!(
        why.contains("all runners of pool gpu wait for memory"),
        "{why}"
    );
    state("1.00");
    assert_eq!(pair.hub.finished("two")["outcome"], json!("succeeded"));
    pair.hub.ok(&["reply", "one", "yes"]);
}
