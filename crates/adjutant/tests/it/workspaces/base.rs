//! A workspace is created from the tip of its branch when the run's first attempt starts, and `adj
//! show` says how far behind it is.

use super::{git_output, name_user, repository, start_clone, succeeded};
use crate::changes::git;
use crate::support::TestHome;
use adjutant_api::view::GetHub;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Stdio;

fn commit(dir: &Path, text: &str) -> String {
    fs::write(dir.join("two.txt"), text).expect("a file");
    git(dir, &["commit", "-qam", text]);
    git_output(dir, &["rev-parse", "HEAD"])
}

/// A run that starts when `gate` has its answer.
fn start_after_gate(home: &TestHome, name: &str, options: &[&str]) -> Value {
    let args = ["run", "-d", "--after", "gate", "-a", "sh", "-n", name];
    home.ok(&[&args[..], options, &["do cat two.txt"]].concat());
    home.show(name)
}

fn open_gate(home: &TestHome) {
    home.until_status("gate", "waiting_parent_reply");
    home.ok(&["reply", "gate", "yes"]);
}

#[test]
fn run_after_a_merged_one_has_its_work() {
    let home = repository();
    let work = home.work();
    name_user(&work);
    home.start("gate", "ask \"merged?\"");
    start_clone(&home, "build", "echo built > built.txt");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "--after",
        "build",
        "--after",
        "gate",
        "-a",
        "sh",
        "-n",
        "test",
        "do cat built.txt",
    ]);
    let planned = home.show("test");
    assert_eq!(planned["workspace"]["state"], "planned", "{planned}");
    succeeded(&home, "build");
    home.ok(&["merge", "build"]);
    open_gate(&home);
    let view = succeeded(&home, "test");
    assert_eq!(
        view["workspace"]["base"],
        json!(git_output(&work, &["rev-parse", "HEAD"])),
        "{view}"
    );
    assert!(home.log("test").contains("built"));
    assert_eq!(
        git_output(
            &work,
            &[
                "rev-parse",
                &format!("refs/adjutant/{}/base", home.run_id("test"))
            ]
        ),
        view["workspace"]["base"]
    );
    assert_eq!(home.show("test")["workspace"]["behind"], 0);
    commit(&work, "later");
    commit(&work, "latest");
    let shown = home.ok(&["show", "test"]);
    assert!(shown.contains("(2 commits behind now)"), "{shown}");
    assert_eq!(home.show("test")["workspace"]["behind"], 2);
    assert_eq!(
        home.show("test")["workspace"]["base"],
        view["workspace"]["base"],
        "it is chosen once"
    );
}

/// What the dispatch promised stays: the user's changes, and a commit without a branch.
#[test]
fn base_is_the_tip_of_the_branch_of_the_dispatch() {
    let home = repository();
    let work = home.work();
    let branch = git_output(&work, &["symbolic-ref", "--short", "HEAD"]);
    home.start("gate", "ask \"go?\"");
    start_after_gate(&home, "clones", &["--clone"]);
    start_after_gate(&home, "works", &["--isolation", "worktree"]);
    let first = git_output(&work, &["rev-parse", "HEAD"]);
    fs::write(work.join("one.txt"), "mine\n").expect("a file");
    start_after_gate(&home, "changes", &["--clone", "--with-changes"]);
    git(&work, &["checkout", "-q", "--", "one.txt"]);
    git(&work, &["checkout", "-q", "--detach"]);
    start_after_gate(&home, "detached", &["--clone"]);
    git(&work, &["checkout", "-q", "-b", "short"]);
    start_after_gate(&home, "removed", &["--clone"]);
    git(&work, &["checkout", "-q", &branch]);
    git(&work, &["branch", "-q", "-D", "short"]);
    let tip = commit(&work, "tip");
    // Another branch is checked out when the runs start.
    git(&work, &["checkout", "-q", "-b", "other"]);
    commit(&work, "other");
    open_gate(&home);
    for (name, base) in [
        ("clones", &tip),
        ("works", &tip),
        ("changes", &first),
        ("detached", &first),
        ("removed", &first),
    ] {
        let view = succeeded(&home, name);
        assert_eq!(view["workspace"]["base"], json!(base), "{name}");
        assert!(
            home.log(name)
                .contains(if *base == tip { "tip" } else { "1" }),
            "{name}"
        );
    }
    let behind = |name: &str| home.show(name)["workspace"]["behind"].clone();
    assert_eq!(
        (
            behind("clones"),
            behind("changes"),
            behind("detached"),
            behind("removed")
        ),
        (json!(0), json!(1), Value::Null, Value::Null)
    );
}

/// The choice is in the store before its effect. A later attempt keeps the base.
#[test]
fn base_survives_the_death_of_the_hub() {
    let home = repository();
    let work = home.work();
    let fired = work.with_file_name("fired");
    let mut hub = home.command(&["__hub"]);
    hub.env(
        "ADJ_FAILPOINT",
        format!("base.after_choice={}", fired.display()),
    )
    .stdout(Stdio::null())
    .stderr(Stdio::null());
    let mut hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || home.call(&GetHub {}, "").ok());
    home.start("gate", "ask \"go?\"");
    start_after_gate(&home, "killed", &["--clone"]);
    let tip = commit(&work, "tip");
    open_gate(&home);
    hub.wait().expect("it dies");
    assert!(fired.exists());
    commit(&work, "later");
    let view = succeeded(&home, "killed");
    assert_eq!(
        (&view["workspace"]["base"], &view["attempt"]),
        (&json!(tip), &json!(2)),
        "{view}"
    );
    let pinned = git_output(
        &work,
        &[
            "rev-parse",
            &format!("refs/adjutant/{}/base", home.run_id("killed")),
        ],
    );
    assert_eq!(pinned, tip);
    assert!(home.log("killed").contains("tip"));
    // A stopped run continues on its base.
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "asks",
        "ask \"go on?\"\nsay done",
    ]);
    let before = home.until_status("asks", "waiting_parent_reply")["workspace"]["base"].clone();
    home.ok(&["pause", "asks"]);
    home.until("it is stopped", || {
        (home.show("asks")["state"] == "stopped").then_some(())
    });
    commit(&work, "much later");
    home.ok(&["resume", "asks"]);
    home.until("it asks again", || {
        (home.show("asks")["attempt"] == 2).then_some(())
    });
    assert_eq!(home.show("asks")["workspace"]["base"], before);
    home.ok(&["cancel", "asks"]);
}
