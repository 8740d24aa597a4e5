//! Results: reconstructed ones if the last message says nothing, the reason of the end, and long
//! ones.

use crate::changes::{git, repository, start};
use crate::mcp::{Session, text};
use crate::support::{TestHome, kill, lock_pid};
use serde_json::json;

/// A CLI that writes JSON lines. Each of these agents has a different last message.
fn speaking(script: &str) -> TestHome {
    let config = format!(
        r#"
[presets.talker]
title = "Talker"
driver = "jsonl"
command = ["/bin/sh", "-c", '''
cat > /dev/null
say() {{ printf '{{"type":"text","text":"%s"}}\n' "$1"; }}
over() {{ printf '{{"type":"end"}}\n'; }}
{script}
''']
can = {{}}
about = {{ vendor = "nobody", install = "none", sign_in = "none" }}
[presets.talker.stream]
end_is_stated = true
rules = [
  {{ when = {{ type = "text" }}, text = "text" }},
  {{ when = {{ type = "delta" }}, delta = "text" }},
  {{ when = {{ type = "end" }}, end = "success" }},
]
[agents.talker]
harness = "talker"
"#
    );
    let home = TestHome::with_config(&config);
    std::fs::write(home.work().join("one.txt"), "1\n").expect("a file");
    git(&home.work(), &["init", "-q"]);
    git(&home.work(), &["add", "."]);
    git(&home.work(), &["commit", "-qm", "x"]);
    home
}

const FOUND: &str = "The parser drops the last token because the loop ends one step too early.";

#[test]
fn reference_to_earlier_work_is_replaced_by_a_result() {
    let commit = "git -c user.name=t -c user.email=t@t commit -qam 'parser: keep the last token'";
    let home = speaking(&format!(
        "say 'I look at the parser.'; echo 2 > one.txt; {commit}; say '{FOUND}'; say 'Done. See above.'; over"
    ));
    start(&home, "talker", "points", "go", ".");
    let view = home.finished("points");
    let result = view["result"].as_str().expect("a result");
    assert!(
        result.starts_with("The last message only refers to earlier work."),
        "{result}"
    );
    for part in [
        "\n    Done. See above.",
        FOUND,
        "Changed files:\n    one.txt",
        "parser: keep the last token",
    ] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert!(
        !result.contains("I look at"),
        "a short remark stands for nothing: {result}"
    );
    assert_eq!(
        (
            &view["reconstructed"],
            &view["result_gap"],
            &view["end_reason"]
        ),
        (&json!(true), &json!("pointer"), &json!("completed")),
        "{view}"
    );
    assert_eq!(view["last_message"], "Done. See above.", "{view}");
    assert_eq!(view["commits"].as_array().map(Vec::len), Some(1), "{view}");
    let shown = home.ok(&["show", "points"]);
    assert!(
        shown.contains("result, reconstructed")
            && shown.contains("commits ")
            && shown.contains(FOUND),
        "{shown}"
    );
    // A wait reports it in one line.
    let waited = home.ok(&["wait", "points"]);
    assert!(
        waited.contains("Done. See above. (reconstructed result: adj show --result points)"),
        "{waited}"
    );
    kill(home.hub_pid());
    let json = home.json(&["show", "--result", "points"]);
    assert_eq!(
        (&json["reconstructed"], &json["last_message"]),
        (&json!(true), &json!("Done. See above.")),
        "{json}"
    );
    let mut parent = Session::open(&home.home.dir, &home.work(), &[], true);
    parent.done(
        "run_subagent",
        json!({"agent": "talker", "name": "hers", "prompt": "go"}),
    );
    let waited = parent.tool(
        "wait_for_subagents",
        json!({"run_ids": ["hers"], "until": "all"}),
    );
    assert!(
        text(&waited).contains(", reconstructed result \"The last message only refers"),
        "{}",
        text(&waited)
    );
    let answer = parent.tool("check_subagent_status", json!({"run_id": "hers"}));
    let status = text(&answer);
    assert!(
        status.contains("reconstructed result \"The last message only refers"),
        "{status}"
    );
}

#[test]
fn short_answer_stays_the_result() {
    let home = speaking(&format!("say '{FOUND}'; echo 2 > one.txt; say 42; over"));
    start(&home, "talker", "answers", "go", ".");
    let view = home.finished("answers");
    assert_eq!(
        (&view["result"], &view["result_gap"], &view["reconstructed"]),
        (&json!("42"), &json!(null), &json!(null)),
        "{view}"
    );
    assert_eq!(
        (&view["end_reason"], &view["changed_files"]),
        (&json!("completed"), &json!(["one.txt"])),
        "{view}"
    );
}

#[test]
fn cut_message_keeps_earlier_messages() {
    let home = speaking(&format!(
        "say '{FOUND}'; printf '{{\"type\":\"delta\",\"text\":\"Now I will wri\"}}\\n'; kill -9 $$"
    ));
    start(&home, "talker", "breaks", "go", ".");
    let view = home.finished("breaks");
    let result = view["result"].as_str().expect("a result");
    assert!(
        result.starts_with("The last message was cut off.")
            && result.contains("    Now I will wri\n")
            && result.contains(FOUND),
        "{result}"
    );
    assert_eq!(
        (&view["result_gap"], &view["end_reason"]),
        (&json!("cut"), &json!("error")),
        "{view}"
    );
}

