//! `adj undo` restores what a run changed.

use super::own_state;
use crate::changes::{git, repository, start};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// No snapshot runs a filter: one that has read the file has its content, and one that has what git
/// had stored does not.
#[test]
fn file_with_a_filter_is_restored_from_its_content() {
    let home = repository();
    let work = home.work();
    git(&work, &["config", "filter.upper.clean", "tr a-z A-Z"]);
    git(&work, &["config", "filter.upper.smudge", "tr A-Z a-z"]);
    git(&work, &["config", "filter.upper.required", "true"]);
    fs::write(work.join(".gitattributes"), "*.psd filter=upper\n").expect("a file");
    for name in ["clean.psd", "edited.psd", "staged.psd"] {
        fs::write(work.join(name), "first\n").expect("a file");
    }
    // git reads a file again if it is as new as the index.
    let is_old = |name: &str| {
        let file = fs::File::options()
            .append(true)
            .open(work.join(name))
            .expect("a file");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000))
            .expect("a time");
    };
    is_old("clean.psd");
    is_old("staged.psd");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "filtered"]);
    fs::write(work.join("edited.psd"), "mine\n").expect("a file");
    fs::write(work.join("staged.psd"), "staged\n").expect("a file");
    is_old("staged.psd");
    git(&work, &["add", "staged.psd"]);
    let read = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    start(
        &home,
        "sh",
        "edits",
        "do echo run > edited.psd; echo run > new.psd; echo run > one.txt",
        ".",
    );
    home.finished("edits");
    let undone = home.json(&["undo", "edits"]);
    assert_eq!(
        (&undone["files"], &undone["skipped"]),
        (&json!(["edited.psd", "new.psd", "one.txt"]), &json!(null)),
        "{undone}"
    );
    assert_eq!(
        (read("edited.psd").as_str(), read("new.psd").as_str()),
        ("mine\n", "")
    );
    // Its content is nowhere but in the file: what git has stored would be wrong.
    start(
        &home,
        "sh",
        "cleans",
        "do echo run > clean.psd; echo run > staged.psd; echo run > one.txt",
        ".",
    );
    home.finished("cleans");
    let undone = home.adj(&["undo", "cleans"]);
    assert!(
        undone.code == 7
            && undone.out.contains("1 file restored")
            && undone.err.contains("clean.psd was not restored"),
        "{undone:?}"
    );
    assert!(
        undone.err.contains("staged.psd was not restored"),
        "{undone:?}"
    );
    assert_eq!(
        (
            read("clean.psd").as_str(),
            read("staged.psd").as_str(),
            read("one.txt").as_str()
        ),
        ("run\n", "run\n", "1\n")
    );
}

