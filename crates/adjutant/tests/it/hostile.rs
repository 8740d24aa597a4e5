//! Files replaced by a run's processes, and prepared homes: a hostile run is settled and harms no
//! other run, and the hub always answers.

use crate::processes::Mark;
use crate::support::{Ran, TestHome, kill, lock_pid};
use adjutant_api::protocol::AttemptDir;
use adjutant_home::logs::{log_path, prompt_path};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// The containment of ordinary users, in which a detached process can survive.
const SUBREAPER: &str = "containment = \"subreaper\"\n";
/// A run with a process that outlives it.
const DETACHES: &str = "spawn setsid ignore-term\nsay ready\nhang";
/// A run that waits for its parent.
const ASKS: &str = "say begun\nask \"Go on?\"\nsay done";
/// Far less than a hanging hub would take.
const PROMPT: Duration = Duration::from_secs(10);

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

fn remove(path: &Path) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("it can be removed");
    }
}

/// Starts a run that detaches a process, calls `plant` to change its files, then kills guard and
/// supervisor.
fn seize(home: &TestHome, name: &str, plant: impl FnOnce(&AttemptDir)) -> (String, AttemptDir) {
    home.start(name, DETACHES);
    home.until_log(name, "ready");
    let (id, dir) = (home.run_id(name), home.attempt_dir(name));
    let (guard, supervisor) = (
        lock_pid(&dir.guard_lock()),
        lock_pid(&dir.supervisor_lock()),
    );
    plant(&dir);
    kill(guard);
    kill(supervisor);
    (id, dir)
}

/// Waits until a run is settled and has no processes left, and returns its reason.
fn broken(home: &TestHome, name: &str, id: &str) -> String {
    let view = home.until(&format!("{name} is settled"), || {
        let view = home.show(name);
        (view["state"] == "stopped" || view["state"] == "finished").then_some(view)
    });
    assert_ne!(view["outcome"], "succeeded", "{view}");
    home.until(&format!("nothing of {name} is left"), || {
        home.processes_of(id).is_empty().then_some(())
    });
    view["reason"].as_str().expect("a reason").to_owned()
}

fn is_prompt(home: &TestHome, args: &[&str]) -> Value {
    let began = Instant::now();
    let data = home.json(args);
    assert!(
        began.elapsed() < PROMPT,
        "{args:?} took {:?}",
        began.elapsed()
    );
    data
}

#[test]
fn replaced_facts_file_harms_only_its_run() {
    let home = TestHome::with_config(SUBREAPER);
    let plant_fifo = |dir: &AttemptDir| {
        remove(&dir.facts());
        fifo(&dir.facts());
    };
    // While a hub is running.
    let (first, _) = seize(&home, "first", plant_fifo);
    is_prompt(&home, &["ps"]);
    let reason = broken(&home, "first", &first);
    assert!(
        reason.contains("facts.jsonl is a FIFO, not a regular file"),
        "{reason}"
    );
    // Before a hub starts. Two such files once froze every later hub.
    let hub = home.hub_pid();
    let names = ["second", "third", "zero", "huge"];
    let mut ids = Vec::new();
    for name in names {
        home.start(name, DETACHES);
        home.until_log(name, "ready");
        ids.push((name, home.run_id(name), home.attempt_dir(name)));
    }
    kill(hub);
    for (name, _, dir) in &ids {
        let keepers = [
            lock_pid(&dir.guard_lock()),
            lock_pid(&dir.supervisor_lock()),
        ];
        match *name {
            "zero" => {
                remove(&dir.facts());
                symlink("/dev/zero", dir.facts()).expect("a link");
            }
            "huge" => std::fs::OpenOptions::new()
                .append(true)
                .open(dir.facts())
                .and_then(|file| file.set_len(1 << 36))
                .expect("a sparse file"),
            _ => plant_fifo(dir),
        }
        keepers.into_iter().for_each(kill);
    }
    is_prompt(&home, &["ps"]);
    for (name, id, _) in &ids {
        let reason = broken(&home, name, id);
        assert!(
            reason.contains(if *name == "huge" {
                "is longer than"
            } else {
                "facts.jsonl is a"
            }),
            "{name}: {reason}"
        );
    }
    home.start("other", "say unharmed");
    assert_eq!(home.finished("other")["outcome"], "succeeded");
}

