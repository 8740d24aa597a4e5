//! `--isolation worktree`: an additional work tree of the user's repository.

use super::{git_output, repository, succeeded, workspace};
use std::fs;

#[test]
fn worktree_shares_the_users_repository() {
    let home = repository();
    let work = home.work();
    let script = "do git rev-parse --path-format=absolute --git-common-dir\ndo git status --short --branch\ndo echo 2 > one.txt\n\
                  do git -c user.name=a -c user.email=a@a commit -qam mine";
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "tree",
        script,
    ]);
    let view = succeeded(&home, "tree");
    let (top, log) = (workspace(&view), home.log("tree"));
    assert!(
        log.contains(&work.join(".git").display().to_string())
            && log.contains("## HEAD (no branch)\n"),
        "{log}"
    );
    assert_eq!(
        (&view["workspace"]["isolation"], &view["workspace"]["state"]),
        (&"worktree".into(), &"ready".into()),
        "{view}"
    );
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
    assert!(git_output(&work, &["worktree", "list"]).contains(&top.display().to_string()));
    let refs = format!("refs/adjutant/{}", view["run_id"].as_str().expect("an id"));
    assert_eq!(
        git_output(
            &work,
            &["log", "-1", "--format=%s", &format!("{refs}/head")]
        ),
        "mine"
    );
    assert_eq!(
        git_output(&work, &["show", &format!("{refs}/2:one.txt")]),
        "2"
    );
    assert_eq!(view["changed_files"], serde_json::json!(["one.txt"]));
}

#[test]
fn worktree_can_be_made_from_a_worktree() {
    let home = repository();
    let other = home.work().parent().expect("a parent").join("other");
    crate::changes::git(
        &home.work(),
        &[
            "worktree",
            "add",
            "-q",
            "-b",
            "topic",
            other.to_str().expect("UTF-8"),
        ],
    );
    for isolation in ["worktree", "clone"] {
        let dir = other.to_str().expect("UTF-8");
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "-a",
            "sh",
            "-n",
            isolation,
            "-C",
            dir,
            "do echo 2 > one.txt",
        ]);
        let view = succeeded(&home, isolation);
        assert_eq!(
            (
                &view["workspace"]["repository"],
                &view["workspace"]["branch"]
            ),
            (&dir.into(), &"topic".into()),
            "{view}"
        );
        assert!(home.ok(&["diff", isolation]).contains("-1\n+2"));
    }
}
