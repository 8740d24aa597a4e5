//! Snapshots of a run's tree: `adj show`, `adj diff` and `adj undo` in real repositories.

use crate::changes::{git, repository, repository_with, start};
use crate::support::{TestHome, kill, lock_pid};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn git_output(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git").args(args).current_dir(dir).env("HOME", dir).output().expect("git is installed");
    assert!(done.status.success(), "git {args:?}: {done:?}");
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// Returns the snapshots of a run: number, cause and attempt.
fn listed(view: &Value) -> Vec<(u64, String, u64)> {
    let snapshots = view["snapshots"].as_array().cloned().unwrap_or_default();
    let row = |snapshot: &Value| {
        (snapshot["n"].as_u64().expect("a number"), snapshot["cause"].as_str().unwrap_or("").to_owned(), snapshot["attempt"].as_u64().unwrap_or(0))
    };
    snapshots.iter().map(row).collect()
}

fn row(n: u64, cause: &str) -> (u64, String, u64) {
    (n, cause.to_owned(), 1)
}

/// Returns the user's state that a snapshot must not change.
pub fn own_state(work: &Path) -> (Vec<u8>, String, String) {
    let index = fs::read(work.join(".git/index")).expect("an index");
    let refs = git_output(work, &["for-each-ref", "refs/heads", "refs/tags", "refs/stash"]);
    (index, refs, fs::read_to_string(work.join(".git/logs/HEAD")).unwrap_or_default())
}

#[test]
fn start_and_end_snapshots_leave_the_users_state() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    git(&work, &["add", "mine.txt"]);
    fs::create_dir(work.join("new")).expect("a directory");
    let before = own_state(&work);
    start(&home, "echo", "writes", "write one.txt changed\nwrite new/file.txt x\nsay done", ".");
    let view = home.finished("writes");
    assert_eq!(listed(&view), [row(1, "start"), row(2, "end")], "{view}");
    assert_eq!(own_state(&work), before, "the index, the branches and the reflog are the user's");
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    assert_eq!(end, format!("refs/adjutant/{}/2", view["run_id"].as_str().expect("an id")));
    assert_eq!(git_output(&work, &["show", &format!("{end}:new/file.txt")]).trim_end(), "x");
    assert_eq!(git_output(&work, &["show", &format!("{end}~1:mine.txt")]), "mine\n", "the first one has what was not committed");
    assert_eq!(git_output(&work, &["rev-parse", &format!("{end}~2")]), git_output(&work, &["rev-parse", "HEAD"]), "it follows the user's commit");
    let shown = home.ok(&["show", "writes"]);
    assert!(shown.contains("snapshot 1 (start of the attempt)") && shown.contains("snapshot 2 (end of the attempt)"), "{shown}");
}

#[test]
fn diff_shows_what_a_run_changed() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    fs::create_dir(work.join("new")).expect("a directory");
    start(&home, "echo", "writes", "write one.txt changed\nwrite new/file.txt x\nsay done", ".");
    home.finished("writes");
    let diff = home.ok(&["diff", "writes"]);
    assert!(diff.contains("-1\n+changed") && diff.contains("+++ b/new/file.txt") && !diff.contains("mine"), "{diff}");
    let stat = home.ok(&["diff", "--stat", "writes"]);
    assert!(stat.contains("2 files changed"), "{stat}");
    let one = home.ok(&["diff", "writes", "1..2", "--", "new"]);
    assert!(one.contains("new/file.txt") && !one.contains("one.txt"), "{one}");
    assert!(home.ok(&["diff", "--word-diff", "writes"]).contains("[-1-]{+changed+}"));
    assert_eq!(home.ok(&["diff", "writes", "2.."]), "");
    let json = home.json(&["diff", "writes"]);
    assert_eq!((&json["from"]["n"], &json["to"]["n"]), (&json!(1), &json!(2)), "{json}");
    let refused = home.adj(&["diff", "writes", "1..7"]);
    assert!(refused.code != 0 && refused.err.contains("writes has snapshots up to 2"), "{refused:?}");
    let refused = home.adj(&["diff", "writes", "x"]);
    assert!(refused.code == 2 && refused.err.contains("not a range of snapshots"), "{refused:?}");
}

