//! The hub keeps the logs of attempts on runners.

use super::Pair;
use super::repositories::{end, second_runner};
use adjutant_api::view::{ReadLogs, ReadResult};
use adjutant_home::logs::kept::AttemptLogs;
use adjutant_home::logs::{log_path, times_path};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Output of several parts, of which the log keeps all.
const LONG: &str = "flood 3000000";

fn kept(pair: &Pair, run: &str, attempt: u32) -> AttemptLogs {
    AttemptLogs {
        home: pair.hub.home.dir.clone(),
        run_id: pair.hub.run_id(run),
        attempt,
    }
}

fn until_kept(pair: &Pair, run: &str, attempt: u32) {
    let logs = kept(pair, run, attempt);
    pair.until("the hub has the logs", || {
        logs.are_kept().expect("a record").then_some(())
    });
}

/// Compares the log at the hub with the one at the runner, which does not run.
fn assert_whole(pair: &Pair, run: &str) {
    let there = pair.log_there(run, 1);
    assert!(there.len() > 2_000_000, "{}", there.len());
    let read = pair.hub.adj(&["logs", run]);
    assert!(
        read.code == 0 && read.out.trim_end() == there.trim_end(),
        "{} of {} bytes; {}",
        read.out.len(),
        there.len(),
        read.err
    );
    let id = pair.hub.run_id(run);
    let files = |home: &Path| -> [PathBuf; 2] {
        [
            log_path(home, &id, 1),
            times_path(home, &id, 1, adjutant_home::logs::Output::Text),
        ]
    };
    for (here, there) in files(&pair.hub.home.dir)
        .iter()
        .zip(files(&pair.there.home.dir))
    {
        assert!(
            std::fs::read(here).expect("a file") == std::fs::read(there).expect("a file"),
            "{}",
            here.display()
        );
    }
}

#[test]
fn logs_and_results_are_kept_without_the_runner() {
    let mut pair = Pair::new("60s");
    pair.start("far", &format!("{LONG}\ndone yes"));
    pair.start("small", "line 20000\ndone yes");
    for run in ["far", "small"] {
        assert_eq!(pair.hub.finished(run)["outcome"], "succeeded");
        until_kept(&pair, run, 1);
    }
    pair.kill_runner();
    assert_whole(&pair, "far");
    let shown = pair.hub.json(&["show", "far"]);
    assert_eq!(
        shown["log_path"],
        json!(log_path(&pair.hub.home.dir, &pair.hub.run_id("far"), 1)),
        "{shown}"
    );
    assert_eq!(shown.get("log_runner"), None, "{shown}");
    let page = pair.hub.json(&["logs", "-n", "1", "far"]);
    assert_eq!(
        (&page["ended"], page.get("missing")),
        (&json!(true), None),
        "{page}"
    );
    let result = pair
        .hub
        .call(
            &ReadResult {
                run: "small".to_owned(),
            },
            "",
        )
        .expect("a result");
    assert!(
        !result.is_cut && result.result.len() >= 20_000,
        "{} bytes",
        result.result.len()
    );
    // They are removed with the run.
    let id = pair.hub.run_id("far");
    pair.hub.ok(&["rm", "far"]);
    assert!(
        !log_path(&pair.hub.home.dir, &id, 1).exists()
            && !pair.hub.home.runs_dir().join(&id).exists()
    );
}

/// Waits for the success of a run and for its logs at the hub, which are whole without the runner.
fn assert_kept_whole(pair: &mut Pair, run: &str) {
    assert_eq!(pair.hub.finished(run)["outcome"], "succeeded");
    until_kept(pair, run, 1);
    pair.kill_runner();
    assert_whole(pair, run);
}

#[test]
fn logs_are_whole_after_the_hub_is_killed_while_it_stores_them() {
    for failpoint in ["logs.part_stored", "logs.accepted"] {
        let mut pair = Pair::without_runner("60s");
        pair.hub.ok(&["stop"]);
        let fired = pair.hub.work().join("fired");
        let mut hub = pair.hub.command(&["__hub"]);
        hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut hub = hub.spawn().expect("a hub");
        pair.until("the hub takes calls", || {
            pair.hub.call(&adjutant_api::view::GetHub {}, "").ok()
        });
        pair.start_runner();
        pair.start("far", &format!("{LONG}\ndone yes"));
        assert!(!hub.wait().expect("it dies").success() && fired.exists());
        pair.revive_hub();
        assert_kept_whole(&mut pair, "far");
    }
}

#[test]
fn logs_are_whole_after_the_runner_is_killed_while_it_sends_them() {
    let mut pair = Pair::without_runner("60s");
    let fired = pair.there.work().join("fired");
    let mut runner = pair.runner_command();
    runner
        .env(
            "ADJ_FAILPOINT",
            format!("logs.part_sent={}", fired.display()),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut runner = runner.spawn().expect("a runner");
    pair.start("far", &format!("{LONG}\ndone yes"));
    assert!(!runner.wait().expect("it dies").success() && fired.exists());
    assert!(!kept(&pair, "far", 1).are_kept().expect("a record"));
    // A part is not shown as the log.
    let read = pair.hub.adj(&["logs", "far"]);
    assert!(read.code == 6 && read.out.is_empty(), "{read:?}");
    pair.start_runner();
    assert_kept_whole(&mut pair, "far");
}

#[test]
fn logs_of_a_killed_supervisor_are_kept() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say hello\nask \"Go on?\"\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    let dir = pair.dir_there("far", 1);
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        crate::support::kill(crate::support::lock_pid(&lock));
    }
    until_kept(&pair, "far", 1);
    pair.kill_runner();
    pair.until("the log is read here", || {
        pair.hub
            .adj(&["logs", "far"])
            .out
            .contains("hello")
            .then_some(())
    });
}

