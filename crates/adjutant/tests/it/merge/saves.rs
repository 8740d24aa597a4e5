//! Files that the user saves while a merge writes them.

use super::{git_output, named_repository, run, user_state};
use crate::support::{Ran, TestHome};
use std::fs;
use std::path::{Path, PathBuf};

/// A home whose run `writes` has changed one.txt and lines.txt, removed two.txt and created
/// new/file, and the directory of the saves.
fn written() -> (TestHome, PathBuf) {
    let home = named_repository();
    run(
        &home,
        &[(
            "writes",
            "echo changed > one.txt; rm two.txt; mkdir new; echo new > new/file; echo more >> lines.txt",
        )],
    );
    home.ok(&["stop"]);
    let saves = home.home.dir.with_extension("saves");
    fs::create_dir(&saves).expect("a directory");
    (home, saves)
}

fn merge(home: &TestHome, saves: &Path, more: &[&str]) -> Ran {
    let mut command = home.command(&[&["merge", "writes"], more].concat());
    command
        .env("ADJ_FAILPOINT", format!("window={}", saves.display()))
        .output()
        .expect("adj runs")
        .into()
}

fn no_stray(work: &Path) {
    for dir in [work.to_owned(), work.join("new"), work.join(".git")] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(
                !name.starts_with(".adj-")
                    && !name.starts_with("adjutant-")
                    && name != "index.lock",
                "{name} is left"
            );
        }
    }
}

#[test]
fn save_at_the_last_look_reverts_a_merge() {
    for (mode, kind) in [
        ("--squash", "rename"),
        ("--rebase", "write"),
        ("--no-commit", "rename"),
    ] {
        let (home, saves) = written();
        let work = home.work();
        let before = user_state(&work);
        // Removals come first: this is two.txt.
        fs::write(saves.join(format!("looked.{kind}")), "saved\n").expect("a file");
        let refused = merge(&home, &saves, &[mode]);
        assert_eq!(refused.code, 7, "{mode}: {refused:?}");
        assert!(
            refused.err.contains("two.txt (changed meanwhile)")
                && refused.err.contains("commit or stash yours"),
            "{refused:?}"
        );
        assert_eq!(
            fs::read_to_string(work.join("two.txt")).expect("a file"),
            "saved\n"
        );
        fs::write(work.join("two.txt"), "1\n").expect("a file");
        assert_eq!(user_state(&work), before, "{mode}: all else is as before");
        no_stray(&work);
        // It can be repeated.
        home.ok(&["merge", "writes", mode]);
        assert_eq!(
            fs::read_to_string(work.join("new/file")).expect("a file"),
            "new\n"
        );
    }
}

#[test]
fn second_save_during_a_merge_keeps_both() {
    let (home, saves) = written();
    let work = home.work();
    fs::write(saves.join("looked.rename"), "first\n").expect("a file");
    fs::write(saves.join("checked.rename"), "second\n").expect("a file");
    let refused = merge(&home, &saves, &[]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("an earlier save is kept as two.txt.adj-kept-1"),
        "{refused:?}"
    );
    let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    assert_eq!(
        (read("two.txt"), read("two.txt.adj-kept-1")),
        ("second\n".to_owned(), "first\n".to_owned())
    );
}

#[test]
fn merge_leaves_files_that_a_program_has_open() {
    let (home, _) = written();
    let work = home.work();
    let base = git_output(&work, &["rev-parse", "HEAD"]);
    let open = fs::OpenOptions::new()
        .append(true)
        .open(work.join("lines.txt"))
        .expect("a file");
    let refused = home.adj(&["merge", "writes"]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("lines.txt (a program has it open for writing)"),
        "{refused:?}"
    );
    assert_eq!(
        (
            git_output(&work, &["rev-parse", "HEAD"]),
            git_output(&work, &["status", "--porcelain"])
        ),
        (base, String::new())
    );
    drop(open);
    home.ok(&["merge", "writes"]);
    no_stray(&work);
}

#[test]
fn merge_works_where_the_file_system_cannot_exchange_files() {
    let (home, saves) = written();
    let work = home.work();
    fs::write(saves.join("no-exchange"), "").expect("a file");
    let merged = merge(&home, &saves, &[]);
    assert!(
        merged.code == 0 && merged.err.contains("cannot exchange two files"),
        "{merged:?}"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    no_stray(&work);
}

/// The hub is killed at each moment of replacing a file that the user saves.
#[test]
fn save_survives_a_merge_that_is_killed() {
    for (saved, killed) in [
        ("looked", "looked"),
        ("looked", "exchanged"),
        ("looked", "checked"),
        ("exchanged", "exchanged"),
    ] {
        let (home, saves) = written();
        let work = home.work();
        fs::write(saves.join(format!("{saved}.rename")), "saved\n").expect("a file");
        fs::write(saves.join(format!("{killed}.kill")), "").expect("a file");
        let merged = merge(&home, &saves, &[]);
        assert!(
            !saves.join(format!("{killed}.kill")).exists(),
            "{killed} was not reached: {merged:?}"
        );
        assert_eq!(
            fs::read_to_string(work.join("two.txt")).expect("it stays"),
            "saved\n",
            "{saved}, {killed}: {merged:?}"
        );
        no_stray(&work);
    }
}

/// The user removes the lock of a merge that is killed, so that it is rolled back.
#[test]
fn merge_that_is_rolled_back_leaves_no_temporary_file() {
    for step in ["replace.looked", "replace.exchanged", "merge.after_files"] {
        let (home, saves) = written();
        let work = home.work();
        let state = user_state(&work);
        let reached = saves.join("reached");
        home.ok(&["ps"]);
        home.ok(&["stop"]);
        let mut hub = home.command(&["ps"]);
        assert!(
            hub.env("ADJ_FAILPOINT", format!("{step}={}", reached.display()))
                .output()
                .expect("adj runs")
                .status
                .success()
        );
        let call = adjutant_api::view::MergeRun {
            run: "writes".to_owned(),
            ..adjutant_api::view::MergeRun::default()
        };
        home.call(&call, "the-first-call")
            .expect_err("the hub is killed");
        assert!(reached.exists(), "{step} was not reached");
        fs::remove_file(work.join(".git/index.lock")).expect("the merge has locked the index");
        home.ok(&["ps"]);
        assert_eq!(user_state(&work), state, "{step}");
        no_stray(&work);
    }
}
