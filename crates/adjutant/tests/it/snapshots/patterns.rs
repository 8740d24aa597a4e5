//! Ignored files stay out of snapshots.

use crate::changes::{git, repository, repository_with, start};
use crate::support::TestHome;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// Starts a run that creates files of every pattern, and returns the files that its snapshots have.
fn created_with_patterns(home: &TestHome, name: &str, isolation: &str) -> Value {
    let script = "do for file in a.global a.local a.tree kept.global kept.local kept.both; do echo x > $file; done";
    let mut command = home.command(&[
        "run",
        "-d",
        "-a",
        "sh",
        "-n",
        name,
        "--isolation",
        isolation,
        script,
    ]);
    let ran = command
        .env("XDG_CONFIG_HOME", home.home.dir.with_extension("xdg"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    home.finished(name)["changed_files"].clone()
}

/// The user's patterns apply even if the agent has another home, and a `.gitignore` takes
/// precedence over them, as in git.
#[test]
fn files_that_only_the_users_patterns_ignore_stay_out() {
    let config = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\nenv = { HOME = \"/nonexistent\" }\n";
    let global = "\u{feff}*.global\n*.both\nkept.local\n";
    for place in ["xdg", "setting", "link"] {
        let home = repository_with(config);
        let work = home.work();
        let (user_home, xdg) = (
            work.parent().expect("a parent").to_owned(),
            home.home.dir.with_extension("xdg"),
        );
        fs::create_dir_all(xdg.join("git")).expect("a directory");
        match place {
            "xdg" => fs::write(xdg.join("git/ignore"), global).expect("a file"),
            "setting" => {
                fs::write(user_home.join("patterns"), global).expect("a file");
                fs::write(
                    user_home.join(".gitconfig"),
                    "[core]\n\texcludesFile = ~/patterns\n",
                )
                .expect("a file");
                fs::write(xdg.join("git/ignore"), "*.txt\n").expect("a file that does not apply");
            }
            _ => {
                fs::write(user_home.join("patterns"), global).expect("a file");
                symlink(user_home.join("patterns"), xdg.join("git/ignore")).expect("a link");
            }
        }
        fs::write(
            work.join(".git/info/exclude"),
            "\u{feff}*.local\n!kept.global\n",
        )
        .expect("a file");
        fs::write(work.join(".gitignore"), "*.tree\n!kept.both\n!kept.local\n").expect("a file");
        git(&work, &["add", ".gitignore"]);
        git(&work, &["commit", "-qm", "patterns"]);
        for isolation in ["none", "clone", "worktree"] {
            let changed = created_with_patterns(&home, &format!("{place}-{isolation}"), isolation);
            assert_eq!(
                changed,
                json!(["kept.both", "kept.global", "kept.local"]),
                "{place}, {isolation}"
            );
        }
    }
}

/// Unreadable patterns ignore nothing and prevent no snapshot. Of a pattern that is cut, no part
/// applies.
#[test]
fn unusable_pattern_files_are_skipped() {
    let home = repository();
    let work = home.work();
    let exclude = work.join(".git/info/exclude");
    fs::remove_file(&exclude).ok();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &exclude,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    start(&home, "echo", "fifo", "write a.txt x", ".");
    assert_eq!(home.finished("fifo")["changed_files"], json!(["a.txt"]));
    fs::remove_file(&exclude).expect("it is there");
    // The limit of 1 MiB is after the asterisk.
    let filler = format!("*.log\n{}\n", "#".repeat(1024 * 1024 - 8));
    fs::write(&exclude, format!("{filler}*.cut\n")).expect("a file");
    start(&home, "echo", "long", "write b.txt x\nwrite b.log x", ".");
    assert_eq!(home.finished("long")["changed_files"], json!(["b.txt"]));
}