#[test]
fn diff_of_a_live_run_shows_its_work_so_far() {
    let home = repository();
    start(&home, "echo", "asks", "write one.txt half\nask \"go on?\"\nwrite one.txt whole", ".");
    home.until_status("asks", "waiting_parent_reply");
    assert!(home.ok(&["diff", "asks"]).contains("+half"));
    let again = home.json(&["diff", "asks"]);
    assert_eq!(again["to"]["n"], 2, "nothing has changed since, so no other is taken: {again}");
    let refused = home.adj(&["undo", "asks"]);
    assert!(refused.code != 0 && refused.err.contains("pause or cancel it first"), "{refused:?}");
    home.ok(&["reply", "asks", "yes"]);
    assert_eq!(listed(&home.finished("asks")), [row(1, "start"), row(2, "look"), row(3, "end")]);
    assert!(home.ok(&["diff", "asks", "2..3"]).contains("-half\n+whole"));
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
    assert_eq!((&undone["to"]["n"], &undone["before"]["n"]), (&json!(1), &json!(2)), "nothing changed since its end: {undone}");
    assert_eq!(fs::read_to_string(work.join("dir/inside")).expect("a file"), "inside\n");
    assert_eq!(fs::read_to_string(work.join("one.txt")).expect("a file"), "1\n");
    assert_eq!(fs::read_link(work.join("link")).expect("a link"), Path::new("two.txt"));
    assert_eq!(fs::metadata(work.join("program")).expect("a program").permissions().mode() & 0o777, 0o755);
    assert!(!work.join("a").exists(), "directories that it leaves empty go");
    assert_eq!(fs::read_to_string(work.join("ignored")).expect("a file"), "kept\n");
    assert_eq!(own_state(&work), own, "the index and HEAD stay");
    // An undo can be undone.
    let back = home.ok(&["undo", "rewrites", "2"]);
    assert!(back.contains("restored to snapshot 2"), "{back}");
    assert_eq!(fs::read_to_string(work.join("dir")).expect("a file"), "file\n");
    assert_eq!(fs::read_to_string(work.join("a/b/c")).expect("a file"), "deep\n");
    assert!(home.ok(&["undo", "rewrites", "2"]).contains("already at snapshot 2"));
    let events = home.ok(&["events", "rewrites"]);
    assert!(events.contains("run.undone"), "{events}");
}

#[test]
fn undo_never_overwrites_files_in_no_snapshot() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("notes"), "notes\n").expect("a file");
    start(&home, "sh", "removes", "do rm notes; echo notes > .gitignore", ".");
    home.finished("removes");
    // The file is ignored now, so no snapshot contains it.
    fs::write(work.join("notes"), "precious\n").expect("a file");
    fs::write(work.join("two.txt"), "edited\n").expect("a file");
    let refused = home.adj(&["undo", "removes"]);
    assert!(refused.code != 0 && refused.err.contains("notes") && refused.err.contains("move them away first"), "{refused:?}");
    assert_eq!(fs::read_to_string(work.join("notes")).expect("a file"), "precious\n");
    assert_eq!(fs::read_to_string(work.join("two.txt")).expect("a file"), "edited\n", "nothing was changed");
    fs::remove_file(work.join("notes")).expect("it can be removed");
    let undone = home.json(&["undo", "removes"]);
    assert_eq!(undone["files"], json!([".gitignore", "notes"]), "{undone}");
    assert_eq!(fs::read_to_string(work.join("two.txt")).expect("a file"), "edited\n", "the run has not changed it");
}

#[test]
fn work_of_a_killed_run_is_restored() {
    let home = repository();
    let work = home.work();
    start(&home, "echo", "killed", "write lost.txt treasure\nask \"go on?\"\ndone", ".");
    home.until_status("killed", "waiting_parent_reply");
    let dir = home.attempt_dir("killed");
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = home.until("it is stopped", || Some(home.show("killed")).filter(|view| view["state"] != "running"));
    assert_eq!(listed(&view), [row(1, "start"), row(2, "end")], "{view}");
    fs::remove_file(work.join("lost.txt")).expect("the user removes it");
    home.ok(&["undo", "killed", "2"]);
    assert_eq!(fs::read_to_string(work.join("lost.txt")).expect("a file").trim_end(), "treasure");
}

