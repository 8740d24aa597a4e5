//! Commits that an agent makes in its workspace are kept in the user's repository.

use super::{git_output, repository, start_clone, succeeded, workspace};
use serde_json::Value;
use std::fs;
use std::path::Path;

const IDENTITY: &str = "git config user.name a; git config user.email a@a";

fn commits(work: &Path, view: &Value) -> Vec<String> {
    let refs = format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id"));
    let listed = git_output(
        work,
        &["for-each-ref", "--format=%(refname) %(contents:subject)", &format!("{refs}/head"), &format!("{refs}/heads"), &format!("{refs}/stash")],
    );
    listed.lines().map(|line| line.trim_start_matches(&refs).trim_start_matches('/').to_owned()).collect()
}

#[test]
fn commits_survive_the_clone() {
    let home = repository();
    let work = home.work();
    let script = format!(
        "{IDENTITY}\ngit checkout -qb side; echo side > side.txt; git add .; git commit -qm aside\n\
         git checkout -q -; echo 2 > one.txt; git commit -qam first; echo 3 > one.txt; git commit -qam second\necho 4 > two.txt; git stash -q"
    );
    start_clone(&home, "commits", &script);
    let view = succeeded(&home, "commits");
    let name = "adj/commits";
    let kept = commits(&work, &view);
    assert_eq!(kept[..2], ["head second", "heads/side aside"], "{kept:?}");
    assert!(kept.len() == 3 && kept[2].starts_with(&format!("stash WIP on {name}")), "{kept:?}");
    fs::remove_dir_all(workspace(&view)).expect("removed");
    let head = format!("refs/adjutant/{}/head", view["run_id"].as_str().expect("an id"));
    git_output(&work, &["fsck", "--strict", "--connectivity-only"]);
    assert_eq!(git_output(&work, &["show", &format!("{head}:one.txt")]), "3");
    assert_eq!(git_output(&work, &["log", "--format=%s", "-2", &head]), "second\nfirst");
    assert_eq!(git_output(&work, &["branch", "--list", "adj/*"]), "", "no branch of the user's is made");
}

#[test]
fn clone_without_commits_of_its_agent_has_no_head() {
    let home = repository();
    start_clone(&home, "none", "echo 2 > one.txt\ngit checkout -q HEAD --detach");
    let view = succeeded(&home, "none");
    assert_eq!(commits(&home.work(), &view), Vec::<String>::new());
}

/// An agent that points its clone at another repository gets nothing out of it.
#[test]
fn objects_of_another_repository_are_not_copied() {
    let (home, other) = (repository(), repository());
    let secret = other.work();
    fs::write(secret.join("secret.txt"), "secret\n").expect("a file");
    crate::changes::git(&secret, &["add", "."]);
    crate::changes::git(&secret, &["commit", "-qm", "secret"]);
    let stolen = git_output(&secret, &["rev-parse", "HEAD"]);
    let script =
        format!("echo {}/.git/objects >> .git/objects/info/alternates\ngit update-ref HEAD {stolen}\ngit log -1 --format=%s", secret.display());
    start_clone(&home, "steals", &script);
    let view = succeeded(&home, "steals");
    assert!(home.log("steals").contains("secret"), "its own git sees the commit");
    assert_eq!(commits(&home.work(), &view), Vec::<String>::new());
    let mut known = std::process::Command::new("git");
    assert!(!known.args(["cat-file", "-e", &stolen]).current_dir(home.work()).status().expect("git").success());
}
