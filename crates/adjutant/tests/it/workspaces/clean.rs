//! Clean-up removes a workspace with its run, and never the only copy of work.

use super::prepare::configure;
use super::{git_output, name_user, repository, start_clone, succeeded, workspace};
use crate::support::{TestHome, kill};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn refs(home: &TestHome, view: &Value) -> String {
    git_output(
        &home.work(),
        &[
            "for-each-ref",
            &format!("refs/adjutant/{}/", view["run_id"].as_str().expect("an id")),
        ],
    )
}

fn clean(home: &TestHome, more: &[&str]) -> Value {
    home.json(&[&["clean", "--older-than", "0s", "--yes"], more].concat())
}

#[test]
fn unmerged_work_stays_until_it_is_forced() {
    let home = repository();
    start_clone(&home, "works", "echo 2 > one.txt");
    start_clone(&home, "idle", "true");
    start_clone(
        &home,
        "commits",
        "git config user.name a; git config user.email a@a; git commit -q --allow-empty -m empty",
    );
    let views: Vec<Value> = ["works", "idle", "commits"]
        .iter()
        .map(|name| succeeded(&home, name))
        .collect();
    let preview = clean(&home, &["--dry-run"]);
    let reason = "its changes were neither merged nor discarded";
    assert_eq!(preview["runs"], json!(["idle"]), "{preview}");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!(["idle"]), "{cleaned}");
    let mut kept: Vec<_> = cleaned["kept"]
        .as_array()
        .expect("kept")
        .iter()
        .map(|kept| (kept["run"].as_str(), kept["reason"].as_str()))
        .collect();
    kept.sort_unstable();
    assert_eq!(
        kept,
        [
            (Some("commits"), Some(reason)),
            (Some("works"), Some(reason))
        ]
    );
    assert!(
        !workspace(&views[1]).parent().expect("a parent").exists()
            && refs(&home, &views[1]).is_empty()
    );
    assert!(workspace(&views[0]).exists() && !refs(&home, &views[0]).is_empty());
    let said = home.adj(&["clean", "--older-than", "0s", "--yes"]);
    assert!(
        said.err.contains(&format!("kept works: {reason}"))
            && said.err.contains("nothing to remove"),
        "{said:?}"
    );
    home.ok(&["discard", "commits"]);
    assert_eq!(clean(&home, &[])["runs"], json!(["commits"]));
    assert_eq!(clean(&home, &["--force"])["runs"], json!(["works"]));
    assert!(!workspace(&views[0]).exists() && refs(&home, &views[0]).is_empty());
    assert_eq!(home.json(&["ps", "-a"]), json!([]));
}

#[test]
fn file_in_no_snapshot_keeps_its_workspace() {
    let home = repository();
    start_clone(&home, "large", "truncate -s 65M large.bin");
    let view = succeeded(&home, "large");
    let cleaned = clean(&home, &[]);
    assert!(
        cleaned["kept"][0]["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("large.bin")),
        "{cleaned}"
    );
    assert!(workspace(&view).join("large.bin").exists());
    // A changed file that the run's own end did not see is kept as well.
    fs::remove_file(workspace(&view).join("large.bin")).expect("removed");
    fs::write(workspace(&view).join("one.txt"), "by hand\n").expect("a file");
    assert_eq!(clean(&home, &[])["runs"], json!([]));
    assert!(home.ok(&["diff", "large"]).contains("+by hand"));
}

#[test]
fn worktree_is_removed_with_its_registration() {
    let home = repository();
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "tree",
        "do true",
    ]);
    let view = succeeded(&home, "tree");
    assert_eq!(clean(&home, &[])["runs"], json!(["tree"]));
    assert!(!workspace(&view).exists());
    assert_eq!(
        git_output(&home.work(), &["worktree", "list"])
            .lines()
            .count(),
        1
    );
}

