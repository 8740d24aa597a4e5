//! Processes are killed at various points: nothing acknowledged is lost, and no process is left.

use crate::support::{TestHome, is_root, kill, lock_pid, skip};
use adjutant_api::protocol::WorkerAccess;
use adjutant_api::view::{Dispatch, HandOver, SendToRun, StopHub};
use adjutant_os::process::Lock;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn open_question_survives_a_hub_kill_as_one_call() {
    let home = TestHome::new();
    home.start(
        "asker",
        "ask \"Still there?\"\nask-stdio \"And on stdio?\"\ndone yes",
    );
    home.until_status("asker", "waiting_parent_reply");
    let first = home.hub_pid();
    kill(first);
    home.until("the hub is gone", || {
        (!TestHome::is_alive(first)).then_some(())
    });
    home.ok(&["reply", "asker", "yes"]);
    assert_ne!(home.hub_pid(), first);
    home.until("the second question is open", || {
        let inbox = home.inbox(&[]);
        (inbox[0]["question"] == "And on stdio?").then_some(())
    });
    kill(home.hub_pid());
    home.ok(&["reply", "asker", "also"]);
    let view = home.finished("asker");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    let log = home.log("asker");
    assert_eq!(log.matches("answer: ").count(), 2, "{log}");
    assert_eq!(
        home.inbox(&["--all"]).as_array().map(Vec::len),
        Some(2),
        "no question was asked twice"
    );
}

/// Makes one call as the run, through its supervisor's endpoint. It waits for a hub.
fn as_run(access: &WorkerAccess, call: &str, body: &Value) -> Value {
    let url = format!("{}/api/v1/{call}", access.mcp_url.trim_end_matches("/mcp"));
    let bearer = format!("authorization: Bearer {}", access.token);
    let out = Command::new("curl")
        .args([
            "-s",
            "--max-time",
            "60",
            "-H",
            &bearer,
            "-d",
            &body.to_string(),
            &url,
        ])
        .output()
        .expect("curl runs");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{call}: {error}: {out:?}"))
}

#[test]
fn messages_of_a_lost_reply_are_delivered_again() {
    for call in ["run", "request"] {
        let home = TestHome::new();
        let fired = home.work().join("fired");
        // The failpoint is armed once this file is removed.
        std::fs::write(&fired, "").expect("a file");
        let mut hub = home.command(&["__hub"]);
        hub.env(
            "ADJ_FAILPOINT",
            format!("store.after_commit={}", fired.display()),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null());
        let mut hub = hub.spawn().expect("a hub");
        home.until("the hub takes calls", || {
            home.call(&adjutant_api::view::GetHub {}, "").ok()
        });
        home.start("told", "say ready\nhang");
        home.until_log("told", "ready");
        let access = std::fs::read(home.attempt_dir("told").worker_access()).expect("a way in");
        let access: WorkerAccess = serde_json::from_slice(&access).expect("a way in");
        let question = as_run(
            &access,
            "ask",
            &json!({"question": "Which?", "blocking": false}),
        );
        assert_eq!(question["number"], "Q1", "{question}");
        home.ok(&["reply", "Q1", "this one"]);
        home.call(
            &SendToRun {
                run: "told".into(),
                text: "look out".into(),
            },
            "one",
        )
        .expect("it is kept");
        std::fs::remove_file(&fired).expect("it is there");
        let body = if call == "run" {
            json!({})
        } else {
            json!({"message_id": "Q1", "wait_ms": 1000})
        };
        let reply = std::thread::scope(|scope| {
            let calling = scope.spawn(|| as_run(&access, call, &body));
            assert!(!hub.wait().expect("it dies").success());
            home.ok(&["ps"]);
            calling.join().expect("it gets a reply")
        });
        assert_eq!(reply["messages"][0]["text"], "look out", "{call}: {reply}");
        assert_eq!(
            as_run(&access, call, &body)["messages"]
                .as_array()
                .map_or(0, Vec::len),
            0,
            "once it has them, it has them"
        );
    }
}

