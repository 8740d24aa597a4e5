//! Runs on runners in a repository of the hub's machine: the runner fetches it, and the work
//! returns as refs of the run.

use super::Pair;
use crate::changes::git;
use crate::support::{TestHome, kill, lock_pid};
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(super) fn git_output(dir: &Path, args: &[&str]) -> String {
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

/// Makes a repository of the hub's working directory, with two files, and adds an agent that is a
/// shell.
pub(super) fn with_repository(pair: Pair) -> Pair {
    let work = pair.hub.work();
    git(&work, &["init", "-q"]);
    git(&work, &["config", "user.name", "User"]);
    git(&work, &["config", "user.email", "user@example.org"]);
    for name in ["one.txt", "two.txt"] {
        std::fs::write(work.join(name), "1\n").expect("a file");
    }
    std::fs::write(work.join(".gitignore"), "*.log\n").expect("a file");
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "first"]);
    let config = pair.hub.home.dir.join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let agent = "[agents.sh]\nharness = \"plain\"\ncommand = [\"/bin/sh\", \"-c\", \"sed -n 's/^do //p' | sh -eu\"]\n";
    std::fs::write(&config, text + agent).expect("written");
    pair
}

/// Starts a second runner, in a third home.
pub(super) fn second_runner(pair: &Pair) -> (TestHome, Child) {
    let home = TestHome::new();
    let token = pair.hub.json(&["token", "new", "gpu2", "--role", "runner"]);
    let file = home.work().join("token");
    std::fs::write(&file, token["token"].as_str().expect("a token")).expect("a token file");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("a private file");
    let log = home.work().join("runner.log");
    let child = start_second(pair, &home, &log);
    (home, child)
}

fn start_second(pair: &Pair, home: &TestHome, log: &Path) -> Child {
    let token = home.work().join("token").display().to_string();
    let mut command = home.command(&[
        "runner",
        "--join",
        &pair.url,
        "--token-file",
        &token,
        "--pool",
        "gpu",
    ]);
    let child = command
        .args(pair.trust())
        .stdout(Stdio::null())
        .stderr(File::create(log).expect("a log"))
        .spawn()
        .expect("a runner");
    pair.until("the second runner has joined", || {
        std::fs::read_to_string(log)
            .ok()
            .filter(|text| text.contains("for pool gpu"))
    });
    child
}

pub(super) fn end(mut child: Child) {
    kill(child.id());
    child.wait().expect("it ends");
}

/// The refs of the user's repository that are not of this run.
fn other_refs(pair: &Pair, run: &str) -> String {
    let own = format!("refs/adjutant/{}/", pair.hub.run_id(run));
    let all = git_output(
        &pair.hub.work(),
        &["for-each-ref", "--format=%(refname) %(objectname)"],
    );
    all.lines()
        .filter(|line| !line.starts_with(&own))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The hub chooses the base when a runner claims the run.
#[test]
fn run_on_a_runner_starts_from_the_newest_tip() {
    let mut pair = with_repository(Pair::without_runner("60s"));
    let work = pair.hub.work();
    pair.hub.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "--pool",
        "gpu",
        "-n",
        "far",
        "do cat one.txt",
    ]);
    std::fs::write(work.join("one.txt"), "newer\n").expect("a file");
    git(&work, &["commit", "-qam", "newer"]);
    pair.start_runner();
    let view = pair.hub.finished("far");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    assert_eq!(
        view["workspace"]["base"],
        json!(git_output(&work, &["rev-parse", "HEAD"])),
        "{view}"
    );
    assert!(pair.hub.log("far").contains("newer"));
}