#[test]
fn worktree_below_a_link_is_removed_with_its_registration() {
    let home = repository();
    let link = home.work().with_file_name("link");
    std::os::unix::fs::symlink(home.home.dir.parent().expect("a parent"), &link).expect("a link");
    let below = link.join("home");
    let adj = |args: &[&str]| {
        let ran = home
            .command(args)
            .env("ADJ_HOME", &below)
            .output()
            .expect("adj runs");
        assert!(ran.status.success(), "{args:?}: {ran:?}");
    };
    adj(&[
        "run",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "tree",
        "do true",
    ]);
    adj(&["wait", "tree"]);
    assert_eq!(
        git_output(&home.work(), &["worktree", "list"])
            .lines()
            .count(),
        2
    );
    adj(&["discard", "tree"]);
    assert_eq!(
        git_output(&home.work(), &["worktree", "list"])
            .lines()
            .count(),
        1
    );
    adj(&["stop"]);
}

#[test]
fn workspace_with_closed_directories_is_removed() {
    let home = repository();
    start_clone(
        &home,
        "closes",
        "mkdir -p cache/mod; echo x > cache/mod/file; echo cache > .gitignore; chmod -R a-w cache; chmod 000 cache/mod",
    );
    let view = succeeded(&home, "closes");
    home.ok(&["discard", "closes"]);
    assert!(!workspace(&view).exists());
}

#[test]
fn shared_directory_refusal_has_a_hint() {
    let home = repository();
    home.start("first", "say ready\nhang");
    home.until_log("first", "ready");
    let ran = home.adj(&["run", "-d", "-a", "echo", "-n", "second", "say x"]);
    assert!(
        ran.err.contains(
            "also working in this directory: first (in a git repository, --clone keeps runs apart)"
        ),
        "{ran:?}"
    );
    let ran = home.adj(&["run", "-d", "--clone", "-a", "echo", "-n", "third", "say x"]);
    assert!(!ran.err.contains("also working"), "{ran:?}");
    home.ok(&["cancel", "first"]);
}

#[test]
fn resumed_run_keeps_its_discarded_workspace() {
    let home = repository();
    let script = "write one.txt early\nask \"first?\"\nresume-here\nwrite two.txt late\nask \"second?\"\ndone fine";
    home.ok(&["run", "-d", "--clone", "-a", "echo", "-n", "back", script]);
    home.adj(&["wait", "back"]);
    home.ok(&["pause", "back"]);
    home.until("it is stopped", || {
        (home.show("back")["state"] == "stopped").then_some(())
    });
    home.ok(&["discard", "back"]);
    assert_eq!(home.show("back")["workspace"]["state"], "discarded");
    home.ok(&["resume", "back", "go on"]);
    home.until("it asks again", || {
        home.show("back")["pending"]
            .to_string()
            .contains("second?")
            .then_some(())
    });
    let top = workspace(&home.show("back"));
    assert_eq!(home.show("back")["workspace"]["state"], "ready");
    // The next hub completes discards that were interrupted. This one is none.
    kill(home.hub_pid());
    home.ok(&["ps"]);
    assert_eq!(
        fs::read_to_string(top.join("two.txt")).expect("a file"),
        "late\n"
    );
    home.ok(&["cancel", "back"]);
    home.finished("back");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!([]), "{cleaned}");
    assert!(top.exists(), "what it wrote is not merged: {cleaned}");
}

#[test]
fn work_after_a_merge_is_kept() {
    let home = repository();
    git_output(&home.work(), &["config", "user.name", "user"]);
    git_output(&home.work(), &["config", "user.email", "user@example.com"]);
    for name in ["merged", "edited"] {
        start_clone(&home, name, &format!("echo {name} > {name}.txt"));
        succeeded(&home, name);
        home.ok(&["merge", name]);
    }
    fs::write(
        workspace(&home.show("edited")).join("edited.txt"),
        "by hand\n",
    )
    .expect("a file");
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!(["merged"]), "{cleaned}");
    assert_eq!(
        cleaned["kept"][0]["reason"], "its workspace has changed since it was merged",
        "{cleaned}"
    );
}

