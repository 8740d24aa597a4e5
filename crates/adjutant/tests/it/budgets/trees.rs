//! Budgets of trees: they are kept, and given back once.

use super::start;
use crate::support::TestHome;
use serde_json::{Value, json};
use std::process::Stdio;

/// Starts a run with a budget that delegates a task with a part of it.
fn delegating(home: &TestHome, after: &str) {
    let delegate = "tool delegate_work {\"new_task_description\":\"---\\nsay below\\nhang\",\"independence\":\"can_proceed_parallel\",\"budget\":\"tokens=4k\",\"wait_s\":0}";
    start(
        home,
        "top",
        &[
            "--agent",
            "echo",
            "--budget",
            "tokens=10k,time=1h",
            &format!("{delegate}\n{after}"),
        ],
    );
    home.until("it delegates", || home.inbox(&[])[0].as_object().cloned());
}

fn child(home: &TestHome) -> String {
    home.show("top")["children"][0]
        .as_str()
        .expect("a child")
        .to_owned()
}

fn tokens(home: &TestHome, run: &str) -> Value {
    home.show(run)["budgets"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|budget| budget["kind"] == "tokens")
        .cloned()
        .expect("a budget")
}

#[test]
fn clean_keeps_a_run_on_whose_budget_others_draw() {
    let home = TestHome::new();
    delegating(&home, "done");
    home.ok(&["approve", "Q1"]);
    let child = child(&home);
    home.finished("top");
    let cleaned = home.json(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(
        (&cleaned["runs"], &cleaned["kept"][0]["run"]),
        (&json!([]), &json!("top")),
        "{cleaned}"
    );
    assert_eq!(
        cleaned["kept"][0]["reason"],
        "1 run below it has not finished"
    );
    assert_eq!(
        (
            &tokens(&home, "top")["reserved"],
            &tokens(&home, &child)["amount"]
        ),
        (&json!(4_000), &json!(4_000))
    );
    // Raised, since the child draws on it.
    home.ok(&["budget", "top", "--add", "tokens=1k"]);
    home.ok(&["budget", &child, "--add", "tokens=1k"]);
    assert_eq!(
        (
            &tokens(&home, "top")["amount"],
            &tokens(&home, "top")["reserved"]
        ),
        (&json!(11_000), &json!(5_000))
    );
    home.ok(&["cancel", &child]);
    home.finished(&child);
    assert!(tokens(&home, "top")["reserved"].is_null());
    let late = home.adj(&["budget", "top", "--add", "tokens=1k"]);
    assert!(
        late.code != 0 && late.err.contains("finished") && tokens(&home, "top")["amount"] == 11_000,
        "{late:?}"
    );
    let cleaned = home.json(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(
        cleaned["runs"].as_array().map(Vec::len),
        Some(2),
        "{cleaned}"
    );
}

/// A hub is killed before and after it commits the transfer, and the return.
#[test]
fn transferred_budget_is_neither_lost_nor_doubled_by_a_kill() {
    for failpoint in ["store.before_commit", "store.after_commit"] {
        for step in ["transfer", "return"] {
            let home = TestHome::new();
            let fired = home.work().join("fired");
            // The failpoint is armed once this file is removed.
            std::fs::write(&fired, "").expect("a file");
            let mut hub = home.command(&["__hub"]);
            hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut hub = hub.spawn().expect("a hub");
            home.until("the hub takes calls", || {
                home.call(&adjutant_api::view::GetHub {}, "").ok()
            });
            delegating(&home, "hang");
            let mut args = vec!["approve".to_owned(), "Q1".to_owned()];
            if step == "return" {
                home.ok(&["approve", "Q1"]);
                home.until_log(&child(&home), "below");
                args = vec!["cancel".to_owned(), child(&home)];
            }
            std::fs::remove_file(&fired).expect("it is there");
            // The command starts the next hub and repeats its call.
            home.ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(!hub.wait().expect("it dies").success());
            assert_eq!(
                home.show("top")["children"].as_array().map(Vec::len),
                Some(1),
                "{failpoint}, {step}"
            );
            let child = child(&home);
            if step == "transfer" {
                let (top, below) = (tokens(&home, "top"), tokens(&home, &child));
                assert_eq!(
                    (&top["reserved"], &top["left"], &below["amount"]),
                    (&json!(4_000), &json!(6_000), &json!(4_000)),
                    "{failpoint}: {top}"
                );
            }
            if step == "transfer" {
                home.until_log(&child, "below");
            }
            home.adj(&["cancel", &child]);
            home.finished(&child);
            // The child has stated nothing: it is charged the floor, once.
            let top = tokens(&home, "top");
            assert_eq!(
                (&top["used"], &top["reserved"], &top["left"]),
                (&json!(1_000), &Value::Null, &json!(9_000)),
                "{failpoint}, {step}: {top}"
            );
        }
    }
}

#[test]
fn limit_where_there_was_none_is_not_called_a_raise() {
    let home = TestHome::new();
    home.start("pa", "hang");
    let none = home.adj(&["budget", "pa"]);
    assert!(
        none.err
            .contains("pa has no budget; to set a limit: adj budget pa --add cost=5"),
        "{none:?}"
    );
    let set = home.ok(&["budget", "pa", "--add", "time=1h"]);
    assert!(
        set.contains("limited pa to 1h of time, which it had no limit of")
            && !set.contains("raised"),
        "{set}"
    );
    let both = home.ok(&["budget", "pa", "--add", "time=1h,tokens=5"]);
    assert!(
        both.contains("limited pa to 5 of tokens") && both.contains("raised the budget of pa"),
        "{both}"
    );
    home.ok(&["cancel", "pa"]);
}
