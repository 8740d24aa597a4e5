//! Merges without conflicts.

use super::{git_output, named_repository, run, user_state};
use crate::changes::git;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn first_merge_fast_forwards_and_the_second_joins() {
    let home = named_repository();
    let work = home.work();
    let base = git_output(&work, &["rev-parse", "HEAD"]);
    let scripts = [
        ("top", "sed -i '1s/.*/top/' lines.txt; echo new > new.txt"),
        ("bottom", "sed -i '10s/.*/bottom/' lines.txt; rm two.txt"),
    ];
    run(&home, &scripts);
    let merged = home.json(&["merge", "top"]);
    assert_eq!(
        (&merged["outcome"], &merged["branch"]),
        (&json!("merged"), &json!("main")),
        "{merged}"
    );
    assert_eq!(merged["files"], json!(["lines.txt", "new.txt"]));
    assert_eq!(
        git_output(&work, &["rev-parse", "HEAD~1"]),
        base,
        "one commit on top"
    );
    let shown = home.ok(&["merge", "bottom"]);
    assert!(
        shown.contains("bottom: merged into main, 2 files changed"),
        "{shown}"
    );
    assert_eq!(
        git_output(&work, &["rev-list", "--parents", "-1", "HEAD"])
            .split(' ')
            .count(),
        3,
        "a merge commit"
    );
    let lines = fs::read_to_string(work.join("lines.txt")).expect("a file");
    assert!(
        lines.starts_with("top\n") && lines.ends_with("bottom\n"),
        "{lines}"
    );
    assert!(!work.join("two.txt").exists() && work.join("new.txt").exists());
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    let message = git_output(&work, &["log", "-1", "--format=%an <%ae>%n%B", "HEAD^2"]);
    assert!(
        message.starts_with("User <user@example.org>\ndo sed -i '10s")
            && message.contains("\nAdjutant-Run: bottom (")
            && message.contains("\nAdjutant-Agent: sh"),
        "{message}"
    );
    assert!(git_output(&work, &["log", "-1", "--format=%s"]).starts_with("Merge run bottom: "));
    assert!(git_output(&work, &["reflog", "-2"]).contains("adj merge bottom"));
    git(&work, &["fsck", "--strict"]);
    assert_eq!(home.show("top")["workspace"]["state"], "merged");
    assert!(home.ok(&["events", "top"]).contains("run.merged"));
    // Again: there is nothing new.
    let state = user_state(&work);
    let again = home.json(&["merge", "top"]);
    assert_eq!(
        (&again["outcome"], &again["commit"]),
        (&json!("already_merged"), &merged["commit"]),
        "{again}"
    );
    assert_eq!(user_state(&work), state);
    // A merge that the user reverts can be repeated.
    git(&work, &["reset", "-q", "--hard", &base]);
    assert_eq!(home.json(&["merge", "top"])["outcome"], "merged");
}

/// Signing would run a program that the configuration names.
#[test]
fn unsigned_commits_are_named_where_git_signs() {
    let home = named_repository();
    let work = home.work();
    run(
        &home,
        &[
            ("before", "echo 1 > before.txt"),
            ("merged", "echo 1 > merged.txt"),
            ("staged", "echo 1 > staged.txt"),
            ("apart", "echo 1 > apart.txt"),
        ],
    );
    assert!(home.json(&["merge", "before"])["unsigned"].is_null());
    git(&work, &["config", "commit.gpgSign", "yes"]);
    let said = home.adj(&["merge", "merged"]);
    assert!(
        said.code == 0
            && said.err.contains("commit.gpgsign")
            && said.err.contains("git rebase --rebase-merges --exec"),
        "{said:?}"
    );
    assert_eq!(git_output(&work, &["log", "-1", "--format=%G?"]), "N");
    assert_eq!(
        home.json(&["merge", "apart", "--branch", "apart"])["unsigned"],
        true
    );
    let staged = home.adj(&["merge", "staged", "--no-commit"]);
    assert!(
        staged.code == 0 && !staged.err.contains("gpgsign"),
        "{staged:?}"
    );
}