#[test]
fn unstarted_attempt_does_not_count_as_work() {
    let home = TestHome::new();
    let fired = home.work().join("fired");
    let mut hub = home.command(&["__hub"]);
    hub.env(
        "ADJ_FAILPOINT",
        format!("hub.before_guard={}", fired.display()),
    )
    .stdout(Stdio::null())
    .stderr(Stdio::null());
    let mut hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    home.start("again", "say from the beginning\nresume-here\nsay the rest");
    assert!(!hub.wait().expect("it dies").success());
    let view = home.finished("again");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
    let log = home.log("again");
    assert!(
        log.contains("from the beginning") && !log.contains("worked on this task before"),
        "{log}"
    );
}

#[test]
fn runs_continue_and_end_without_a_hub() {
    let home = TestHome::new();
    home.start("alone", "say begun\nsleep 1\nsay ended\nfail 4");
    home.until_log("alone", "begun");
    home.ok(&["stop"]);
    let dir = home.home.logs_dir();
    home.until("the log is complete without a hub", || {
        let log = std::fs::read_dir(&dir)
            .expect("logs")
            .flatten()
            .find(|entry| entry.path().extension().is_some_and(|e| e == "log"))?;
        std::fs::read_to_string(log.path())
            .ok()?
            .contains("ended")
            .then_some(())
    });
    let view = home.finished("alone");
    assert_eq!(
        (&view["outcome"], &view["exit_code"]),
        (&json!("failed"), &json!(4)),
        "{view}"
    );
}

#[test]
fn killed_supervisor_ends_its_attempt() {
    let home = TestHome::new();
    home.start("lost", "spawn setsid ignore-term\nspawn doublefork ignore-term\nspawn closedfds ignore-term\nsay ready\nhang");
    home.until_log("lost", "ready");
    let id = home.run_id("lost");
    kill(lock_pid(&home.attempt_dir("lost").supervisor_lock()));
    home.until("nothing of it is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
    let view = home.until("the hub knows", || {
        let view = home.show("lost");
        (view["state"] == "stopped" || view["state"] == "finished").then_some(view)
    });
    assert_ne!(view["outcome"], "succeeded", "{view}");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("supervisor")),
        "{view}"
    );
}

#[test]
fn run_continues_without_its_guard() {
    let home = TestHome::new();
    home.start(
        "unguarded",
        "spawn setsid ignore-term\nask \"Go on?\"\ndone",
    );
    home.until_status("unguarded", "waiting_parent_reply");
    let id = home.run_id("unguarded");
    kill(lock_pid(&home.attempt_dir("unguarded").guard_lock()));
    home.ok(&["reply", "unguarded", "yes"]);
    let view = home.finished("unguarded");
    assert_eq!(view["outcome"], "succeeded", "{view}");
    home.until("nothing of it is left", || {
        home.processes_of(&id).is_empty().then_some(())
    });
}