#[test]
fn torn_workspace_keeps_its_run_until_it_is_forced() {
    let home = repository();
    start_clone(&home, "torn", "true");
    let view = succeeded(&home, "torn");
    let top = workspace(&view);
    fs::write(top.join("one.txt"), "in no snapshot\n").expect("a file");
    fs::write(top.with_file_name(".unsynced"), "another boot").expect("a mark");
    for more in [&["--dry-run"][..], &[]] {
        let cleaned = clean(&home, more);
        assert_eq!(cleaned["runs"], json!([]), "{cleaned}");
        let reason = cleaned["kept"][0]["reason"].as_str().expect("a reason");
        assert!(
            reason.contains("may have changes")
                && reason.contains("use --force")
                && top.join("one.txt").exists(),
            "{reason}"
        );
    }
    assert_eq!(clean(&home, &["--force"])["runs"], json!(["torn"]));
    assert!(!top.exists());
}

#[test]
fn set_aside_workspace_keeps_its_run_until_forced() {
    let home = repository();
    for name in ["aside", "discarded"] {
        start_clone(&home, name, "true");
        let top = workspace(&succeeded(&home, name));
        let aside = format!("{}.torn-1", top.parent().expect("a parent").display());
        fs::create_dir(&aside).expect("a directory");
        fs::write(format!("{aside}/new.txt"), "x").expect("a file");
        home.ok(&["discard", name]);
        let cleaned = clean(&home, &[]);
        assert_eq!(cleaned["runs"], json!([]), "{cleaned}");
        assert!(
            cleaned["kept"][0]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains(&aside)),
            "{cleaned}"
        );
        if name == "aside" {
            assert_eq!(clean(&home, &["--force"])["runs"], json!([name]));
        } else {
            home.ok(&["discard", name, "--force"]);
            assert_eq!(clean(&home, &[])["runs"], json!([name]));
        }
        assert!(!std::path::Path::new(&aside).exists());
    }
}

#[test]
fn shared_caches_are_removed_with_the_last_run() {
    let home = repository();
    configure(&home, "caches = { BUILD_CACHE = \"build\" }\n");
    let caches = home.home.dir.join("caches");
    for name in ["one", "two"] {
        start_clone(&home, name, "echo built > $BUILD_CACHE/file");
        succeeded(&home, name);
        home.ok(&["discard", name]);
    }
    start_clone(&home, "keeps", "echo 2 > one.txt");
    succeeded(&home, "keeps");
    fs::create_dir(caches.join("of the user")).expect("a directory");
    let cleaned = clean(&home, &[]);
    assert!(
        cleaned["runs"]
            .as_array()
            .is_some_and(|runs| runs.len() == 2)
            && cleaned["caches"].is_null(),
        "{cleaned}"
    );
    assert_eq!(fs::read_dir(&caches).expect("a directory").count(), 2);
    let would = clean(&home, &["--force", "--dry-run"]);
    assert_eq!(would["caches"].as_array().map(Vec::len), Some(1), "{would}");
    assert_eq!(fs::read_dir(&caches).expect("a directory").count(), 2);
    assert_eq!(clean(&home, &["--force"])["caches"], would["caches"]);
    let left: Vec<_> = fs::read_dir(&caches)
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["of the user"]);
}

#[test]
fn merge_in_no_branch_keeps_its_run() {
    let home = repository();
    let work = home.work();
    name_user(&work);
    let before = git_output(&work, &["rev-parse", "HEAD"]);
    for (name, mode) in [
        ("branch", &["--branch", "kept"][..]),
        ("gone", &["--branch", "lost"]),
        ("back", &["--squash"]),
    ] {
        start_clone(&home, name, &format!("echo {name} > {name}.txt"));
        succeeded(&home, name);
        home.ok(&[&["merge", name], mode].concat());
    }
    git_output(&work, &["branch", "-qD", "lost"]);
    git_output(&work, &["reset", "-q", "--hard", &before]);
    let cleaned = clean(&home, &[]);
    assert_eq!(cleaned["runs"], json!(["branch"]), "{cleaned}");
    let kept = cleaned["kept"].as_array().expect("kept");
    assert!(
        kept.len() == 2
            && kept.iter().all(|kept| kept["reason"]
                .as_str()
                .is_some_and(|why| why.contains("no branch or tag"))),
        "{cleaned}"
    );
}