#[test]
fn own_commits_of_the_agent_are_kept_or_squashed_or_rebased() {
    let home = named_repository();
    let work = home.work();
    let script = "git config user.name A; git config user.email a@a\n\
                  sed -i '1s/.*/one/' lines.txt; git commit -qam 'first of two'\n\
                  sed -i '2s/.*/two/' lines.txt; git commit -qam 'second of two'\n\
                  echo left > left.txt";
    run(&home, &[("commits", script)]);
    let base = git_output(&work, &["rev-parse", "HEAD"]);
    fs::write(work.join("mine.txt"), "mine\n").expect("a file");
    git(&work, &["add", "mine.txt"]);
    git(&work, &["commit", "-qm", "mine"]);
    let mine = git_output(&work, &["rev-parse", "HEAD"]);
    let subjects = |range: &str| {
        git_output(&work, &["log", "--format=%an: %s", range])
            .lines()
            .map(|line| line.chars().take(20).collect())
            .collect::<Vec<String>>()
    };
    home.ok(&["merge", "commits", "--rebase"]);
    assert_eq!(
        subjects(&format!("{mine}..HEAD")),
        [
            "User: do git config ",
            "A: second of two",
            "A: first of two"
        ]
    );
    assert_eq!(git_output(&work, &["rev-list", "--merges", "HEAD"]), "");
    for (flag, commits) in [("--squash", 1), ("--no-ff", 4)] {
        git(&work, &["reset", "-q", "--hard", &mine]);
        home.ok(&["merge", "commits", flag]);
        assert_eq!(subjects(&format!("{mine}..HEAD")).len(), commits, "{flag}");
        assert_eq!(
            fs::read_to_string(work.join("left.txt")).expect("a file"),
            "left\n"
        );
        assert_eq!(git_output(&work, &["status", "--porcelain"]), "", "{flag}");
    }
    git(&work, &["reset", "-q", "--hard", &base]);
    home.ok(&["merge", "commits"]);
    assert_eq!(
        git_output(&work, &["rev-list", "--merges", "HEAD"]),
        "",
        "moved forward"
    );
}

#[test]
fn branch_changes_no_files_and_stage_commits_nothing() {
    let home = named_repository();
    let work = home.work();
    run(&home, &[("writes", "echo new > new.txt")]);
    fs::write(work.join("new.txt"), "in the way\n").expect("a file");
    let (head, before) = (git_output(&work, &["rev-parse", "HEAD"]), user_state(&work));
    let made = home.json(&["merge", "writes", "--branch", "from-run"]);
    assert_eq!(
        (&made["branch"], &made["outcome"]),
        (&json!("from-run"), &json!("merged")),
        "{made}"
    );
    assert_eq!(git_output(&work, &["show", "from-run:new.txt"]), "new");
    // A caller that has received no reply repeats the call.
    let again = home.json(&["merge", "writes", "--branch", "from-run"]);
    assert_eq!(
        (&again["outcome"], &again["commit"]),
        (&json!("already_merged"), &made["commit"]),
        "{again}"
    );
    assert_eq!(
        (
            &home.show("writes")["workspace"]["state"],
            &home.json(&["stats"])["total"]["merged"]
        ),
        (&json!("ready"), &json!(0))
    );
    git(&work, &["branch", "-D", "from-run"]);
    assert_eq!(user_state(&work), before);
    fs::remove_file(work.join("new.txt")).expect("it goes");
    let staged = home.ok(&["merge", "writes", "--no-commit"]);
    assert!(
        staged.contains("1 file changed and staged, nothing committed"),
        "{staged}"
    );
    assert_eq!(git_output(&work, &["rev-parse", "HEAD"]), head);
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "A  new.txt");
    // A detached head is moved.
    git(&work, &["reset", "-q", "--hard"]);
    git(&work, &["checkout", "-q", "--detach"]);
    home.ok(&["merge", "writes"]);
    assert_eq!(git_output(&work, &["rev-parse", "HEAD~1"]), head);
    assert_eq!(
        git_output(&work, &["rev-parse", "main"]),
        head,
        "the branch stays"
    );
}

