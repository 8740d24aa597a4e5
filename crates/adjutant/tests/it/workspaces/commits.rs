//! Commits that an agent makes in its workspace are kept in the user's repository.

use super::{git_output, name_user, repository, start_clone, succeeded, workspace};
use serde_json::Value;
use std::fs;
use std::path::Path;

const IDENTITY: &str = "git config user.name a; git config user.email a@a";

fn commits(work: &Path, view: &Value) -> Vec<String> {
    let refs = format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id"));
    let listed = git_output(
        work,
        &[
            "for-each-ref",
            "--format=%(refname) %(contents:subject)",
            &format!("{refs}/head"),
            &format!("{refs}/heads"),
            &format!("{refs}/stash"),
        ],
    );
    listed
        .lines()
        .map(|line| {
            line.trim_start_matches(&refs)
                .trim_start_matches('/')
                .to_owned()
        })
        .collect()
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
    assert!(
        kept.len() == 3 && kept[2].starts_with(&format!("stash WIP on {name}")),
        "{kept:?}"
    );
    fs::remove_dir_all(workspace(&view)).expect("removed");
    let head = format!(
        "refs/adjutant/{}/head",
        view["run_id"].as_str().expect("an id")
    );
    git_output(&work, &["fsck", "--strict", "--connectivity-only"]);
    assert_eq!(
        git_output(&work, &["show", &format!("{head}:one.txt")]),
        "3"
    );
    assert_eq!(
        git_output(&work, &["log", "--format=%s", "-2", &head]),
        "second\nfirst"
    );
    assert_eq!(
        git_output(&work, &["branch", "--list", "adj/*"]),
        "",
        "no branch of the user's is made"
    );
}

#[test]
fn clone_without_commits_of_its_agent_has_no_head() {
    let home = repository();
    start_clone(
        &home,
        "none",
        "echo 2 > one.txt\ngit checkout -q HEAD --detach",
    );
    let view = succeeded(&home, "none");
    assert_eq!(commits(&home.work(), &view), Vec::<String>::new());
}

/// Commits that the agent has reset, amended or stashed are only in a reflog of the clone, which is
/// removed with the clone.
#[test]
fn commits_of_reflogs_survive_the_clone() {
    let home = repository();
    let work = home.work();
    let script = format!(
        "{IDENTITY}\necho a > one.txt; git stash -q; echo b > one.txt; git stash -q\n\
         echo 2 > one.txt; git commit -qam reset; git reset -q --hard HEAD^\n\
         echo 3 > one.txt; git commit -qam amended; git commit -q --amend -m final"
    );
    start_clone(&home, "resets", &script);
    let view = succeeded(&home, "resets");
    let id = view["run_id"].as_str().expect("an id").to_owned();
    let subjects = || {
        let listed = git_output(
            &work,
            &[
                "for-each-ref",
                "--format=%(contents:subject)",
                &format!("refs/adjutant/{id}/reflog"),
            ],
        );
        let mut subjects: Vec<String> = listed
            .lines()
            .map(|line| line.split(':').next().unwrap_or(line).to_owned())
            .collect();
        subjects.sort();
        subjects
    };
    assert_eq!(subjects(), ["WIP on adj/resets", "amended", "reset"]);
    // A later attempt that checks out the base and removes its reflog does not lose commits either.
    let dir = workspace(&view);
    git_output(
        &dir,
        &[
            "reset",
            "-q",
            "--hard",
            view["workspace"]["base"].as_str().expect("a base"),
        ],
    );
    git_output(&dir, &["reflog", "expire", "--expire=now", "--all"]);
    fs::write(dir.join("two.txt"), "only this\n").expect("a file");
    git_output(&work, &["config", "user.name", "user"]);
    git_output(&work, &["config", "user.email", "user@example.com"]);
    assert_eq!(
        home.json(&["merge", "resets"])["files"],
        serde_json::json!(["two.txt"])
    );
    assert_eq!(
        git_output(&work, &["rev-list", "--count", "HEAD^.."]),
        "1",
        "what was reset is not merged"
    );
    assert_eq!(
        subjects(),
        ["WIP on adj/resets", "amended", "final", "reset"]
    );
    fs::remove_dir_all(dir).expect("removed");
    git_output(&work, &["fsck", "--connectivity-only"]);
}

