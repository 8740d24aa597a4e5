//! Runs on a runner.

use super::Pair;
use crate::support::TestHome;
use serde_json::json;

#[test]
fn run_works_on_another_machine() {
    let pair = Pair::new("60s");
    pair.start(
        "far",
        "print-env\nwrite made.txt hello\nask \"Which one?\"\ndone made it",
    );
    pair.until_status("far", "waiting_parent_reply");
    assert_eq!(pair.hub.inbox(&[])[0]["question"], "Which one?");
    pair.hub.ok(&["reply", "far", "the second"]);
    let view = pair.hub.finished("far");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert!(
        view["result"]
            .as_str()
            .is_some_and(|result| result.contains("made it")),
        "{view}"
    );
    assert_eq!(
        (&view["report"]["status"], &view["report"]["summary"]),
        (&json!("success"), &json!("made it")),
        "{view}"
    );
    let log = pair.log_there("far", 1);
    assert!(log.contains("answer: the second"), "{log}");
    let (dir, id) = (pair.dir_there("far", 1), pair.hub.run_id("far"));
    assert!(
        dir.started_marker().exists(),
        "the runner's home has its files"
    );
    assert!(
        !pair
            .hub
            .home
            .runs_dir()
            .join(&id)
            .join("1/started")
            .exists(),
        "the hub's has none"
    );
    let made = pair.there.home.workspaces_dir().join(&id).join("made.txt");
    assert_eq!(
        std::fs::read_to_string(made)
            .expect("it worked in an empty directory there")
            .trim(),
        "hello"
    );
    // Its environment is that of the runner.
    let home = format!(
        "HOME={}",
        pair.there.work().parent().expect("a directory").display()
    );
    assert!(log.contains(&home), "{log}");
    let events = pair.hub.ok(&["events", "--json"]);
    assert!(events.contains("attempt 1 on gpu1"), "{events}");
}

#[test]
fn run_waits_for_a_runner_of_its_pool() {
    let mut pair = Pair::without_runner("60s");
    pair.start("early", "done yes");
    let view = pair.hub.show("early");
    assert_eq!(view["queue"]["waiting_for"], "no_runner", "{view}");
    assert_eq!(
        view["queue"]["why"], "no runner of pool gpu is connected",
        "{view}"
    );
    pair.start_runner();
    let view = pair.hub.finished("early");
    assert_eq!(view["outcome"], "succeeded", "{view}");
}

#[test]
fn runner_has_at_most_its_slots() {
    let pair = Pair::new("60s");
    for name in ["one", "two", "three"] {
        pair.start(name, "ask \"Go on?\"\ndone yes");
    }
    pair.until_status("one", "waiting_parent_reply");
    pair.until_status("two", "waiting_parent_reply");
    assert_eq!(
        pair.hub.show("three")["status"],
        "queued",
        "the pool has four slots, the runner two"
    );
    pair.hub.ok(&["reply", "one", "yes"]);
    pair.until_status("three", "waiting_parent_reply");
}

#[test]
fn cancel_ends_a_run_on_another_machine() {
    let pair = Pair::new("60s");
    pair.start(
        "stubborn",
        "spawn doublefork\nspawn setsid\nsay ready\nhang",
    );
    pair.until("the agent works", || {
        pair.log_there("stubborn", 1)
            .contains("ready")
            .then_some(())
    });
    let id = pair.hub.run_id("stubborn");
    pair.hub.ok(&["cancel", "stubborn"]);
    let view = pair.hub.finished("stubborn");
    assert_eq!(view["outcome"], "cancelled", "{view}");
    pair.until("no process is left", || {
        pair.there.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn home_belongs_to_a_hub_or_a_runner() {
    let mut pair = Pair::new("60s");
    let refused = pair.there.adj(&["ps"]);
    assert!(
        refused.code != 0 && refused.err.contains("is the home of a runner of https://"),
        "{refused:?}"
    );
    let second = pair.runner_command().output().expect("it ends");
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("a hub or another runner uses"),
        "{second:?}"
    );
    pair.kill_runner();
    let refused = pair.there.adj(&["ps"]);
    assert!(
        refused.code != 0 && refused.err.contains("is the home of a runner"),
        "{refused:?}"
    );
    let hub = TestHome::new();
    hub.ok(&["ps"]);
    kill_hub(&hub);
    let token = pair.token_file().display().to_string();
    // A child of the dead hub that has not executed its program yet can still hold the lock.
    let refused = hub.until("the lock is free", || {
        let refused = hub.adj(&[
            "runner",
            "--join",
            &pair.url,
            "--token-file",
            &token,
            "--pool",
            "gpu",
        ]);
        (!refused.err.contains("a hub or another runner uses")).then_some(refused)
    });
    assert!(
        refused.code != 0 && refused.err.contains("has the store of a hub"),
        "{refused:?}"
    );
}

fn kill_hub(home: &TestHome) {
    let pid = home.hub_pid();
    crate::support::kill(pid);
    home.until("the hub is dead", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
}