#[test]
fn every_kind_of_change_arrives() {
    let home = named_repository();
    let work = home.work();
    fs::create_dir(work.join("dir")).expect("a directory");
    fs::write(work.join("dir/inside"), "inside\n").expect("a file");
    fs::write(work.join("script"), "#!/bin/sh\n").expect("a file");
    fs::write(work.join("UPPER"), "upper\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "more"]);
    let script = "rm -r dir; echo file > dir; rm two.txt; mkdir two.txt; echo deep > two.txt/deep\n\
                  chmod +x script; ln -s ../../outside link; printf 'a\\0b' > image.bin; mv UPPER upper\n\
                  printf x > \"$(printf 'new\\nline')\"; mkdir -p a/b/c; echo d > a/b/c/d";
    run(&home, &[("rewrites", script)]);
    home.ok(&["merge", "rewrites"]);
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    assert_eq!(
        fs::read_to_string(work.join("dir")).expect("a file"),
        "file\n"
    );
    assert_eq!(
        fs::read_to_string(work.join("two.txt/deep")).expect("a file"),
        "deep\n"
    );
    assert_eq!(
        fs::metadata(work.join("script"))
            .expect("a file")
            .permissions()
            .mode()
            & 0o111,
        0o111
    );
    assert_eq!(
        fs::read_link(work.join("link")).expect("a link"),
        Path::new("../../outside")
    );
    assert_eq!(fs::read(work.join("image.bin")).expect("a file"), b"a\0b");
    assert!(
        work.join("upper").exists()
            && !work.join("UPPER").exists()
            && work.join("new\nline").exists()
    );
}

#[test]
fn work_after_a_merge_is_merged_too() {
    let home = named_repository();
    let work = home.work();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "goes-on",
        "write one.txt first\nask \"go on?\"\nwrite two.txt second",
    ]);
    home.until_status("goes-on", "waiting_parent_reply");
    home.ok(&["pause", "goes-on"]);
    home.until("it is stopped", || {
        Some(home.show("goes-on")).filter(|view| view["state"] == "stopped")
    });
    home.ok(&["merge", "goes-on"]);
    assert!(
        fs::read_to_string(work.join("one.txt"))
            .expect("a file")
            .contains("first")
    );
    fs::write(
        Path::new(home.show("goes-on")["cwd"].as_str().expect("a directory")).join("two.txt"),
        "second\n",
    )
    .expect("a file");
    home.ok(&["merge", "goes-on"]);
    assert_eq!(
        fs::read_to_string(work.join("two.txt")).expect("a file"),
        "second\n"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
}

#[test]
fn discarded_work_can_be_restored_as_a_branch() {
    let home = named_repository();
    let work = home.work();
    run(&home, &[("unwanted", "echo new > new.txt")]);
    let dir = home.show("unwanted")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    let (state, gone) = (user_state(&work), home.json(&["discard", "unwanted"]));
    assert!(gone["kept"]["n"].as_u64() > Some(0), "{gone}");
    assert!(!Path::new(&dir).exists());
    assert_eq!(user_state(&work), state);
    assert_eq!(home.show("unwanted")["workspace"]["state"], "discarded");
    assert!(
        home.ok(&["discard", "unwanted"])
            .contains("already removed")
    );
    assert!(home.ok(&["diff", "unwanted"]).contains("new.txt"));
    home.ok(&["merge", "unwanted", "--branch", "after-all"]);
    assert_eq!(git_output(&work, &["show", "after-all:new.txt"]), "new");
    assert!(home.ok(&["events", "unwanted"]).contains("run.discarded"));
}

