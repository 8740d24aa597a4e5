//! Merging and discarding the changes of isolated runs, in real repositories.

mod conflicts;
mod kills;
mod mcp;
mod modes;
mod refused;
mod review;
mod saves;
mod submodules;

use crate::changes::{git, repository};
use crate::support::{Ran, TestHome};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn git_output(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    String::from_utf8(done.stdout)
        .expect("UTF-8")
        .trim_end()
        .to_owned()
}

/// A repository whose user has a name. `lines.txt` has ten lines.
pub fn named_repository() -> TestHome {
    let home = repository();
    let work = home.work();
    git(&work, &["config", "user.name", "User"]);
    git(&work, &["config", "user.email", "user@example.org"]);
    let lines: String = (1..=10).map(|n| format!("line {n}\n")).collect();
    fs::write(work.join("lines.txt"), lines).expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "lines"]);
    git(&work, &["branch", "-M", "main"]);
    home
}

/// Starts isolated runs of the shell and waits for their end.
fn run(home: &TestHome, runs: &[(&str, &str)]) {
    for (name, script) in runs {
        let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
        home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", name, &script]);
    }
    for (name, _) in runs {
        let view = home.finished(name);
        assert_eq!(view["outcome"], "succeeded", "{view}\n{}", home.log(name));
    }
}

/// The user's state that a refused merge must not change: the files to the byte with their modes,
/// the index, refs and reflogs.
fn user_state(work: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut state = BTreeMap::new();
    collect(work, work, &mut state);
    state.insert(
        "refs".to_owned(),
        git_output(
            work,
            &["for-each-ref", "refs/heads", "refs/tags", "refs/stash"],
        )
        .into_bytes(),
    );
    for file in [".git/index", ".git/HEAD", ".git/logs/HEAD", ".git/config"] {
        state.insert(
            file.to_owned(),
            fs::read(work.join(file)).unwrap_or_default(),
        );
    }
    for entry in fs::read_dir(work.join(".git"))
        .expect("a git directory")
        .flatten()
    {
        state
            .insert(
                format!(".git/{}", entry.file_name().to_string_lossy()),
                Vec::new(),
            )
            .unwrap_or_default();
    }
    state
}

fn collect(top: &Path, dir: &Path, state: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        let name = path
            .strip_prefix(top)
            .expect("below")
            .to_string_lossy()
            .into_owned();
        let meta = path.symlink_metadata().expect("an entry");
        if name == ".git" {
        } else if meta.is_dir() {
            state.insert(name, b"directory".to_vec());
            collect(top, &path, state);
        } else if meta.is_symlink() {
            state.insert(
                name,
                fs::read_link(&path)
                    .expect("a link")
                    .into_os_string()
                    .into_encoded_bytes(),
            );
        } else {
            use std::os::unix::fs::PermissionsExt as _;
            let mut content = format!("{:o} ", meta.permissions().mode()).into_bytes();
            content.extend(fs::read(&path).expect("a file"));
            state.insert(name, content);
        }
    }
}

fn refused(ran: &Ran, code: i32, expected: &[&str]) {
    assert!(
        ran.code == code && expected.iter().all(|text| ran.err.contains(text)),
        "expected {expected:?}: {ran:?}"
    );
}