fn reason_to_keep<'a>(cleaned: &'a Value, run: &str) -> &'a str {
    let kept = cleaned["kept"]
        .as_array()
        .and_then(|kept| kept.iter().find(|kept| kept["run"] == run));
    kept.and_then(|kept| kept["reason"].as_str())
        .unwrap_or_else(|| panic!("{run} is not kept: {cleaned}"))
}

#[test]
fn unmerged_branch_of_a_merged_run_keeps_it() {
    let home = repository();
    let work = home.work();
    name_user(&work);
    let identity = "git config user.name a; git config user.email a@a";
    let alternative = "git checkout -q -b alt/try; echo alternative > one.txt; git commit -qam alternative; git checkout -q -; echo 2 > two.txt";
    let squashed = "git checkout -q -b same; echo x > same.txt; git add .; git commit -qm same; git checkout -q -; git merge -q --squash same";
    let scripts = [
        ("tries", alternative),
        (
            "stashes",
            "echo stashed > one.txt; git stash -q; echo 3 > three.txt",
        ),
        ("same", squashed),
    ];
    for (name, script) in scripts {
        start_clone(&home, name, &format!("{identity}\n{script}"));
    }
    let id = succeeded(&home, "tries")["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    for (name, _) in scripts {
        succeeded(&home, name);
        home.ok(&["merge", name, "--squash"]);
    }
    for more in [&["--dry-run"][..], &[]] {
        let cleaned = clean(&home, more);
        assert_eq!(cleaned["runs"], json!(["same"]), "{cleaned}");
        let branch = format!(
            "its branch alt/try is not merged: git merge refs/adjutant/{id}/heads/alt%2Ftry, or adj discard tries"
        );
        assert_eq!(reason_to_keep(&cleaned, "tries"), branch);
        assert!(
            reason_to_keep(&cleaned, "stashes").starts_with("its stash is not merged: "),
            "{cleaned}"
        );
    }
    // It is in a branch of the user's now.
    git_output(
        &work,
        &[
            "branch",
            "alternative",
            &format!("refs/adjutant/{id}/heads/alt%2Ftry"),
        ],
    );
    assert_eq!(clean(&home, &[])["runs"], json!(["tries"]));
    home.ok(&["discard", "stashes"]);
    assert_eq!(clean(&home, &[])["runs"], json!(["stashes"]));
}

#[test]
fn branch_or_stash_that_was_removed_keeps_no_run() {
    let home = repository();
    name_user(&home.work());
    let identity = "git config user.name a; git config user.email a@a";
    let alternative = "git checkout -q -b try; echo alternative > one.txt; git commit -qam alternative; git checkout -q -; echo 2 > two.txt";
    let scripts = [
        ("tries", alternative),
        (
            "stashes",
            "echo stashed > one.txt; git stash -q; echo 3 > three.txt",
        ),
    ];
    let mut workspaces = Vec::new();
    for (name, script) in scripts {
        start_clone(&home, name, &format!("{identity}\n{script}"));
        workspaces.push(
            succeeded(&home, name)["cwd"]
                .as_str()
                .expect("a directory")
                .to_owned(),
        );
        home.ok(&["merge", name, "--squash"]);
    }
    let (tries, stashes) = (Path::new(&workspaces[0]), Path::new(&workspaces[1]));
    assert_eq!(clean(&home, &[])["kept"].as_array().map(Vec::len), Some(2));
    let tip = git_output(tries, &["rev-parse", "try"]);
    git_output(tries, &["branch", "-D", "try"]);
    assert_eq!(clean(&home, &["--dry-run"])["runs"], json!(["tries"]));
    // The same commit under another name.
    git_output(tries, &["branch", "again", &tip]);
    let cleaned = clean(&home, &["--dry-run"]);
    assert!(
        cleaned["runs"] == json!([])
            && cleaned["kept"]
                .to_string()
                .contains("its branch again is not merged"),
        "{cleaned}"
    );
    git_output(tries, &["branch", "-D", "again"]);
    git_output(stashes, &["stash", "drop"]);
    assert_eq!(clean(&home, &[])["runs"], json!(["tries", "stashes"]));
}

