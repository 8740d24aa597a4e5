//! Merges that would lose data or are impossible: nothing changes.

use super::{git_output, named_repository, refused, run, user_state};
use crate::changes::{git, start};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Outside git, `adj diff` and `adj undo` have nothing to show or to restore.
#[test]
fn run_without_a_workspace_names_only_commands_that_work() {
    let home = named_repository();
    let elsewhere = home.work().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    for (name, dir, is_reviewable) in [("inside", home.work(), true), ("outside", elsewhere, false)]
    {
        home.ok(&[
            "run",
            "-d",
            "-a",
            "echo",
            "-n",
            name,
            "-C",
            dir.to_str().expect("UTF-8"),
            "write new.txt x",
        ]);
        home.finished(name);
        let ran = home.adj(&["merge", name]);
        refused(&ran, 2, &[&format!("{name} has no workspace of its own")]);
        assert_eq!(
            ran.err.contains("see adj diff, and adj undo"),
            is_reviewable,
            "{ran:?}"
        );
        assert_eq!(home.adj(&["diff", name]).code == 0, is_reviewable);
    }
}

#[test]
fn uncommitted_changes_are_never_overwritten() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[(
            "writes",
            "echo changed > one.txt; echo new > new.txt; mkdir dir; echo x > dir/file",
        )],
    );
    let refuses = |expected: &[&str]| {
        let before = user_state(&work);
        refused(&home.adj(&["merge", "writes"]), 7, expected);
        assert_eq!(user_state(&work), before);
    };
    fs::write(work.join("one.txt"), "mine\n").expect("a file");
    refuses(&["not committed: one.txt", "git stash"]);
    git(&work, &["add", "one.txt"]);
    refuses(&["not committed: one.txt"]);
    git(&work, &["reset", "-q", "--hard"]);
    fs::write(work.join("new.txt"), "mine\n").expect("a file");
    refuses(&["in the way", "new.txt"]);
    // Ignored files count, too.
    fs::write(work.join(".git/info/exclude"), "new.txt\n").expect("a file");
    refuses(&["in the way", "new.txt"]);
    fs::remove_file(work.join("new.txt")).expect("it goes");
    symlink("/tmp", work.join("dir")).expect("a link");
    refuses(&["in the way", "dir"]);
    fs::remove_file(work.join("dir")).expect("it goes");
    fs::write(work.join(".git/index.lock"), "").expect("a lock");
    refuses(&["index.lock exists"]);
    fs::remove_file(work.join(".git/index.lock")).expect("it goes");
    let head = git_output(&work, &["rev-parse", "HEAD"]);
    fs::write(work.join(".git/MERGE_HEAD"), head).expect("a file");
    refuses(&["a merge is in progress"]);
    fs::remove_file(work.join(".git/MERGE_HEAD")).expect("it goes");
    // The first of two commits is picked, and the second is not picked yet.
    fs::create_dir(work.join(".git/sequencer")).expect("a directory");
    refuses(&["a cherry-pick or a revert is in progress"]);
    fs::remove_dir(work.join(".git/sequencer")).expect("it goes");
    git(&work, &["bisect", "start"]);
    refuses(&["a bisect is in progress"]);
    git(&work, &["bisect", "reset"]);
    // Changes in other files are allowed.
    fs::write(work.join("two.txt"), "mine\n").expect("a file");
    home.ok(&["merge", "writes"]);
    assert_eq!(git_output(&work, &["status", "--porcelain"]), " M two.txt");
}

#[test]
fn wrong_calls_have_hints() {
    let home = named_repository();
    let work = home.work();
    start(&home, "echo", "shared", "write one.txt x\nsay done", ".");
    home.finished("shared");
    refused(
        &home.adj(&["merge", "shared"]),
        2,
        &["no workspace of its own", "adj undo"],
    );
    refused(
        &home.adj(&["discard", "shared"]),
        2,
        &["no workspace of its own"],
    );
    git(&work, &["checkout", "-q", "."]);
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "asks",
        "write one.txt x\nask \"go on?\"",
    ]);
    home.until_status("asks", "waiting_parent_reply");
    for command in ["merge", "discard"] {
        refused(&home.adj(&[command, "asks"]), 7, &["pause"]);
    }
    run(&home, &[("writes", "echo new > new.txt")]);
    git(&work, &["branch", "taken"]);
    let before = user_state(&work);
    refused(
        &home.adj(&["merge", "writes", "--branch", "taken"]),
        7,
        &["taken exists already"],
    );
    refused(
        &home.adj(&["merge", "writes", "--branch", "a..b"]),
        2,
        &["cannot be the name of a branch"],
    );
    refused(
        &home.adj(&["merge", "writes", "--branch=-x"]),
        2,
        &["cannot be the name of a branch"],
    );
    refused(&home.adj(&["merge", "nobody"]), 5, &["no such run"]);
    refused(
        &home.adj(&["merge", "writes", "--squash", "--rebase"]),
        2,
        &["cannot be used with"],
    );
    git(&work, &["config", "user.useConfigOnly", "true"]);
    git(&work, &["config", "--unset", "user.email"]);
    refused(
        &home.adj(&["merge", "writes"]),
        2,
        &["git does not know your name", "git config"],
    );
    git(&work, &["config", "--unset", "user.useConfigOnly"]);
    git(&work, &["config", "user.email", "user@example.org"]);
    assert_eq!(user_state(&work).get("one.txt"), before.get("one.txt"));
    run(&home, &[("idle", "true")]);
    assert!(
        home.ok(&["merge", "idle"])
            .contains("main already has all changes of idle")
    );
}

