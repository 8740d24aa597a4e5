//! A hub that is killed at any step of a merge or a discard leaves a consistent state.

use super::{git_output, named_repository, run};
use adjutant_api::view::UndoRun;
use serde_json::json;
use std::fs;
use std::path::Path;

/// The user's repository is unchanged or contains the complete merge, and no file of Adjutant is
/// left in it.
fn is_whole(work: &Path, base: &str) -> bool {
    assert_eq!(git_output(work, &["status", "--porcelain"]), "");
    for entry in fs::read_dir(work.join(".git"))
        .expect("a git directory")
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            !name.starts_with("adjutant-") && name != "index.lock",
            "{name} is left"
        );
    }
    for entry in fs::read_dir(work).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.starts_with(".adj-"), "{name} is left");
    }
    let is_merged = git_output(work, &["rev-parse", "HEAD"]) != base;
    let read = |name: &str| fs::read_to_string(work.join(name)).ok();
    let (one, deep) = if is_merged {
        (Some("changed\n".to_owned()), Some("deep\n".to_owned()))
    } else {
        (Some("1\n".to_owned()), None)
    };
    assert_eq!((read("one.txt"), read("two.txt/deep")), (one, deep));
    is_merged
}

#[test]
fn killed_merge_is_finished_or_undone() {
    let steps = [
        ("merge.before_journal", false),
        ("merge.after_journal", false),
        ("merge.after_lock", true),
        ("merge.after_files", true),
        ("merge.after_index", true),
        ("merge.after_ref", true),
        ("merge.after_end", true),
    ];
    for (step, is_finished) in steps {
        let home = named_repository();
        let work = home.work();
        run(
            &home,
            &[(
                "writes",
                "echo changed > one.txt; rm two.txt; mkdir two.txt; echo deep > two.txt/deep",
            )],
        );
        let base = git_output(&work, &["rev-parse", "HEAD"]);
        home.ok(&["stop"]);
        let reached = home.home.dir.parent().expect("a parent").join("reached");
        let mut command = home.command(&["--json", "merge", "writes"]);
        let ran = command
            .env("ADJ_FAILPOINT", format!("{step}={}", reached.display()))
            .output()
            .expect("adj runs");
        assert!(reached.exists(), "{step} was not reached: {ran:?}");
        // The client has repeated its call at the next hub, which has recovered first.
        let view: serde_json::Value =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{step}: {ran:?}"));
        let expected = if is_finished {
            "already_merged"
        } else {
            "merged"
        };
        assert_eq!(view["data"]["outcome"], expected, "{step}: {ran:?}");
        assert!(is_whole(&work, &base), "{step}");
        assert_eq!(
            home.show("writes")["workspace"]["state"],
            "merged",
            "{step}"
        );
        assert_eq!(
            home.ok(&["events", "writes"]).matches("run.merged").count(),
            1,
            "{step}"
        );
        assert_eq!(
            git_output(&work, &["rev-list", "--count", &format!("{base}..HEAD")]),
            "1",
            "{step}"
        );
    }
}

#[test]
fn killed_discard_is_finished() {
    let home = named_repository();
    run(&home, &[("writes", "echo new > new.txt")]);
    let dir = home.show("writes")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    home.ok(&["stop"]);
    let reached = home.home.dir.parent().expect("a parent").join("reached");
    let mut command = home.command(&["discard", "writes"]);
    let ran = command
        .env(
            "ADJ_FAILPOINT",
            format!("discard.before_removal={}", reached.display()),
        )
        .output()
        .expect("adj runs");
    assert!(reached.exists() && ran.status.success(), "{ran:?}");
    assert!(!Path::new(&dir).exists());
    assert!(home.ok(&["diff", "writes"]).contains("new.txt"));
}

#[test]
fn interrupted_merge_of_a_removed_repository_is_forgotten_by_force() {
    let home = named_repository();
    run(&home, &[("writes", "echo changed > one.txt")]);
    home.ok(&["merge", "writes"]);
    home.ok(&["stop"]);
    let store = rusqlite::Connection::open(home.home.database()).expect("the store");
    store
        .execute("UPDATE merges SET is_done = 0", [])
        .expect("a merge that no hub has completed");
    drop(store);
    fs::rename(home.work().join(".git"), home.work().join("elsewhere")).expect("it is moved");
    let clean =
        |more: &[&str]| home.json(&[&["clean", "--older-than", "0s", "--yes"], more].concat());
    assert_eq!(
        clean(&[])["kept"],
        json!([{"run": "writes", "reason": "its merge is not complete, and its repository is gone: use --force"}])
    );
    assert_eq!(clean(&["--force"])["runs"], json!(["writes"]));
}

#[test]
fn workspace_with_an_interrupted_undo_is_not_merged() {
    let home = named_repository();
    run(
        &home,
        &[("writes", "echo changed > one.txt; echo new > new.txt")],
    );
    home.ok(&["stop"]);
    let reached = home.home.dir.with_extension("reached");
    let mut command = home.command(&["ps"]);
    let ran = command
        .env(
            "ADJ_FAILPOINT",
            format!("undo.applying={}", reached.display()),
        )
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    home.call(
        &UndoRun {
            run: "writes".to_owned(),
            ..UndoRun::default()
        },
        "the-first-call",
    )
    .expect_err("the hub is killed");
    assert!(reached.exists(), "the hub was killed");
    let refused = home.adj(&["merge", "writes"]);
    assert!(
        refused.code == 7
            && refused.err.contains("an undo of writes was interrupted")
            && refused.err.contains("adj undo writes 1"),
        "{refused:?}"
    );
    let before = home.show("writes")["undo_interrupted"]["before"].to_string();
    home.ok(&["undo", "writes", &before]);
    assert_eq!(home.json(&["merge", "writes"])["outcome"], "merged");
    assert_eq!(
        fs::read_to_string(home.work().join("new.txt")).expect("a file"),
        "new\n"
    );
}