#[test]
fn undo_restores_the_state_before_the_run_and_back() {
    let home = repository();
    let work = home.work();
    fs::create_dir(work.join("dir")).expect("a directory");
    fs::write(work.join("dir/inside"), "inside\n").expect("a file");
    fs::write(work.join("program"), "#!/bin/sh\n").expect("a file");
    fs::set_permissions(work.join("program"), fs::Permissions::from_mode(0o755)).expect("a mode");
    symlink("two.txt", work.join("link")).expect("a link");
    fs::write(work.join(".gitignore"), "ignored\n").expect("a file");
    fs::write(work.join("ignored"), "kept\n").expect("a file");
    let script = [
        "do rm -r dir; echo file > dir",
        "do rm program link; mkdir link; echo x > link/file",
        "do echo more >> one.txt; mkdir -p a/b; echo deep > a/b/c; rm two.txt",
    ];
    start(&home, "sh", "rewrites", &script.join("\n"), ".");
    home.finished("rewrites");
    let own = own_state(&work);
    let undone = home.json(&["undo", "rewrites"]);
    assert_eq!(
        (&undone["to"]["n"], &undone["before"]["n"]),
        (&json!(1), &json!(2)),
        "nothing changed since its end: {undone}"
    );
    assert_eq!(
        fs::read_to_string(work.join("dir/inside")).expect("a file"),
        "inside\n"
    );
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
    assert_eq!(
        fs::read_link(work.join("link")).expect("a link"),
        Path::new("two.txt")
    );
    assert_eq!(
        fs::metadata(work.join("program"))
            .expect("a program")
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    assert!(
        !work.join("a").exists(),
        "directories that it leaves empty go"
    );
    assert_eq!(
        fs::read_to_string(work.join("ignored")).expect("a file"),
        "kept\n"
    );
    assert_eq!(own_state(&work), own, "the index and HEAD stay");
    // An undo can be undone.
    let back = home.ok(&["undo", "rewrites", "2"]);
    assert!(back.contains("restored to snapshot 2"), "{back}");
    assert_eq!(
        fs::read_to_string(work.join("dir")).expect("a file"),
        "file\n"
    );
    assert_eq!(
        fs::read_to_string(work.join("a/b/c")).expect("a file"),
        "deep\n"
    );
    assert!(
        home.ok(&["undo", "rewrites", "2"])
            .contains("already at snapshot 2")
    );
    let events = home.ok(&["events", "rewrites"]);
    assert!(events.contains("run.undone"), "{events}");
}

#[test]
fn undo_never_overwrites_files_in_no_snapshot() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("notes"), "notes\n").expect("a file");
    start(
        &home,
        "sh",
        "removes",
        "do rm notes; echo notes > .gitignore",
        ".",
    );
    home.finished("removes");
    // The file is ignored now, so no snapshot contains it.
    fs::write(work.join("notes"), "precious\n").expect("a file");
    fs::write(work.join("two.txt"), "edited\n").expect("a file");
    let refused = home.adj(&["undo", "removes"]);
    assert!(
        refused.code != 0
            && refused.err.contains("notes")
            && refused.err.contains("move them away first"),
        "{refused:?}"
    );
    assert_eq!(
        fs::read_to_string(work.join("notes")).expect("a file"),
        "precious\n"
    );
    assert_eq!(
        fs::read_to_string(work.join("two.txt")).expect("a file"),
        "edited\n",
        "nothing was changed"
    );
    fs::remove_file(work.join("notes")).expect("it can be removed");
    let undone = home.json(&["undo", "removes"]);
    assert_eq!(undone["files"], json!([".gitignore", "notes"]), "{undone}");
    assert_eq!(
        fs::read_to_string(work.join("two.txt")).expect("a file"),
        "edited\n",
        "the run has not changed it"
    );
}

/// A file of the user that was ignored at the start, and is not any more, does not count as created
/// by the run.
#[test]
fn undo_removes_no_file_that_was_ignored_before() {
    let home = repository();
    let work = home.work();
    fs::write(work.join(".gitignore"), "secret\n").expect("a file");
    fs::write(work.join("secret"), "mine\n").expect("a file");
    start(
        &home,
        "sh",
        "ignores",
        "do echo other > .gitignore; echo new > new.txt",
        ".",
    );
    home.finished("ignores");
    let undone = home.adj(&["undo", "ignores"]);
    assert!(
        undone.code == 0
            && undone
                .err
                .contains("note: secret was not removed: it existed before"),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(work.join("secret")).expect("it stays"),
        "mine\n"
    );
    assert_eq!(
        fs::read_to_string(work.join(".gitignore")).expect("a file"),
        "secret\n"
    );
    assert!(!work.join("new.txt").exists());
}

/// No snapshot has the content that an ignored file had before the run.
#[test]
fn undo_keeps_an_ignored_file_that_the_run_edited() {
    let home = repository();
    let work = home.work();
    fs::create_dir(work.join("app")).expect("a directory");
    fs::write(work.join(".gitignore"), ".env\n/build/\n").expect("a file");
    fs::write(work.join("app/.gitignore"), "*.key\n!public.key\n").expect("a file");
    fs::write(work.join(".git/info/exclude"), "notes\n").expect("a file");
    for name in [".env", "app/a.key", "notes"] {
        fs::write(work.join(name), "mine\n").expect("a file");
    }
    let script = "do for file in .env app/a.key notes; do cp $file new; echo edited >> new; mv new $file; done\n\
                  do mkdir build; echo x > build/out; echo x > app/public.key; echo x > new.txt\n\
                  do echo none > .gitignore; rm app/.gitignore; git add -f .env app/a.key notes";
    start(&home, "sh", "edits", script, ".");
    let view = home.finished("edits");
    assert!(
        view["changed_files"].to_string().contains("app/a.key"),
        "{view}"
    );
    let undone = home.json(&["undo", "edits"]);
    assert_eq!(
        undone["files"],
        json!([".gitignore", "app/.gitignore", "app/public.key", "new.txt"]),
        "{undone}"
    );
    assert_eq!(
        undone["not_removed"],
        json!([".env", "app/a.key", "build/out"]),
        "notes is in no snapshot: {undone}"
    );
    for name in [".env", "app/a.key", "notes"] {
        assert_eq!(
            fs::read_to_string(work.join(name)).expect("it stays"),
            "mine\nedited\n",
            "{name}"
        );
    }
}

