//! Statistics of runs.

use crate::mcp::{Session, text};
use crate::support::{TestHome, tokens};
use serde_json::{Value, json};

fn group<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let groups = stats["groups"].as_array().expect("groups");
    groups
        .iter()
        .find(|group| group["name"] == name)
        .unwrap_or_else(|| panic!("no group {name} in {stats}"))
}

fn answers<'a>(row: &'a Value, by: &str) -> &'a Value {
    row["answers"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|answers| answers["by"] == by)
        .unwrap_or(&Value::Null)
}

#[test]
fn stats_count_outcomes_answers_and_retries() {
    let home = TestHome::with_config("[pools.gpu]\nslots = 1\n");
    let empty = home.json(&["stats"]);
    assert_eq!(
        (&empty["total"]["runs"], &empty["kept_since"]),
        (&json!(0), &Value::Null)
    );
    assert!(home.adj(&["stats"]).err.contains("there are no runs yet"));

    home.start("good", "ask \"Which?\"\ndone");
    home.until_status("good", "waiting_parent_reply");
    home.ok(&["reply", "good", "this"]);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "checked",
        "--accept",
        "true",
        "--pool",
        "gpu",
        "say x\ndone fine",
    ]);
    home.start("bad", "fail 3");
    home.start("hanging", "hang");
    for run in ["good", "checked", "bad"] {
        home.finished(run);
    }
    home.ok(&["retry", "bad"]);
    let mut session = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    session.done(
        "run_subagent",
        json!({"agent": "echo", "name": "asks", "prompt": "---\nask \"Which?\"\ndone"}),
    );
    let asked = session.done("wait_for_subagents", json!({"wait_s": 30}));
    session.done(
        "reply_subagent",
        json!({"message_id": asked["needs"][0]["message_id"], "answer": "that"}),
    );
    home.finished("asks");

    let stats = home.until("the retry has failed too", || {
        Some(home.json(&["stats"])).filter(|stats| stats["total"]["failed"] == 2)
    });
    let all = &stats["total"];
    assert_eq!(
        (
            &all["runs"],
            &all["succeeded"],
            &all["unfinished"],
            &all["queued"]
        ),
        (&json!(6), &json!(3), &json!(1), &json!(0)),
        "{all}"
    );
    assert_eq!(
        (
            &all["retried"],
            &all["verified"],
            &all["merged"],
            &all["accepted"]
        ),
        (&json!(1), &json!(1), &json!(0), &json!(1)),
        "{all}"
    );
    assert_eq!(
        (
            &answers(all, "person")["count"],
            &answers(all, "parent")["count"]
        ),
        (&json!(1), &json!(1)),
        "{all}"
    );
    assert_eq!(
        (&all["queue"]["count"], &all["waiting"]["count"]),
        (&json!(6), &json!(2)),
        "{all}"
    );
    // The cost of the echo agent is unknown.
    assert_eq!(
        (
            all.get("cost_micros"),
            &all["cost_unknown_runs"],
            &all["tokens_unknown_runs"]
        ),
        (None, &json!(6), &json!(6)),
        "{all}"
    );
    let shown = home.ok(&["stats"]);
    for part in [
        "6: 3 succeeded, 2 failed, 1 not finished",
        "by person: median",
        "by parent: median",
        "cost      unknown",
        "tokens    unknown",
        "0 of 6 runs (0 %)",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }

    let by_pool = home.json(&["stats", "--by", "pool"]);
    assert_eq!(
        (
            &group(&by_pool, "gpu")["runs"],
            &group(&by_pool, "default")["runs"]
        ),
        (&json!(1), &json!(5))
    );
    let by_agent = home.json(&["stats", "--by", "agent"]);
    assert_eq!(group(&by_agent, "echo")["runs"], 6);
    let by_parent = home.json(&["stats", "--by", "parent"]);
    assert_eq!(
        (
            &group(&by_parent, "person")["runs"],
            &group(&by_parent, "client:alice")["runs"]
        ),
        (&json!(5), &json!(1))
    );
    let by_project = home.json(&["stats", "--by", "project"]);
    assert_eq!(
        group(
            &by_project,
            &home
                .work()
                .canonicalize()
                .expect("a directory")
                .display()
                .to_string()
        )["runs"],
        6
    );
    let table = home.ok(&["stats", "--by", "parent"]);
    assert!(
        table.starts_with("PARENT") && table.contains("you") && table.contains("all"),
        "{table}"
    );
    // Runs that have not ended are not failures.
    assert!(
        table.contains("OPEN") && table.contains("3 (60 %)"),
        "{table}"
    );
    assert_eq!(home.json(&["stats", "--since", "1h"])["total"]["runs"], 6);
    let refused = home.adj(&["stats", "--by", "mood"]);
    assert!(
        refused.code == 2 && refused.err.contains("agent, pool, project and parent"),
        "{refused:?}"
    );
    home.ok(&["cancel", "hanging"]);
}