/// A suggested command does something: what is merged is not merged again, and needs no branch.
#[test]
fn merged_changes_are_not_suggested_again() {
    let home = named_repository();
    run(
        &home,
        &[
            ("wanted", "echo new > new.txt"),
            ("unwanted", "echo other > other.txt"),
        ],
    );
    let said = |args: &[&str]| {
        let ran = home.adj(args);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out + &ran.err
    };
    assert!(
        said(&["diff", "wanted"]).contains("adj merge wanted "),
        "not merged yet"
    );
    home.ok(&["merge", "wanted"]);
    let diff = said(&["diff", "wanted"]);
    assert!(
        diff.contains("all of this is merged already") && !diff.contains("adj merge wanted"),
        "{diff}"
    );
    let discarded = said(&["discard", "wanted"]);
    assert!(
        discarded.contains("workspace removed") && !discarded.contains("adj merge"),
        "{discarded}"
    );
    assert!(
        said(&["discard", "unwanted"]).contains("adj merge unwanted --branch NAME"),
        "its changes are nowhere else"
    );
}

#[test]
fn undo_of_a_run_without_changes_says_so() {
    let home = named_repository();
    for (name, script) in [("idle", "true"), ("writes", "echo new > new.txt")] {
        home.ok(&["run", "-d", "-a", "sh", "-n", name, &format!("do {script}")]);
        assert_eq!(
            home.finished(name)["outcome"],
            "succeeded",
            "{}",
            home.log(name)
        );
    }
    assert_eq!(home.ok(&["undo", "idle"]).trim(), "idle changed nothing");
    assert!(home.ok(&["undo", "writes"]).contains("1 file restored"));
    let again = home.ok(&["undo", "writes"]);
    assert!(again.contains("what it changed is already at"), "{again}");
}

#[test]
fn uncommitted_changes_at_the_start_are_not_merged() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join("two.txt"), "mine\n").expect("a file");
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "--with-changes",
        "-a",
        "sh",
        "-n",
        "carries",
        "do grep -q mine two.txt; sed -i '1s/.*/top/' lines.txt",
    ]);
    assert_eq!(home.finished("carries")["outcome"], "succeeded");
    let merged = home.json(&["merge", "carries"]);
    assert_eq!(merged["files"], json!(["lines.txt"]), "{merged}");
    assert_eq!(git_output(&work, &["status", "--porcelain"]), " M two.txt");
    assert_eq!(
        git_output(&work, &["log", "-1", "--format=", "--name-only"]),
        "lines.txt"
    );
    let again = home.json(&["merge", "carries"]);
    assert_eq!(again["outcome"], "already_merged", "{again}");
}

