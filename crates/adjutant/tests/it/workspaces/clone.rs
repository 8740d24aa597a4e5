//! `adj run --clone`: a separate repository that shares the objects of the user's.

use super::{git_output, repository, start_clone, succeeded, workspace};
use crate::changes::git;
use crate::snapshots::own_state;
use crate::support::TestHome;
use serde_json::json;
use std::fs;

#[test]
fn clone_isolates_the_work_of_a_run() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    let before = own_state(&work);
    start_clone(
        &home,
        "apart",
        "echo changed > one.txt\necho new > new.txt\npwd",
    );
    let view = succeeded(&home, "apart");
    let top = workspace(&view);
    assert!(
        top.starts_with(home.home.workspaces_dir()) && top.ends_with("work"),
        "{view}"
    );
    assert_eq!(view["cwd"], view["workspace"]["path"]);
    let (base, branch) = (
        git_output(&work, &["rev-parse", "HEAD"]),
        git_output(&work, &["branch", "--show-current"]),
    );
    let expected = json!({"isolation": "clone", "state": "ready", "path": top, "repository": work, "base": base, "branch": branch, "behind": 0});
    assert_eq!(view["workspace"], expected);
    assert!(home.log("apart").contains(&top.display().to_string()));
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
    assert!(!work.join("new.txt").exists() && !top.join("mine.txt").exists());
    assert_eq!(
        own_state(&work),
        before,
        "the index, the branches and the reflog are the user's"
    );
    assert_eq!(view["changed_files"], json!(["new.txt", "one.txt"]));
    let shown = home.ok(&["show", "apart"]);
    assert!(
        shown.contains(&format!(
            "clone of {}, branch {branch} at {}, ready: ",
            work.display(),
            &base[..12]
        )),
        "{shown}"
    );
}

#[test]
fn snapshots_of_a_clone_are_in_the_users_repository() {
    let home = repository();
    let work = home.work();
    start_clone(&home, "kept", "echo changed > one.txt\nrm two.txt");
    let view = succeeded(&home, "kept");
    let refs = format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id"));
    assert_eq!(
        git_output(&work, &["for-each-ref", "--format=%(refname)", &refs]),
        format!("{refs}/1\n{refs}/2\n{refs}/base")
    );
    assert_eq!(
        git_output(&work, &["rev-parse", &format!("{refs}/base")]),
        git_output(&work, &["rev-parse", "HEAD"])
    );
    assert_eq!(
        git_output(&work, &["rev-parse", &format!("{refs}/1~1")]),
        git_output(&work, &["rev-parse", "HEAD"])
    );
    assert_eq!(
        git_output(&work, &["show", &format!("{refs}/2:one.txt")]),
        "changed"
    );
    let top = workspace(&view);
    home.ok(&["undo", "kept"]);
    assert_eq!(
        fs::read_to_string(top.join("one.txt")).expect("a file"),
        "1\n"
    );
    home.ok(&["undo", "kept", "2"]);
    assert!(!top.join("two.txt").exists());
    // The work can be shown without the workspace.
    fs::remove_dir_all(top.parent().expect("a parent")).expect("removed");
    let diff = home.ok(&["diff", "kept", "1..2"]);
    assert!(
        diff.contains("-1\n+changed") && diff.contains("deleted file"),
        "{diff}"
    );
    let refused = home.adj(&["undo", "kept"]);
    assert!(
        refused.code != 0 && refused.err.contains("is not there"),
        "{refused:?}"
    );
}

#[test]
fn agent_commits_with_ordinary_git_in_a_clone() {
    let home = repository();
    let work = home.work();
    git(&work, &["config", "user.name", "Its User"]);
    git(&work, &["config", "user.email", "user@example.org"]);
    let script = "echo changed > one.txt\ngit status --short --branch\ngit commit -qam 'my commit'\ngit log -1 --format='by %an'\ngit remote get-url origin";
    start_clone(&home, "commits", script);
    succeeded(&home, "commits");
    let (log, branch) = (
        home.log("commits"),
        git_output(&work, &["branch", "--show-current"]),
    );
    assert!(
        log.contains(&format!("## adj/commits...origin/{branch}\n")) && log.contains(" M one.txt"),
        "{log}"
    );
    assert!(
        log.contains("by Its User") && log.contains(&work.display().to_string()),
        "{log}"
    );
}

#[test]
fn run_in_a_clone_starts_in_the_same_subdirectory() {
    let home = repository();
    let work = home.work();
    fs::create_dir_all(work.join("a/b")).expect("directories");
    start_in(&home, "below", "a/b", "pwd");
    let view = succeeded(&home, "below");
    assert_eq!(
        view["cwd"],
        json!(workspace(&view).join("a/b")),
        "also where nothing is committed below it"
    );
    assert!(home.log("below").contains("/work/a/b"));
}

fn start_in(home: &TestHome, name: &str, dir: &str, script: &str) {
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "clone",
        "-a",
        "sh",
        "-n",
        name,
        "-C",
        dir,
        &format!("do {script}"),
    ]);
}

#[test]
fn retried_run_gets_a_new_clone() {
    let home = repository();
    let work = home.work();
    fs::create_dir_all(work.join("sub")).expect("a directory");
    start_in(&home, "first", "sub", "test ! -e left; touch left");
    let first = succeeded(&home, "first");
    git(&work, &["commit", "-qm", "later", "--allow-empty"]);
    let retried = home.json(&["retry", "first"]);
    let second = succeeded(&home, retried["name"].as_str().expect("a name"));
    assert_ne!(workspace(&first), workspace(&second));
    assert_eq!(second["cwd"], json!(workspace(&second).join("sub")));
    assert_eq!(
        second["workspace"]["base"],
        json!(git_output(&work, &["rev-parse", "HEAD"])),
        "it starts from the newest commit"
    );
}

#[test]
fn resumed_run_finds_its_clone_unchanged() {
    let home = repository();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "asks",
        "write one.txt half\nask \"go on?\"\nsay done",
    ]);
    let view = home.until_status("asks", "waiting_parent_reply");
    home.ok(&["pause", "asks"]);
    home.until("it is stopped", || {
        (home.show("asks")["state"] == "stopped").then_some(())
    });
    let file = workspace(&view).join("one.txt");
    assert_eq!(
        fs::read_to_string(&file).expect("a file").trim_end(),
        "half"
    );
    home.ok(&["resume", "asks"]);
    home.until("it asks again", || {
        (home.show("asks")["attempt"] == 2).then_some(())
    });
    home.until_status("asks", "waiting_parent_reply");
    home.ok(&["cancel", "asks"]);
    let view = home.finished("asks");
    let causes: Vec<&str> = view["snapshots"]
        .as_array()
        .expect("snapshots")
        .iter()
        .filter_map(|each| each["cause"].as_str())
        .collect();
    assert_eq!(causes, ["start", "end", "start", "end"], "{view}");
    assert_eq!(
        fs::read_to_string(&file).expect("a file").trim_end(),
        "half"
    );
}
