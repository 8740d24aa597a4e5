//! Work of ended attempts that is only at their runner: it arrives later, and replaces nothing
//! newer.

use super::Pair;
use super::access::post;
use super::repositories::{end, git_output, second_runner, with_repository};
use crate::support::{kill, lock_pid};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Longer than a loaded machine holds a runner up: one that is lost before it is stopped sends its
/// work.
const LEASE: &str = "10s";

/// Starts a run that writes a file, and stops its runner until the attempt is lost.
pub(super) fn lose(pair: &Pair, run: &str) {
    pair.start(
        run,
        "write first.txt x\nsay ready\nhang\nresume-here\nwrite second.txt x\nsay again\nhang",
    );
    pair.until("it works", || {
        pair.log_there(run, 1).contains("ready").then_some(())
    });
    pair.until_status(run, "running");
    pair.signal_runner(Signal::STOP);
    let view = pair.until_status(run, "stopped");
    assert_eq!(view["reason"], "host_lost", "{view}");
    assert!(
        !pair.hub.ok(&["diff", run]).contains("first.txt"),
        "the hub does not have it yet"
    );
}

fn until_in_diff(pair: &Pair, run: &str, file: &str) -> String {
    pair.until("the work is there", || {
        Some(pair.hub.ok(&["diff", run])).filter(|diff| diff.contains(file))
    })
}

#[test]
fn work_of_a_lost_attempt_arrives_when_its_runner_is_back() {
    let pair = with_repository(Pair::new(LEASE));
    lose(&pair, "cut");
    pair.signal_runner(Signal::CONT);
    until_in_diff(&pair, "cut", "first.txt");
    let view = pair.hub.show("cut");
    assert_eq!(
        (&view["reason"], &view["attempt"]),
        (&json!("host_lost"), &json!(1)),
        "its state is as before: {view}"
    );
    pair.hub.ok(&["merge", "cut"]);
    assert!(pair.hub.work().join("first.txt").exists());
}

#[test]
fn work_of_a_lost_attempt_without_processes_arrives_with_the_next_runner() {
    let mut pair = with_repository(Pair::new(LEASE));
    pair.start("dead", "write first.txt x\nsay ready\nhang");
    pair.until("it works", || {
        pair.log_there("dead", 1).contains("ready").then_some(())
    });
    pair.until_status("dead", "running");
    // As if the machine had failed.
    let dir = pair.dir_there("dead", 1);
    pair.kill_runner();
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = pair.until_status("dead", "stopped");
    assert_eq!(view["reason"], "host_lost", "{view}");
    pair.start_runner();
    until_in_diff(&pair, "dead", "first.txt");
}

#[test]
fn late_work_does_not_replace_that_of_a_later_attempt() {
    let pair = with_repository(Pair::new(LEASE));
    lose(&pair, "moved");
    let (second, child) = second_runner(&pair);
    pair.hub.ok(&["resume", "moved"]);
    let path = adjutant_home::logs::log_path(&second.home.dir, &pair.hub.run_id("moved"), 2);
    pair.until("it works there", || {
        std::fs::read_to_string(&path)
            .unwrap_or_default()
            .contains("again")
            .then_some(())
    });
    pair.hub.ok(&["pause", "moved"]);
    pair.until_status("moved", "stopped");
    let refs = || {
        git_output(
            &pair.hub.work(),
            &[
                "for-each-ref",
                "--format=%(refname:lstrip=3) %(objectname)",
                "refs/adjutant",
            ],
        )
    };
    let before = refs();
    pair.signal_runner(Signal::CONT);
    let late = pair.until("the commits are kept", || {
        Some(refs()).filter(|refs| refs.contains("reflog/"))
    });
    let (kept, newer): (Vec<&str>, Vec<&str>) =
        late.lines().partition(|line| line.starts_with("reflog/"));
    assert_eq!(newer.join("\n"), before);
    let as_documented = git_output(
        &pair.hub.work(),
        &["for-each-ref", "refs/adjutant/*/reflog/*"],
    );
    assert_eq!(as_documented.lines().count(), kept.len());
    let files =
        |commit: &str| git_output(&pair.hub.work(), &["ls-tree", "-r", "--name-only", commit]);
    let has_first = |line: &&str| {
        line.split_once(' ')
            .is_some_and(|(_, commit)| files(commit).contains("first.txt"))
    };
    assert!(kept.iter().any(has_first), "{late}");
    let diff = pair.hub.ok(&["diff", "moved"]);
    assert!(
        diff.contains("second.txt") && !diff.contains("first.txt"),
        "{diff}"
    );
    end(child);
}

#[test]
fn unsent_work_is_sent_again_after_a_pause() {
    let mut pair = with_repository(Pair::without_runner(LEASE));
    pair.start_runner_with(|command| {
        command.env("ADJ_FAILPOINT", "unsent=300");
    });
    lose(&pair, "cut");
    let (git, away) = (
        pair.hub.work().join(".git"),
        pair.hub.work().join(".git-away"),
    );
    std::fs::rename(&git, &away).expect("moved");
    pair.signal_runner(Signal::CONT);
    // When it joins and when the attempt ends, it is sent once each. All further times are after
    // the pause.
    let failures = || {
        pair.runner_log()
            .matches("the work of an ended attempt cannot be sent yet")
            .count()
    };
    pair.until("it is sent again", || (failures() >= 5).then_some(()));
    std::fs::rename(&away, &git).expect("moved back");
    until_in_diff(&pair, "cut", "first.txt");
}

#[test]
fn stored_work_cannot_be_changed_after_the_end() {
    let mut pair = with_repository(Pair::new("60s"));
    pair.start("over", "write first.txt x\ndone yes");
    assert_eq!(pair.hub.finished("over")["outcome"], "succeeded");
    until_in_diff(&pair, "over", "first.txt");
    let place = pair
        .there
        .home
        .runs_dir()
        .join(pair.hub.run_id("over"))
        .join("place.json");
    let is_forgotten = || {
        std::fs::read_to_string(&place)
            .is_ok_and(|text| text.contains("\"unsent\":null"))
            .then_some(())
    };
    pair.until("the runner has nothing to send", is_forgotten);
    pair.kill_runner();
    let identity = std::fs::read_to_string(pair.there.home.runner_identity()).expect("an identity");
    let identity: Value = serde_json::from_str(&identity).expect("JSON");
    let (home, token) = (
        identity["id"].as_str().expect("an id"),
        std::fs::read_to_string(pair.token_file()).expect("a token"),
    );
    let joined = pair.until("the session of the killed runner has ended", || {
        let (status, body) = post(
            &pair,
            token.trim(),
            "/runner/join",
            &[],
            &json!({"home_id": home, "pools": ["gpu"], "slots": 1}),
        );
        (status == "200").then_some(body)
    });
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    let attempt = format!("{}/1", pair.hub.run_id("over"));
    let own = [
        (
            "adj-runner-session",
            joined["session"].as_str().expect("a session"),
        ),
        ("adj-runner-home", home),
        ("adj-attempt", &attempt),
    ];
    for (path, body) in [
        ("/runner/refs", json!({"attempt": attempt})),
        ("/runner/snapshots", json!({"refs": {}})),
    ] {
        let (status, body) = post(&pair, token.trim(), path, &own, &body);
        assert!(
            status == "409" && body.contains("has ended"),
            "{path}: {status} {body}"
        );
    }
}
