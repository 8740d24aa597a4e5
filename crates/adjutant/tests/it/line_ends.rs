//! Attributes of text: snapshots, merges and undo treat line ends and encodings as git does.

use crate::changes::{git, repository, start};
use crate::support::TestHome;
use std::fs;
use std::path::Path;
use std::process::Command;

fn git_bytes(dir: &Path, args: &[&str]) -> Vec<u8> {
    let done = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    done.stdout
}

fn read(home: &TestHome, name: &str) -> Vec<u8> {
    fs::read(home.work().join(name)).expect("a file")
}

/// `dos.txt` has the line ends of DOS on disk, `wide.txt` is UTF-16 there.
fn repository_with_attributes() -> TestHome {
    let home = repository();
    let work = home.work();
    git(&work, &["config", "user.name", "User"]);
    git(&work, &["config", "user.email", "user@example.org"]);
    fs::write(
        work.join(".gitattributes"),
        "dos.txt text eol=crlf\nwide.txt text working-tree-encoding=UTF-16LE\nauto.txt text=auto\n",
    )
    .expect("attributes");
    let wide: Vec<u8> = "one\ntwo\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fs::write(work.join("dos.txt"), "one\r\ntwo\r\nthree\r\n").expect("a file");
    fs::write(work.join("wide.txt"), wide).expect("a file");
    fs::write(work.join("auto.txt"), "one\ntwo\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "attributes"]);
    git(&work, &["branch", "-M", "main"]);
    assert_eq!(
        git_bytes(&work, &["show", "HEAD:dos.txt"]),
        b"one\ntwo\nthree\n"
    );
    home
}

fn run_clone(home: &TestHome, name: &str, script: &str) {
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        name,
        &script
            .lines()
            .map(|line| format!("do {line}\n"))
            .collect::<String>(),
    ]);
    let view = home.finished(name);
    assert_eq!(view["outcome"], "succeeded", "{view}\n{}", home.log(name));
}

#[test]
fn merge_changes_only_the_changed_line_of_a_dos_file() {
    let home = repository_with_attributes();
    let work = home.work();
    // Files that are only written again do not count as changed.
    run_clone(
        &home,
        "touches",
        "cp dos.txt x; cat x > dos.txt; rm x; cp wide.txt x; cat x > wide.txt; rm x",
    );
    let diff = home.adj(&["diff", "touches"]);
    assert!(
        diff.out.is_empty() && diff.err.contains("no changes"),
        "{diff:?}"
    );
    assert!(
        home.ok(&["merge", "touches"])
            .contains("already has all changes")
    );
    run_clone(
        &home,
        "edits",
        "grep -q two dos.txt; sed -i 's/two/TWO/' dos.txt; printf 'a\\r\\nb\\r\\n' >> auto.txt\nprintf 'd\\0o\\0n\\0e\\0\\n\\0' > wide.txt",
    );
    let diff = home.ok(&["diff", "edits", "--", "dos.txt"]);
    assert!(
        diff.contains("-two\n+TWO\n") && !diff.contains("-one") && !diff.contains('\r'),
        "{diff}"
    );
    // The user's tree has the files as git would check them out, and is clean.
    home.ok(&["merge", "edits"]);
    assert_eq!(git_bytes(&work, &["status", "--porcelain"]), b"");
    assert_eq!(read(&home, "dos.txt"), b"one\r\nTWO\r\nthree\r\n");
    assert_eq!(read(&home, "wide.txt"), b"d\0o\0n\0e\0\n\0");
    assert_eq!(
        git_bytes(&work, &["show", "HEAD:dos.txt"]),
        b"one\nTWO\nthree\n"
    );
    assert_eq!(git_bytes(&work, &["show", "HEAD:wide.txt"]), b"done\n");
    assert_eq!(
        git_bytes(&work, &["show", "HEAD:auto.txt"]),
        b"one\ntwo\na\nb\n"
    );
    git(&work, &["diff", "--exit-code", "HEAD"]);
}