#[test]
fn work_tree_of_the_repository_is_merged_too() {
    let home = named_repository();
    let work = home.work();
    let script = "do echo new > new.txt; git -c user.name=A -c user.email=a@a add new.txt; git -c user.name=A -c user.email=a@a commit -qm own";
    home.ok(&[
        "run",
        "-d",
        "--isolation",
        "worktree",
        "-a",
        "sh",
        "-n",
        "linked",
        script,
    ]);
    assert_eq!(
        home.finished("linked")["outcome"],
        "succeeded",
        "{}",
        home.log("linked")
    );
    home.ok(&["merge", "linked"]);
    assert_eq!(
        git_output(&work, &["log", "-1", "--format=%an %s"]),
        "A own"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    home.ok(&["discard", "linked"]);
    assert_eq!(git_output(&work, &["worktree", "list"]).lines().count(), 1);
}

/// The agent pulls a commit of the user's branch, which the user then reverts. A merge does not
/// apply it again.
#[test]
fn merge_does_not_restore_what_the_branch_has_removed() {
    for (name, take_in) in [
        ("pulls", "git pull -q --no-rebase --no-edit origin main"),
        ("rebases", "git pull -q --rebase origin main"),
    ] {
        let home = named_repository();
        let work = home.work();
        let go = work.with_file_name("go");
        let script = format!(
            "git config user.name a; git config user.email a@a; echo own > own.txt; git add .; git commit -qm own; touch {go}.begun\n\
             while ! test -e {go}; do sleep 0.05; done; {take_in}; echo more >> own.txt; git commit -qam more",
            go = go.display()
        );
        let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
        home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", name, &script]);
        home.until("its first commit", || {
            go.with_extension("begun").exists().then_some(())
        });
        fs::write(work.join("bad.txt"), "bad\n").expect("a file");
        git(&work, &["add", "."]);
        git(&work, &["commit", "-qm", "bad"]);
        fs::write(&go, "").expect("a file");
        assert_eq!(
            home.finished(name)["outcome"],
            "succeeded",
            "{}",
            home.log(name)
        );
        let diff = home.ok(&["diff", name]);
        assert!(
            diff.contains("own.txt") && !diff.contains("bad.txt"),
            "{diff}"
        );
        git(&work, &["rm", "-q", "bad.txt"]);
        git(&work, &["commit", "-qm", "no bad"]);
        let reverted = git_output(&work, &["rev-parse", "HEAD"]);
        let modes: &[&[&str]] = if name == "pulls" {
            &[&[], &["--squash"], &["--no-commit"]]
        } else {
            &[&[], &["--rebase"], &["--squash"], &["--no-commit"]]
        };
        for mode in modes {
            let merged = home.json(&[&["merge", name], *mode].concat());
            assert_eq!(
                (&merged["outcome"], &merged["files"]),
                (&json!("merged"), &json!(["own.txt"])),
                "{name} {mode:?}: {merged}"
            );
            assert!(!work.join("bad.txt").exists(), "{name} {mode:?}");
            if mode == &["--rebase"] {
                assert_eq!(
                    git_output(&work, &["log", "--format=%s", &format!("{reverted}..")]),
                    "more\nown"
                );
            }
            git(&work, &["reset", "-q", "--hard", &reverted]);
        }
    }
}

/// The agent pulls a commit of the user's branch and makes none itself. `adj diff` and `adj merge`
/// both count from that commit.
#[test]
fn diff_shows_what_a_merge_brings_after_a_pull_without_a_commit() {
    let takes_in = [
        ("pulls", "git pull -q origin main", json!(["own.txt"])),
        (
            "resets",
            "git reset -q --soft FETCH_HEAD",
            json!(["bad.txt", "own.txt"]),
        ),
    ];
    for (name, take_in, files) in takes_in {
        let home = named_repository();
        let work = home.work();
        let go = work.with_file_name("go");
        let script = format!(
            "do echo own > own.txt; touch {go}.begun\ndo while ! test -e {go}; do sleep 0.05; done; git fetch -q origin main; {take_in}",
            go = go.display()
        );
        home.ok(&["run", "-d", "--clone", "-a", "sh", "-n", name, &script]);
        home.until("its first file", || {
            go.with_extension("begun").exists().then_some(())
        });
        fs::write(work.join("bad.txt"), "bad\n").expect("a file");
        git(&work, &["add", "."]);
        git(&work, &["commit", "-qm", "bad"]);
        fs::write(&go, "").expect("a file");
        assert_eq!(
            home.finished(name)["outcome"],
            "succeeded",
            "{}",
            home.log(name)
        );
        let diff = home.ok(&["diff", name]);
        assert!(
            diff.contains("+own") && !diff.contains("+bad"),
            "{name}: {diff}"
        );
        assert_eq!(diff.contains("-bad"), name == "resets", "{name}: {diff}");
        let merged = home.json(&["merge", name]);
        assert_eq!(merged["files"], files, "{name}: {merged}");
    }
}

/// A file that the agent tracks is part of its work even if a pattern ignores it.
#[test]
fn ignored_file_that_the_agent_has_added_is_merged() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join(".gitignore"), "*.gen\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "ignore"]);
    let script = "echo data > kept.gen; echo other > left.gen; git add -f kept.gen\ngit -c user.name=a -c user.email=a@a commit -qm generated; echo 1 > one.txt; echo 2 > two.txt";
    for isolation in ["clone", "worktree"] {
        let script: String = script.lines().map(|line| format!("do {line}\n")).collect();
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "-a",
            "sh",
            "-n",
            isolation,
            &script,
        ]);
        assert_eq!(
            home.finished(isolation)["outcome"],
            "succeeded",
            "{}",
            home.log(isolation)
        );
        let stat = home.ok(&["diff", "--stat", isolation]);
        assert!(
            stat.contains("kept.gen") && !stat.contains("left.gen"),
            "{isolation}: {stat}"
        );
    }
    home.ok(&["merge", "clone"]);
    assert_eq!(
        fs::read_to_string(work.join("kept.gen")).expect("it is merged"),
        "data\n"
    );
    assert_eq!(git_output(&work, &["ls-files", "*.gen"]), "kept.gen");
}