#[test]
fn concurrent_starts_leave_one_hub() {
    let home = TestHome::new();
    let starters: Vec<_> = (0..8)
        .map(|_| {
            home.command(&["ps"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("adj can be started")
        })
        .collect();
    for starter in starters {
        let output = starter.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let hubs: Vec<_> = home
        .processes()
        .into_iter()
        .filter(|(_, arguments)| arguments.contains("__hub"))
        .collect();
    assert_eq!(hubs.len(), 1, "{hubs:?}");
    assert_eq!(hubs[0].0, home.hub_pid());
}

#[test]
fn second_hub_is_refused() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let refused = home.adj(&["serve"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.err.contains("hub"), "{refused:?}");
    home.ok(&["ps"]);
}

#[test]
fn hub_hands_over_to_a_newer_version() {
    let home = TestHome::new();
    let mut old = home.command(&["__hub", "--as-version", "0.0.1"]);
    let mut old = old
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("an older hub");
    home.until("the older hub takes calls", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    assert_eq!(
        home.call(&adjutant_api::view::GetHub {}, "")
            .expect("a hub")
            .version,
        "0.0.1"
    );
    let cwd = home.work().display().to_string();
    let order = Dispatch {
        agent: "echo".into(),
        name: Some("through".into()),
        prompt: "ask \"Go on?\"\ndone".into(),
        cwd,
        ..Dispatch::default()
    };
    home.call(&order, "through")
        .expect("the older hub accepts it");
    home.until_status("through", "waiting_parent_reply");
    assert!(
        old.wait().expect("it ends").success(),
        "the first command of a newer version had it hand over"
    );
    // If the older hub had not closed its socket yet, the next command starts the newer one.
    home.ok(&["ps"]);
    assert_eq!(
        home.call(&adjutant_api::view::GetHub {}, "")
            .expect("a hub")
            .version,
        env!("CARGO_PKG_VERSION")
    );
    home.ok(&["reply", "through", "yes"]);
    assert_eq!(home.finished("through")["outcome"], "succeeded");

    let pid = home.hub_pid();
    let older = HandOver {
        exe: env!("CARGO_BIN_EXE_adj").to_string(),
        version: "0.0.1".to_string(),
    };
    home.call(&older, "").expect("it answers");
    home.ok(&["ps"]);
    assert_eq!(home.hub_pid(), pid, "nobody hands over to an older version");
}

#[test]
fn only_an_idle_hub_exits() {
    let home = TestHome::with_config("idle_exit = \"500ms\"\n");
    home.start("busy", "ask \"Go on?\"");
    home.until_status("busy", "waiting_parent_reply");
    let pid = home.hub_pid();
    // A hub exits after its idle time.
    let idle = TestHome::with_config("idle_exit = \"500ms\"\n");
    idle.ok(&["ps"]);
    idle.until("the hub with nothing to do has ended", || {
        is_hub_gone(&idle).then_some(())
    });
    assert!(TestHome::is_alive(pid), "a run is live");
    home.ok(&["reply", "busy", "yes"]);
    home.finished("busy");
    home.until("the hub has ended", || is_hub_gone(&home).then_some(()));
}

#[test]
fn hub_stays_for_runs_that_resume_by_themselves() {
    let home = TestHome::with_config("idle_exit = \"300ms\"\n");
    home.start(
        "parked",
        "tool ask_parent {\"question\":\"And?\",\"wait_s\":0}\nsay leaving",
    );
    home.until_status("parked", "stopped");
    let pid = home.hub_pid();
    // The hub of another home, started later, has its own idle time.
    let idle = TestHome::with_config("idle_exit = \"300ms\"\n");
    idle.ok(&["ps"]);
    idle.until("the hub with nothing to do has ended", || {
        is_hub_gone(&idle).then_some(())
    });
    assert!(TestHome::is_alive(pid), "the question will expire");
    home.ok(&["cancel", "parked"]);
    home.until("the hub has ended", || is_hub_gone(&home).then_some(()));
}

/// Returns whether neither a hub nor its socket exists.
fn is_hub_gone(home: &TestHome) -> bool {
    !home
        .processes()
        .iter()
        .any(|(_, arguments)| arguments.contains("__hub"))
        && !home.home.socket().exists()
}

#[test]
fn unwatched_attempt_is_recovered() {
    let home = TestHome::new();
    home.start("unseen", "say ready\nhang");
    home.until_log("unseen", "ready");
    let dir = home.attempt_dir("unseen");
    home.ok(&["stop"]);
    let aside = home.work().join("guard.lock");
    std::fs::rename(dir.guard_lock(), &aside).expect("it is moved");
    std::fs::create_dir(dir.guard_lock()).expect("a lock that cannot be opened");
    home.ok(&["ps"]);
    let log = || std::fs::read_to_string(home.home.hub_log()).unwrap_or_default();
    home.until("the hub could not watch", || {
        log().contains("a lock cannot be examined").then_some(())
    });
    std::fs::remove_dir(dir.guard_lock()).expect("it can be removed");
    std::fs::rename(&aside, dir.guard_lock()).expect("it is put back");
    kill(lock_pid(&dir.guard_lock()));
    kill(lock_pid(&dir.supervisor_lock()));
    home.until("the run is over", || {
        let view = home.show("unseen");
        (view["state"] == "stopped" || view["state"] == "finished").then_some(())
    });
}

#[test]
fn hub_exits_while_waiting_for_an_unknown_lock_holder() {
    let home = TestHome::new();
    home.start("unknown", "say ready\nhang");
    home.until_log("unknown", "ready");
    let dir = home.attempt_dir("unknown");
    home.ok(&["stop"]);
    let guard = lock_pid(&dir.guard_lock());
    std::fs::write(dir.guard_lock(), "").expect("the lock is emptied");
    home.ok(&["ps"]);
    let pid = home.hub_pid();
    home.until("the hub waits", || has_thread(pid, "lock").then_some(()));
    home.ok(&["stop"]);
    home.until("the hub has ended", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
    assert!(TestHome::is_alive(guard), "the run goes on");
}

fn has_thread(pid: u32, name: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .map(|thread| std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default())
        .any(|comm| comm.trim() == name)
}

/// Takes the lock that a hub holds while its socket is open.
fn hub_lock(home: &TestHome) -> Lock {
    Lock::try_take(&home.home.dir, &home.home.hub_lock())
        .expect("a lock")
        .expect("no hub runs")
}

#[test]
fn socket_of_another_process_delays_a_command_only_briefly() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let pid = home.hub_pid();
    home.ok(&["stop"]);
    home.until("the hub has ended", || {
        (!TestHome::is_alive(pid)).then_some(())
    });
    let foreign = std::os::unix::net::UnixListener::bind(home.home.socket()).expect("a socket");
    let began = std::time::Instant::now();
    let ran = home.adj(&["ps"]);
    assert!(
        ran.code == 0 && began.elapsed() < std::time::Duration::from_secs(8),
        "{:?}: {ran:?}",
        began.elapsed()
    );
    home.start("after", "say x");
    assert_eq!(home.finished("after")["outcome"], "succeeded");
    drop(foreign);
}

#[test]
fn call_refused_by_a_closing_hub_goes_to_the_next() {
    let home = TestHome::new();
    let lock = hub_lock(&home);
    let closing = std::os::unix::net::UnixListener::bind(home.home.socket()).expect("a socket");
    let ran = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            home.adj(&[
                "run",
                "--detach",
                "--agent",
                "echo",
                "--name",
                "late",
                "say hello\n",
            ])
        });
        let (mut stream, _) = closing.accept().expect("a call");
        let mut first = [0; 4];
        stream.read_exact(&mut first).expect("a request");
        // Like a hub, which removes its socket before it closes its store.
        std::fs::remove_file(home.home.socket()).expect("it is there");
        drop(lock);
        let body = r#"{"code":"closing","message":"the store is closed"}"#;
        let reply = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(reply.as_bytes()).expect("a refusal");
        calling.join().expect("it ends")
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(home.finished("late")["outcome"], "succeeded");
}

#[test]
fn call_without_a_reply_is_repeated() {
    let home = TestHome::new();
    let lock = hub_lock(&home);
    let silent = std::os::unix::net::UnixListener::bind(home.home.socket()).expect("a socket");
    let ran = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            home.adj(&[
                "run",
                "--detach",
                "--agent",
                "echo",
                "--name",
                "late",
                "say hello\n",
            ])
        });
        let (_unanswered, _) = silent.accept().expect("a call");
        // A check for a hub connects too, and sends nothing.
        let (_again, _) = silent.accept().expect("the repeated call");
        std::fs::remove_file(home.home.socket()).expect("it is there");
        drop((silent, lock));
        drop((_unanswered, _again));
        calling.join().expect("it ends")
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(home.finished("late")["outcome"], "succeeded");
}

