//! A merge moves the pointer of a submodule only together with its commits.

use super::{git_output, named_repository, refused, run};
use crate::changes::git;
use crate::support::TestHome;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const UPDATE: &str =
    "git -c protocol.file.allow=always submodule --quiet update --init --recursive";
const COMMIT: &str = "git -c user.name=a -c user.email=a@a";

/// Creates a repository with one commit beside the working directory.
fn library(home: &TestHome, name: &str) -> PathBuf {
    let library = home.work().with_file_name(name);
    fs::create_dir(&library).expect("a directory");
    git(&library, &["init", "-q"]);
    fs::write(library.join("lib.txt"), "1\n").expect("a file");
    git(&library, &["add", "."]);
    git(&library, &["commit", "-qm", "library"]);
    library
}

fn add_submodule(to: &Path, from: &Path, path: &str) {
    git(
        to,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "add",
            from.to_str().expect("UTF-8"),
            path,
        ],
    );
    git(to, &["commit", "-qm", path]);
}

/// A repository with a checked-out submodule `sub`.
fn with_submodule() -> TestHome {
    let home = named_repository();
    let library = library(&home, "library");
    add_submodule(&home.work(), &library, "sub");
    home
}

/// A script that commits in `sub` and then its pointer.
fn moves(text: &str) -> String {
    format!(
        "{UPDATE}\necho {text} > sub/lib.txt\n{COMMIT} -C sub commit -qam {text}\n{COMMIT} commit -qam pointer-{text}"
    )
}

fn pointer(work: &Path, of: &str) -> String {
    git_output(work, &["rev-parse", &format!("{of}:sub")])
}

/// Checks out the submodules from what is on this machine: no origin has the commits.
fn update(work: &Path) {
    let done = Command::new("git")
        .args([
            "submodule",
            "--quiet",
            "update",
            "--recursive",
            "--no-fetch",
        ])
        .current_dir(work)
        .output()
        .expect("git");
    assert!(done.status.success(), "{done:?}");
}

fn has(repository: &Path, commit: &str) -> bool {
    let found = Command::new("git")
        .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .current_dir(repository)
        .output()
        .expect("git");
    found.status.success()
}

#[test]
fn submodule_commits_come_home_with_each_mode() {
    let home = with_submodule();
    let work = home.work();
    let (sub, trap) = (work.join("sub"), work.with_file_name("sprung"));
    // Nothing that the user's submodule configures is run.
    for name in [
        "core.fsmonitor",
        "core.sshCommand",
        "filter.x.clean",
        "filter.x.smudge",
    ] {
        git(
            &sub,
            &["config", name, &format!("touch '{}'; cat", trap.display())],
        );
    }
    let hook = PathBuf::from(git_output(&sub, &["rev-parse", "--absolute-git-dir"]))
        .join("hooks/reference-transaction");
    fs::create_dir_all(hook.parent().expect("a parent")).expect("a directory");
    fs::write(&hook, format!("#!/bin/sh\ntouch '{}'\n", trap.display())).expect("a hook");
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("a mode");
    run(&home, &[("first", &moves("first"))]);
    let shown = home.ok(&["show", "first"]);
    assert!(
        shown.contains("\"sub\" (commits that are only in a nested repository: merge the run"),
        "{shown}"
    );
    assert_eq!(
        home.adj(&["discard", "first"]).code,
        7,
        "its commits are nowhere else"
    );
    let head = fs::read(work.join(".git/modules/sub/HEAD")).expect("a HEAD");
    let merged = home.json(&["merge", "first"]);
    let commit = pointer(&work, "HEAD");
    assert_eq!(
        merged["submodules"],
        json!([{"path": "sub", "commit": commit}]),
        "{merged}"
    );
    assert!(merged["not_merged"].is_null(), "{merged}");
    assert_eq!(
        fs::read(work.join(".git/modules/sub/HEAD")).expect("a HEAD"),
        head,
        "its work tree stays as it was"
    );
    assert!(!trap.exists(), "a program of the submodule was run");
    git(&sub, &["config", "core.fsmonitor", ""]);
    fs::remove_file(&hook).expect("removed");
    update(&work);
    assert_eq!(
        fs::read_to_string(sub.join("lib.txt")).expect("a file"),
        "first\n"
    );
    git_output(&sub, &["fsck", "--connectivity-only"]);
    // They are kept, so that the workspace can be removed.
    home.ok(&["discard", "first"]);
    // The user pushes the merged commits, so that the next workspace can fetch them.
    let push = || {
        git(
            &sub,
            &["push", "-q", "--force", "origin", "HEAD:refs/heads/merged"],
        )
    };
    push();
    for (name, option) in [
        ("squashes", "--squash"),
        ("rebases", "--rebase"),
        ("stages", "--no-commit"),
    ] {
        run(&home, &[(name, &moves(name))]);
        let said = home.adj(&["merge", name, option]);
        assert!(
            said.code == 0
                && said.err.contains("of sub was added to your sub")
                && !said.err.contains("not merged"),
            "{name}: {said:?}"
        );
        let commit = git_output(&work, &["ls-files", "--stage", "sub"])
            .split(' ')
            .nth(1)
            .expect("a commit")
            .to_owned();
        assert!(has(&sub, &commit), "{name}");
        update(&work);
        push();
        if option == "--no-commit" {
            git(&work, &["commit", "-qm", "staged"]);
        }
    }
    run(&home, &[("branches", &moves("branches"))]);
    home.ok(&["merge", "branches", "--branch", "apart"]);
    assert!(has(&sub, &pointer(&work, "apart")));
    // A worktree has its submodules in the user's git directory.
    home.ok(&[
        "run",
        "-w",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "beside",
        &moves("beside")
            .replace("\n", "\ndo ")
            .replacen("git", "do git", 1),
    ]);
    home.ok(&["merge", "beside"]);
    assert!(has(&sub, &pointer(&work, "HEAD")));
    update(&work);
}