/// The same for a file that only the user's own excludes file ignores.
#[test]
fn file_of_the_users_excludes_that_the_agent_has_added_is_merged() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join(".git/info/exclude"), "*.gen\n").expect("a file");
    for isolation in ["clone", "worktree"] {
        let script = format!(
            "do echo {isolation} > {isolation}.gen; echo other > left.gen; git add -f {isolation}.gen"
        );
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "-a",
            "sh",
            "-n",
            isolation,
            &script,
        ]);
        assert_eq!(
            home.finished(isolation)["outcome"],
            "succeeded",
            "{}",
            home.log(isolation)
        );
        let merged = home.json(&["merge", isolation]);
        assert_eq!(
            merged["files"],
            json!([format!("{isolation}.gen")]),
            "{merged}"
        );
    }
}

/// A snapshot contains an ignored file while the agent tracks it. After the agent has untracked it,
/// a merge does not add it.
#[test]
fn ignored_file_that_the_agent_has_taken_out_again_is_not_merged() {
    let home = named_repository();
    let work = home.work();
    fs::write(work.join(".gitignore"), ".env\n*.later\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "ignore"]);
    for isolation in ["clone", "worktree"] {
        let go = work.with_file_name(isolation);
        let script = format!(
            "do echo x > .env; echo x > kept; git add -f .env; touch {go}.begun\n\
             do while ! test -e {go}; do sleep 0.05; done; git rm -q --cached .env; echo y >> .env",
            go = go.display()
        );
        home.ok(&[
            "run",
            "-d",
            "--isolation",
            isolation,
            "-a",
            "sh",
            "-n",
            isolation,
            &script,
        ]);
        home.until("its files", || {
            go.with_extension("begun").exists().then_some(())
        });
        let stat = home.ok(&["diff", "--stat", isolation]);
        assert!(
            [".env", "kept"].iter().all(|name| stat.contains(name)),
            "{isolation}: {stat}"
        );
        fs::write(&go, "").expect("a file");
        assert_eq!(
            home.finished(isolation)["outcome"],
            "succeeded",
            "{}",
            home.log(isolation)
        );
        let merged = home.json(&["merge", isolation, "--branch", isolation]);
        assert_eq!(
            git_output(&work, &["diff", "--name-only", "main", isolation]),
            "kept",
            "{merged}"
        );
    }
}

/// A merge moves a detached HEAD as git does, and no branch.
#[test]
fn merge_moves_a_detached_head() {
    let home = named_repository();
    let work = home.work();
    git(&work, &["checkout", "-q", "--detach"]);
    let main = git_output(&work, &["rev-parse", "main"]);
    run(
        &home,
        &[
            ("first", "echo first > first.txt"),
            ("second", "echo second > second.txt"),
        ],
    );
    for name in ["first", "second"] {
        assert_eq!(home.json(&["merge", name])["outcome"], "merged", "{name}");
        assert_eq!(
            fs::read_to_string(work.join(format!("{name}.txt"))).expect("it is merged"),
            format!("{name}\n")
        );
    }
    assert_eq!(
        fs::read_to_string(work.join(".git/HEAD"))
            .expect("a HEAD")
            .trim(),
        git_output(&work, &["rev-parse", "HEAD"])
    );
    assert_eq!(
        (
            git_output(&work, &["rev-parse", "main"]),
            git_output(&work, &["status", "--porcelain"])
        ),
        (main, String::new())
    );
}
