//! Clean-up removes a workspace with its run, and never the only copy of work.

use super::{git_output, repository, start_clone, succeeded, workspace};
use crate::support::{TestHome, kill};
use serde_json::{Value, json};
use std::fs;

fn refs(home: &TestHome, view: &Value) -> String {
    git_output(&home.work(), &["for-each-ref", &format!("refs/adjutant/{}/", view["run_id"].as_str().expect("an id"))])
}

fn clean(home: &TestHome, more: &[&str]) -> Value {
    home.json(&[&["clean", "--older-than", "0s", "--yes"], more].concat())
}

#[test]
fn unmerged_work_stays_until_it_is_forced() {
    let home = repository();
    start_clone(&home, "works", "echo 2 > one.txt");
    start_clone(&home, "idle", "true");
    start_clone(&home, "commits", "git config user.name a; git config user.email a@a; git commit -q --allow-empty -m empty");
    let views: Vec<Value> = ["works", "idle", "commits"].iter().map(|name| succeeded(&home, name)).collect();
    let preview = clean(&home, &["--dry-run"]);
    let reason = "its changes were neither merged nor discarded";
    assert_eq!(preview["runs"], json!(["idle"]), "{preview}");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!(["idle"]), "{cleaned}");
    let mut kept: Vec<_> = cleaned["kept"].as_array().expect("kept").iter().map(|kept| (kept["run"].as_str(), kept["reason"].as_str())).collect();
    kept.sort_unstable();
    assert_eq!(kept, [(Some("commits"), Some(reason)), (Some("works"), Some(reason))]);
    assert!(!workspace(&views[1]).parent().expect("a parent").exists() && refs(&home, &views[1]).is_empty());
    assert!(workspace(&views[0]).exists() && !refs(&home, &views[0]).is_empty());
    let said = home.adj(&["clean", "--older-than", "0s", "--yes"]);
    assert!(said.err.contains(&format!("kept works: {reason}")) && said.err.contains("nothing to remove"), "{said:?}");
    home.ok(&["discard", "commits"]);
    assert_eq!(clean(&home, &[])["runs"], json!(["commits"]));
    assert_eq!(clean(&home, &["--force"])["runs"], json!(["works"]));
    assert!(!workspace(&views[0]).exists() && refs(&home, &views[0]).is_empty());
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
}

#[test]
fn file_that_no_snapshot_has_keeps_its_workspace() {
    let home = repository();
    start_clone(&home, "large", "truncate -s 65M large.bin");
    let view = succeeded(&home, "large");
    let cleaned = clean(&home, &[]);
    assert!(cleaned["kept"][0]["reason"].as_str().is_some_and(|reason| reason.contains("large.bin")), "{cleaned}");
    assert!(workspace(&view).join("large.bin").exists());
    // A changed file that the run's own end did not see is kept as well.
    fs::remove_file(workspace(&view).join("large.bin")).expect("removed");
    fs::write(workspace(&view).join("one.txt"), "by hand\n").expect("a file");
    assert_eq!(clean(&home, &[])["runs"], json!([]));
    assert!(home.ok(&["diff", "large"]).contains("+by hand"));
}

#[test]
fn worktree_is_removed_with_its_registration() {
    let home = repository();
    home.ok(&["run", "-d", "--isolation", "worktree", "-a", "sh", "-n", "tree", "do true"]);
    let view = succeeded(&home, "tree");
    assert_eq!(clean(&home, &[])["runs"], json!(["tree"]));
    assert!(!workspace(&view).exists());
    assert_eq!(git_output(&home.work(), &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn shared_directory_names_the_way_out() {
    let home = repository();
    home.start("first", "say ready\nhang");
    home.until_log("first", "ready");
    let ran = home.adj(&["run", "-d", "-a", "echo", "-n", "second", "say x"]);
    assert!(ran.err.contains("also working in this directory: first (in a git repository, --clone keeps runs apart)"), "{ran:?}");
    let ran = home.adj(&["run", "-d", "--clone", "-a", "echo", "-n", "third", "say x"]);
    assert!(!ran.err.contains("also working"), "{ran:?}");
    home.ok(&["cancel", "first"]);
}

#[test]
fn resumed_run_keeps_its_discarded_workspace() {
    let home = repository();
    let script = "write one.txt early\nask \"first?\"\nresume-here\nwrite two.txt late\nask \"second?\"\ndone fine";
    home.ok(&["run", "-d", "--clone", "-a", "echo", "-n", "back", script]);
    home.adj(&["wait", "back"]);
    home.ok(&["pause", "back"]);
    home.until("it is stopped", || (home.show("back")["state"] == "stopped").then_some(()));
    home.ok(&["discard", "back"]);
    assert_eq!(home.show("back")["workspace"]["state"], "discarded");
    home.ok(&["resume", "back", "go on"]);
    home.until("it asks again", || home.show("back")["pending"].to_string().contains("second?").then_some(()));
    let top = workspace(&home.show("back"));
    assert_eq!(home.show("back")["workspace"]["state"], "ready");
    // The next hub completes discards that were interrupted. This one is none.
    kill(home.hub_pid());
    home.ok(&["ps"]);
    assert_eq!(fs::read_to_string(top.join("two.txt")).expect("a file"), "late\n");
    home.ok(&["cancel", "back"]);
    home.finished("back");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!([]), "{cleaned}");
    assert!(top.exists(), "what it wrote is not merged: {cleaned}");
}

#[test]
fn work_after_a_merge_is_kept() {
    let home = repository();
    git_output(&home.work(), &["config", "user.name", "user"]);
    git_output(&home.work(), &["config", "user.email", "user@example.com"]);
    for name in ["merged", "edited"] {
        start_clone(&home, name, &format!("echo {name} > {name}.txt"));
        succeeded(&home, name);
        home.ok(&["merge", name]);
    }
    fs::write(workspace(&home.show("edited")).join("edited.txt"), "by hand\n").expect("a file");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!(["merged"]), "{cleaned}");
    assert_eq!(cleaned["kept"][0]["reason"], "its workspace has changed since it was merged", "{cleaned}");
}
