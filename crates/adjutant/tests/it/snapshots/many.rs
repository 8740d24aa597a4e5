//! Trees with very many untracked files: starts and ends stay quick, and a person hears at once
//! what cannot be undone.

use super::git_output;
use crate::changes::{git, repository};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// More than one snapshot adds.
const FILES: usize = 20_400;
const FILES_OF_DIRECTORY: usize = 400;

fn fill(dir: &Path) {
    for n in 0..FILES / FILES_OF_DIRECTORY {
        let dir = dir.join(format!("d{n}"));
        fs::create_dir_all(&dir).expect("a directory");
        for n in 0..FILES_OF_DIRECTORY {
            fs::write(dir.join(format!("f{n}")), format!("{n}\n")).expect("a file");
        }
    }
}

#[test]
fn crowded_directory_is_left_out_and_named_at_once() {
    let home = repository();
    let work = home.work();
    fill(&work.join("web/nm"));
    fs::write(work.join("web/mine.txt"), "mine\n").expect("a file");
    let started = Instant::now();
    // Fewer untracked files at the end, so that the last snapshot has those that are left.
    let script = "do echo run > one.txt; echo run > web/mine.txt; echo run >> web/nm/d1/f1; rm -rf web/nm/d0 web/nm/d2; echo new > web/nm/d1/new";
    let ran = home.adj(&["run", "-w", "-a", "sh", "-n", "many", script]);
    let expected = "not all files are kept, so adj undo cannot restore them: \"web/nm/\" (20400 untracked files, too many for one snapshot";
    assert!(ran.code == 0 && ran.err.contains(expected), "{ran:?}");
    assert!(
        started.elapsed() < Duration::from_secs(90),
        "{:?}",
        started.elapsed()
    );
    let shown = home.ok(&["show", "many"]);
    assert!(
        shown.contains("not kept") && shown.contains("\"web/nm/\" (20400 untracked files"),
        "{shown}"
    );
    let undone = home.json(&["undo", "many"]);
    assert_eq!(
        undone["files"],
        json!(["one.txt", "web/mine.txt"]),
        "{}",
        undone["files"]
    );
    assert_eq!(
        fs::read_to_string(work.join("web/mine.txt")).expect("a file"),
        "mine\n"
    );
    // Nothing that can have been there is removed, also where the run has changed it.
    assert_eq!(
        fs::read_to_string(work.join("web/nm/d1/f1")).expect("a file"),
        "1\nrun\n"
    );
    assert!(work.join("web/nm/d3/f7").exists() && work.join("web/nm/d1/new").exists());
    git_output(&work, &["fsck", "--connectivity-only"]);
    // Refused at once, with what is in the way.
    fill(&work.join("web/nm"));
    git(&work, &["checkout", "-q", "."]);
    let started = Instant::now();
    let refused = home.adj(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "do true",
    ]);
    assert!(
        refused.code != 0
            && refused
                .err
                .contains("\"web/nm/\" cannot be carried into a workspace (20"),
        "{refused:?}"
    );
    assert!(
        !refused.err.contains("kill -9") && started.elapsed() < Duration::from_secs(60),
        "{refused:?}"
    );
    // Ignored files do not count.
    fs::write(work.join(".gitignore"), "nm/\n").expect("a file");
    let ran = home.adj(&[
        "run",
        "-w",
        "-a",
        "sh",
        "-n",
        "few",
        "do echo again > one.txt",
    ]);
    assert!(
        ran.code == 0 && !ran.err.contains("not all files are kept"),
        "{ran:?}"
    );
    assert_eq!(home.json(&["undo", "few"])["files"], json!(["one.txt"]));
}
