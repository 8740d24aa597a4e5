//! The changed files in `adj show`: what differs from the state at the start of the run.

use crate::support::TestHome;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

pub fn git(dir: &Path, args: &[&str]) {
    let identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
    ];
    let done = Command::new("git")
        .args(identity)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
}

/// Creates a home whose working directory is a repository with two committed files, and an agent
/// that is a shell.
pub fn repository() -> TestHome {
    repository_with(
        "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\n",
    )
}

/// The same with another configuration.
pub fn repository_with(config: &str) -> TestHome {
    let home = TestHome::with_config(config);
    for name in ["one.txt", "two.txt"] {
        std::fs::write(home.work().join(name), "1\n").expect("a file");
    }
    git(&home.work(), &["init", "-q"]);
    git(&home.work(), &["add", "."]);
    git(&home.work(), &["commit", "-qm", "x"]);
    home
}

/// Starts a run in the repository, with git on its PATH.
pub fn start(home: &TestHome, agent: &str, name: &str, prompt: &str, dir: &str) {
    let mut command = home.command(&["run", "-d", "-a", agent, "-n", name, "-C", dir, prompt]);
    let ran = command
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
}

fn changed(view: &Value) -> &Value {
    &view["changed_files"]
}

#[test]
fn only_changes_since_the_start_are_shown() {
    let home = repository();
    let work = home.work();
    std::fs::write(work.join("mine.txt"), "x").expect("a file");
    std::fs::write(work.join("one.txt"), "mine\n").expect("a file");
    start(&home, "echo", "idle", "report success ok", ".");
    assert_eq!(changed(&home.finished("idle")), &json!([]));
    assert!(
        !home.ok(&["show", "idle"]).contains("changed "),
        "{}",
        home.ok(&["show", "idle"])
    );
    // A run without a report changes an already changed file again and adds a file in a new
    // directory.
    std::fs::create_dir_all(work.join("new/dir")).expect("directories");
    start(
        &home,
        "echo",
        "writes",
        "write mine.txt again\nwrite new/dir/file.txt x\nsay done",
        ".",
    );
    let view = home.finished("writes");
    assert_eq!(
        changed(&view),
        &json!(["mine.txt", "new/dir/file.txt"]),
        "{view}"
    );
    assert!(
        view["changed_beside"].is_null() && view["changed_before_too"].is_null(),
        "{view}"
    );
    assert!(
        home.ok(&["show", "writes"])
            .contains("mine.txt, new/dir/file.txt\n")
    );
    // Files that were committed or restored count as changed too.
    let script = "do echo 2 > two.txt\ndo git -c user.name=t -c user.email=t@t commit -qm y two.txt\ndo git checkout -q one.txt\n";
    start(&home, "sh", "commits", script, ".");
    let view = home.finished("commits");
    assert_eq!(
        (changed(&view), &view["outcome"]),
        (&json!(["one.txt", "two.txt"]), &json!("succeeded")),
        "{view}"
    );
}

#[test]
fn changes_of_concurrent_runs_are_not_attributed() {
    let home = repository();
    std::fs::create_dir(home.work().join("sub")).expect("a directory");
    start(
        &home,
        "echo",
        "ann",
        "write a.txt x\nask \"go on?\"\ndone",
        ".",
    );
    home.until_status("ann", "waiting_parent_reply");
    start(
        &home,
        "echo",
        "bob",
        "write b.txt x\nask \"go on?\"\ndone",
        "sub",
    );
    home.until_status("bob", "waiting_parent_reply");
    home.ok(&["reply", "ann", "yes"]);
    home.ok(&["reply", "bob", "yes"]);
    let (ann, bob) = (home.finished("ann"), home.finished("bob"));
    assert_eq!(
        (changed(&bob), &bob["changed_beside"]),
        (&json!(["sub/b.txt"]), &json!(["ann"])),
        "{bob}"
    );
    assert_eq!(
        (changed(&ann), &ann["changed_beside"]),
        (&json!(["a.txt", "sub/b.txt"]), &json!(["bob"])),
        "{ann}"
    );
    assert!(
        home.ok(&["show", "ann"])
            .contains("during the run; bob also worked in this directory")
    );
}

#[test]
fn changes_of_all_attempts_are_combined() {
    let home = repository();
    start(
        &home,
        "echo",
        "paused",
        "write first.txt x\nhang\nresume-here\nwrite second.txt x",
        ".",
    );
    home.until("the first file is there", || {
        home.work().join("first.txt").exists().then_some(())
    });
    home.ok(&["pause", "paused"]);
    home.until_status("paused", "stopped");
    home.ok(&["resume", "paused"]);
    let view = home.finished("paused");
    assert_eq!(
        changed(&view),
        &json!(["first.txt", "second.txt"]),
        "{view}"
    );
}
