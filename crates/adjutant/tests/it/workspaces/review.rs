//! `adj diff` of an isolated run shows the changes that `adj merge` merges.

use super::prepare::configure;
use super::{git_output, name_user, start_clone, succeeded, workspace};
use crate::changes::{git, repository};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::fs;

fn named_repository() -> TestHome {
    let home = repository();
    name_user(&home.work());
    git(&home.work(), &["branch", "-M", "main"]);
    home
}

/// The added lines of a difference.
fn added(diff: &Value) -> Vec<&str> {
    let text = diff["text"].as_str().expect("a text");
    text.lines()
        .filter_map(|line| line.strip_prefix('+'))
        .filter(|line| !line.starts_with("++"))
        .collect()
}

/// Compares the shown changes with those that a merge commits.
fn merge_brings(home: &TestHome, name: &str, expected: &[&str]) {
    let shown = home.json(&["diff", name]);
    assert_eq!(
        (added(&shown), &shown["from"]["n"]),
        (expected.to_vec(), &json!(0)),
        "{shown}"
    );
    let before = git_output(&home.work(), &["rev-parse", "HEAD"]);
    home.ok(&["merge", name]);
    let merged = git_output(&home.work(), &["diff", "--no-color", &before, "HEAD"]);
    assert_eq!(
        merged.trim_end(),
        shown["text"].as_str().expect("a text").trim_end()
    );
}

#[test]
fn work_of_a_follow_up_is_shown_and_merged() {
    let home = named_repository();
    let path = home.home.dir.join("config.toml");
    let agents = fs::read_to_string(&path).expect("a configuration");
    let more = "[agents.appends]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"cat > /dev/null; echo more >> one.txt\"]\n";
    fs::write(&path, format!("{agents}{more}")).expect("a configuration");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "appends",
        "-n",
        "writes",
        "append a line",
    ]);
    succeeded(&home, "writes");
    let commented = home.json(&["comment", "writes", "one.txt:2", "make it better"]);
    let follow_up = commented["follow_up"].as_str().expect("a run").to_owned();
    succeeded(&home, &follow_up);
    let shown = home.json(&["diff", &follow_up]);
    assert_eq!(
        (added(&shown), &shown["workspace_of"]),
        (vec!["more"], &json!("writes")),
        "{shown}"
    );
    assert!(
        home.adj(&["diff", &follow_up])
            .err
            .contains("adj diff writes shows what adj merge writes merges")
    );
    let shown = home.adj(&["diff", "writes"]);
    assert!(
        shown.err.contains(&format!(
            "includes the work of {follow_up}, which followed it in its workspace"
        )),
        "{shown:?}"
    );
    assert!(
        !shown.err.contains("edits"),
        "nobody has edited it: {shown:?}"
    );
    merge_brings(&home, "writes", &["more", "more"]);
    assert!(
        home.adj(&["diff", "writes"])
            .err
            .contains("all of this is merged already")
    );
}

#[test]
fn edits_by_hand_are_shown_and_named() {
    let home = named_repository();
    start_clone(&home, "opened", "echo agent > one.txt");
    let view = succeeded(&home, "opened");
    fs::write(workspace(&view).join("two.txt"), "edited\n").expect("a file");
    let shown = home.adj(&["diff", "opened"]);
    assert!(
        shown.out.contains("+agent") && shown.out.contains("+edited"),
        "{shown:?}"
    );
    assert!(
        shown
            .err
            .contains("includes edits that were made in its workspace while no agent worked there"),
        "{shown:?}"
    );
    assert!(
        shown
            .err
            .contains("adj merge opened   merges these changes"),
        "{shown:?}"
    );
    let own = home.json(&["diff", "opened", "1..2"]);
    assert_eq!(
        added(&own),
        ["agent"],
        "what its attempt has changed: {own}"
    );
    merge_brings(&home, "opened", &["agent", "edited"]);
    // Changes after a merge are shown together with the merged ones.
    fs::write(workspace(&view).join("two.txt"), "again\n").expect("a file");
    let shown = home.adj(&["diff", "opened"]);
    assert!(
        shown
            .err
            .contains("merged already up to snapshot 3: adj diff opened 3.. shows the rest"),
        "{shown:?}"
    );
}