#[test]
fn snapshot_of_a_hostile_repository_runs_nothing() {
    let home = repository();
    let work = home.work();
    let trap = home.home.dir.parent().expect("a parent").join("trap.sh");
    fs::write(&trap, format!("#!/bin/sh\ntouch '{}'\ncat\n", trap.with_extension("sprung").display())).expect("a trap");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o755)).expect("a mode");
    let trap_text = trap.display().to_string();
    fs::write(work.join(".gitattributes"), "*.txt filter=trap diff=trap merge=trap working-tree-encoding=none\n").expect("a file");
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
    for hook in ["post-index-change", "reference-transaction", "post-checkout", "pre-commit", "pre-auto-gc"] {
        symlink(&trap, work.join(".git/hooks").join(hook)).expect("a hook");
    }
    // A nested repository with an equally hostile configuration.
    fs::create_dir(work.join("nested")).expect("a directory");
    git(&work.join("nested"), &["init", "-q"]);
    git(&work.join("nested"), &["commit", "-q", "--allow-empty", "-m", "x"]);
    git(&work.join("nested"), &["config", "core.fsmonitor", &trap_text]);
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
    assert!(left_out.contains("big.bin") && left_out.contains("nested"), "{left_out}");
    assert!(home.ok(&["diff", "hostile"]).contains("+changed"));
    let undone = home.json(&["undo", "hostile"]);
    assert_eq!((&undone["files"], &undone["skipped"]), (&json!(["escape", "new\nline"]), &json!(["one.txt"])), "a filter makes one.txt: {undone}");
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "outside\n", "no link is followed");
    assert!(work.join("big.bin").exists() && work.join("nested/file").exists(), "entries without a snapshot stay");
    assert!(!trap.with_extension("sprung").exists(), "a program of the repository was run");
    // A work tree other than the repository's own is not touched.
    for elsewhere in [work.parent().expect("a parent"), Path::new("/")] {
        git(&work, &["config", "core.worktree", &elsewhere.display().to_string()]);
        let refused = home.adj(&["undo", "hostile", "2"]);
        assert!(refused.code != 0 && refused.err.contains("core.worktree"), "{refused:?}");
    }
    assert!(!trap.with_extension("sprung").exists(), "a program of the repository was run");
}

#[test]
fn unusual_repositories_are_kept_too() {
    let home = repository();
    let work = home.work();
    // Without a commit.
    fs::create_dir(work.join("empty")).expect("a directory");
    git(&work.join("empty"), &["init", "-q"]);
    start(&home, "echo", "first", "write first.txt x\nsay done", "empty");
    let view = home.finished("first");
    assert_eq!((listed(&view).len(), &view["changed_files"]), (2, &json!(["first.txt"])), "{view}");
    // A linked work tree, detached, with a split index.
    git(&work, &["worktree", "add", "-q", "--detach", "linked"]);
    git(&work.join("linked"), &["update-index", "--split-index"]);
    start(&home, "echo", "linked", "write linked.txt x\nsay done", "linked");
    let view = home.finished("linked");
    assert_eq!((listed(&view).len(), &view["changed_files"]), (2, &json!(["linked.txt"])), "{view}");
    home.ok(&["undo", "linked"]);
    assert!(!work.join("linked/linked.txt").exists() && work.join("linked/one.txt").exists());
    // No repository at all.
    let outside = home.home.dir.parent().expect("a parent").join("outside");
    fs::create_dir(&outside).expect("a directory");
    start(&home, "echo", "outside", "write x.txt x\nsay done", &outside.display().to_string());
    assert_eq!(listed(&home.finished("outside")), []);
    let refused = home.adj(&["diff", "outside"]);
    assert!(refused.code != 0 && refused.err.contains("not in a git repository"), "{refused:?}");
}

