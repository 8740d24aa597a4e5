//! A runner that is cut off for longer than the lease loses its attempts, whose agents have ended
//! by then.

use super::Pair;
use rustix::process::Signal;
use serde_json::{Value, json};

fn until_lost(pair: &Pair, run: &str) -> Value {
    pair.until("the run is lost", || {
        Some(pair.hub.show(run)).filter(|view| view["state"] == "stopped")
    })
}

#[test]
fn cut_off_runner_loses_its_attempt_after_the_agent_has_ended() {
    let mut pair = Pair::new("3s");
    pair.start(
        "cut",
        &format!(
            "journal {} begun\nignore-term\nsay ready\nhang",
            pair.journal("journal")
        ),
    );
    pair.until_status("cut", "running");
    pair.until("the agent works", || {
        pair.log_there("cut", 1).contains("ready").then_some(())
    });
    let id = pair.hub.run_id("cut");
    let dir = pair.dir_there("cut", 1);
    let supervisor = crate::support::lock_pid(&dir.supervisor_lock());
    pair.signal_runner(Signal::STOP);
    let view = until_lost(&pair, "cut");
    assert_eq!(view["reason"], "host_lost", "{view}");
    // The supervisor may still wait for a hub that takes its last fact; the agent has ended.
    let left: Vec<(u32, String)> = pair.there.processes_of(&id);
    assert!(
        left.iter()
            .all(|(_, line)| line.contains("__guard") || line.contains("__supervise")),
        "{left:?}"
    );
    let facts = std::fs::read_to_string(dir.facts()).expect("facts");
    assert!(
        facts.contains("\"fact\":\"hub_lost\""),
        "its supervisor has ended it: {facts}"
    );
    // What the runner says later changes nothing.
    pair.signal_runner(Signal::CONT);
    pair.until("the supervisor is gone", || {
        (!crate::support::TestHome::is_alive(supervisor)).then_some(())
    });
    pair.until("the runner has joined again", || {
        (pair.runner_log().matches("joined").count() >= 2).then_some(())
    });
    let later = pair.hub.show("cut");
    assert_eq!(
        (&later["reason"], &later["attempt"], &later["exit_code"]),
        (&json!("host_lost"), &json!(1), &view["exit_code"]),
        "{later}"
    );
    // It resumes as another attempt, which starts once.
    pair.hub.ok(&["resume", "cut"]);
    pair.until("the second attempt works", || {
        (pair.begun("journal") == 2).then_some(())
    });
    let view = pair.until_status("cut", "running");
    assert_eq!(view["attempt"], 2, "{view}");
    pair.hub.ok(&["cancel", "cut"]);
    assert_eq!(pair.hub.finished("cut")["outcome"], "cancelled");
    assert_eq!(pair.begun("journal"), 2);
    pair.kill_runner();
}

#[test]
fn attempt_whose_supervisor_was_stopped_too_is_ended_by_its_runner() {
    let pair = Pair::new("3s");
    pair.start(
        "frozen",
        &format!("journal {} begun\nsay ready\nhang", pair.journal("journal")),
    );
    pair.until_status("frozen", "running");
    let (dir, id) = (pair.dir_there("frozen", 1), pair.hub.run_id("frozen"));
    let supervisor = crate::support::lock_pid(&dir.supervisor_lock());
    let pid = i32::try_from(supervisor)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a pid");
    rustix::process::kill_process(pid, Signal::STOP).expect("it lives");
    // Without the hub, the runner's own clock ends what its supervisor does not.
    pair.kill_hub();
    pair.until("no process is left", || {
        pair.there.processes_of(&id).is_empty().then_some(())
    });
    pair.until("it says so", || {
        pair.runner_log()
            .contains("killed the remaining processes")
            .then_some(())
    });
}

#[test]
fn short_interruption_changes_nothing() {
    let pair = Pair::new("10s");
    pair.start(
        "brief",
        &format!(
            "journal {} begun\nask \"Still there?\"\ndone yes",
            pair.journal("journal")
        ),
    );
    pair.until_status("brief", "waiting_parent_reply");
    pair.signal_runner(Signal::STOP);
    pair.hub.ok(&["reply", "brief", "yes"]);
    pair.signal_runner(Signal::CONT);
    let view = pair.hub.finished("brief");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert_eq!(pair.begun("journal"), 1);
}
