//! Directories for which no workspace can be created: the dispatch is refused and changes nothing.

use super::repository;
use crate::changes::git;
use crate::support::TestHome;
use std::fs;

fn refused(home: &TestHome, dir: &str, path: &str, why: &str) {
    let mut command = home.command(&[
        "run", "-d", "--clone", "-a", "echo", "-n", "refused", "-C", dir, "say x",
    ]);
    let ran: crate::support::Ran = command.env("PATH", path).output().expect("adj runs").into();
    assert!(ran.code != 0 && ran.err.contains(why), "{ran:?}");
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
}

#[test]
fn unusable_repositories_are_refused() {
    let home = repository();
    let work = home.work();
    let usual = "/usr/bin:/bin";
    for dir in ["empty", "bare", "plain"] {
        fs::create_dir(work.parent().expect("a parent").join(dir)).expect("a directory");
    }
    let beside = |name: &str| work.parent().expect("a parent").join(name);
    git(&beside("empty"), &["init", "-q"]);
    git(&beside("bare"), &["init", "-q", "--bare"]);
    refused(&home, "../plain", usual, "is not in a git repository");
    refused(&home, "../empty", usual, "has no commit yet");
    refused(&home, "../bare", usual, "is a bare repository");
    let ran = home.adj(&["run", "-d", "--isolation", "sandbox", "-a", "echo", "say x"]);
    assert!(
        ran.code != 0 && ran.err.contains("possible values: none, clone, worktree"),
        "{ran:?}"
    );
    assert!(!home.home.workspaces_dir().exists());
}

#[test]
fn hub_without_git_refuses_isolation() {
    let home = repository();
    // The hub has the PATH of the command that starts it.
    refused(&home, ".", "/nonexistent", "git is not installed");
}