#[test]
fn work_on_a_runner_is_shown_and_merged_at_the_hub() {
    let pair = with_repository(Pair::new("60s"));
    let work = pair.hub.work();
    let before = git_output(
        &work,
        &["for-each-ref", "--format=%(refname) %(objectname)"],
    );
    let script = "do pwd\ndo echo 2 > one.txt\ndo echo new > made.txt\ndo echo x > ignored.log\ndo git add made.txt\ndo git commit -qm 'Add made.txt'\ndo git log --format=%an%s";
    pair.hub.ok(&[
        "run", "-d", "-a", "sh", "--pool", "gpu", "-n", "far", script,
    ]);
    let view = pair.hub.finished("far");
    assert_eq!(
        view["outcome"],
        "succeeded",
        "{view}\n{}\n{}",
        pair.log_there("far", 1),
        pair.runner_log()
    );
    let log = pair.log_there("far", 1);
    assert!(
        log.contains("UserAdd made.txt") && log.contains("tfirst"),
        "the history and the user's name are there: {log}"
    );
    let there = pair
        .there
        .home
        .workspaces_dir()
        .join(pair.hub.run_id("far"));
    assert!(
        log.contains(&there.display().to_string()),
        "it works in the runner's home: {log}"
    );
    assert!(
        !pair
            .hub
            .home
            .workspaces_dir()
            .join(pair.hub.run_id("far"))
            .exists(),
        "the hub has no workspace"
    );
    assert_eq!(
        view["changed_files"],
        json!(["made.txt", "one.txt"]),
        "{view}"
    );
    let diff = pair.hub.ok(&["diff", "far"]);
    assert!(
        diff.contains("+new") && diff.contains("+2") && !diff.contains("ignored"),
        "{diff}"
    );
    assert!(!diff.contains("missing"), "{diff}");
    assert_eq!(
        other_refs(&pair, "far"),
        before,
        "only refs of the run are new"
    );
    assert_eq!(
        std::fs::read_to_string(work.join("one.txt")).expect("a file"),
        "1\n"
    );
    git(&work, &["fsck", "--strict", "--no-dangling"]);
    pair.hub.ok(&["merge", "far"]);
    assert_eq!(
        std::fs::read_to_string(work.join("one.txt")).expect("a file"),
        "2\n"
    );
    assert_eq!(
        std::fs::read_to_string(work.join("made.txt")).expect("a file"),
        "new\n"
    );
    assert!(
        git_output(&work, &["log", "--format=%s"]).contains("Add made.txt"),
        "the agent's commit is merged"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    pair.hub.ok(&["clean", "--older-than", "0s", "--yes"]);
    assert!(
        !git_output(&work, &["for-each-ref", "refs/adjutant"])
            .contains(view["run_id"].as_str().expect("an id"))
    );
}

#[test]
fn run_starts_with_uncommitted_changes_of_the_user() {
    let pair = with_repository(Pair::new("60s"));
    std::fs::write(pair.hub.work().join("two.txt"), "mine\n").expect("a file");
    let script = "do cat two.txt\ndo git status --short\ndo echo theirs >> one.txt";
    pair.hub.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "--pool",
        "gpu",
        "--with-changes",
        "-n",
        "with",
        script,
    ]);
    assert_eq!(pair.hub.finished("with")["outcome"], "succeeded");
    let log = pair.log_there("with", 1);
    assert!(log.contains("mine") && log.contains(" M two.txt"), "{log}");
    let diff = pair.hub.ok(&["diff", "with"]);
    assert!(diff.contains("+theirs") && !diff.contains("mine"), "{diff}");
    // A second run needs only what is new.
    git(&pair.hub.work(), &["commit", "-qam", "second"]);
    pair.hub.ok(&[
        "run",
        "-d",
        "-a",
        "sh",
        "--pool",
        "gpu",
        "-n",
        "next",
        "do cat two.txt\ndo git log --format=%s",
    ]);
    assert_eq!(pair.hub.finished("next")["outcome"], "succeeded");
    assert!(
        pair.log_there("next", 1).contains("second"),
        "{}",
        pair.log_there("next", 1)
    );
    let copies = std::fs::read_dir(pair.there.home.repositories_dir())
        .expect("a directory")
        .count();
    assert_eq!(copies, 1, "both share a copy");
}

