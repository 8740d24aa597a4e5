//! Snapshots after turns, snapshots that fail, and kills during a snapshot.

use crate::changes::{git, repository, start};
use crate::kills::Disk;
use crate::support::TestHome;
use adjutant_api::view::{ReadEvents, UndoRun, Wait, WaitOutcome, WaitUntil};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The causes of a run's snapshots.
fn causes(view: &Value) -> Vec<String> {
    let snapshots = view["snapshots"].as_array().cloned().unwrap_or_default();
    snapshots
        .iter()
        .map(|snapshot| snapshot["cause"].as_str().unwrap_or("").to_owned())
        .collect()
}

/// Returns the number of events that report a failed snapshot of a run.
fn failures(home: &TestHome, run: &str) -> usize {
    let events = home
        .call(
            &ReadEvents {
                run: Some(run.to_owned()),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("events")
        .events;
    events
        .iter()
        .filter(|event| event.kind.as_str() == "run.snapshot_failed")
        .count()
}

/// An agent with the protocol of Claude Code. Its first turn ends after a message has arrived, its
/// second when the FIFO is opened.
const TWO_TURNS: &str = r#"#!/bin/sh
case "$1" in --version) echo "99.0.0 (Claude Code)"; exit 0;; esac
printf '{"type":"system","subtype":"init","session_id":"3b241101-e2bb-4255-8caf-4136c566a962"}\n'
read -r prompt
echo first > one.txt
printf '{"type":"assistant","message":{"content":[{"type":"text","text":"ready for a message"}]}}\n'
read -r message
printf '{"type":"result","subtype":"success","is_error":false,"result":"one"}\n'
read -r word < "$FIFO"
id=$(printf '%s' "$message" | sed 's/.*"uuid":"\([^"]*\)".*/\1/')
printf '{"type":"user","isReplay":true,"uuid":"%s"}\n' "$id"
echo second > one.txt
printf '{"type":"result","subtype":"success","is_error":false,"result":"I have changed the file twice."}\n'
cat > /dev/null
"#;

#[test]
fn turn_of_a_live_agent_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, fifo) = (dir.path().join("claude"), dir.path().join("go"));
    fs::write(&program, TWO_TURNS).expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    let config = format!(
        "[agents.turns]\nharness = \"claude\"\ncommand = [\"{}\"]\n[agents.turns.env]\nFIFO = \"{}\"\n",
        program.display(),
        fifo.display()
    );
    let home = repository_with(&config);
    start(&home, "turns", "twice", "go", ".");
    home.until_log("twice", "ready for a message");
    home.ok(&["send", "twice", "and another thing"]);
    home.until("the turn", || {
        Some(home.show("twice")).filter(|view| causes(view) == ["start", "turn"])
    });
    fs::write(&fifo, "go\n").expect("it reads");
    let view = home.finished("twice");
    assert_eq!(
        (causes(&view), &view["outcome"]),
        (
            vec!["start".into(), "turn".into(), "end".into()],
            &json!("succeeded")
        ),
        "{view}"
    );
    assert!(home.ok(&["diff", "twice", "1..2"]).contains("+first"));
    assert!(
        home.ok(&["diff", "twice", "2..3"])
            .contains("-first\n+second")
    );
    assert_eq!(view["snapshot_problem"], json!(null));
}

fn repository_with(config: &str) -> TestHome {
    let home = TestHome::with_config(config);
    fs::write(home.work().join("one.txt"), "1\n").expect("a file");
    git(&home.work(), &["init", "-q"]);
    git(&home.work(), &["add", "."]);
    git(&home.work(), &["commit", "-qm", "x"]);
    home
}

