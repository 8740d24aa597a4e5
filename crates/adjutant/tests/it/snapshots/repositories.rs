//! Snapshots in unusual and hostile repositories.

use super::{git_output, listed, own_state, row};
use crate::changes::{git, repository, start};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

#[test]
fn snapshot_of_a_hostile_repository_runs_nothing() {
    let home = repository();
    let work = home.work();
    let trap = home.home.dir.parent().expect("a parent").join("trap.sh");
    fs::write(
        &trap,
        format!(
            "#!/bin/sh\ntouch '{}'\ncat\n",
            trap.with_extension("sprung").display()
        ),
    )
    .expect("a trap");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).expect("a mode");
    let trap_text = trap.display().to_string();
    fs::write(
        work.join(".gitattributes"),
        "*.txt filter=trap diff=trap merge=trap working-tree-encoding=none\n",
    )
    .expect("a file");
    for name in [
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
        "diff.trap.textconv",
        "diff.trap.command",
        "diff.external",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "core.alternateRefsCommand",
        "alias.ls-files",
        "gpg.program",
        "credential.helper",
    ] {
        git(&work, &["config", name, &trap_text]);
    }
    git(&work, &["config", "filter.trap.required", "true"]);
    for hook in [
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "pre-commit",
        "pre-auto-gc",
    ] {
        symlink(&trap, work.join(".git/hooks").join(hook)).expect("a hook");
    }
    // A nested repository with an equally hostile configuration.
    fs::create_dir(work.join("nested")).expect("a directory");
    git(&work.join("nested"), &["init", "-q"]);
    git(
        &work.join("nested"),
        &["commit", "-q", "--allow-empty", "-m", "x"],
    );
    git(
        &work.join("nested"),
        &["config", "core.fsmonitor", &trap_text],
    );
    fs::write(work.join("nested/file"), "x").expect("a file");
    let outside = trap.with_extension("outside");
    fs::write(&outside, "outside\n").expect("a file");
    let script = format!(
        "do echo changed > one.txt; ln -s '{}' escape; mkfifo fifo; truncate -s 65M big.bin; printf 'a\\nb' > \"$(printf 'new\\nline')\"\n",
        outside.display()
    );
    start(&home, "sh", "hostile", &script, ".");
    let view = home.finished("hostile");
    assert_eq!(listed(&view).len(), 2, "{view}");
    let left_out = view["snapshots"][1]["left_out"].to_string();
    assert!(
        left_out.contains("big.bin") && left_out.contains("nested"),
        "{left_out}"
    );
    assert!(home.ok(&["diff", "hostile"]).contains("+changed"));
    let undone = home.adj(&["--json", "undo", "hostile"]);
    assert_eq!(undone.code, 7, "one.txt is not restored: {undone:?}");
    let undone = undone.data();
    assert_eq!(
        (&undone["files"], &undone["skipped"]),
        (&json!(["escape", "new\nline"]), &json!(["one.txt"])),
        "a filter makes one.txt: {undone}"
    );
    assert_eq!(
        fs::read_to_string(&outside).expect("a file"),
        "outside\n",
        "no link is followed"
    );
    assert!(
        work.join("big.bin").exists() && work.join("nested/file").exists(),
        "entries without a snapshot stay"
    );
    assert!(
        !trap.with_extension("sprung").exists(),
        "a program of the repository was run"
    );
    // A work tree other than the repository's own is not touched.
    for elsewhere in [work.parent().expect("a parent"), Path::new("/")] {
        git(
            &work,
            &["config", "core.worktree", &elsewhere.display().to_string()],
        );
        let refused = home.adj(&["undo", "hostile", "2"]);
        assert!(
            refused.code != 0 && refused.err.contains("core.worktree"),
            "{refused:?}"
        );
    }
    assert!(
        !trap.with_extension("sprung").exists(),
        "a program of the repository was run"
    );
}