#[test]
fn replaced_log_map_blocks_no_reader() {
    let home = TestHome::with_config(SUBREAPER);
    home.start("ended", "say words");
    home.finished("ended");
    let map = home.attempt_dir("ended").0.join("log.json");
    remove(&map);
    fifo(&map);
    // More than the hub has threads for blocking work.
    let readers: Vec<_> = (0..20)
        .map(|_| {
            home.command(&["logs", "ended"])
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("adj starts")
        })
        .collect();
    for reader in readers {
        let ran = reader.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && told.contains("log.json is a FIFO"),
            "{told}"
        );
    }
    home.start("other", "say unharmed");
    assert_eq!(home.finished("other")["outcome"], "succeeded");
}

#[test]
fn replaced_lock_or_marker_ends_only_its_run() {
    let home = TestHome::with_config(SUBREAPER);
    let file = |dir: &AttemptDir, which: &str| match which {
        "guard.lock" => dir.guard_lock(),
        "supervisor.lock" => dir.supervisor_lock(),
        _ => dir.started_marker(),
    };
    for which in ["guard.lock", "supervisor.lock", "started"] {
        for what in ["dangling", "loop", "directory", "fifo"] {
            let name = format!("{}-{what}", which.trim_end_matches(".lock"));
            let (id, _) = seize(&home, &name, |dir| {
                let path = file(dir, which);
                remove(&path);
                match what {
                    "dangling" => symlink("nowhere", &path).expect("a link"),
                    "loop" => symlink(which, &path).expect("a link"),
                    "directory" => std::fs::create_dir(&path).expect("a directory"),
                    _ => fifo(&path),
                }
            });
            let reason = broken(&home, &name, &id);
            assert!(
                reason.contains(&format!("{which} is a")),
                "{name}: {reason}"
            );
        }
    }
}

/// Without their locks, guard and supervisor cannot be watched, so the next hub kills them.
#[test]
fn run_whose_locks_were_replaced_is_ended_by_the_next_hub() {
    let home = TestHome::with_config(SUBREAPER);
    home.start("unlocked", DETACHES);
    home.until_log("unlocked", "ready");
    let (id, dir) = (home.run_id("unlocked"), home.attempt_dir("unlocked"));
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        remove(&lock);
        symlink("nowhere", &lock).expect("a link");
    }
    kill(home.hub_pid());
    is_prompt(&home, &["ps"]);
    assert!(broken(&home, "unlocked", &id).contains("guard.lock is a symbolic link"));
}

#[test]
fn files_planted_for_the_next_attempt_are_replaced() {
    let home = TestHome::with_config(SUBREAPER);
    let (id, _) = seize(&home, "again", |_| ());
    broken(&home, "again", &id);
    let secret = home.work().join("secret");
    std::fs::write(&secret, "untouched").expect("a file");
    fifo(&prompt_path(&home.home.dir, &id, 2));
    symlink(&secret, log_path(&home.home.dir, &id, 2)).expect("a link");
    let meta = home.home.logs_dir().join(format!("{id}.meta.json.new"));
    symlink(&secret, &meta).expect("a link");
    home.ok(&["resume", "again"]);
    home.until("the second attempt works", || {
        let view = home.show("again");
        (view["attempt"] == 2 && view["state"] == "running").then_some(())
    });
    home.ok(&["cancel", "again"]);
    home.finished("again");
    home.until("its copy is rendered", || {
        meta.symlink_metadata().is_err().then_some(())
    });
    assert_eq!(std::fs::read_to_string(&secret).expect("text"), "untouched");

    let (id, dir) = seize(&home, "elsewhere", |_| ());
    broken(&home, "elsewhere", &id);
    symlink(home.work(), dir.0.with_file_name("2")).expect("a link");
    home.ok(&["resume", "elsewhere"]);
    let view = home.finished("elsewhere");
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("2 is a symbolic link, not a directory")),
        "{view}"
    );
}

#[test]
fn removed_socket_is_recreated() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let (hub, socket) = (home.hub_pid(), home.home.socket());
    for round in 0..3 {
        std::fs::remove_file(&socket).expect("it is there");
        if round == 1 {
            std::fs::write(&socket, "no socket").expect("a file");
        }
        is_prompt(&home, &["ps"]);
        assert_eq!(home.hub_pid(), hub, "the hub is the same");
    }
}