#[test]
fn snapshots_are_removed_with_their_run() {
    let home = repository();
    start(&home, "echo", "old", "write one.txt x\nsay done", ".");
    home.finished("old");
    assert_eq!(git_output(&home.work(), &["for-each-ref", "refs/adjutant"]).lines().count(), 2);
    home.ok(&["clean", "--yes", "--older-than", "0s"]);
    assert_eq!(git_output(&home.work(), &["for-each-ref", "refs/adjutant"]), "");
    assert_eq!(fs::read_to_string(home.work().join("one.txt")).expect("a file").trim_end(), "x", "the tree stays");
}

#[test]
fn home_inside_the_repository_is_never_kept() {
    let home = repository();
    // The directory above the home becomes the repository.
    let top = home.home.dir.parent().expect("a parent").to_owned();
    git(&top, &["init", "-q"]);
    fs::remove_dir_all(home.work().join(".git")).expect("the inner repository");
    start(&home, "echo", "inside", "write one.txt changed\nsay done", ".");
    let view = home.finished("inside");
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    let kept = git_output(&top, &["ls-tree", "-r", "--name-only", end]);
    let own = home.home.dir.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(kept.contains("work/one.txt") && !kept.contains(&format!("{own}/")), "{kept}");
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
    assert_eq!(view["changed_files"], json!(["dir", "dir/a", "one.txt", "other/a", "two.txt"]), "{view}");
    let end = view["snapshots"][1]["git_ref"].as_str().expect("a ref");
    assert_eq!(git_output(&work, &["cat-file", "-p", &format!("{end}:two.txt")]), "a\nb", "as git commits it");
    home.ok(&["undo", "marked"]);
    let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    assert_eq!((read("one.txt"), read("two.txt"), read("dir/a")), ("1\n".to_owned(), "1\n".to_owned(), "1\n".to_owned()));
    assert!(!work.join("other").exists() && !work.join("dir").is_symlink());
    assert_eq!(own_state(&work), own, "the marks are the user's");
}

#[test]
fn undo_stays_in_the_directory_of_its_run() {
    let home = repository();
    let work = home.work();
    for dir in ["a", "b"] {
        fs::create_dir(work.join(dir)).expect("a directory");
    }
    start(&home, "echo", "first", "write mine.txt x\nsay done", "a");
    home.finished("first");
    fs::write(work.join("b/theirs.txt"), "y\n").expect("a file");
    let undone = home.json(&["undo", "first"]);
    assert_eq!(undone["files"], json!(["a/mine.txt"]), "{undone}");
    assert!(work.join("b/theirs.txt").exists());
    // While another run works in a parent directory, nothing is restored.
    start(&home, "echo", "above", "ask \"go on?\"", ".");
    home.until_status("above", "waiting_parent_reply");
    let refused = home.adj(&["undo", "first", "2"]);
    assert!(refused.code != 0 && refused.err.contains("above works in or around"), "{refused:?}");
}

#[test]
fn undo_leaves_the_work_of_others() {
    let home = repository();
    let work = home.work();
    let read = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    start(&home, "sh", "first", "do echo run > one.txt; echo new > new.txt", ".");
    home.finished("first");
    // Another run, and a commit of the user's.
    start(&home, "sh", "second", "do echo second > two.txt", ".");
    home.finished("second");
    fs::write(work.join("mine"), "mine\n").expect("a file");
    git(&work, &["add", "mine"]);
    git(&work, &["commit", "-qm", "mine"]);
    fs::write(work.join("one.txt"), "run\nmine\n").expect("a file");
    let refused = home.adj(&["undo", "first"]);
    assert!(refused.code == 7 && refused.err.contains("these files have changed since the run: one.txt"), "{refused:?}");
    assert!(refused.err.contains("--force") && !refused.err.contains("new.txt"), "{refused:?}");
    assert_eq!((read("one.txt").as_str(), read("new.txt").as_str()), ("run\nmine\n", "new\n"), "nothing was changed");
    let undone = home.json(&["undo", "--force", "first"]);
    assert_eq!(undone["files"], json!(["new.txt", "one.txt"]), "{undone}");
    assert_eq!((read("one.txt").as_str(), read("two.txt").as_str(), read("mine").as_str()), ("1\n", "second\n", "mine\n"));
    // Only a snapshot contains the line that the user has added.
    let before = undone["before"]["n"].to_string();
    let kept = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(
        kept.err.contains(&format!(
            "kept first: only its snapshot {before}, taken before an undo, has the replaced one.txt: adj undo first {before} restores it"
        )),
        "{kept:?}"
    );
    home.ok(&["undo", "first", &before]);
    assert_eq!(read("one.txt"), "run\nmine\n");
    // Now the tree contains it.
    let cleaned = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(cleaned.out.contains("first"), "{cleaned:?}");
}

