//! Isolated runs, which work in their own workspaces of real repositories.

mod base;
mod changes;
mod clean;
mod clone;
mod commits;
mod hostile;
mod kills;
mod modes;
mod prepare;
mod refused;
mod requested;
mod review;
mod submodules;
mod unusual;
mod worktree;

use crate::changes::repository;
use crate::support::TestHome;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs git as an agent does, and returns what it prints.
fn git_output(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    String::from_utf8(done.stdout)
        .expect("UTF-8")
        .trim_end()
        .to_owned()
}

/// Configures a user name and an email address in a repository, which merges need.
fn name_user(dir: &Path) {
    git_output(dir, &["config", "user.name", "Its User"]);
    git_output(dir, &["config", "user.email", "user@example.org"]);
}

/// Starts an isolated run of the shell.
fn start_clone(home: &TestHome, name: &str, script: &str) {
    let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
    home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", name, &script]);
}

/// Returns the top of a run's workspace.
fn workspace(view: &Value) -> PathBuf {
    PathBuf::from(
        view["workspace"]["path"]
            .as_str()
            .unwrap_or_else(|| panic!("no workspace: {view}")),
    )
}

fn succeeded(home: &TestHome, name: &str) -> Value {
    let view = home.finished(name);
    assert_eq!(view["outcome"], "succeeded", "{view}\n{}", home.log(name));
    view
}