#[test]
fn hostile_repository_runs_nothing_and_filters_are_refused() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[(
            "writes",
            "echo changed > one.txt; sed -i '1s/.*/top/' lines.txt; echo new > new.txt",
        )],
    );
    sed(&work.join("lines.txt"), "line 10", "mine");
    git(&work, &["commit", "-qam", "mine"]);
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
    for name in [
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
        "merge.trap.driver",
        "diff.trap.textconv",
        "diff.external",
        "core.fsmonitor",
        "core.editor",
        "gpg.program",
        "core.alternateRefsCommand",
    ] {
        git(&work, &["config", name, &trap_text]);
    }
    for (name, value) in [
        ("commit.gpgSign", "true"),
        ("merge.default", "trap"),
        ("merge.renormalize", "true"),
    ] {
        git(&work, &["config", name, value]);
    }
    for hook in [
        "post-index-change",
        "reference-transaction",
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "post-commit",
        "pre-merge-commit",
        "post-merge",
    ] {
        symlink(&trap, work.join(".git/hooks").join(hook)).expect("a hook");
    }
    fs::write(
        work.join(".git/info/attributes"),
        "*.txt merge=trap diff=trap\n",
    )
    .expect("attributes");
    home.ok(&["merge", "writes"]);
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(
        lines.starts_with("top\n") && lines.ends_with("mine\n"),
        "{lines}"
    );
    assert!(
        !trap.with_extension("sprung").exists(),
        "a program of the repository was run"
    );
    fs::remove_file(work.join(".git/info/attributes")).expect("it goes");
    for name in [
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
    ] {
        git(&work, &["config", "--unset", name]);
    }
    for entry in fs::read_dir(work.join(".git/hooks"))
        .expect("hooks")
        .flatten()
    {
        fs::remove_file(entry.path()).expect("it goes");
    }
    // A file with a filter must be merged with git.
    run(
        &home,
        &[(
            "filtered",
            "echo '*.bin filter=lfs' > .gitattributes; echo x > a.bin",
        )],
    );
    fs::write(work.join(".gitattributes"), "*.bin filter=lfs\n").expect("attributes");
    git(
        &work,
        &[
            "-c",
            "commit.gpgSign=false",
            "-c",
            "core.fsmonitor=",
            "add",
            ".gitattributes",
        ],
    );
    git(
        &work,
        &[
            "-c",
            "commit.gpgSign=false",
            "-c",
            "core.fsmonitor=",
            "commit",
            "-qm",
            "attributes",
        ],
    );
    let before = user_state(&work);
    refused(
        &home.adj(&["merge", "filtered"]),
        7,
        &["have a filter", "a.bin", "--branch"],
    );
    assert_eq!(user_state(&work), before);
    assert!(!trap.with_extension("outer").exists());
}

/// If the branch cannot be moved, everything is as before.
#[test]
fn unmovable_branch_changes_nothing() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[("writes", "echo changed > one.txt; echo new > new.txt")],
    );
    let lock = work.join(".git/refs/heads/main.lock");
    fs::write(&lock, "").expect("a lock");
    let before = user_state(&work);
    refused(&home.adj(&["merge", "writes"]), 7, &["main"]);
    assert_eq!(user_state(&work), before);
    fs::remove_file(&lock).expect("it goes");
    assert_eq!(home.json(&["merge", "writes"])["outcome"], "merged");
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
}

