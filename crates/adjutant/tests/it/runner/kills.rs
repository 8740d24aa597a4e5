//! Hub and runner are killed and connections break: nothing starts twice, and every fact counts
//! once.

use super::Pair;
use adjutant_home::logs::kept::AttemptLogs;
use rustix::process::Signal;
use serde_json::json;

/// A script whose agent records its start and waits for an answer.
fn asking(pair: &Pair) -> String {
    format!(
        "journal {} begun\nask \"Still there?\"\ndone yes",
        pair.journal("journal")
    )
}

#[test]
fn killed_runner_leaves_its_runs_and_finds_them_again() {
    let mut pair = Pair::new("60s");
    let script = asking(&pair);
    pair.start("asker", &script);
    pair.until_status("asker", "waiting_parent_reply");
    pair.kill_runner();
    pair.hub.ok(&["reply", "asker", "yes"]);
    pair.start_runner();
    let view = pair.hub.finished("asker");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert_eq!(pair.begun("journal"), 1);
    let log = pair.log_there("asker", 1);
    assert_eq!(log.matches("answer: ").count(), 1, "{log}");
    assert_eq!(
        pair.hub.inbox(&["--all"]).as_array().map(Vec::len),
        Some(1),
        "no question was asked twice"
    );
}

#[test]
fn run_that_ends_without_its_runner_is_reported_by_the_next_one() {
    let mut pair = Pair::new("60s");
    let go = pair.there.work().join("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    pair.start(
        "alone",
        &format!(
            "journal {} begun\njournal {} go\nsay alone",
            pair.journal("journal"),
            go.display()
        ),
    );
    pair.until("the agent works", || {
        (pair.begun("journal") == 1).then_some(())
    });
    pair.kill_runner();
    // Opening the FIFO lets the agent end.
    std::fs::read_to_string(&go).expect("the agent writes");
    // Its supervisor waits for a hub; without one it leaves its facts on disk.
    let dir = pair.dir_there("alone", 1);
    pair.until("its last fact is on disk", || {
        let facts = std::fs::read_to_string(dir.facts()).unwrap_or_default();
        facts.contains("\"fact\":\"ended\"").then_some(())
    });
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        crate::support::kill(crate::support::lock_pid(&lock));
    }
    pair.start_runner();
    let view = pair.hub.finished("alone");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert_eq!(view["result"], "alone", "{view}");
    assert_eq!(pair.begun("journal"), 1);
}

#[test]
fn killed_hub_finds_the_runs_of_its_runners() {
    let pair = Pair::new("60s");
    let script = asking(&pair);
    pair.start("asker", &script);
    pair.until_status("asker", "waiting_parent_reply");
    for _ in 0..2 {
        pair.kill_hub();
        pair.revive_hub();
    }
    pair.hub.ok(&["reply", "asker", "yes"]);
    let view = pair.hub.finished("asker");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert_eq!(pair.begun("journal"), 1);
    assert_eq!(
        pair.hub.inbox(&["--all"]).as_array().map(Vec::len),
        Some(1),
        "no question was asked twice"
    );
}