#[test]
fn dry_run_names_the_runs_that_are_removed() {
    let home = repository();
    name_user(&home.work());
    for (name, script) in [
        ("large", "truncate -s 65M large.bin; echo 2 > one.txt"),
        ("edited", "echo 2 > two.txt"),
        ("merged", "echo 3 > new.txt"),
    ] {
        start_clone(&home, name, script);
        succeeded(&home, name);
        home.ok(&["merge", name]);
    }
    fs::write(workspace(&home.show("edited")).join("one.txt"), "by hand\n").expect("a file");
    let preview = clean(&home, &["--dry-run"]);
    assert_eq!(
        (
            preview["runs"].clone(),
            preview["kept"].as_array().map(Vec::len)
        ),
        (json!(["merged"]), Some(2)),
        "{preview}"
    );
    let cleaned = clean(&home, &[]);
    assert_eq!(
        (&cleaned["runs"], &cleaned["kept"]),
        (&preview["runs"], &preview["kept"])
    );
}

/// A merge brings what only the setup command changed; it is not work of the run, and can be made
/// again.
#[test]
fn changes_of_the_setup_command_are_no_work() {
    let home = repository();
    name_user(&home.work());
    configure(
        &home,
        "setup = [\"sh\", \"-c\", \"echo set up > two.txt\"]\n",
    );
    start_clone(&home, "idle", "true");
    start_clone(&home, "works", "echo 2 > one.txt");
    let (idle, works) = (succeeded(&home, "idle"), succeeded(&home, "works"));
    assert_eq!(
        (&idle["changed_files"], &works["changed_files"]),
        (&json!([]), &json!(["one.txt"]))
    );
    let diff = home.adj(&["diff", "works"]);
    assert!(
        diff.out.contains("two.txt")
            && diff
                .err
                .contains("includes what the setup command changed before the agent started"),
        "{diff:?}"
    );
    assert_eq!(
        clean(&home, &[])["runs"],
        json!(["idle"]),
        "the other has work of its own"
    );
}

/// Another run works in the workspace of a merged one.
#[test]
fn work_of_a_follow_up_run_stays() {
    let home = repository();
    name_user(&home.work());
    start_clone(&home, "first", "echo 2 > one.txt");
    succeeded(&home, "first");
    home.ok(&["merge", "first"]);
    let dir = workspace(&home.show("first")).display().to_string();
    // One that changes nothing leaves it merged.
    for (name, script) in [("looks", "true"), ("later", "echo again > new.txt")] {
        let preview = clean(&home, &["--dry-run"]);
        assert_eq!(
            preview["kept"].as_array().map_or(0, Vec::len),
            0,
            "before {name}: {preview}"
        );
        home.ok(&[
            "run",
            "-d",
            "-a",
            "sh",
            "-n",
            name,
            "-C",
            &dir,
            &format!("do {script}"),
        ]);
        home.finished(name);
    }
    assert_eq!(
        home.show("first")["workspace"]["state"],
        "ready",
        "it is worked in again"
    );
    let cleaned = clean(&home, &[]);
    let kept = cleaned["kept"].to_string();
    assert!(
        kept.contains("first") && kept.contains("its workspace has changed since it was merged"),
        "{cleaned}"
    );
}
