//! `--with-changes`: the user's uncommitted changes are in the workspace as they are in the
//! repository.

use super::{git_output, repository, succeeded, workspace};
use crate::changes::git;
use crate::snapshots::own_state;
use crate::support::TestHome;
use serde_json::json;
use std::fs;
use std::path::Path;

fn start_with(home: &TestHome, name: &str, isolation: &str, script: &str) {
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        isolation,
        "--with-changes",
        "-a",
        "sh",
        "-n",
        name,
        &format!("do {script}"),
    ]);
}

/// Staged, unstaged, untracked, ignored, and removed files.
fn make_changes(work: &Path) {
    fs::write(work.join(".gitignore"), "ignored\n").expect("a file");
    git(work, &["add", ".gitignore"]);
    git(work, &["commit", "-qm", "ignores"]);
    fs::write(work.join("one.txt"), "staged\n").expect("a file");
    fs::write(work.join("added.txt"), "added\n").expect("a file");
    git(work, &["add", "one.txt", "added.txt"]);
    fs::write(work.join("one.txt"), "unstaged\n").expect("a file");
    fs::remove_file(work.join("two.txt")).expect("removed");
    fs::write(work.join("untracked.txt"), "untracked\n").expect("a file");
    fs::write(work.join("ignored"), "ignored\n").expect("a file");
}

#[test]
fn uncommitted_changes_are_copied_unchanged() {
    let home = repository();
    let work = home.work();
    make_changes(&work);
    let (before, status) = (own_state(&work), git_output(&work, &["status", "--short"]));
    for isolation in ["clone", "worktree"] {
        start_with(
            &home,
            isolation,
            isolation,
            "git status --short; git show :one.txt; echo mine >> untracked.txt",
        );
        let view = succeeded(&home, isolation);
        let log = home.log(isolation);
        assert!(
            log.contains(&status) && log.contains("staged\n"),
            "{status}\n{log}"
        );
        let top = workspace(&view);
        assert_eq!(
            fs::read_to_string(top.join("one.txt")).expect("a file"),
            "unstaged\n"
        );
        assert!(!top.join("ignored").exists());
        // Only the agent's changes count as the run's.
        assert_eq!(view["changed_files"], json!(["untracked.txt"]), "{view}");
        let start = view["snapshots"][0]["git_ref"].as_str().expect("a ref");
        assert_eq!(
            git_output(&work, &["show", &format!("{start}:untracked.txt")]),
            "untracked"
        );
        assert_eq!(
            git_output(&work, &["rev-parse", &format!("{start}~1")]),
            view["workspace"]["base"].as_str().expect("a base")
        );
        assert!(
            home.ok(&["show", isolation])
                .contains(" with uncommitted changes, ")
        );
    }
    assert_eq!(own_state(&work), before);
    assert_eq!(git_output(&work, &["status", "--short"]), status);
}

#[test]
fn clean_tree_copies_nothing() {
    let home = repository();
    start_with(&home, "clean", "clone", "git status --short");
    let view = succeeded(&home, "clean");
    assert!(view["workspace"]["changes"].is_null(), "{view}");
}

#[test]
fn uncopyable_changes_are_refused() {
    let home = repository();
    let work = home.work();
    let refused = |args: &[&str], why: &str| {
        let ran = home.adj(args);
        assert!(ran.code != 0 && ran.err.contains(why), "{ran:?}");
    };
    refused(
        &["run", "-d", "--with-changes", "-a", "sh", "do true"],
        "use isolation clone or worktree",
    );
    let clone = [
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "do true",
    ];
    fs::File::create(work.join("large"))
        .and_then(|file| file.set_len(65 << 20))
        .expect("a file");
    refused(&clone, "\"large\" cannot be carried into a workspace");
    fs::remove_file(work.join("large")).expect("removed");
    git(&work, &["checkout", "-qb", "other"]);
    fs::write(work.join("one.txt"), "theirs\n").expect("a file");
    git(&work, &["commit", "-qam", "theirs"]);
    git(&work, &["checkout", "-q", "-"]);
    fs::write(work.join("one.txt"), "ours\n").expect("a file");
    git(&work, &["commit", "-qam", "ours"]);
    let mut merge = std::process::Command::new("git");
    merge
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "merge",
            "-q",
            "other",
        ])
        .current_dir(&work)
        .env("HOME", &work);
    assert!(!merge.status().expect("git").success());
    refused(&clone, "unresolved conflicts");
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
}