#[test]
fn file_in_no_snapshot_is_named() {
    let home = named_repository();
    run(
        &home,
        &[("large", "truncate -s 65M big.bin; echo new > new.txt")],
    );
    let dir = home.show("large")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    let diff = home.adj(&["diff", "large"]);
    assert!(
        diff.err
            .contains("does not contain \"big.bin\" (68157440 bytes)"),
        "{diff:?}"
    );
    let merged = home.adj(&["merge", "large"]);
    assert!(
        merged.code == 0
            && merged.err.contains("not merged")
            && merged.err.contains("big.bin")
            && merged.err.contains(&dir),
        "{merged:?}"
    );
    let again = home.json(&["merge", "large"]);
    assert_eq!(
        again["not_merged"],
        serde_json::json!(["\"big.bin\" (68157440 bytes)"]),
        "{again}"
    );
    assert_eq!(
        (again["outcome"].as_str(), again["workspace"].as_str()),
        (Some("already_merged"), Some(dir.as_str()))
    );
}

fn sed(path: &std::path::Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).expect("a file");
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).expect("a file");
}

#[test]
fn discard_names_files_in_no_snapshot() {
    let home = named_repository();
    run(
        &home,
        &[("large", "truncate -s 65M big.bin; echo new > new.txt")],
    );
    let dir = home.show("large")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    refused(&home.adj(&["discard", "large"]), 7, &["big.bin", "--force"]);
    assert!(std::path::Path::new(&dir).join("big.bin").exists());
    home.ok(&["discard", "--force", "large"]);
    assert!(!std::path::Path::new(&dir).exists());
}

#[test]
fn moved_repository_is_named_by_every_command() {
    let home = named_repository();
    run(
        &home,
        &[
            ("first", "echo changed > one.txt"),
            ("second", "echo changed > one.txt"),
        ],
    );
    home.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        "here",
        "do echo here > here.txt",
    ]);
    home.finished("here");
    let (work, away) = (home.work(), home.work().with_extension("away"));
    let workspace = home.show("first")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    fs::rename(&work, &away).expect("it is moved");
    // The commands themselves need a directory to work in.
    let adj = |args: &[&str]| {
        let done = home
            .command(args)
            .current_dir(&away)
            .output()
            .expect("adj runs");
        (
            done.status.code(),
            format!(
                "{}{}",
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr)
            ),
        )
    };
    let gone = format!(
        "the repository {} is gone: it was moved or deleted",
        work.display()
    );
    for args in [
        ["diff", "first"],
        ["merge", "first"],
        ["undo", "first"],
        ["discard", "first"],
    ] {
        let (code, text) = adj(&args);
        assert!(
            code == Some(7)
                && text.contains(&gone)
                && text.contains("move it back, then repeat the command"),
            "{args:?}: {text}"
        );
    }
    let (_, shown) = adj(&["show", "first"]);
    assert!(shown.contains(&gone), "{shown}");
    for args in [["diff", "here"], ["undo", "here"]] {
        let (code, text) = adj(&args);
        let gone = format!(
            "the directory {} is gone: it was moved or deleted",
            work.display()
        );
        assert!(code == Some(7) && text.contains(&gone), "{args:?}: {text}");
    }
    let (_, kept) = adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(
        kept.contains(&format!("kept first: {gone}: move it back, or use --force")),
        "{kept}"
    );
    let (code, discarded) = adj(&["discard", "first", "--force"]);
    assert!(
        code == Some(0) && !Path::new(&workspace).exists(),
        "{discarded}"
    );
    fs::rename(&away, &work).expect("it is moved back");
    assert_eq!(home.json(&["merge", "second"])["outcome"], "merged");
}

/// Each side merges the other, and the user then removes what the run has added.
#[test]
fn merge_of_branches_that_have_merged_each_other_is_left_to_git() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[(
            "crosses",
            "echo run > run.txt; git add run.txt; git -c user.name=a -c user.email=a@a commit -qm run",
        )],
    );
    let workspace = home.show("crosses")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    let own = format!("refs/adjutant/{}/head", home.run_id("crosses"));
    fs::write(work.join("user.txt"), "user\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "user"]);
    let before = git_output(&work, &["rev-parse", "HEAD"]);
    git(&work, &["merge", "-q", "--no-edit", &own]);
    git(&work, &["rm", "-q", "run.txt"]);
    git(&work, &["commit", "-qm", "without it"]);
    git(
        Path::new(&workspace),
        &["merge", "-q", "--no-edit", &before],
    );
    let state = user_state(&work);
    for mode in [&[][..], &["--squash"], &["--rebase"], &["--no-commit"]] {
        refused(
            &home.adj(&[&["merge", "crosses"], mode].concat()),
            7,
            &[
                "merged each other's commits",
                "adj merge crosses --branch NAME",
            ],
        );
        assert_eq!(user_state(&work), state);
    }
    assert!(home.adj(&["diff", "crosses"]).code == 0);
    home.ok(&["merge", "crosses", "--branch", "topic"]);
    git(&work, &["merge", "-q", "--no-edit", "topic"]);
    assert!(
        !work.join("run.txt").exists() && work.join("user.txt").exists(),
        "the removal stays"
    );
}