/// The user edits a file between two attempts of a run that changes other files.
#[test]
fn undo_leaves_edits_between_attempts() {
    let home = repository();
    let work = home.work();
    let read = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    let two_attempts = |name: &str, second: &str| {
        start(&home, "echo", name, &format!("write {name}-1 x\nhang\nresume-here\n{second}"), ".");
        home.until("the first file is there", || work.join(format!("{name}-1")).exists().then_some(()));
        home.ok(&["pause", name]);
        home.until_status(name, "stopped");
        fs::write(work.join("one.txt"), format!("mine beside {name}\n")).expect("a file");
        home.ok(&["resume", name]);
        home.finished(name);
    };
    two_attempts("apart", "write apart-2 x");
    let shown = home.adj(&["diff", "apart"]);
    assert!(shown.err.contains("includes edits that were made between its attempts"), "{shown:?}");
    assert_eq!(home.json(&["undo", "apart"])["files"], json!(["apart-1", "apart-2"]));
    assert_eq!(read("one.txt"), "mine beside apart\n");
    // The run changes the same file afterwards, so only the snapshot at an attempt's start contains the edit.
    two_attempts("same", "write one.txt run");
    let refused = home.adj(&["undo", "same"]);
    assert!(refused.code == 7 && refused.err.contains("these files have changed since the run: one.txt"), "{refused:?}");
    home.ok(&["undo", "same", "3"]);
    assert_eq!(read("one.txt"), "mine beside same\n", "what the later attempt began with");
    home.ok(&["undo", "--force", "same"]);
    assert_eq!(read("one.txt"), "mine beside apart\n");
    let kept = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(kept.err.contains("kept same: ") && kept.err.contains("has the replaced one.txt"), "{kept:?}");
}