#[test]
fn later_attempts_continue_the_tree_on_another_runner() {
    let mut pair = with_repository(Pair::new("60s"));
    let script =
        "write first.txt x\nsay ready\nhang\nresume-here\nwrite second.txt x\nsay again\nhang";
    pair.start("moving", script);
    pair.until("it works", || {
        pair.log_there("moving", 1).contains("ready").then_some(())
    });
    pair.hub.ok(&["pause", "moving"]);
    pair.until_status("moving", "stopped");
    assert!(
        pair.hub.ok(&["diff", "moving"]).contains("first.txt"),
        "a stopped run has its work"
    );
    pair.kill_runner();
    let (second, child) = second_runner(&pair);
    pair.hub.ok(&["resume", "moving"]);
    let id = pair.hub.run_id("moving");
    let log = |home: &TestHome, attempt: u32| {
        let path = adjutant_home::logs::log_path(&home.home.dir, &id, attempt);
        std::fs::read_to_string(path).unwrap_or_default()
    };
    pair.until("it works again", || {
        log(&second, 2).contains("again").then_some(())
    });
    let name = pair.hub.work().file_name().expect("a name").to_owned();
    let at = |home: &TestHome| home.home.workspaces_dir().join(&id).join(&name);
    assert!(at(&second).join("first.txt").exists() && at(&second).join("second.txt").exists());
    pair.hub.ok(&["pause", "moving"]);
    pair.until_status("moving", "stopped");
    end(child);
    // Back to the first runner, whose workspace is older.
    pair.start_runner();
    pair.hub.ok(&["resume", "moving"]);
    pair.until("it works there", || {
        (pair.log_there("moving", 3).contains("again")
            && at(&pair.there).join("second.txt").exists())
        .then_some(())
    });
    pair.hub.ok(&["cancel", "moving"]);
    pair.hub.finished("moving");
    let aside = pair
        .there
        .home
        .workspaces_dir()
        .join(format!("{}.torn-1", pair.hub.run_id("moving")));
    assert!(
        aside.join(&name).join("first.txt").exists()
            && !aside.join(&name).join("second.txt").exists(),
        "the older one is set aside"
    );
    let diff = pair.hub.ok(&["diff", "moving"]);
    assert!(
        diff.contains("first.txt") && diff.contains("second.txt"),
        "{diff}"
    );
    pair.hub.ok(&["merge", "moving"]);
    assert!(
        pair.hub.work().join("first.txt").exists() && pair.hub.work().join("second.txt").exists()
    );
}

#[test]
fn hub_that_dies_while_it_stores_work_has_it_once() {
    for failpoint in ["bundle.before_refs", "bundle.after_refs"] {
        let pair = with_repository(Pair::without_runner("60s"));
        pair.kill_hub();
        let fired = pair.hub.work().join("../fired");
        let mut hub = pair.hub.command(&["__hub"]);
        hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut hub = hub.spawn().expect("a hub");
        let mut pair = pair;
        pair.start_runner();
        pair.hub.ok(&[
            "run",
            "-d",
            "-a",
            "sh",
            "--pool",
            "gpu",
            "-n",
            "far",
            "do echo 2 > one.txt",
        ]);
        hub.wait().expect("it dies");
        assert!(fired.exists(), "{failpoint}");
        pair.revive_hub();
        let view = pair.hub.finished("far");
        assert_eq!(
            (&view["outcome"], &view["attempt"]),
            (&json!("succeeded"), &json!(1)),
            "{failpoint}: {view}"
        );
        assert!(pair.hub.ok(&["diff", "far"]).contains("+2"), "{failpoint}");
        let snapshots = git_output(
            &pair.hub.work(),
            &[
                "for-each-ref",
                "--format=%(refname:lstrip=3)",
                "refs/adjutant",
            ],
        );
        assert_eq!(snapshots, "1\n2\nbase", "{failpoint}");
        pair.hub.ok(&["merge", "far"]);
    }
}

#[test]
fn work_of_a_run_whose_runner_died_comes_with_the_next_one() {
    let mut pair = with_repository(Pair::new("60s"));
    let go = pair.there.work().join("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    pair.start(
        "alone",
        &format!(
            "write first.txt x\nsay ready\njournal {} go\nwrite second.txt x\nsay bye",
            go.display()
        ),
    );
    pair.until("it works", || {
        pair.log_there("alone", 1).contains("ready").then_some(())
    });
    pair.kill_runner();
    std::fs::read_to_string(&go).expect("the agent writes");
    let dir = pair.dir_there("alone", 1);
    let has_ended = || {
        std::fs::read_to_string(dir.facts())
            .unwrap_or_default()
            .contains("\"fact\":\"ended\"")
            .then_some(())
    };
    pair.until("its last fact is on disk", has_ended);
    assert_eq!(pair.hub.show("alone")["outcome"], serde_json::Value::Null);
    pair.start_runner();
    let view = pair.hub.finished("alone");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(1)),
        "{view}"
    );
    let diff = pair.hub.ok(&["diff", "alone"]);
    assert!(
        diff.contains("first.txt") && diff.contains("second.txt"),
        "{diff}"
    );
}