#[test]
fn changes_of_the_setup_command_are_shown_and_named() {
    let home = named_repository();
    configure(
        &home,
        "setup = [\"sh\", \"-c\", \"echo set up > one.txt; echo made > made.txt\"]\n",
    );
    start_clone(&home, "set-up", "true");
    succeeded(&home, "set-up");
    let shown = home.adj(&["diff", "set-up"]);
    assert!(
        shown
            .err
            .contains("includes what the setup command changed before the agent started"),
        "{shown:?}"
    );
    assert_eq!(home.json(&["diff", "set-up"])["with_edits"], Value::Null);
    merge_brings(&home, "set-up", &["made", "set up"]);
}

#[test]
fn commits_of_another_branch_are_merged_only_on_request() {
    let home = named_repository();
    let work = home.work();
    git(&work, &["checkout", "-q", "-b", "exp"]);
    fs::write(work.join("exp.txt"), "mine\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "an experiment"]);
    start_clone(&home, "based", "echo own > own.txt");
    succeeded(&home, "based");
    git(&work, &["checkout", "-q", "main"]);
    let head = git_output(&work, &["rev-parse", "HEAD"]);
    let refused = home.adj(&["merge", "based"]);
    let names = [
        "started from branch exp with 1 commit that main does not have",
        "an experiment",
        "adj merge based --rebase",
    ];
    assert!(
        refused.code == 7 && names.iter().all(|name| refused.err.contains(name)),
        "{refused:?}"
    );
    assert_eq!(git_output(&work, &["rev-parse", "HEAD"]), head);
    home.ok(&["merge", "based", "--rebase"]);
    assert_eq!(
        git_output(&work, &["diff", "--name-only", &head, "HEAD"]),
        "own.txt"
    );
    assert!(!work.join("exp.txt").exists());
}

#[test]
fn missing_workspace_is_named() {
    let home = named_repository();
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "echo",
        "-n",
        "lost",
        "write one.txt x\nask \"go on?\"",
    ]);
    home.until_status("lost", "waiting_parent_reply");
    fs::remove_dir_all(workspace(&home.show("lost"))).expect("it is removed by hand");
    home.ok(&["cancel", "lost"]);
    home.finished("lost");
    let refused = home.adj(&["merge", "lost"]);
    assert!(
        refused.code == 7
            && refused
                .err
                .contains("is missing, and nothing of what the run did there is kept"),
        "{refused:?}"
    );
    let shown = home.adj(&["diff", "lost"]);
    assert!(
        shown
            .err
            .contains("is missing: what was done there after snapshot 1"),
        "{shown:?}"
    );
}

#[test]
fn merge_names_an_incomplete_run_and_other_branches() {
    let home = named_repository();
    let script = "git checkout -q -b side/line\ngit -c user.name=a -c user.email=a@a commit -q --allow-empty -m side\ngit checkout -q main\nexit 3";
    start_clone(&home, "fails", script);
    let id = home.finished("fails")["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let merged = home.adj(&["merge", "fails"]);
    assert!(
        merged.out.contains("main already has all changes of fails"),
        "{merged:?}"
    );
    assert!(
        merged
            .err
            .contains("fails has ended (failed): its work may be incomplete"),
        "{merged:?}"
    );
    let expected = format!(
        "also committed on its branch side/line, which is not merged: git merge refs/adjutant/{id}/heads/side%2Fline"
    );
    assert!(merged.err.contains(&expected), "{merged:?}");
    git_output(
        &home.work(),
        &[
            "merge",
            "-q",
            "--ff-only",
            &format!("refs/adjutant/{id}/heads/side%2Fline"),
        ],
    );
    assert!(!home.adj(&["merge", "fails"]).err.contains("also committed"));
}

#[test]
fn repeated_merge_names_the_files() {
    let home = named_repository();
    start_clone(&home, "writes", "echo x > new.txt");
    succeeded(&home, "writes");
    home.ok(&["merge", "writes"]);
    let again = home.ok(&["merge", "writes"]);
    assert!(
        again.contains("already merged into main")
            && again.contains("1 file changed; nothing has changed since\n  new.txt"),
        "{again}"
    );
}