/// A file of the user that was ignored at the start, and is not any more, does not count as created by the run.
#[test]
fn undo_removes_no_file_that_was_ignored_before() {
    let home = repository();
    let work = home.work();
    fs::write(work.join(".gitignore"), "secret\n").expect("a file");
    fs::write(work.join("secret"), "mine\n").expect("a file");
    start(&home, "sh", "ignores", "do echo other > .gitignore; echo new > new.txt", ".");
    home.finished("ignores");
    let undone = home.adj(&["undo", "ignores"]);
    assert!(undone.code == 0 && undone.err.contains("note: secret was not removed: it existed before"), "{undone:?}");
    assert_eq!(fs::read_to_string(work.join("secret")).expect("it stays"), "mine\n");
    assert_eq!(fs::read_to_string(work.join(".gitignore")).expect("a file"), "secret\n");
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
    assert!(view["changed_files"].to_string().contains("app/a.key"), "{view}");
    let undone = home.json(&["undo", "edits"]);
    assert_eq!(undone["files"], json!([".gitignore", "app/.gitignore", "app/public.key", "new.txt"]), "{undone}");
    assert_eq!(undone["not_removed"], json!([".env", "app/a.key", "build/out"]), "notes is in no snapshot: {undone}");
    for name in [".env", "app/a.key", "notes"] {
        assert_eq!(fs::read_to_string(work.join(name)).expect("it stays"), "mine\nedited\n", "{name}");
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
    start(&home, "sh", "moves", "do git mv src lib; echo more >> lib/edited", ".");
    home.finished("moves");
    let undone = home.json(&["undo", "moves"]);
    assert_eq!(undone["not_removed"], json!(null), "{undone}");
    assert!(!work.join("lib").exists() && work.join("src/a").exists() && work.join("src/sub/b").exists(), "{undone}");
    assert_eq!(fs::read_to_string(work.join("src/edited")).expect("it is back"), "edited\n");
}

#[test]
fn undo_asks_before_it_reverts_the_work_of_a_concurrent_run() {
    let home = repository();
    let work = home.work();
    start(&home, "echo", "first", "ask \"go on?\"\nwrite first.txt x", ".");
    home.until_status("first", "waiting_parent_reply");
    start(&home, "sh", "second", "do echo second > two.txt", ".");
    home.finished("second");
    home.ok(&["reply", "first", "yes"]);
    home.finished("first");
    let refused = home.adj(&["undo", "first"]);
    let expected = "another run worked in the directory at the same time, and changed these files too: two.txt";
    assert!(refused.code == 7 && refused.err.contains(expected) && refused.err.contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(work.join("two.txt")).expect("a file"), "second\n");
    assert_eq!(home.json(&["undo", "--force", "first"])["files"], json!(["first.txt", "two.txt"]));
}

#[test]
fn undo_says_that_it_moves_no_branch() {
    let home = repository();
    let work = home.work();
    start(&home, "sh", "commits", "do echo 2 > one.txt; git -c user.name=a -c user.email=a@a commit -qam 2; echo 3 > two.txt", ".");
    home.finished("commits");
    let undone = home.adj(&["undo", "commits"]);
    assert!(undone.err.contains("undo moves no branch: see git reflog"), "{undone:?}");
    assert_eq!(fs::read_to_string(work.join("one.txt")).expect("a file"), "1\n");
}

#[test]
fn diff_stays_what_the_run_changed_after_undos() {
    let home = repository();
    start(&home, "sh", "writes", "do echo run > one.txt", ".");
    home.finished("writes");
    let diff = home.ok(&["diff", "writes"]);
    for to in ["1", "2", "1"] {
        home.ok(&["undo", "writes", to]);
        assert_eq!(home.ok(&["diff", "writes"]), diff);
    }
}

#[test]
fn undo_names_the_place_and_what_it_left() {
    let home = repository();
    let work = home.work();
    fs::create_dir(work.join("sub")).expect("a directory");
    start(&home, "sh", "beyond", "do echo run > ../one.txt; echo run > s", "sub");
    home.finished("beyond");
    let undone = home.adj(&["undo", "beyond"]);
    assert!(undone.err.contains("outside its directory it also changed one.txt: these were left alone"), "{undone:?}");
    assert!(!work.join("sub/s").exists());
    home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", "apart", "do echo run > two.txt"]);
    let view = home.finished("apart");
    let undone = home.adj(&["undo", "apart"]);
    let place = view["workspace"]["path"].as_str().expect("a workspace");
    assert!(undone.out.contains(&format!("1 file restored to snapshot 1 (start of the attempt) in its workspace {place}")), "{undone:?}");
}

#[test]
fn undo_keeps_modes_and_refuses_before_it_changes_anything() {
    let home = repository();
    let work = home.work();
    fs::write(work.join("secret"), "1\n").expect("a file");
    fs::set_permissions(work.join("secret"), fs::Permissions::from_mode(0o600)).expect("a mode");
    start(&home, "sh", "makes", "do echo 2 > secret; rm one.txt; mkdir one.txt; echo x > one.txt/kept; echo '*.log' > .gitignore", ".");
    home.finished("makes");
    fs::write(work.join("one.txt/precious.log"), "precious\n").expect("a file");
    let refused = home.adj(&["undo", "makes"]);
    assert!(refused.code != 0 && refused.err.contains("one.txt/precious.log"), "{refused:?}");
    assert_eq!(fs::read_to_string(work.join("secret")).expect("a file"), "2\n", "nothing was changed");
    fs::remove_file(work.join("one.txt/precious.log")).expect("it can be removed");
    home.ok(&["undo", "makes"]);
    assert_eq!(fs::read_to_string(work.join("one.txt")).expect("a file"), "1\n");
    assert_eq!(fs::metadata(work.join("secret")).expect("a file").permissions().mode() & 0o777, 0o600);
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
        git(&work, &["symbolic-ref", &format!("refs/adjutant/{run}/{n}"), "refs/heads/victim"]);
    }
    assert_eq!(listed(&home.show("planted")), [row(1, "start"), row(2, "end")]);
    fs::write(work.join("one.txt"), "edited\n").expect("a file");
    let undone = home.json(&["undo", "--force", "planted"]);
    assert_eq!(undone["before"]["n"], 4, "the number that is taken is left out: {undone}");
    home.ok(&["clean", "--yes", "--force", "--older-than", "0s"]);
    assert!(git_output(&work, &["for-each-ref", "refs/heads"]).contains("refs/heads/victim"));
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
    assert_eq!(home.json(&["undo", "removes"])["files"], json!(["sub/a.txt"]));
    assert_eq!(fs::read_to_string(dir.join("a.txt")).expect("it is back"), "a\n");
}