#[test]
fn lost_supervisor_is_reported_with_its_facts() {
    let pair = Pair::new("60s");
    pair.start("lost", "say some words\nhang");
    pair.until("the agent works", || {
        pair.log_there("lost", 1)
            .contains("some words")
            .then_some(())
    });
    pair.until_status("lost", "running");
    let (dir, id) = (pair.dir_there("lost", 1), pair.hub.run_id("lost"));
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        crate::support::kill(crate::support::lock_pid(&lock));
    }
    let view = pair.until("it has stopped", || {
        Some(pair.hub.show("lost")).filter(|view| view["state"] == "stopped")
    });
    assert_eq!(view["reason"], "supervisor_lost", "{view}");
    assert!(
        view.to_string().contains("some words"),
        "the end of its output is kept: {view}"
    );
    pair.until("no process is left", || {
        pair.there.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn order_that_the_runner_did_not_start_is_given_again() {
    let mut pair = Pair::new("60s");
    // After this run, the runner waits for another one.
    pair.start("first", "done yes");
    pair.hub.finished("first");
    // The hub claims the run for a runner that cannot read its reply any more.
    pair.signal_runner(Signal::STOP);
    let script = asking(&pair);
    pair.start("asker", &script);
    pair.until("the run is claimed", || {
        (pair.hub.show("asker")["attempt"] == 1).then_some(())
    });
    pair.kill_runner();
    pair.start_runner();
    let view = pair.until_status("asker", "waiting_parent_reply");
    assert_eq!(view["attempt"], 2, "the first attempt never started");
    pair.hub.ok(&["reply", "asker", "yes"]);
    assert_eq!(pair.hub.finished("asker")["outcome"], "succeeded");
    assert_eq!(pair.begun("journal"), 1);
}

#[test]
fn runner_on_term_ends_with_its_runs() {
    let mut pair = Pair::new("60s");
    let script = asking(&pair);
    pair.start("asker", &script);
    pair.until_status("asker", "waiting_parent_reply");
    pair.signal_runner(Signal::TERM);
    pair.until("it drains", || {
        pair.runner_log()
            .contains("no further attempts are started")
            .then_some(())
    });
    pair.hub.ok(&["reply", "asker", "yes"]);
    assert_eq!(pair.hub.finished("asker")["outcome"], "succeeded");
    let ended = pair
        .runner
        .take()
        .expect("a runner")
        .wait()
        .expect("it ends");
    assert!(ended.success(), "{ended:?}");
    let logs = AttemptLogs {
        home: pair.hub.home.dir.clone(),
        run_id: pair.hub.run_id("asker"),
        attempt: 1,
    };
    assert!(logs.are_kept().expect("a record"), "the hub has its logs");
    pair.start("late", "done yes");
    let view = pair.hub.show("late");
    assert_eq!(view["status"], "queued", "{view}");
}

#[test]
fn interrupted_runner_leaves_its_runs_and_finds_them_again() {
    let mut pair = Pair::new("60s");
    let script = asking(&pair);
    pair.start("asker", &script);
    pair.until_status("asker", "waiting_parent_reply");
    pair.signal_runner(Signal::INT);
    let ended = pair
        .runner
        .take()
        .expect("a runner")
        .wait()
        .expect("it ends");
    assert!(ended.success(), "{ended:?}");
    assert_eq!(
        pair.hub.show("asker")["status"],
        "waiting_parent_reply",
        "its agent still waits"
    );
    pair.hub.ok(&["reply", "asker", "yes"]);
    pair.start_runner();
    let view = pair.hub.finished("asker");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    assert_eq!(pair.begun("journal"), 1);
}

#[test]
fn runner_that_never_joined_names_the_wrong_scheme_and_ends_on_term() {
    let secure = Pair::with_tls("60s");
    let plain = Pair::without_runner("60s");
    for (mut pair, scheme, wrong, named) in [
        (
            plain,
            "http:",
            "https:",
            "does not use TLS: use an http address",
        ),
        (
            secure,
            "https:",
            "http:",
            "use an https address if the hub has a certificate",
        ),
    ] {
        pair.url = pair.url.replace(scheme, wrong);
        pair.hub.ok(&["ps"]);
        let log = std::fs::File::create(pair.log_file()).expect("a log");
        pair.runner = Some(pair.runner_command().stderr(log).spawn().expect("a runner"));
        pair.until("it names the other scheme", || {
            pair.runner_log().contains(named).then_some(())
        });
        pair.signal_runner(Signal::TERM);
        let ended = pair
            .runner
            .take()
            .expect("a runner")
            .wait()
            .expect("it ends");
        let log = pair.runner_log();
        assert!(
            ended.success() && !log.contains("the hub cannot be reached"),
            "{ended:?} {log}"
        );
    }
}