#[test]
fn work_waits_for_a_repository_that_was_moved_away() {
    let pair = with_repository(Pair::new("60s"));
    let go = pair.there.work().join("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    pair.start(
        "kept",
        &format!(
            "write first.txt x\nsay ready\njournal {} go\nwrite second.txt x\ndone yes",
            go.display()
        ),
    );
    pair.until("it works", || {
        pair.log_there("kept", 1).contains("ready").then_some(())
    });
    let (git, away) = (
        pair.hub.work().join(".git"),
        pair.hub.work().join(".git-away"),
    );
    std::fs::rename(&git, &away).expect("moved");
    std::fs::read_to_string(&go).expect("the agent writes");
    let problem = || {
        pair.hub.show("kept")["snapshot_problem"]
            .as_str()
            .filter(|problem| problem.contains("is gone"))
            .map(ToOwned::to_owned)
    };
    pair.until("the reason is shown", problem);
    let view = pair.hub.show("kept");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&serde_json::Value::Null, &json!(1)),
        "it has not ended: {view}"
    );
    std::fs::rename(&away, &git).expect("moved back");
    let view = pair.hub.finished("kept");
    assert_eq!(
        (&view["outcome"], &view["snapshot_problem"]),
        (&json!("succeeded"), &serde_json::Value::Null),
        "{view}"
    );
    let diff = pair.hub.ok(&["diff", "kept"]);
    assert!(
        diff.contains("first.txt") && diff.contains("second.txt"),
        "{diff}"
    );
}

#[test]
fn first_runs_of_a_repository_share_one_copy() {
    let mut pair = with_repository(Pair::without_runner("60s"));
    // They are placed together when the runner joins.
    for name in ["a", "b"] {
        pair.hub.ok(&[
            "run",
            "-d",
            "-a",
            "sh",
            "--pool",
            "gpu",
            "-n",
            name,
            &format!("do echo {name} > {name}.txt"),
        ]);
    }
    pair.start_runner();
    for name in ["a", "b"] {
        let view = pair.hub.finished(name);
        assert_eq!(
            view["outcome"],
            "succeeded",
            "{view}\n{}",
            pair.runner_log()
        );
        assert!(
            pair.hub
                .ok(&["diff", name])
                .contains(&format!("{name}.txt"))
        );
    }
    assert!(
        !pair.runner_log().contains("cannot be fetched yet"),
        "{}",
        pair.runner_log()
    );
}

#[test]
fn work_of_a_lost_supervisor_is_kept() {
    let pair = with_repository(Pair::new("60s"));
    pair.start(
        "lost",
        "write first.txt x\nsay ready\nhang\nresume-here\ndone yes",
    );
    pair.until("it works", || {
        pair.log_there("lost", 1).contains("ready").then_some(())
    });
    pair.until_status("lost", "running");
    let dir = pair.dir_there("lost", 1);
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    let view = pair.until_status("lost", "stopped");
    assert_eq!(view["reason"], "supervisor_lost", "{view}");
    assert!(pair.hub.ok(&["diff", "lost"]).contains("first.txt"));
    pair.hub.ok(&["resume", "lost"]);
    assert_eq!(pair.hub.finished("lost")["outcome"], "succeeded");
    let aside = pair
        .there
        .home
        .workspaces_dir()
        .join(format!("{}.torn-1", pair.hub.run_id("lost")));
    assert!(!aside.exists(), "the same runner uses its workspace again");
}

#[test]
fn dispatch_refuses_a_place_that_a_runner_does_not_have() {
    let pair = with_repository(Pair::without_runner("60s"));
    let refused = |args: &[&str]| {
        let ran = pair.hub.adj(
            &[
                &["run", "--detach", "--agent", "echo", "--pool", "gpu"],
                args,
                &["done yes\n"],
            ]
            .concat(),
        );
        assert!(ran.code != 0, "{ran:?}");
        ran.err
    };
    assert!(
        refused(&["--isolation", "none"])
            .contains("work in a clone of the repository, not in its files")
    );
    assert!(refused(&["--isolation", "worktree"]).contains("use isolation clone"));
    // Another pool starts them.
    pair.hub.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "here",
        "done yes\n",
    ]);
    assert_eq!(pair.hub.finished("here")["outcome"], "succeeded");
}