#[test]
fn unusual_repositories_are_kept_too() {
    let home = repository();
    let work = home.work();
    // Without a commit.
    fs::create_dir(work.join("empty")).expect("a directory");
    git(&work.join("empty"), &["init", "-q"]);
    start(
        &home,
        "echo",
        "first",
        "write first.txt x\nsay done",
        "empty",
    );
    let view = home.finished("first");
    assert_eq!(
        (listed(&view).len(), &view["changed_files"]),
        (2, &json!(["first.txt"])),
        "{view}"
    );
    // A linked work tree, detached, with a split index.
    git(&work, &["worktree", "add", "-q", "--detach", "linked"]);
    git(&work.join("linked"), &["update-index", "--split-index"]);
    start(
        &home,
        "echo",
        "linked",
        "write linked.txt x\nsay done",
        "linked",
    );
    let view = home.finished("linked");
    assert_eq!(
        (listed(&view).len(), &view["changed_files"]),
        (2, &json!(["linked.txt"])),
        "{view}"
    );
    home.ok(&["undo", "linked"]);
    assert!(!work.join("linked/linked.txt").exists() && work.join("linked/one.txt").exists());
    // No repository at all.
    let outside = home.home.dir.parent().expect("a parent").join("outside");
    fs::create_dir(&outside).expect("a directory");
    start(
        &home,
        "echo",
        "outside",
        "write x.txt x\nsay done",
        &outside.display().to_string(),
    );
    assert_eq!(listed(&home.finished("outside")), []);
    let refused = home.adj(&["diff", "outside"]);
    assert!(
        refused.code != 0 && refused.err.contains("not in a git repository"),
        "{refused:?}"
    );
}

#[test]
fn home_inside_the_repository_is_never_kept() {
    let home = repository();
    // The directory above the home becomes the repository.
    let top = home.home.dir.parent().expect("a parent").to_owned();
    git(&top, &["init", "-q"]);
    fs::remove_dir_all(home.work().join(".git")).expect("the inner repository");
    start(
        &home,
        "echo",
        "inside",
        "write one.txt changed\nsay done",
        ".",
    );
    let view = home.finished("inside");
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    let kept = git_output(&top, &["ls-tree", "-r", "--name-only", end]);
    let own = home
        .home
        .dir
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    assert!(
        kept.contains("work/one.txt") && !kept.contains(&format!("{own}/")),
        "{kept}"
    );
    assert_eq!(view["changed_files"], json!(["work/one.txt"]), "{view}");
}

#[test]
fn files_that_git_skips_are_kept() {
    let home = repository();
    let work = home.work();
    fs::create_dir(work.join("dir")).expect("a directory");
    fs::write(work.join("dir/a"), "1\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "dir"]);
    git(&work, &["update-index", "--assume-unchanged", "one.txt"]);
    git(&work, &["update-index", "--skip-worktree", "two.txt"]);
    let own = own_state(&work);
    // A directory becomes a link to one with other content.
    let script = "do echo changed > one.txt; printf 'a\\r\\nb' > two.txt; cp -r dir other; echo changed > other/a; rm -r dir; ln -s other dir";
    fs::write(work.join(".gitattributes"), "* text\n").expect("a file");
    start(&home, "sh", "marked", script, ".");
    let view = home.finished("marked");
    assert_eq!(
        view["changed_files"],
        json!(["dir", "dir/a", "one.txt", "other/a", "two.txt"]),
        "{view}"
    );
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    assert_eq!(
        git_output(&work, &["cat-file", "-p", &format!("{end}:two.txt")]),
        "a\nb",
        "as git commits it"
    );
    home.ok(&["undo", "marked"]);
    let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    assert_eq!(
        (read("one.txt"), read("two.txt"), read("dir/a")),
        ("1\n".to_owned(), "1\n".to_owned(), "1\n".to_owned())
    );
    assert!(!work.join("other").exists() && !work.join("dir").is_symlink());
    assert_eq!(own_state(&work), own, "the marks are the user's");
}

#[test]
fn planted_refs_do_not_reach_the_users_branches() {
    let home = repository();
    let work = home.work();
    git(&work, &["branch", "victim"]);
    start(&home, "echo", "planted", "write one.txt x\nsay done", ".");
    let view = home.finished("planted");
    let run = view["run_id"].as_str().expect("an id").to_owned();
    for n in ["3", "4294967295"] {
        git(
            &work,
            &[
                "symbolic-ref",
                &format!("refs/adjutant/{run}/{n}"),
                "refs/heads/victim",
            ],
        );
    }
    assert_eq!(
        listed(&home.show("planted")),
        [row(1, "start"), row(2, "end")]
    );
    fs::write(work.join("one.txt"), "edited\n").expect("a file");
    let undone = home.json(&["undo", "--force", "planted"]);
    assert_eq!(
        undone["before"]["n"], 4,
        "the number that is taken is left out: {undone}"
    );
    home.ok(&["clean", "--yes", "--force", "--older-than", "0s"]);
    assert!(git_output(&work, &["for-each-ref", "refs/heads"]).contains("refs/heads/victim"));
}