#[test]
fn pointer_without_its_commits_is_refused() {
    let home = with_submodule();
    let work = home.work();
    run(
        &home,
        &[
            ("moves", &moves("moved")),
            (
                "pushes",
                &format!(
                    "{}\ngit -C sub push -q origin HEAD:refs/heads/pushed",
                    moves("pushed")
                ),
            ),
        ],
    );
    run(&home, &[("gone", &moves("gone"))]);
    let before = git_output(&work, &["rev-parse", "HEAD"]);
    git(&work, &["submodule", "--quiet", "deinit", "-f", "sub"]);
    for mode in [
        &["merge", "moves"][..],
        &["merge", "moves", "--squash"],
        &["merge", "moves", "--branch", "x"],
    ] {
        refused(
            &home.adj(mode),
            7,
            &[
                "sub (it is not checked out here",
                "git submodule update --init",
                "nothing was changed",
            ],
        );
    }
    assert_eq!(git_output(&work, &["rev-parse", "HEAD"]), before);
    // Commits that its remote has are fetched when it is checked out.
    home.ok(&["merge", "pushes", "--squash"]);
    git_output(
        &work,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "update",
            "--init",
        ],
    );
    git(&work, &["reset", "-q", "--hard", &before]);
    home.ok(&["merge", "moves"]);
    update(&work);
    // The workspace is gone with the commits.
    let path = home.show("gone")["workspace"]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    fs::remove_dir_all(path).expect("removed");
    let moved = git_output(&work, &["rev-parse", "HEAD"]);
    git(&work, &["reset", "-q", "--hard", &before]);
    refused(
        &home.adj(&["merge", "gone"]),
        7,
        &["sub (its commit", "neither here nor in a workspace"],
    );
    git(&work, &["reset", "-q", "--hard", &moved]);
}

#[test]
fn commits_of_nested_submodules_come_home() {
    let home = named_repository();
    let (work, outer, inner) = (
        home.work(),
        library(&home, "outer"),
        library(&home, "inner"),
    );
    add_submodule(&outer, &inner, "inner");
    add_submodule(&work, &outer, "sub");
    git(
        &work,
        &[
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "--quiet",
            "update",
            "--init",
            "--recursive",
        ],
    );
    let script = format!(
        "{UPDATE}\necho new > sub/inner/lib.txt\n{COMMIT} -C sub/inner commit -qam inner\n{COMMIT} -C sub commit -qam sub\n{COMMIT} commit -qam top"
    );
    run(&home, &[("nested", &script)]);
    let merged = home.json(&["merge", "nested"]);
    let paths: Vec<&str> = merged["submodules"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["path"].as_str())
        .collect();
    assert_eq!(paths, ["sub/inner", "sub"], "{merged}");
    update(&work);
    assert_eq!(
        fs::read_to_string(work.join("sub/inner/lib.txt")).expect("a file"),
        "new\n"
    );
}

/// Only objects inside the workspace are read: an agent cannot make Adjutant copy those of another
/// repository.
#[test]
fn foreign_repository_is_not_read_for_a_submodule() {
    let home = with_submodule();
    let work = home.work();
    let private = library(&home, "private");
    fs::write(private.join("secret"), "secret\n").expect("a file");
    git(&private, &["add", "."]);
    git(&private, &["commit", "-qm", "secret"]);
    let commit = git_output(&private, &["rev-parse", "HEAD"]);
    for (name, script) in [
        (
            "names",
            format!(
                "rm -rf sub\nmkdir sub\necho 'gitdir: {}/.git' > sub/.git",
                private.display()
            ),
        ),
        (
            "borrows",
            format!(
                "rm -rf sub\ngit clone -q --shared {} sub",
                private.display()
            ),
        ),
    ] {
        let script = format!(
            "{script}\n{COMMIT} update-index --cacheinfo 160000,{commit},sub\n{COMMIT} commit -qm moved"
        );
        run(&home, &[(name, &script)]);
        refused(&home.adj(&["merge", name]), 7, &["sub (its commit"]);
        assert!(!has(&work.join("sub"), &commit), "{name}");
    }
}
