//! Snapshots of a run's tree: `adj show`, `adj diff` and `adj undo` in real repositories.

mod many;
mod patterns;
mod repositories;
mod undo;
mod undo_beside_others;
mod undo_saves;

use crate::changes::{git, repository, start};
use crate::support::{kill, lock_pid};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn git_output(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// Returns the snapshots of a run: number, cause and attempt.
fn listed(view: &Value) -> Vec<(u64, String, u64)> {
    let snapshots = view["snapshots"].as_array().cloned().unwrap_or_default();
    let row = |snapshot: &Value| {
        (
            snapshot["n"].as_u64().expect("a number"),
            snapshot["cause"].as_str().unwrap_or("").to_owned(),
            snapshot["attempt"].as_u64().unwrap_or(0),
        )
    };
    snapshots.iter().map(row).collect()
}

fn row(n: u64, cause: &str) -> (u64, String, u64) {
    (n, cause.to_owned(), 1)
}

/// Returns the user's state that a snapshot must not change.
pub fn own_state(work: &Path) -> (Vec<u8>, String, String) {
    let index = fs::read(work.join(".git/index")).expect("an index");
    let refs = git_output(
        work,
        &["for-each-ref", "refs/heads", "refs/tags", "refs/stash"],
    );
    (
        index,
        refs,
        fs::read_to_string(work.join(".git/logs/HEAD")).unwrap_or_default(),
    )
}

#[test]
fn start_and_end_snapshots_leave_the_users_state() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    git(&work, &["add", "mine.txt"]);
    fs::create_dir(work.join("new")).expect("a directory");
    let before = own_state(&work);
    start(
        &home,
        "echo",
        "writes",
        "write one.txt changed\nwrite new/file.txt x\nsay done",
        ".",
    );
    let view = home.finished("writes");
    assert_eq!(listed(&view), [row(1, "start"), row(2, "end")], "{view}");
    assert_eq!(
        own_state(&work),
        before,
        "the index, the branches and the reflog are the user's"
    );
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    assert_eq!(
        end,
        format!(
            "refs/adjutant/{}/2",
            view["run_id"].as_str().expect("an id")
        )
    );
    assert_eq!(
        git_output(&work, &["show", &format!("{end}:new/file.txt")]).trim_end(),
        "x"
    );
    assert_eq!(
        git_output(&work, &["show", &format!("{end}~1:mine.txt")]),
        "mine\n",
        "the first one has what was not committed"
    );
    assert_eq!(
        git_output(&work, &["rev-parse", &format!("{end}~2")]),
        git_output(&work, &["rev-parse", "HEAD"]),
        "it follows the user's commit"
    );
    let shown = home.ok(&["show", "writes"]);
    assert!(
        shown.contains("snapshot 1 (start of the attempt)")
            && shown.contains("snapshot 2 (end of the attempt)"),
        "{shown}"
    );
}

#[test]
fn diff_shows_what_a_run_changed() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    fs::create_dir(work.join("new")).expect("a directory");
    start(
        &home,
        "echo",
        "writes",
        "write one.txt changed\nwrite new/file.txt x\nsay done",
        ".",
    );
    home.finished("writes");
    let diff = home.ok(&["diff", "writes"]);
    assert!(
        diff.contains("-1\n+changed")
            && diff.contains("+++ b/new/file.txt")
            && !diff.contains("mine"),
        "{diff}"
    );
    let stat = home.ok(&["diff", "--stat", "writes"]);
    assert!(stat.contains("2 files changed"), "{stat}");
    let one = home.ok(&["diff", "writes", "1..2", "--", "new"]);
    assert!(
        one.contains("new/file.txt") && !one.contains("one.txt"),
        "{one}"
    );
    assert!(
        home.ok(&["diff", "--word-diff", "writes"])
            .contains("[-1-]{+changed+}")
    );
    assert_eq!(home.ok(&["diff", "writes", "2.."]), "");
    let json = home.json(&["diff", "writes"]);
    assert_eq!(
        (&json["from"]["n"], &json["to"]["n"]),
        (&json!(1), &json!(2)),
        "{json}"
    );
    let refused = home.adj(&["diff", "writes", "1..7"]);
    assert!(
        refused.code != 0 && refused.err.contains("writes has snapshots up to 2"),
        "{refused:?}"
    );
    let refused = home.adj(&["diff", "writes", "x"]);
    assert!(
        refused.code == 2 && refused.err.contains("not a range of snapshots"),
        "{refused:?}"
    );
}

#[test]
fn diff_of_a_live_run_shows_its_work_so_far() {
    let home = repository();
    start(
        &home,
        "echo",
        "asks",
        "write one.txt half\nask \"go on?\"\nwrite one.txt whole",
        ".",
    );
    home.until_status("asks", "waiting_parent_reply");
    assert!(home.ok(&["diff", "asks"]).contains("+half"));
    let again = home.json(&["diff", "asks"]);
    assert_eq!(
        again["to"]["n"], 2,
        "nothing has changed since, so no other is taken: {again}"
    );
    let refused = home.adj(&["undo", "asks"]);
    assert!(
        refused.code != 0 && refused.err.contains("pause or cancel it first"),
        "{refused:?}"
    );
    home.ok(&["reply", "asks", "yes"]);
    assert_eq!(
        listed(&home.finished("asks")),
        [row(1, "start"), row(2, "look"), row(3, "end")]
    );
    assert!(home.ok(&["diff", "asks", "2..3"]).contains("-half\n+whole"));
}

#[test]
fn work_of_a_killed_run_is_restored() {
    let home = repository();
    let work = home.work();
    start(
        &home,
        "echo",
        "killed",
        "write lost.txt treasure\nask \"go on?\"\ndone",
        ".",
    );
    home.until_status("killed", "waiting_parent_reply");
    let dir = home.attempt_dir("killed");
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = home.until("it is stopped", || {
        Some(home.show("killed")).filter(|view| view["state"] != "running")
    });
    assert_eq!(listed(&view), [row(1, "start"), row(2, "end")], "{view}");
    fs::remove_file(work.join("lost.txt")).expect("the user removes it");
    home.ok(&["undo", "killed", "2"]);
    assert_eq!(
        fs::read_to_string(work.join("lost.txt"))
            .expect("a file")
            .trim_end(),
        "treasure"
    );
}

#[test]
fn snapshots_are_removed_with_their_run() {
    let home = repository();
    start(&home, "echo", "old", "write one.txt x\nsay done", ".");
    home.finished("old");
    assert_eq!(
        git_output(&home.work(), &["for-each-ref", "refs/adjutant"])
            .lines()
            .count(),
        2
    );
    home.ok(&["clean", "--yes", "--older-than", "0s"]);
    assert_eq!(
        git_output(&home.work(), &["for-each-ref", "refs/adjutant"]),
        ""
    );
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt"))
            .expect("a file")
            .trim_end(),
        "x",
        "the tree stays"
    );
}

#[test]
fn diff_stays_what_the_run_changed_after_undos() {
    let home = repository();
    start(&home, "sh", "writes", "do echo run > one.txt", ".");
    home.finished("writes");
    let diff = home.ok(&["diff", "writes"]);
    for to in ["1", "2", "1"] {
        home.ok(&["undo", "writes", to]);
        assert_eq!(home.ok(&["diff", "writes"]), diff);
    }
}