#[test]
fn chats_and_policies_count() {
    let home = TestHome::with_config(
        "[[policies]]\nname = \"tests\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = \"cargo test\"\n",
    );
    home.start(
        "approved",
        "tool request_approval {\"action\": \"run the tests\", \"command\": \"cargo test\"}\ndone",
    );
    home.start(
        "talks",
        "tool send_chat_message {\"to\": [\"person\"], \"message\": \"hello\"}\ndone",
    );
    home.finished("approved");
    home.finished("talks");
    let all = home.json(&["stats"])["total"].clone();
    assert_eq!(
        (&all["used_chat"], &all["runs"]),
        (&json!(1), &json!(2)),
        "{all}"
    );
    assert_eq!(answers(&all, "policy")["count"], 1, "{all}");
}

#[test]
fn only_runs_within_since_and_of_the_caller_count() {
    let home = TestHome::new();
    home.start("mine", "done");
    home.finished("mine");
    assert_eq!(home.json(&["stats", "--since", "1ms"])["total"]["runs"], 0);
    home.ok(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(
        home.json(&["stats"])["total"]["runs"],
        0,
        "statistics cover the runs that are kept"
    );
}

#[test]
fn ended_tree_is_compared_with_one_agent_in_sequence() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], false);
    session.done(
        "run_subagent",
        json!({"agent": "echo", "name": "alone", "prompt": "---\ndone ok"}),
    );
    home.finished("alone");
    let waited = session.tool("wait_for_subagents", json!({"wait_s": 30}));
    assert!(
        text(&waited).contains(", took ") && text(&waited).contains("cost unknown"),
        "{waited}"
    );

    let script = "---\ndelegate \"---\\nsay child\\ndone\" [blocks]\ndone";
    session.done(
        "run_subagent",
        json!({"agent": "echo", "name": "root", "prompt": script}),
    );
    let asked = session.done("wait_for_subagents", json!({"wait_s": 30}));
    session.done(
        "reply_subagent",
        json!({"message_id": asked["needs"][0]["message_id"], "decision": "approve"}),
    );
    let root = home.finished("root");
    let waited = session.tool(
        "wait_for_subagents",
        json!({"run_ids": ["root"], "wait_s": 30}),
    );
    let line = text(&waited)
        .lines()
        .find(|line| line.starts_with("root: 2 runs took "))
        .unwrap_or_else(|| panic!("{waited}"))
        .to_owned();
    assert!(
        line.contains("(one agent in sequence: about ") && line.ends_with("cost unknown"),
        "{line}"
    );
    assert!(tokens(&line) <= 30, "{} tokens: {line}", tokens(&line));
    let tree = home.show("root")["tree"].clone();
    assert_eq!(
        (&tree["runs"], &tree["cost_unknown_runs"]),
        (&json!(2), &json!(2)),
        "{root}"
    );
    assert!(home.ok(&["show", "root"]).contains("2 runs took "));
}