#[test]
fn hub_of_a_removed_home_exits_and_ends_its_runs() {
    let home = TestHome::with_config(SUBREAPER);
    home.start("homeless", DETACHES);
    home.until_log("homeless", "ready");
    let (hub, id) = (home.hub_pid(), home.run_id("homeless"));
    let before = home.processes_of(&id);
    assert!(!before.is_empty());
    std::fs::remove_dir_all(&home.home.dir).expect("it can be removed");
    home.until("the hub has ended", || {
        (!TestHome::is_alive(hub)).then_some(())
    });
    home.until("its runs have ended", || {
        (!before.iter().any(|(pid, _)| TestHome::is_alive(*pid))).then_some(())
    });
    // The next home is empty.
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
}

#[test]
fn supervisors_of_a_removed_home_end_without_its_hub() {
    for has_new_home in [false, true] {
        let home = TestHome::with_config(SUBREAPER);
        home.start("homeless", ASKS);
        home.until_status("homeless", "waiting_parent_reply");
        let before = home.processes_of(&home.run_id("homeless"));
        home.ok(&["stop"]);
        assert!(
            before.len() > 2 && before.iter().all(|(pid, _)| TestHome::is_alive(*pid)),
            "{before:?}"
        );
        std::fs::remove_dir_all(&home.home.dir).expect("it can be removed");
        if has_new_home {
            // Its hub does not know the run.
            assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(0));
        }
        home.until("guard, supervisor and agent have ended", || {
            (!before.iter().any(|(pid, _)| TestHome::is_alive(*pid))).then_some(())
        });
    }
}

#[test]
fn run_continues_when_its_home_is_back() {
    let home = TestHome::new();
    home.start("lasting", ASKS);
    home.until_status("lasting", "waiting_parent_reply");
    home.ok(&["stop"]);
    let away = home.work().join("away");
    std::fs::rename(&home.home.dir, &away).expect("it can be moved");
    std::fs::rename(&away, &home.home.dir).expect("it can be moved back");
    home.ok(&["reply", "lasting", "yes"]);
    assert_eq!(home.finished("lasting")["outcome"], "succeeded");
}

#[test]
fn hub_without_its_lock_exits_and_runs_continue() {
    let home = TestHome::new();
    home.start("lasting", ASKS);
    home.until_status("lasting", "waiting_parent_reply");
    let hub = home.hub_pid();
    remove(&home.home.hub_lock());
    home.until("the hub has ended", || {
        (!TestHome::is_alive(hub)).then_some(())
    });
    home.ok(&["reply", "lasting", "yes"]);
    assert_eq!(home.finished("lasting")["outcome"], "succeeded");
}