#[test]
fn stopping_the_hub_leaves_runs_working() {
    let home = TestHome::new();
    home.start("going", "ask \"Go on?\"\ndone");
    home.until_status("going", "waiting_parent_reply");
    let id = home.run_id("going");
    let stopped = home.call(&StopHub {}, "").expect("it stops");
    home.until("the hub has ended", || {
        (!TestHome::is_alive(stopped.pid)).then_some(())
    });
    assert!(!home.processes_of(&id).is_empty());
    home.ok(&["reply", "going", "yes"]);
    assert_eq!(home.finished("going")["outcome"], "succeeded");
}

#[test]
fn home_on_a_long_path_works() {
    let home = TestHome::with_path_of(200);
    home.start(
        "long",
        "ask \"Anyone here?\"\nask-stdio \"Here too?\"\ndone",
    );
    home.until_status("long", "waiting_parent_reply");
    home.ok(&["reply", "long", "yes"]);
    home.until("the second question is open", || {
        (home.inbox(&[])[0]["question"] == "Here too?").then_some(())
    });
    home.ok(&["reply", "long", "yes"]);
    assert_eq!(home.finished("long")["outcome"], "succeeded");
}

#[test]
fn full_disk_refuses_writes_and_recovers_with_space() {
    let Some(disk) = Disk::mount("24m") else {
        return;
    };
    let home = TestHome::below(disk.path());
    home.start("before", "say hello\nask \"Go on?\"\ndone");
    home.until_status("before", "waiting_parent_reply");
    let filler = disk.path().join("filler");
    fill(&filler);
    let refused = home.until("a write is refused", || {
        fill(&filler);
        let ran = home.adj(&["--json", "run", "-d", "-a", "echo", "say more\n"]);
        (ran.code != 0).then_some(ran)
    });
    assert!(refused.err.contains("storage_full"), "{refused:?}");
    assert_eq!(
        home.show("before")["status"],
        "waiting_parent_reply",
        "existing data stays readable"
    );
    // This works even for a hub that starts on the full disk.
    kill(home.hub_pid());
    assert_eq!(
        home.show("before")["status"],
        "waiting_parent_reply",
        "existing data stays readable"
    );
    std::fs::remove_file(&filler).expect("it can be removed");
    home.until("service is back", || {
        (home.adj(&["reply", "before", "yes"]).code == 0).then_some(())
    });
    let finished = home.finished("before");
    assert_eq!(
        finished["outcome"],
        "succeeded",
        "{finished}\n{}",
        home.log("before")
    );
}