/// Starts a run that creates files of every pattern, and returns the files that its snapshots have.
fn created_with_patterns(home: &TestHome, name: &str, isolation: &str) -> Value {
    let script = "do for file in a.global a.local a.tree kept.global kept.local kept.both; do echo x > $file; done";
    let mut command = home.command(&["run", "-d", "-a", "sh", "-n", name, "--isolation", isolation, script]);
    let ran = command.env("XDG_CONFIG_HOME", home.home.dir.with_extension("xdg")).output().expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    home.finished(name)["changed_files"].clone()
}

/// The user's patterns apply even if the agent has another home, and a `.gitignore` takes precedence over them, as in git.
#[test]
fn files_that_only_the_users_patterns_ignore_stay_out() {
    let config =
        "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\nenv = { HOME = \"/nonexistent\" }\n";
    let global = "\u{feff}*.global\n*.both\nkept.local\n";
    for place in ["xdg", "setting", "link"] {
        let home = repository_with(config);
        let work = home.work();
        let (user_home, xdg) = (work.parent().expect("a parent").to_owned(), home.home.dir.with_extension("xdg"));
        fs::create_dir_all(xdg.join("git")).expect("a directory");
        match place {
            "xdg" => fs::write(xdg.join("git/ignore"), global).expect("a file"),
            "setting" => {
                fs::write(user_home.join("patterns"), global).expect("a file");
                fs::write(user_home.join(".gitconfig"), "[core]\n\texcludesFile = ~/patterns\n").expect("a file");
                fs::write(xdg.join("git/ignore"), "*.txt\n").expect("a file that does not apply");
            }
            _ => {
                fs::write(user_home.join("patterns"), global).expect("a file");
                symlink(user_home.join("patterns"), xdg.join("git/ignore")).expect("a link");
            }
        }
        fs::write(work.join(".git/info/exclude"), "\u{feff}*.local\n!kept.global\n").expect("a file");
        fs::write(work.join(".gitignore"), "*.tree\n!kept.both\n!kept.local\n").expect("a file");
        git(&work, &["add", ".gitignore"]);
        git(&work, &["commit", "-qm", "patterns"]);
        for isolation in ["none", "clone", "worktree"] {
            let changed = created_with_patterns(&home, &format!("{place}-{isolation}"), isolation);
            assert_eq!(changed, json!(["kept.both", "kept.global", "kept.local"]), "{place}, {isolation}");
        }
    }
}

/// Unreadable patterns ignore nothing and prevent no snapshot. Of a pattern that is cut, no part applies.
#[test]
fn unusable_pattern_files_are_skipped() {
    let home = repository();
    let work = home.work();
    let exclude = work.join(".git/info/exclude");
    fs::remove_file(&exclude).ok();
    rustix::fs::mknodat(rustix::fs::CWD, &exclude, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a FIFO");
    start(&home, "echo", "fifo", "write a.txt x", ".");
    assert_eq!(home.finished("fifo")["changed_files"], json!(["a.txt"]));
    fs::remove_file(&exclude).expect("it is there");
    // The limit of 1 MiB is after the asterisk.
    let filler = format!("*.log\n{}\n", "#".repeat(1024 * 1024 - 8));
    fs::write(&exclude, format!("{filler}*.cut\n")).expect("a file");
    start(&home, "echo", "long", "write b.txt x\nwrite b.log x", ".");
    assert_eq!(home.finished("long")["changed_files"], json!(["b.txt"]));
}