#[test]
fn log_spans_attempts_on_several_runners() {
    let mut pair = Pair::new("60s");
    pair.start(
        "far",
        "say first line\nhang\nresume-here\nsay second line\nhang",
    );
    pair.until("it works", || {
        pair.log_there("far", 1)
            .contains("first line")
            .then_some(())
    });
    pair.hub.ok(&["pause", "far"]);
    pair.until_status("far", "stopped");
    until_kept(&pair, "far", 1);
    pair.kill_runner();
    let (_second, child) = second_runner(&pair);
    pair.hub.ok(&["resume", "--detach", "far"]);
    let log = pair.until("the log has both attempts", || {
        Some(pair.hub.ok(&["logs", "far"])).filter(|log| log.contains("second line"))
    });
    assert!(
        log.contains("first line") && log.find("first line") < log.find("second line"),
        "{log}"
    );
    // The positions of the second attempt follow those of the first one, before and after the hub
    // has it.
    let first = std::fs::metadata(log_path(&pair.hub.home.dir, &pair.hub.run_id("far"), 1))
        .expect("a log")
        .len();
    let call = ReadLogs {
        run: "far".to_owned(),
        after: Some(first),
        ..ReadLogs::default()
    };
    let live = pair.hub.call(&call, "").expect("a page");
    assert!(
        live.from == first
            && live.text.contains("second line")
            && live.text.lines().all(|line| line != "first line"),
        "{live:?}"
    );
    pair.hub.ok(&["cancel", "far"]);
    pair.hub.finished("far");
    until_kept(&pair, "far", 2);
    end(child);
    let kept = pair.hub.call(&call, "").expect("a page");
    assert!(
        kept.text.starts_with(&live.text) && kept.from == first && kept.missing.is_empty(),
        "{kept:?}"
    );
}

#[test]
fn output_that_is_only_on_another_runner_is_named() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say one\nhang\nresume-here\nsay two\ndone yes");
    pair.until("it works", || {
        pair.log_there("far", 1).contains("one").then_some(())
    });
    pair.hub.ok(&["pause", "far"]);
    pair.until_status("far", "stopped");
    until_kept(&pair, "far", 1);
    pair.kill_runner();
    // As if the hub had not received it.
    let record = pair
        .hub
        .home
        .runs_dir()
        .join(pair.hub.run_id("far"))
        .join("1")
        .join("kept.json");
    std::fs::remove_file(record).expect("a record");
    let (_second, child) = second_runner(&pair);
    pair.hub.ok(&["resume", "--detach", "far"]);
    pair.hub.finished("far");
    until_kept(&pair, "far", 2);
    end(child);
    let read = pair.hub.adj(&["logs", "far"]);
    assert!(read.code == 0 && read.out.contains("two"), "{read:?}");
    assert!(
        read.err
            .contains("the output of attempt 1 is left out: it is on the runner gpu1"),
        "{read:?}"
    );
}

#[test]
fn logs_of_a_runner_are_moved_to_the_log_store() {
    let store = tempfile::Builder::new()
        .prefix("adj-logs-")
        .tempdir()
        .expect("a directory");
    let mut pair = Pair::with_settings("60s", &crate::log_store::setting(store.path()));
    pair.start_runner();
    pair.start("far", &format!("{LONG}\ndone yes"));
    assert_eq!(pair.hub.finished("far")["outcome"], "succeeded");
    crate::log_store::until_moved(&pair.hub, "far", 1);
    pair.kill_runner();
    let (there, read) = (pair.log_there("far", 1), pair.hub.adj(&["logs", "far"]));
    assert!(
        there.len() > 2_000_000 && read.code == 0 && read.out.trim_end() == there.trim_end(),
        "{} bytes; {}",
        read.out.len(),
        read.err
    );
    // Another home of the same store finds them by their names.
    let id = pair.hub.run_id("far");
    std::fs::remove_dir_all(pair.hub.home.runs_dir().join(&id))
        .expect("nothing of the attempt is here");
    pair.hub.ok(&["stop"]);
    assert!(pair.hub.log("far").trim_end() == there.trim_end());
    pair.hub.ok(&["rm", "far"]);
    assert!(!store.path().join(&id).join("1/index.json").exists());
}

#[test]
fn moved_log_of_a_connected_runner_is_unreachable_without_the_log_store() {
    let store = tempfile::Builder::new()
        .prefix("adj-logs-")
        .tempdir()
        .expect("a directory");
    let mut pair = Pair::with_settings("60s", &crate::log_store::setting(store.path()));
    pair.start_runner();
    pair.start("far", "say hello\ndone yes");
    assert_eq!(pair.hub.finished("far")["outcome"], "succeeded");
    crate::log_store::until_moved(&pair.hub, "far", 1);
    let aside = store.path().with_extension("aside");
    std::fs::rename(store.path(), &aside).expect("the directory is moved");
    pair.hub.ok(&["stop"]);
    pair.start("again", "say hello\ndone yes");
    assert_eq!(
        pair.hub.finished("again")["outcome"],
        "succeeded",
        "the runner is connected"
    );
    let refused = pair.hub.adj(&["logs", "far"]);
    assert!(
        refused.code == 6 && refused.err.contains("log store"),
        "{refused:?}"
    );
    assert!(pair.hub.ok(&["logs", "again"]).contains("hello"));
    std::fs::rename(&aside, store.path()).expect("the directory is back");
    assert!(pair.hub.ok(&["logs", "far"]).contains("hello"));
}