/// Starts a hub with an armed failpoint and its usual log.
fn hub_with_failpoint(home: &TestHome, failpoint: &str, file: &Path) -> std::process::Child {
    let mut hub = home.command(&["__hub"]);
    hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", file.display()));
    let log = std::fs::File::create(home.home.hub_log()).expect("a log");
    let hub = hub
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    hub
}

#[test]
fn question_in_doubt_waits_for_space_on_the_disk() {
    let home = TestHome::new();
    let (fired, full, go) = (
        home.work().join("fired"),
        home.work().join("full"),
        home.work().join("go"),
    );
    std::fs::write(&fired, "").expect("a file");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    let mut dying = hub_with_failpoint(&home, "store.before_commit", &fired);
    home.start(
        "asker",
        &format!(
            "say ready\njournal {} x\nask \"Go on?\"\ndone yes",
            go.display()
        ),
    );
    home.until_log("asker", "ready");
    std::fs::remove_file(&fired).expect("it is there");
    // The agent waits for a reader.
    std::fs::read_to_string(&go).expect("a line");
    assert!(!dying.wait().expect("it dies").success());
    std::fs::write(&full, "").expect("a file");
    let mut hub = hub_with_failpoint(&home, "full", &full);
    home.until("the repeated question is refused", || {
        std::fs::read_to_string(home.home.hub_log())
            .ok()?
            .contains("the disk is full")
            .then_some(())
    });
    std::fs::remove_file(&full).expect("it is there");
    home.until_status("asker", "waiting_parent_reply");
    home.ok(&["reply", "asker", "yes"]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

#[test]
fn question_waits_for_space_on_the_disk() {
    let home = TestHome::new();
    let (full, go) = (home.work().join("full"), home.work().join("go"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    let mut hub = hub_with_failpoint(&home, "full", &full);
    home.start(
        "asker",
        &format!(
            "say ready\njournal {} x\nask \"Go on?\"\ndone yes",
            go.display()
        ),
    );
    home.until_log("asker", "ready");
    std::fs::write(&full, "").expect("a file");
    // The agent waits for a reader.
    std::fs::read_to_string(&go).expect("a line");
    home.until("the question is refused", || {
        std::fs::read_to_string(home.attempt_dir("asker").log())
            .ok()?
            .contains("until the store can be used")
            .then_some(())
    });
    std::fs::remove_file(&full).expect("it is there");
    home.until_status("asker", "waiting_parent_reply");
    home.ok(&["reply", "asker", "yes"]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

#[test]
fn end_on_a_full_disk_is_recorded_with_the_log_gap() {
    let Some(disk) = Disk::mount("24m") else {
        return;
    };
    let home = TestHome::below(disk.path());
    let signal = tempfile::tempdir().expect("a directory on another disk");
    let fifo = signal.path().join("go on");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .is_ok_and(|status| status.success())
    );
    let config = "[agents.late]\nharness = 'plain'\ncommand = ['/bin/sh', '-c', 'echo early; cat \"$FIFO\"; seq 1 2000; exit 7']\nenv = { FIFO = 'PATH' }\n";
    let config = config.replace("PATH", &fifo.display().to_string());
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    home.start_agent("late", "late", "go");
    home.until_log("late", "early");
    let run_id = home.run_id("late");
    let filler = disk.path().join("filler");
    home.until("a write is refused", || {
        fill(&filler);
        (home
            .adj(&["--json", "run", "-d", "-a", "echo", "say more\n"])
            .code
            != 0)
            .then_some(())
    });
    fill(&filler);
    std::fs::write(&fifo, "woken\n").expect("the agent reads");
    home.until("the agent has ended", || {
        fill(&filler);
        home.processes_of(&run_id)
            .iter()
            .all(|(_, command)| !command.contains("seq 1 2000"))
            .then_some(())
    });
    std::fs::remove_file(&filler).expect("it can be removed");
    let run = home.finished("late");
    assert_eq!(
        (&run["outcome"], &run["exit_code"]),
        (&json!("failed"), &json!(7)),
        "{run}"
    );
    home.until("nothing is left", || {
        home.processes_of(&run_id).is_empty().then_some(())
    });
    let log = home.log("late");
    assert!(
        log.starts_with("early\n")
            && log
                .trim_end()
                .ends_with("bytes of output are left out here]"),
        "{log:.400}"
    );
}

#[test]
fn disk_filling_run_can_be_paused_and_cancelled() {
    let Some(disk) = Disk::mount("24m") else {
        return;
    };
    let home = TestHome::below(disk.path());
    let eaten = disk.path().join("eaten");
    let config = format!(
        "[agents.eater]\nharness = 'plain'\ncommand = ['/bin/sh', '-c', 'while :; do cat /dev/zero >> {}; sleep 0.01; done 2> /dev/null']\n",
        eaten.display()
    );
    std::fs::write(home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    home.start_agent("eater", "eater", "go");
    let run_id = home.run_id("eater");
    let full = || {
        home.until("a write is refused", || {
            let ran = home.adj(&["--json", "run", "-d", "-a", "echo", "say more\n"]);
            ran.err.contains("storage_full").then_some(())
        });
    };
    let eats_no_more = || {
        home.until("nothing of it is left", || {
            home.processes_of(&run_id)
                .iter()
                .all(|(_, command)| !command.contains("/dev/zero"))
                .then_some(())
        });
        std::fs::remove_file(&eaten).expect("it can be removed");
    };
    let reserved = || std::fs::metadata(home.home.reserved_space()).map_or(0, |meta| meta.len());
    full();
    home.ok(&["pause", "eater"]);
    eats_no_more();
    home.until_status("eater", "stopped");
    // Once the disk has room, the space is reserved again when the next hub starts.
    home.ok(&["stop"]);
    home.until("the hub has ended", || {
        (!home
            .processes()
            .iter()
            .any(|(_, command)| command.contains("__hub")))
        .then_some(())
    });
    home.ok(&["resume", "eater"]);
    assert_eq!(reserved(), 4 * 1024 * 1024);
    full();
    home.ok(&["cancel", "eater"]);
    eats_no_more();
    assert_eq!(home.finished("eater")["outcome"], "cancelled");
}

#[test]
fn hung_hub_is_named_with_a_hint() {
    let home = TestHome::new();
    home.start("asker", "ask \"Go on?\"");
    home.until_status("asker", "waiting_parent_reply");
    let hub = home.hub_pid();
    let pid = i32::try_from(hub)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is stopped");
    let doctor = home.adj(&["doctor"]);
    kill(hub);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    for told in [
        format!("(pid {hub}) does not answer"),
        format!("kill -9 {hub} (nothing acknowledged is lost"),
    ] {
        assert!(doctor.out.contains(&told), "{told}: {doctor:?}");
    }
    home.ok(&["reply", "asker", "yes"]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
}

pub fn fill(path: &Path) {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("a file on the small disk");
    for size in [65_536, 4096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn read_only_home_is_named_in_the_error() {
    let Some(disk) = Disk::mount("24m") else {
        return;
    };
    let home = TestHome::below(disk.path());
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    home.until("the hub has ended", || {
        home.processes().is_empty().then_some(())
    });
    home.until("the disk is read-only", || disk.remount("ro").then_some(()));
    let refused = home.adj(&["ps"]);
    assert!(refused.code == 6 || refused.code == 1, "{refused:?}");
    assert!(
        refused.err.contains(&home.home.dir.display().to_string())
            && refused.err.to_lowercase().contains("read-only"),
        "{refused:?}"
    );
}

/// A small file system for one test.
pub struct Disk(tempfile::TempDir);

impl Disk {
    pub fn mount(size: &str) -> Option<Self> {
        if !is_root("a small disk is mounted") {
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("adj-disk-")
            .tempdir()
            .expect("a temporary directory");
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "adj-test"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip("a small disk cannot be mounted");
            return None;
        }
        Some(Self(dir))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn remount(&self, how: &str) -> bool {
        Command::new("mount")
            .args(["-o", &format!("remount,{how}")])
            .arg(self.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: processes that still use it are ended by the home on it.
        let gone = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.path().display());
        }
    }
}

#[test]
fn run_ended_without_a_hub_keeps_its_time() {
    let home = TestHome::new();
    home.start("late", "say ready\nsleep 1\nsay done");
    home.until_log("late", "ready");
    let dir = home.attempt_dir("late");
    let supervisor = lock_pid(&dir.supervisor_lock());
    home.ok(&["stop"]);
    home.until("nothing of it is left", || {
        (!TestHome::is_alive(supervisor) && !TestHome::is_alive(lock_pid(&dir.guard_lock())))
            .then_some(())
    });
    let facts = std::fs::read_to_string(dir.facts()).expect("its facts");
    let last: Value =
        serde_json::from_str(facts.lines().last().expect("a last fact")).expect("a fact");
    // Long enough after the end to distinguish the two times.
    let later = Instant::now() + Duration::from_millis(1_500);
    home.until("time has passed", || {
        (Instant::now() >= later).then_some(())
    });
    let view = home.json(&["ps", "-a"])[0].clone();
    assert_eq!(
        (&view["state"], &view["outcome"]),
        (&json!("finished"), &json!("succeeded")),
        "the first answer is true"
    );
    let ended = adjutant_os::clock::parse_rfc3339(view["ended_at"].as_str().expect("an end"))
        .expect("a time");
    assert_eq!(Some(ended.0), last["at_ms"].as_i64(), "{view}");
    let events = home.json(&["events", "late"]);
    let finished = events
        .as_array()
        .and_then(|all| all.iter().find(|event| event["kind"] == "run.finished"))
        .cloned()
        .expect("its end");
    assert_eq!(finished["at"], view["ended_at"]);
}

#[test]
fn stop_waits_for_a_hub_that_has_no_socket_for_a_moment() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let (socket, away) = (home.home.socket(), home.work().join("away.sock"));
    std::fs::rename(&socket, &away).expect("a socket");
    let stop = home
        .command(&["stop"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("adj stop");
    let fds = format!("/proc/{}/fd", stop.id());
    let watches = || {
        let targets = std::fs::read_dir(&fds)
            .ok()?
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        targets
            .into_iter()
            .any(|target| target.to_string_lossy().contains("inotify"))
            .then_some(())
    };
    home.until("it waits for the hub", watches);
    std::fs::rename(&away, &socket).expect("the socket");
    let output = stop.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("hub stopped"),
        "{text}"
    );
}