#[test]
fn recreated_repository_is_merged_and_kept() {
    let home = repository();
    let work = home.work();
    git_output(&work, &["config", "user.name", "user"]);
    git_output(&work, &["config", "user.email", "user@example.com"]);
    let script = format!(
        "rm -rf .git; git init -q; {IDENTITY}\necho new > new.txt; git add .; git commit -qm fresh; echo 2 > two.txt"
    );
    start_clone(&home, "remakes", &script);
    let view = succeeded(&home, "remakes");
    assert!(view["snapshot_problem"].is_null(), "{view}");
    let merged = home.json(&["merge", "remakes"]);
    assert_eq!(
        (&merged["outcome"], &merged["files"]),
        (
            &serde_json::json!("merged"),
            &serde_json::json!(["new.txt", "two.txt"])
        ),
        "{merged}"
    );
    assert_eq!(
        git_output(&work, &["rev-list", "--count", "HEAD^.."]),
        "1",
        "one commit on the user's own"
    );
    home.ok(&["discard", "remakes"]);
    let head = format!(
        "refs/adjutant/{}/head",
        view["run_id"].as_str().expect("an id")
    );
    assert_eq!(git_output(&work, &["log", "--format=%s", &head]), "fresh");
    // A repository that shares the objects of another repository is not read, but its files are
    // merged.
    start_clone(
        &home,
        "links",
        "echo /nowhere > .git/objects/info/alternates; echo 3 > three.txt",
    );
    succeeded(&home, "links");
    assert_eq!(
        home.json(&["merge", "links"])["files"],
        serde_json::json!(["three.txt"])
    );
}

/// An agent that makes its clone share the objects of another repository cannot read that
/// repository.
#[test]
fn objects_of_another_repository_are_not_copied() {
    let (home, other) = (repository(), repository());
    let secret = other.work();
    fs::write(secret.join("secret.txt"), "secret\n").expect("a file");
    crate::changes::git(&secret, &["add", "."]);
    crate::changes::git(&secret, &["commit", "-qm", "secret"]);
    let stolen = git_output(&secret, &["rev-parse", "HEAD"]);
    let script = format!(
        "echo {}/.git/objects >> .git/objects/info/alternates\ngit update-ref HEAD {stolen}\ngit log -1 --format=%s",
        secret.display()
    );
    start_clone(&home, "steals", &script);
    let view = succeeded(&home, "steals");
    assert!(
        home.log("steals").contains("secret"),
        "its own git sees the commit"
    );
    assert_eq!(commits(&home.work(), &view), Vec::<String>::new());
    let mut known = std::process::Command::new("git");
    assert!(
        !known
            .args(["cat-file", "-e", &stolen])
            .current_dir(home.work())
            .status()
            .expect("git")
            .success()
    );
}

#[test]
fn unreadable_commits_are_reported() {
    for damage in [
        "echo garbage > .git/HEAD",
        ": > .git/$(git symbolic-ref HEAD)",
    ] {
        let home = repository();
        let work = home.work();
        name_user(&work);
        start_clone(
            &home,
            "broken",
            &format!("{IDENTITY}\necho 2 > one.txt; git commit -qam mine; {damage}"),
        );
        let view = succeeded(&home, "broken");
        assert!(
            view["snapshot_problem"]
                .to_string()
                .contains("cannot be kept"),
            "{damage}: {view}"
        );
        let refused = home.adj(&["merge", "broken"]);
        assert!(
            refused.code != 0
                && refused.err.contains("cannot be kept")
                && refused.err.contains("--squash"),
            "{damage}: {refused:?}"
        );
        home.ok(&["merge", "broken", "--squash"]);
        assert_eq!(
            fs::read_to_string(work.join("one.txt")).expect("a file"),
            "2\n"
        );
    }
}
