//! `adj undo` leaves the work of the user and of other runs.

use crate::changes::{git, repository, start};
use serde_json::json;
use std::fs;

#[test]
fn undo_stays_in_the_directory_of_its_run() {
    let home = repository();
    let work = home.work();
    for dir in ["a", "b"] {
        fs::create_dir(work.join(dir)).expect("a directory");
    }
    start(&home, "echo", "first", "write mine.txt x\nsay done", "a");
    home.finished("first");
    fs::write(work.join("b/theirs.txt"), "y\n").expect("a file");
    let undone = home.json(&["undo", "first"]);
    assert_eq!(undone["files"], json!(["a/mine.txt"]), "{undone}");
    assert!(work.join("b/theirs.txt").exists());
    // While another run works in a parent directory, nothing is restored.
    start(&home, "echo", "above", "say works\nhang", ".");
    home.until_log("above", "works");
    let refused = home.adj(&["undo", "first", "2"]);
    assert!(
        refused.code != 0
            && refused.err.contains("above works in or around")
            && refused.err.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(
        home.json(&["undo", "first", "2", "--force"])["files"],
        json!(["a/mine.txt"])
    );
    home.ok(&["cancel", "above"]);
}

/// In a normal day, a run always waits in the main directory: that is no reason to refuse an undo.
#[test]
fn run_that_only_waits_does_not_block_an_undo() {
    let home = repository();
    let work = home.work();
    start(&home, "echo", "idle", "ask \"go on?\"", ".");
    home.until_status("idle", "waiting_parent_reply");
    start(&home, "sh", "changes", "do echo run > one.txt", ".");
    let view = home.finished("changes");
    assert!(view["changed_beside"].is_null(), "{view}");
    assert_eq!(home.json(&["undo", "changes"])["files"], json!(["one.txt"]));
    start(&home, "sh", "again", "do echo run > one.txt", ".");
    home.finished("again");
    home.ok(&["reply", "idle", "yes"]);
    home.finished("idle");
    assert_eq!(
        home.json(&["undo", "again"])["files"],
        json!(["one.txt"]),
        "idle waited all the time"
    );
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
}

#[test]
fn undo_leaves_the_work_of_others() {
    let home = repository();
    let work = home.work();
    let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    start(
        &home,
        "sh",
        "first",
        "do echo run > one.txt; echo new > new.txt",
        ".",
    );
    home.finished("first");
    // Another run, and a commit of the user's.
    start(&home, "sh", "second", "do echo second > two.txt", ".");
    home.finished("second");
    fs::write(work.join("mine"), "mine\n").expect("a file");
    git(&work, &["add", "mine"]);
    git(&work, &["commit", "-qm", "mine"]);
    fs::write(work.join("one.txt"), "run\nmine\n").expect("a file");
    let refused = home.adj(&["undo", "first"]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("these files have changed since the run: one.txt"),
        "{refused:?}"
    );
    assert!(
        refused.err.contains("--force") && !refused.err.contains("new.txt"),
        "{refused:?}"
    );
    assert_eq!(
        (read("one.txt").as_str(), read("new.txt").as_str()),
        ("run\nmine\n", "new\n"),
        "nothing was changed"
    );
    let undone = home.json(&["undo", "--force", "first"]);
    assert_eq!(undone["files"], json!(["new.txt", "one.txt"]), "{undone}");
    assert_eq!(
        (
            read("one.txt").as_str(),
            read("two.txt").as_str(),
            read("mine").as_str()
        ),
        ("1\n", "second\n", "mine\n")
    );
    // Only a snapshot contains the line that the user has added.
    let before = undone["before"]["n"].to_string();
    let kept = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(
        kept.err.contains(&format!(
            "kept first: only its snapshot {before}, taken before an undo, has the replaced one.txt: adj undo first {before} restores it"
        )),
        "{kept:?}"
    );
    home.ok(&["undo", "first", &before]);
    assert_eq!(read("one.txt"), "run\nmine\n");
    // Now the tree contains it.
    let cleaned = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(cleaned.out.contains("first"), "{cleaned:?}");
}

/// The user edits a file between two attempts of a run that changes other files.
#[test]
fn undo_leaves_edits_between_attempts() {
    let home = repository();
    let work = home.work();
    let read = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    let two_attempts = |name: &str, second: &str| {
        start(
            &home,
            "echo",
            name,
            &format!("write {name}-1 x\nhang\nresume-here\n{second}"),
            ".",
        );
        home.until("the first file is there", || {
            work.join(format!("{name}-1")).exists().then_some(())
        });
        home.ok(&["pause", name]);
        home.until_status(name, "stopped");
        fs::write(work.join("one.txt"), format!("mine beside {name}\n")).expect("a file");
        home.ok(&["resume", name]);
        home.finished(name);
    };
    two_attempts("apart", "write apart-2 x");
    let shown = home.adj(&["diff", "apart"]);
    assert!(
        shown
            .err
            .contains("includes edits that were made between its attempts"),
        "{shown:?}"
    );
    assert_eq!(
        home.json(&["undo", "apart"])["files"],
        json!(["apart-1", "apart-2"])
    );
    assert_eq!(read("one.txt"), "mine beside apart\n");
    // The run changes the same file afterwards, so only the snapshot at an attempt's start contains
    // the edit.
    two_attempts("same", "write one.txt run");
    let refused = home.adj(&["undo", "same"]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("these files have changed since the run: one.txt"),
        "{refused:?}"
    );
    home.ok(&["undo", "same", "3"]);
    assert_eq!(
        read("one.txt"),
        "mine beside same\n",
        "what the later attempt began with"
    );
    home.ok(&["undo", "--force", "same"]);
    assert_eq!(read("one.txt"), "mine beside apart\n");
    let kept = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(
        kept.err.contains("kept same: ") && kept.err.contains("has the replaced one.txt"),
        "{kept:?}"
    );
}

#[test]
fn undo_asks_before_it_reverts_the_work_of_a_concurrent_run() {
    let home = repository();
    let work = home.work();
    start(
        &home,
        "echo",
        "first",
        "ask \"go on?\"\nwrite first.txt x",
        ".",
    );
    home.until_status("first", "waiting_parent_reply");
    start(&home, "sh", "second", "do echo second > two.txt", ".");
    home.finished("second");
    home.ok(&["reply", "first", "yes"]);
    home.finished("first");
    let refused = home.adj(&["undo", "first"]);
    let expected = "it is not known who changed these files, because second worked in the directory at the same time: two.txt";
    assert!(
        refused.code == 7 && refused.err.contains(expected) && refused.err.contains("--force"),
        "{refused:?}"
    );
    assert_eq!(
        fs::read_to_string(work.join("two.txt")).expect("a file"),
        "second\n"
    );
    assert_eq!(
        home.json(&["undo", "--force", "first"])["files"],
        json!(["first.txt", "two.txt"])
    );
}