/// A person hears at the start that nothing can be undone, wherever they look.
#[test]
fn person_hears_that_files_are_not_kept() {
    let home = repository();
    let work = home.work();
    let expected = "not all files are kept, so adj undo cannot restore them: ";
    let adj = |args: &[&str], path: &str| {
        let output = home
            .command(args)
            .env("PATH", path)
            .output()
            .expect("adj runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let empty = work.with_file_name("empty");
    fs::create_dir(&empty).expect("a directory");
    let (code, _, err) = adj(
        &["run", "-w", "-a", "echo", "-n", "without", "write f z"],
        empty.to_str().expect("UTF-8"),
    );
    assert!(
        code == Some(0) && err.contains(&format!("{expected}git is not on the PATH of the run")),
        "{err}"
    );
    assert!(
        home.ok(&["show", "without"])
            .contains("git is not on the PATH")
    );
    fs::write(work.join(".git/HEAD"), "garbage\n").expect("a file");
    let path = "/usr/bin:/bin";
    let (_, _, err) = adj(&["run", "-w", "-a", "echo", "-n", "broken", "fail 3"], path);
    assert!(err.contains(expected), "{err}");
    home.ok(&["run", "-d", "-a", "echo", "-n", "again", "fail 3"]);
    let (_, _, err) = adj(&["wait", "again"], path);
    assert!(err.contains(&format!("again: {expected}")), "{err}");
    home.ok(&["run", "-d", "-a", "echo", "-n", "listed", "fail 3"]);
    home.finished("listed");
    let inbox = home.ok(&["inbox"]);
    assert!(inbox.contains(expected), "{inbox}");
    // Without a repository, nothing was promised.
    let elsewhere = work.with_file_name("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    let (code, _, err) = adj(
        &[
            "run",
            "-w",
            "-a",
            "echo",
            "-C",
            elsewhere.to_str().expect("UTF-8"),
            "write f z",
        ],
        empty.to_str().expect("UTF-8"),
    );
    assert!(code == Some(0) && !err.contains("not all files"), "{err}");
}

/// Also where the run goes on for hours: the agent waits until the warning was read.
#[test]
fn waiting_person_hears_at_once_that_files_are_not_kept() {
    let home = repository();
    fs::write(home.work().join(".git/HEAD"), "garbage\n").expect("a file");
    let fifo = home.work().with_file_name("go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    let script = format!("do read -r word < {}\ndo echo done", fifo.display());
    let mut command = home.command(&["run", "-w", "-a", "sh", "-n", "waits", &script]);
    let mut waiting = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("adj starts");
    let mut lines = BufReader::new(waiting.stderr.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let expected = "waits: not all files are kept, so adj undo cannot restore them: ";
    assert!(
        lines.any(|line| line.contains(expected)),
        "the run has not ended yet"
    );
    assert_eq!(home.show("waits")["state"], "running");
    fs::write(&fifo, "go\n").expect("it reads");
    let rest: Vec<String> = lines.collect();
    assert!(
        waiting.wait().expect("it ends").success()
            && !rest.iter().any(|line| line.contains(expected)),
        "once: {rest:?}"
    );
}

#[test]
fn failing_snapshot_is_reported_to_the_parent_once() {
    let home = repository();
    fs::write(home.work().join(".git/HEAD"), "garbage\n").expect("a file");
    start(
        &home,
        "echo",
        "blind",
        "ask \"go on?\" nonblocking\nsleep 600",
        ".",
    );
    home.until("the fact", || {
        Some(()).filter(|()| failures(&home, "blind") == 1)
    });
    let wait = Wait {
        runs: vec!["blind".to_owned()],
        until: WaitUntil::Attention,
        after: Some(0),
        new_reports: false,
        wait_ms: 0,
    };
    let found = home.call(&wait, "").expect("it looks");
    assert!(
        found.working[0]
            .changes
            .snapshot_problem
            .as_ref()
            .is_some_and(|why| why.contains("git")),
        "{found:?}"
    );
    assert_eq!(found.outcome, WaitOutcome::Event);
    let shown = home.ok(&["show", "blind"]);
    assert!(
        shown.contains("not kept") && shown.contains("not all files are kept"),
        "{shown}"
    );
    home.ok(&["cancel", "blind"]);
    home.finished("blind");
    assert_eq!(failures(&home, "blind"), 1);
}

#[test]
fn failed_last_snapshot_is_shown_at_the_end() {
    let home = repository();
    start(
        &home,
        "sh",
        "breaks",
        "do echo 2 > one.txt\ndo echo garbage > .git/HEAD",
        ".",
    );
    let view = home.finished("breaks");
    assert!(
        view["snapshot_problem"]
            .as_str()
            .is_some_and(|why| why.contains("git")),
        "{view}"
    );
    assert_eq!(
        (failures(&home, "breaks"), &view["outcome"]),
        (1, &json!("succeeded")),
        "the run itself has worked: {view}"
    );
}

#[test]
fn undo_without_a_last_snapshot_can_be_undone() {
    let home = repository();
    let work = home.work();
    let head = fs::read(work.join(".git/HEAD")).expect("a file");
    start(
        &home,
        "sh",
        "breaks",
        "do echo 2 > one.txt; echo new > new.txt\ndo echo garbage > .git/HEAD",
        ".",
    );
    home.finished("breaks");
    fs::write(work.join(".git/HEAD"), head).expect("a file");
    assert_eq!(causes(&home.show("breaks")), ["start"]);
    let undone = home.json(&["undo", "--force", "breaks"]);
    assert!(!work.join("new.txt").exists(), "{undone}");
    let again = home.json(&["undo", "breaks", &undone["before"]["n"].to_string()]);
    assert_eq!(again["files"], json!(["new.txt", "one.txt"]), "{again}");
    assert_eq!(
        fs::read_to_string(work.join("one.txt")).expect("a file"),
        "2\n"
    );
}

#[test]
fn full_disk_loses_no_earlier_snapshot() {
    let Some(disk) = Disk::mount("2m") else {
        return;
    };
    let home = repository();
    fs::write(disk.path().join("one.txt"), "1\n").expect("a file");
    git(disk.path(), &["init", "-q"]);
    git(disk.path(), &["add", "."]);
    git(disk.path(), &["commit", "-qm", "x"]);
    let dir = disk.path().display().to_string();
    start(
        &home,
        "sh",
        "fills",
        "do head -c 400000 /dev/urandom > large\ndo cat /dev/zero > rest 2>/dev/null || true",
        &dir,
    );
    let view = home.finished("fills");
    assert_eq!(causes(&view), ["start"], "{view}");
    assert!(
        view["snapshot_problem"].is_string() && failures(&home, "fills") == 1,
        "{view}"
    );
    fs::remove_file(disk.path().join("rest")).expect("it is there");
    // No snapshot distinguishes the run's last changes from those of others.
    let refused = home.adj(&["undo", "fills"]);
    assert!(
        refused.code == 7 && refused.err.contains("have changed since the run: large"),
        "{refused:?}"
    );
    home.ok(&["undo", "--force", "fills"]);
    assert!(!disk.path().join("large").exists());
}

/// git can remove the objects of a snapshot without a ref before the next snapshot.
#[test]
fn garbage_collection_after_a_failed_snapshot_loses_nothing() {
    let home = repository();
    let work = home.work();
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "writes",
        "write one.txt changed\nask \"go on?\"\nsay done",
    ]);
    home.until_status("writes", "waiting_parent_reply");
    let id = home.run_id("writes");
    let blocks: Vec<String> = (2..40)
        .map(|n| format!("refs/adjutant/{id}/{n}/in-the-way"))
        .collect();
    blocks
        .iter()
        .for_each(|name| git(&work, &["update-ref", name, "HEAD"]));
    let refused = home.adj(&["diff", "writes"]);
    assert!(refused.code != 0, "{refused:?}");
    blocks
        .iter()
        .for_each(|name| git(&work, &["update-ref", "-d", name]));
    git(&work, &["prune", "--expire=now"]);
    assert!(home.ok(&["diff", "writes"]).contains("+changed"));
    check_repository(&work);
    home.ok(&["cancel", "writes"]);
    home.finished("writes");
}

/// Starts a run whose processes die at a failpoint.
fn start_armed(home: &TestHome, name: &str, failpoint: &str, prompt: &str) -> PathBuf {
    let reached = home.home.dir.with_extension("reached");
    let mut command = home.command(&["run", "-d", "-a", "sh", "-n", name, prompt]);
    command.env("PATH", std::env::var_os("PATH").expect("a PATH"));
    let ran = command
        .env(
            "ADJ_FAILPOINT",
            format!("{failpoint}={}", reached.display()),
        )
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
    reached
}

fn check_repository(work: &Path) {
    let checked = Command::new("git")
        .args(["fsck", "--strict", "--no-dangling"])
        .current_dir(work)
        .output()
        .expect("git");
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn kill_within_a_snapshot_loses_none() {
    for failpoint in ["snapshot.before_tree", "snapshot.before_ref"] {
        let home = repository();
        let reached = start_armed(&home, "writes", failpoint, "do echo 2 > one.txt");
        let view = home.finished("writes");
        assert!(reached.exists(), "{failpoint}");
        assert!(
            view["outcome"] == "succeeded"
                && causes(&view).ends_with(&["start".to_owned(), "end".to_owned()]),
            "{failpoint}: {view}"
        );
        assert!(
            home.ok(&["diff", "writes"]).contains("-1\n+2"),
            "{failpoint}"
        );
        check_repository(&home.work());
        fs::remove_file(reached).expect("it is there");
    }
}

#[test]
fn kill_within_an_undo_leaves_each_file_old_or_new() {
    let home = repository();
    let reached = start_armed(
        &home,
        "writes",
        "undo.applying",
        "do echo 2 > one.txt\ndo echo 2 > two.txt",
    );
    home.finished("writes");
    // The next hub completes the repeated call.
    home.ok(&["undo", "writes"]);
    assert!(reached.exists(), "the hub was killed");
    let shown = home.show("writes");
    assert_eq!(shown["undo_interrupted"], json!(null), "{shown}");
    for name in ["one.txt", "two.txt"] {
        let text = fs::read_to_string(home.work().join(name)).expect("a file");
        assert!(text == "1\n" || text == "2\n", "{name}: {text}");
    }
    home.ok(&["undo", "writes"]);
    let text = |name: &str| fs::read_to_string(home.work().join(name)).expect("a file");
    assert_eq!(
        (text("one.txt"), text("two.txt")),
        ("1\n".to_owned(), "1\n".to_owned())
    );
    home.ok(&["undo", "writes", "2"]);
    assert_eq!(
        (text("one.txt"), text("two.txt")),
        ("2\n".to_owned(), "2\n".to_owned()),
        "what the undo replaced is kept"
    );
    check_repository(&home.work());
    fs::remove_file(reached).expect("it is there");
}

#[test]
fn interrupted_undo_is_shown_until_it_is_complete() {
    let home = repository();
    let reached = start_armed(
        &home,
        "writes",
        "undo.applying",
        "do echo 2 > one.txt\ndo echo 2 > two.txt",
    );
    home.finished("writes");
    // No client repeats this call at the next hub.
    home.call(
        &UndoRun {
            run: "writes".to_owned(),
            ..UndoRun::default()
        },
        "the-first-call",
    )
    .expect_err("the hub is killed");
    assert!(reached.exists(), "the hub was killed");
    let text = |name: &str| fs::read_to_string(home.work().join(name)).expect("a file");
    assert_ne!(text("one.txt"), text("two.txt"), "one of them is restored");
    let shown = home.show("writes");
    let undo = &shown["undo_interrupted"];
    let before = undo["before"].to_string();
    let expected = json!({
        "to": 1, "before": undo["before"], "complete_with": "adj undo writes 1", "reverse_with": format!("adj undo writes {before}")
    });
    assert_eq!(*undo, expected, "{shown}");
    let printed = home.ok(&["show", "writes"]);
    assert!(printed.contains("interrupted: some files may not be restored to snapshot 1; to complete it: adj undo writes 1"), "{printed}");
    let events = home.ok(&["events", "writes"]);
    assert_eq!(
        events.matches("run.undo_interrupted").count(),
        1,
        "{events}"
    );
    let completing = "an undo of it was interrupted: adj undo writes 1 completes it";
    let listed = home.adj(&["ps"]);
    assert!(
        listed.out.contains("writes")
            && listed
                .err
                .contains("! writes: undo interrupted: some files may not"),
        "{listed:?}"
    );
    assert!(
        listed
            .err
            .contains("Needs you: 1 run → adj undo writes 1\n"),
        "{listed:?}"
    );
    assert_eq!(home.json(&["ps"])[0]["undo_interrupted"], *undo);
    assert!(
        home.ok(&["inbox"]).contains(completing),
        "{}",
        home.ok(&["inbox"])
    );
    let kept = home.adj(&["clean", "--yes", "--older-than", "0s"]);
    assert!(
        kept.err
            .contains("kept writes: an undo of it was interrupted: adj undo writes 1 completes it"),
        "{kept:?}"
    );
    home.ok(&["undo", "writes", "1"]);
    assert_eq!(
        (text("one.txt"), text("two.txt")),
        ("1\n".to_owned(), "1\n".to_owned())
    );
    assert_eq!(home.show("writes")["undo_interrupted"], json!(null));
    assert_eq!(
        (home.json(&["ps"]), home.json(&["inbox"])["runs"].clone()),
        (json!([]), Value::Null)
    );
    home.ok(&["undo", "writes", &before]);
    assert_eq!(
        (text("one.txt"), text("two.txt")),
        ("2\n".to_owned(), "2\n".to_owned())
    );
    fs::remove_file(reached).expect("it is there");
}

#[test]
fn run_that_is_claimed_during_an_undo_starts_after_it() {
    let home = repository();
    let fifo = home.home.dir.with_extension("reached");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    start_armed(&home, "writes", "held", "do echo 2 > one.txt");
    home.finished("writes");
    let undo = home.command(&["undo", "writes"]).spawn().expect("adj runs");
    home.until("the undo is recorded", || {
        home.ok(&["events", "writes"])
            .contains("run.undone")
            .then_some(())
    });
    start(&home, "sh", "reads", "do cat one.txt > seen.txt", ".");
    home.until("it is claimed", || {
        Some(home.show("reads")).filter(|view| view["state"] != "queued")
    });
    fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .expect("the undo waits");
    let undone = undo.wait_with_output().expect("it ends");
    assert!(undone.status.success(), "{undone:?}");
    home.finished("reads");
    assert_eq!(
        fs::read_to_string(home.work().join("seen.txt")).expect("a file"),
        "1\n",
        "the run reads what the undo restored"
    );
    fs::remove_file(fifo).expect("it is there");
}

/// The first snapshot of a run whose start could not be kept has its work. Restoring it would undo
/// nothing.
#[test]
fn undo_is_refused_if_the_state_before_the_run_was_not_kept() {
    let home = repository();
    let work = home.work();
    // No ref can be created below a file.
    let in_the_way = work.join(".git/refs/adjutant");
    fs::write(&in_the_way, "x\n").expect("a file");
    start(
        &home,
        "echo",
        "blind",
        "write one.txt changed\nask \"go on?\"\nwrite two.txt changed",
        ".",
    );
    home.until_status("blind", "waiting_parent_reply");
    fs::remove_file(in_the_way).expect("it is there");
    home.ok(&["reply", "blind", "yes"]);
    assert_eq!(causes(&home.finished("blind")), ["end"]);
    let refused = home.adj(&["undo", "blind"]);
    assert!(
        refused.code != 0
            && refused
                .err
                .contains("the state before blind could not be kept: name a snapshot"),
        "{refused:?}"
    );
    assert!(
        refused.err.contains("restore 1 with --force"),
        "{refused:?}"
    );
    let text = |name: &str| fs::read_to_string(work.join(name)).expect("a file");
    assert_eq!(
        (text("one.txt"), text("two.txt")),
        ("changed\n".to_owned(), "changed\n".to_owned())
    );
    assert_eq!(
        causes(&home.show("blind")),
        ["end"],
        "a refused undo takes no snapshot"
    );
    assert!(
        home.ok(&["undo", "blind", "1"])
            .contains("already at snapshot 1")
    );
}

/// The supervisor dies while it takes the last snapshot, then the hub while it takes one before an
/// undo.
#[test]
fn kill_within_a_later_snapshot_loses_none() {
    for failpoint in ["snapshot.before_tree", "snapshot.before_ref"] {
        let home = repository();
        let reached = home.home.dir.with_extension("reached");
        // The failpoint is not armed while its file exists.
        fs::write(&reached, "").expect("a file");
        start_armed(
            &home,
            "writes",
            failpoint,
            &format!("do echo 2 > one.txt; rm {}", reached.display()),
        );
        let view = home.finished("writes");
        assert!(
            reached.exists() && causes(&view) == ["start", "end"],
            "{failpoint}: {view}"
        );
        fs::write(home.work().join("one.txt"), "3\n").expect("a file");
        fs::remove_file(&reached).expect("it is there");
        let hub = home.hub_pid();
        let undone = home.json(&["undo", "--force", "writes"]);
        assert!(
            reached.exists() && home.hub_pid() != hub,
            "{failpoint}: the hub was killed"
        );
        assert_eq!(
            fs::read_to_string(home.work().join("one.txt")).expect("a file"),
            "1\n"
        );
        let before = undone["before"]["n"].to_string();
        home.ok(&["undo", "writes", &before]);
        assert_eq!(
            fs::read_to_string(home.work().join("one.txt")).expect("a file"),
            "3\n",
            "{failpoint}: the user's edit is kept"
        );
        check_repository(&home.work());
        fs::remove_file(reached).expect("it is there");
    }
}

/// Without git, a run works as anywhere else, and the commands for its changes name the cause.
#[test]
fn run_without_git_works_and_has_no_snapshots() {
    let home = repository();
    let adj = |args: &[&str]| -> crate::support::Ran {
        home.command(args)
            .env("PATH", "/nonexistent")
            .output()
            .expect("adj runs")
            .into()
    };
    let started = adj(&[
        "run",
        "-d",
        "-a",
        "echo",
        "-n",
        "plain",
        "write one.txt changed\nsay done",
    ]);
    assert_eq!(started.code, 0, "{started:?}");
    let view = home.finished("plain");
    assert_eq!(
        (
            &view["outcome"],
            &view["snapshot_problem"],
            causes(&view).len()
        ),
        (
            &json!("succeeded"),
            &json!("git is not on the PATH of the run"),
            0
        ),
        "{view}"
    );
    for command in ["diff", "undo"] {
        let refused = adj(&[command, "plain"]);
        assert!(
            refused.code != 0
                && refused
                    .err
                    .contains("git is not installed, or not on the hub's PATH"),
            "{refused:?}"
        );
    }
    assert_eq!(
        fs::read_to_string(home.work().join("one.txt")).expect("a file"),
        "changed\n"
    );
}