#[test]
fn empty_message_of_a_run_that_did_nothing_stays_empty() {
    let home = repository();
    start(&home, "sh", "silent", "do true", ".");
    let view = home.finished("silent");
    assert_eq!(
        (&view["result"], &view["result_gap"], &view["reconstructed"]),
        (&json!(""), &json!("empty"), &json!(null)),
        "{view}"
    );
    start(&home, "sh", "works", "do echo 3 > two.txt", ".");
    let view = home.finished("works");
    assert_eq!(view["reconstructed"], true, "{view}");
    assert!(
        view["result"]
            .as_str()
            .is_some_and(|result| result.contains("is empty") && result.contains("two.txt")),
        "{view}"
    );
}

#[test]
fn long_result_is_kept_whole_and_shown_in_part() {
    let home = repository();
    start(
        &home,
        "sh",
        "long",
        "do seq -f 'line %g of the result' 1 4000",
        ".",
    );
    let view = home.finished("long");
    let (shown, bytes) = (
        view["result"].as_str().expect("a result").len(),
        view["result_bytes"].as_u64().expect("a length"),
    );
    assert!(shown <= 16 * 1024 && bytes > 80_000, "{shown} of {bytes}");
    assert!(home.ok(&["show", "long"]).contains(&format!(
        "the end of {bytes} bytes (all of it: adj show --result long)"
    )));
    kill(home.hub_pid());
    let whole = home.ok(&["show", "--result", "long"]);
    assert_eq!(whole.lines().count(), 4000);
    assert!(
        whole.starts_with("line 1 of the result\n") && whole.ends_with("line 4000 of the result\n")
    );
    let mut parent = Session::open(&home.home.dir, &home.work(), &[], true);
    parent.done("run_subagent", json!({"agent": "sh", "name": "hers", "prompt": "do seq -f 'line %g of the result' 1 4000"}));
    parent.done(
        "wait_for_subagents",
        json!({"run_ids": ["hers"], "until": "all"}),
    );
    let answer = parent.tool("check_subagent_status", json!({"run_id": "hers"}));
    let status = text(&answer);
    assert!(
        status.contains("the whole result is in the log: get_subagent_logs run_id=hers"),
        "{status}"
    );
}

#[test]
fn end_reason_names_limit_and_cancel() {
    let home = repository();
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "slow",
        "--timeout",
        "1s",
        "do echo 2 > one.txt; sleep 600",
    ]);
    assert!(
        command
            .env("PATH", std::env::var_os("PATH").expect("a PATH"))
            .output()
            .expect("adj runs")
            .status
            .success()
    );
    let view = home.until("the limit", || {
        Some(home.show("slow")).filter(|view| view["state"] == "stopped")
    });
    assert_eq!(
        (&view["end_reason"], &view["reconstructed"]),
        (&json!("limit"), &json!(true)),
        "{view}"
    );
    assert!(
        home.ok(&["show", "slow"]).contains("ended by     limit"),
        "{}",
        home.ok(&["show", "slow"])
    );
    home.ok(&["cancel", "slow"]);
    assert_eq!(home.show("slow")["end_reason"], "cancelled");
}

#[test]
fn lost_run_gets_a_reconstructed_result() {
    let home = repository();
    let script = "do echo 'The answer so far is 42.'; echo 2 > one.txt; echo x > new.txt; echo ready; sleep 600";
    start(&home, "sh", "gone", script, ".");
    home.until_log("gone", "ready");
    let dir = home.attempt_dir("gone");
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = home.until("the loss", || {
        Some(home.show("gone")).filter(|view| view["end_reason"] == "error")
    });
    let result = view["result"].as_str().expect("a result");
    for part in [
        "The last message was cut off. This result is reconstructed",
        "    The answer so far is 42.",
        "Changed files:\n    new.txt\n    one.txt",
    ] {
        assert!(result.contains(part), "{part}: {result}");
    }
    assert_eq!(
        (&view["reconstructed"], &view["result_gap"]),
        (&json!(true), &json!("cut")),
        "{view}"
    );
    assert_eq!(
        view["changed_files"],
        json!(["new.txt", "one.txt"]),
        "{view}"
    );
    assert!(
        home.ok(&["show", "--result", "gone"])
            .contains("The answer so far is 42.")
    );
    // One that left nothing has no result.
    start(&home, "sh", "silent", "do touch ../begun; sleep 600", ".");
    home.until("it works", || {
        home.work().with_file_name("begun").exists().then_some(())
    });
    let dir = home.attempt_dir("silent");
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = home.until("the loss", || {
        Some(home.show("silent")).filter(|view| view["end_reason"] == "error")
    });
    assert_eq!(
        (&view["reconstructed"], &view["result_gap"]),
        (&json!(null), &json!("empty")),
        "{view}"
    );
}