#[test]
fn directory_with_other_files_is_not_a_home() {
    let home = TestHome::new();
    let project = home.work().join("project");
    std::fs::create_dir_all(project.join("src")).expect("a directory");
    std::fs::set_permissions(&project, std::fs::Permissions::from_mode(0o755))
        .expect("its mode can be set");
    let ran: Ran = home
        .command(&["ps"])
        .env("ADJ_HOME", &project)
        .output()
        .expect("adj starts")
        .into();
    assert!(
        ran.code == 6
            && ran
                .err
                .contains("holds other files (src) and is not a home of adj"),
        "{ran:?}"
    );
    assert_eq!(
        project.metadata().expect("is there").permissions().mode() & 0o777,
        0o755
    );
    assert_eq!(
        std::fs::read_dir(&project).expect("a directory").count(),
        1,
        "nothing was put beside it"
    );
    // A directory that contains only a configuration and a secret still counts as empty.
    let fresh = home.work().join("fresh");
    std::fs::create_dir(&fresh).expect("a directory");
    std::fs::write(fresh.join("config.toml"), "").expect("a file");
    std::fs::write(fresh.join("hook.secret"), "").expect("a file");
    for args in [&["ps"][..], &["stop"], &["ps"], &["stop"]] {
        let ran: Ran = home
            .command(args)
            .env("ADJ_HOME", &fresh)
            .output()
            .expect("adj starts")
            .into();
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn relative_homes_and_invalid_switches_are_refused() {
    let home = TestHome::new();
    for (name, value, told) in [
        (
            "ADJ_HOME",
            "relative",
            "ADJ_HOME is a relative path (relative)",
        ),
        ("HOME", "relative", "HOME is a relative path (relative)"),
        (
            "ADJ_EPHEMERAL",
            "maybe",
            "ADJ_EPHEMERAL is \"maybe\": use 1 or 0",
        ),
    ] {
        let mut command = home.command(&["ps"]);
        if name == "HOME" {
            command.env_remove("ADJ_HOME");
        }
        let ran: Ran = command
            .env(name, value)
            .output()
            .expect("adj starts")
            .into();
        assert!(ran.code != 0 && ran.err.contains(told), "{ran:?}");
        assert!(!home.work().join("relative").exists());
    }
}

#[test]
fn prepared_home_is_repaired_or_refused() {
    let home = TestHome::new();
    let file = |name: &str| home.home.dir.join(name);
    let mode = |name: &str| {
        file(name)
            .metadata()
            .expect("is there")
            .permissions()
            .mode()
            & 0o777
    };
    // Modes are corrected.
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    for name in ["adj.db", "ballast", "hub.log"] {
        std::fs::set_permissions(file(name), std::fs::Permissions::from_mode(0o666))
            .expect("its mode can be set");
    }
    home.start("after", "say works");
    home.finished("after");
    for name in ["adj.db", "adj.db-wal", "adj.db-shm", "ballast", "hub.log"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    home.ok(&["stop"]);
    // A link in place of the reserved space is not followed.
    let target = home.work().join("target");
    std::fs::write(&target, "untouched").expect("a file");
    remove(&file("ballast"));
    symlink(&target, file("ballast")).expect("a link");
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    assert_eq!(std::fs::read_to_string(&target).expect("text"), "untouched");
    // A file that would block is refused, with its name.
    for name in [
        "hub.log",
        "start.lock",
        "hub.lock",
        "adj.db",
        "adj.db-wal",
        "config.toml",
    ] {
        let kept = home.work().join("kept");
        std::fs::rename(file(name), &kept).ok();
        fifo(&file(name));
        let began = Instant::now();
        let ran = home.adj(&["run", "--agent", "echo", "say x"]);
        assert!(
            ran.code != 0
                && ran
                    .err
                    .contains(&format!("{name} is a FIFO, not a regular file")),
            "{name}: {ran:?}"
        );
        assert!(began.elapsed() < PROMPT, "{name}: {:?}", began.elapsed());
        home.adj(&["stop"]);
        remove(&file(name));
        std::fs::rename(&kept, file(name)).ok();
    }
    home.start("last", "say works");
    assert_eq!(home.finished("last")["outcome"], "succeeded");
}

#[test]
fn foreground_hub_prints_a_plain_greeting() {
    let home = TestHome::new();
    let mut hub = home.command(&["serve"]);
    let mut hub = hub
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("adj starts");
    home.until("the hub answers", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    home.ok(&["stop"]);
    let mut told = String::new();
    std::io::Read::read_to_string(&mut hub.stderr.take().expect("a pipe"), &mut told)
        .expect("text");
    hub.wait().expect("it ends");
    assert!(
        told.contains(&format!("serving {} (pid ", home.home.dir.display()))
            && !told.contains("WARN"),
        "{told}"
    );
}

#[test]
fn low_descriptor_limit_is_reported_or_handled() {
    let home = TestHome::with_config("idle_exit = \"never\"\n");
    let limited = |limit: u32, args: &str| -> Ran {
        let mut shell = std::process::Command::new("/bin/sh");
        let adj = env!("CARGO_BIN_EXE_adj");
        shell
            .args(["-c", &format!("ulimit -n {limit}; exec {adj} {args}")])
            .env_clear();
        shell
            .env("ADJ_HOME", &home.home.dir)
            .env("HOME", home.work())
            .env("PATH", "/usr/bin:/bin")
            .current_dir(home.work());
        Mark::of(&home.home.dir).put_on(&mut shell);
        shell.output().expect("a shell").into()
    };
    for limit in [24, 64] {
        let ran = limited(limit, "run -a echo -w 'say x'");
        let told =
            format!("only {limit} open files are allowed here (ulimit -Hn), and the hub needs");
        assert!(ran.code == 6 && ran.err.contains(&told), "{limit}: {ran:?}");
    }
    // With the minimum of descriptors, runs wait for each other and all of them end.
    for name in ["one", "two", "three", "four"] {
        let ran = limited(
            96,
            &format!("run -a echo -n {name} --detach 'say x\nsleep 0.2\nsay y'"),
        );
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    for name in ["one", "two", "three", "four"] {
        assert_eq!(home.finished(name)["outcome"], "succeeded", "{name}");
    }
}

#[test]
fn connections_are_limited_and_silent_ones_make_way() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let home = TestHome::new();
    // Few descriptors, few connections.
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .args([
            "-c",
            &format!("ulimit -n 128; exec {} __hub", env!("CARGO_BIN_EXE_adj")),
        ])
        .env_clear();
    Mark::of(&home.home.dir).put_on(&mut shell);
    shell
        .env("ADJ_HOME", &home.home.dir)
        .env("HOME", home.work())
        .env("PATH", "/usr/bin:/bin");
    let mut hub = shell
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a hub");
    home.until("the hub answers", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    let connect = || UnixStream::connect(home.home.socket()).expect("connected");
    // Connections that send nothing, or half a head, do not use up the limit.
    let silent: Vec<_> = (0..60).map(|_| connect()).collect();
    silent.iter().for_each(|mut stream| {
        stream
            .write_all(b"POST /api/v1/hub HTTP/1.1\r\n")
            .unwrap_or(())
    });
    is_prompt(&home, &["ps"]);
    drop(silent);
    // Waiting connections do, and the next one is refused with an error.
    home.start("asker", "ask \"Go on?\"");
    home.until_status("asker", "waiting_parent_reply");
    let cursor = home
        .call(&adjutant_api::view::Wait::default(), "")
        .expect("a position")
        .cursor;
    let body = format!("{{\"after\":{cursor},\"wait_ms\":60000}}");
    // A concurrent connection may be refused before it can write.
    let waits = |mut stream: UnixStream| {
        write!(
            stream,
            "POST /api/v1/events HTTP/1.1\r\nhost: adj\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .is_ok()
        .then_some(stream)
    };
    let mut waiting = Vec::new();
    home.until("a call is refused", || {
        waiting.extend((0..16).map(|_| waits(connect())));
        // Without an error if too many others have just been refused too.
        home.adj(&["ps"])
            .err
            .contains("busy connections, the maximum")
            .then_some(())
    });
    drop(waiting);
    home.until("there are places again", || {
        (home.adj(&["ps"]).code == 0).then_some(())
    });
    // A connection that takes too long to send a call is closed.
    let mut slow = connect();
    slow.write_all(b"POST /api").expect("written");
    slow.set_read_timeout(Some(crate::support::PATIENCE))
        .expect("a limit");
    let mut reply = Vec::new();
    let closed = slow.read_to_end(&mut reply);
    assert!(
        closed.is_ok()
            || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset),
        "it was closed"
    );
    home.ok(&["stop"]);
    hub.wait().expect("it ends");
}

#[test]
fn hung_hub_is_reported_within_seconds() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let hub = home.hub_pid();
    let pid = i32::try_from(hub)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is stopped");
    let began = Instant::now();
    let ran = home.adj(&["ps"]);
    let took = began.elapsed();
    kill(hub);
    assert!(
        ran.code == 6 && ran.err.contains(&format!("(pid {hub}) does not answer")),
        "{ran:?}"
    );
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[test]
fn live_hub_rotates_its_log() {
    let home = TestHome::new();
    let log = home.home.hub_log();
    home.ok(&["ps"]);
    home.ok(&["stop"]);
    let almost = 8 * 1024 * 1024 - 50;
    std::fs::write(&log, vec![b'x'; almost]).expect("a file");
    home.ok(&["ps"]);
    let hub = home.hub_pid();
    home.until("it was rotated", || {
        home.ok(&["ps"]);
        log.with_extension("log.1").exists().then_some(())
    });
    assert!(log.metadata().expect("is there").len() < 1024 * 1024 && home.hub_pid() == hub);
}

#[test]
fn broken_configuration_is_read_once_per_state() {
    let home = TestHome::new();
    home.ok(&["ps"]);
    let config = home.home.dir.join("config.toml");
    std::fs::write(&config, "colour = 1\n").expect("a file");
    for _ in 0..2 {
        let ran = home.adj(&["ps"]);
        assert!(ran.err.contains("colour"), "{ran:?}");
    }
    std::fs::write(&config, "live_runs_max = 3\n").expect("a file");
    assert!(!home.adj(&["ps"]).err.contains("colour"));
    let view = home
        .call(&adjutant_api::view::GetHub {}, "")
        .expect("a hub");
    assert_eq!(view.live_runs_max, 3);
}