#[test]
fn undo_restores_the_bytes_of_texts() {
    let home = repository_with_attributes();
    let work = home.work();
    // The user's own files have bytes that git would not check out.
    fs::write(work.join("mixed.txt"), "a\r\nb\n").expect("a file");
    fs::write(work.join("auto.txt"), "one\r\ntwo\r\n").expect("a file");
    fs::write(
        work.join(".gitattributes"),
        "dos.txt text eol=crlf\nwide.txt text working-tree-encoding=UTF-16LE\n*.txt text=auto\nmixed.txt eol=crlf\n",
    )
    .expect("attributes");
    let names = [
        "dos.txt",
        "wide.txt",
        "auto.txt",
        "mixed.txt",
        ".gitattributes",
    ];
    let before: Vec<Vec<u8>> = names.iter().map(|name| read(&home, name)).collect();
    start(
        &home,
        "sh",
        "rewrites",
        "do printf 'one\\nTWO\\n' > dos.txt; echo x > wide.txt; rm auto.txt; printf 'a\\nB\\n' > mixed.txt",
        ".",
    );
    home.finished("rewrites");
    let after: Vec<Option<Vec<u8>>> = names
        .iter()
        .map(|name| fs::read(work.join(name)).ok())
        .collect();
    home.ok(&["undo", "rewrites"]);
    for (name, bytes) in names.iter().zip(&before) {
        assert_eq!(
            String::from_utf8_lossy(&read(&home, name)),
            String::from_utf8_lossy(bytes),
            "{name}"
        );
    }
    let last = home.show("rewrites")["snapshots"]
        .as_array()
        .expect("snapshots")
        .iter()
        .find(|one| one["cause"] == "end")
        .expect("an end")["n"]
        .to_string();
    home.ok(&["undo", "rewrites", &last]);
    for (name, bytes) in names.iter().zip(&after) {
        assert_eq!(fs::read(work.join(name)).ok(), *bytes, "{name}");
    }
}

/// A text with another encoding than it declares is stored unchanged, and a pipe in place of an
/// attributes file does not block.
#[test]
fn broken_texts_are_kept_byte_by_byte() {
    let home = repository_with_attributes();
    let work = home.work();
    let started = std::time::Instant::now();
    run_clone(
        &home,
        "breaks",
        "printf 'odd' > wide.txt; sed -i 's/two/TWO/' dos.txt; mkdir sub; mkfifo sub/.gitattributes",
    );
    assert!(started.elapsed().as_secs() < 30);
    let id = home.run_id("breaks");
    let view = home.show("breaks");
    let last = view["snapshots"]
        .as_array()
        .and_then(|all| all.last())
        .map_or(0, |last| last["n"].as_u64().unwrap_or(0));
    let kept = |path: &str| {
        git_bytes(
            &work,
            &["show", &format!("refs/adjutant/{id}/{last}:{path}")],
        )
    };
    assert_eq!(
        (kept("wide.txt").as_slice(), kept("dos.txt").as_slice()),
        (b"odd".as_slice(), b"one\nTWO\nthree\n".as_slice()),
        "{view}"
    );
}

/// Git counts these files as unchanged, because their committed content is the same, but checks
/// them out with other bytes.
#[test]
fn undo_restores_unusual_line_ends_from_before_the_run() {
    let home = repository_with_attributes();
    let work = home.work();
    fs::write(work.join("auto.txt"), "one\r\ntwo\r\n").expect("a file");
    fs::write(work.join("dos.txt"), "one\ntwo\nthree\n").expect("a file");
    git(&work, &["add", "."]);
    assert_eq!(git_bytes(&work, &["status", "--porcelain"]), b"");
    start(
        &home,
        "sh",
        "rewrites",
        "do echo x > auto.txt; echo y > dos.txt; echo z > one.txt",
        ".",
    );
    home.finished("rewrites");
    home.ok(&["undo", "rewrites"]);
    assert_eq!(read(&home, "auto.txt"), b"one\r\ntwo\r\n");
    assert_eq!(read(&home, "dos.txt"), b"one\ntwo\nthree\n");
    assert_eq!(read(&home, "one.txt"), b"1\n");
}