/// Files of a directory that was moved have older times than the snapshot.
#[test]
fn undo_reverts_the_move_of_a_directory() {
    let home = repository();
    let work = home.work();
    fs::create_dir_all(work.join("src/sub")).expect("directories");
    for name in ["a", "sub/b", "edited"] {
        fs::write(work.join("src").join(name), format!("{name}\n")).expect("a file");
    }
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "src"]);
    start(
        &home,
        "sh",
        "moves",
        "do git mv src lib; echo more >> lib/edited",
        ".",
    );
    home.finished("moves");
    let undone = home.json(&["undo", "moves"]);
    assert_eq!(undone["not_removed"], json!(null), "{undone}");
    assert!(
        !work.join("lib").exists()
            && work.join("src/a").exists()
            && work.join("src/sub/b").exists(),
        "{undone}"
    );
    assert_eq!(
        fs::read_to_string(work.join("src/edited")).expect("it is back"),
        "edited\n"
    );
}

#[test]
fn undo_says_that_it_moves_no_branch() {
    let home = repository();
    let work = home.work();
    start(
        &home,
        "sh",
        "commits",
        "do echo 2 > one.txt; git -c user.name=a -c user.email=a@a commit -qam 2; echo 3 > two.txt",
        ".",
    );
    home.finished("commits");
    let undone = home.adj(&["undo", "commits"]);
    assert!(
        undone.err.contains("undo moves no branch: see git reflog"),
        "{undone:?}"
    );
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
}

#[test]
fn undo_names_the_place_and_what_it_left() {
    let home = repository();
    let work = home.work();
    fs::create_dir(work.join("sub")).expect("a directory");
    start(
        &home,
        "sh",
        "beyond",
        "do echo run > ../one.txt; echo run > s",
        "sub",
    );
    home.finished("beyond");
    let undone = home.adj(&["undo", "beyond"]);
    assert!(
        undone
            .err
            .contains("outside its directory it also changed one.txt: these were left alone"),
        "{undone:?}"
    );
    assert!(!work.join("sub/s").exists());
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "sh",
        "-n",
        "apart",
        "do echo run > two.txt",
    ]);
    let view = home.finished("apart");
    let undone = home.adj(&["undo", "apart"]);
    let place = view["workspace"]["path"].as_str().expect("a workspace");
    assert!(
        undone.out.contains(&format!(
            "1 file restored to snapshot 1 (start of the attempt) in its workspace {place}"
        )),
        "{undone:?}"
    );
}

#[test]
fn undo_keeps_modes_and_refuses_before_it_changes_anything() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("secret"), "1\n").expect("a file");
    fs::set_permissions(work.join("secret"), fs::Permissions::from_mode(0o600)).expect("a mode");
    start(
        &home,
        "sh",
        "makes",
        "do echo 2 > secret; rm one.txt; mkdir one.txt; echo x > one.txt/kept; echo '*.log' > .gitignore",
        ".",
    );
    home.finished("makes");
    fs::write(work.join("one.txt/precious.log"), "precious\n").expect("a file");
    let refused = home.adj(&["undo", "makes"]);
    assert!(
        refused.code != 0 && refused.err.contains("one.txt/precious.log"),
        "{refused:?}"
    );
    assert_eq!(
        fs::read_to_string(work.join("secret")).expect("a file"),
        "2\n",
        "nothing was changed"
    );
    fs::remove_file(work.join("one.txt/precious.log")).expect("it can be removed");
    home.ok(&["undo", "makes"]);
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
    assert_eq!(
        fs::metadata(work.join("secret"))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
}

#[test]
fn directory_that_the_run_removed_is_restored() {
    let home = repository();
    let dir = home.work().join("sub");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("a.txt"), "a\n").expect("a file");
    start(&home, "sh", "removes", "do rm a.txt && rmdir ../sub", "sub");
    home.finished("removes");
    assert!(!dir.exists());
    assert!(home.ok(&["diff", "removes"]).contains("-a"));
    assert_eq!(
        home.json(&["undo", "removes"])["files"],
        json!(["sub/a.txt"])
    );
    assert_eq!(
        fs::read_to_string(dir.join("a.txt")).expect("it is back"),
        "a\n"
    );
}
