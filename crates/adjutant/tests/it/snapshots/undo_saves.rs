//! Files that the user saves while an undo replaces them.

use crate::changes::{repository, start};
use crate::support::{Ran, TestHome};
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// A home whose run `edits` has changed one.txt, removed two.txt and created new.txt, and the
/// directory of the saves.
fn edited() -> (TestHome, PathBuf) {
    let home = repository();
    start(
        &home,
        "sh",
        "edits",
        "do echo changed > one.txt; rm two.txt; echo new > new.txt",
        ".",
    );
    home.finished("edits");
    home.ok(&["stop"]);
    let saves = home.home.dir.with_extension("saves");
    fs::create_dir(&saves).expect("a directory");
    (home, saves)
}

fn undo(home: &TestHome, saves: &std::path::Path, more: &[&str]) -> Ran {
    let mut command = home.command(&[&["undo", "edits"], more].concat());
    command
        .env("ADJ_FAILPOINT", format!("window={}", saves.display()))
        .output()
        .expect("adj runs")
        .into()
}

/// The snapshot that can reverse the undo does not have the save, so the file must not be replaced.
#[test]
fn save_after_the_snapshot_survives_an_undo() {
    let (home, saves) = edited();
    fs::write(saves.join("snapshot.rename"), "saved\n").expect("a file");
    fs::write(
        saves.join("snapshot.to"),
        home.work().join("one.txt").display().to_string(),
    )
    .expect("a file");
    let undone = undo(&home, &saves, &[]);
    assert!(
        undone.code == 7 && undone.err.contains("one.txt: changed during the undo"),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "saved\n"
    );
    assert!(!home.work().join("new.txt").exists(), "others are restored");
}

#[test]
fn save_at_the_last_look_survives_an_undo() {
    for kind in ["rename", "write"] {
        let (home, saves) = edited();
        // Removals come first: this is new.txt.
        fs::write(saves.join(format!("looked.{kind}")), "saved\n").expect("a file");
        let undone = undo(&home, &saves, &[]);
        assert_eq!(undone.code, 7, "{kind}: {undone:?}");
        assert!(
            undone
                .err
                .contains("new.txt: changed during the undo, and is as you saved it"),
            "{undone:?}"
        );
        assert!(
            undone.err.contains("adj undo edits 1 --force"),
            "{undone:?}"
        );
        let read = |name: &str| fs::read_to_string(home.work().join(name)).expect("a file");
        assert_eq!(
            (read("new.txt"), read("one.txt"), read("two.txt")),
            ("saved\n".to_owned(), "1\n".to_owned(), "1\n".to_owned()),
            "{kind}"
        );
        // The command that is shown goes on.
        let again = home.json(&["undo", "edits", "1", "--force"]);
        assert_eq!(again["files"], json!(["new.txt"]), "{again}");
    }
}

#[test]
fn second_save_during_an_undo_keeps_both() {
    let (home, saves) = edited();
    fs::write(saves.join("looked.rename"), "first\n").expect("a file");
    fs::write(saves.join("swapping.rename"), "second\n").expect("a file");
    let undone = undo(&home, &saves, &["--json"]);
    let view: serde_json::Value = serde_json::from_str(&undone.out).expect("JSON");
    assert_eq!(
        (
            undone.code,
            &view["data"]["changed_meanwhile"],
            &view["data"]["kept_beside"]
        ),
        (7, &json!(["new.txt"]), &json!(["new.txt.adj-kept-1"]))
    );
    let read = |name: &str| fs::read_to_string(home.work().join(name)).expect("a file");
    assert_eq!(
        (read("new.txt"), read("new.txt.adj-kept-1")),
        ("second\n".to_owned(), "first\n".to_owned())
    );
}

#[test]
fn undo_leaves_files_that_a_program_has_open() {
    let (home, _) = edited();
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(home.work().join("one.txt"))
        .expect("a file");
    let undone = home.adj(&["undo", "edits"]);
    assert!(
        undone.code == 7
            && undone
                .err
                .contains("one.txt: a program has it open for writing"),
        "{undone:?}"
    );
    std::io::Write::write_all(&mut log, b"more\n").expect("it can be written");
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "changed\nmore\n"
    );
}

#[test]
fn undo_says_that_the_file_system_cannot_exchange_files() {
    let (home, saves) = edited();
    fs::write(saves.join("no-exchange"), "").expect("a file");
    let undone = undo(&home, &saves, &[]);
    assert!(
        undone.code == 0 && undone.err.contains("cannot exchange two files"),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "1\n"
    );
    // The last look is directly before the rename.
    home.ok(&["undo", "edits", "2"]);
    home.ok(&["stop"]);
    fs::remove_file(home.work().join("new.txt")).expect("removed");
    fs::write(saves.join("looked.rename"), "saved\n").expect("a file");
    let undone = undo(&home, &saves, &[]);
    assert!(
        undone.code == 7 && undone.err.contains("one.txt: changed during the undo"),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "saved\n"
    );
}

/// The hub is killed after the exchange, before it has looked at what came out.
#[test]
fn save_survives_an_undo_that_is_killed() {
    let (home, saves) = edited();
    fs::write(saves.join("looked.rename"), "saved\n").expect("a file");
    fs::write(saves.join("exchanged.kill"), "").expect("a file");
    let undone = undo(&home, &saves, &[]);
    assert_eq!(
        fs::read_to_string(home.work().join("new.txt")).expect("it is put back"),
        "saved\n",
        "{undone:?}"
    );
    let strays = fs::read_dir(home.work())
        .expect("a directory")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".adj-"));
    assert_eq!(strays.count(), 0);
}
