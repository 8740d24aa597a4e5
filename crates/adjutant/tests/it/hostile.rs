//! Files that a run's tree has replaced, and a home that was prepared: one bad run settles and harms no
//! other, and the hub always answers.

use crate::support::{TestHome, kill, lock_pid};
use adjutant::link::AttemptDir;
use adjutant::logs::{log_path, prompt_path};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

/// Every user but root gets this, and a process that was detached lives on in it.
const SUBREAPER: &str = "containment = \"subreaper\"\n";
/// A run with a process that outlives it.
const DETACHES: &str = "spawn setsid ignore-term\nsay ready\nhang";
/// Far less than a hub that hangs would take.
const PROMPT: Duration = Duration::from_secs(10);

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

fn remove(path: &Path) {
    if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).expect("it can be removed");
    }
}

/// Starts a run that detaches a process, lets `plant` change its files, then kills guard and supervisor.
fn seize(home: &TestHome, name: &str, plant: impl FnOnce(&AttemptDir)) -> (String, AttemptDir) {
    home.start(name, DETACHES);
    home.until_log(name, "ready");
    let (id, dir) = (home.run_id(name), home.attempt_dir(name));
    let (guard, supervisor) = (lock_pid(&dir.guard_lock()), lock_pid(&dir.supervisor_lock()));
    plant(&dir);
    kill(guard);
    kill(supervisor);
    (id, dir)
}

/// Waits until a run is broken and nothing of it is left, and returns what is said about it.
fn broken(home: &TestHome, name: &str, id: &str) -> String {
    let view = home.until(&format!("{name} is settled"), || {
        let view = home.show(name);
        (view["state"] == "stopped" || view["state"] == "finished").then_some(view)
    });
    assert_ne!(view["outcome"], "succeeded", "{view}");
    home.until(&format!("nothing of {name} is left"), || home.processes_of(id).is_empty().then_some(()));
    view["reason"].as_str().expect("a reason").to_owned()
}

fn is_prompt(home: &TestHome, args: &[&str]) -> Value {
    let began = Instant::now();
    let data = home.json(args);
    assert!(began.elapsed() < PROMPT, "{args:?} took {:?}", began.elapsed());
    data
}

#[test]
fn replaced_facts_file_harms_only_its_run() {
    let home = TestHome::with_config(SUBREAPER);
    let plant_fifo = |dir: &AttemptDir| {
        remove(&dir.facts());
        fifo(&dir.facts());
    };
    // Below a living hub.
    let (first, _) = seize(&home, "first", plant_fifo);
    is_prompt(&home, &["ps"]);
    let reason = broken(&home, "first", &first);
    assert!(reason.contains("facts.jsonl is a FIFO, not a regular file"), "{reason}");
    // Before a hub starts: two of them froze every hub after it.
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
        let keepers = [lock_pid(&dir.guard_lock()), lock_pid(&dir.supervisor_lock())];
        match *name {
            "zero" => {
                remove(&dir.facts());
                symlink("/dev/zero", dir.facts()).expect("a link");
            }
            "huge" => std::fs::OpenOptions::new().append(true).open(dir.facts()).and_then(|file| file.set_len(1 << 36)).expect("a sparse file"),
            _ => plant_fifo(dir),
        }
        keepers.into_iter().for_each(kill);
    }
    is_prompt(&home, &["ps"]);
    for (name, id, _) in &ids {
        let reason = broken(&home, name, id);
        assert!(reason.contains(if *name == "huge" { "is longer than" } else { "facts.jsonl is a" }), "{name}: {reason}");
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
    let readers: Vec<_> =
        (0..20).map(|_| home.command(&["logs", "ended"]).stderr(std::process::Stdio::piped()).spawn().expect("adj starts")).collect();
    for reader in readers {
        let ran = reader.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && told.contains("log.json is a FIFO"), "{told}");
    }
    home.start("other", "say unharmed");
    assert_eq!(home.finished("other")["outcome"], "succeeded");
}

#[test]
fn replaced_lock_or_marker_settles() {
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
            assert!(reason.contains(&format!("{which} is a")), "{name}: {reason}");
        }
    }
}

/// Without their locks, guard and supervisor cannot be waited for: the next hub ends them.
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
    home.until("its copy is rendered", || meta.symlink_metadata().is_err().then_some(()));
    assert_eq!(std::fs::read_to_string(&secret).expect("text"), "untouched");

    let (id, dir) = seize(&home, "elsewhere", |_| ());
    broken(&home, "elsewhere", &id);
    symlink(home.work(), dir.0.with_file_name("2")).expect("a link");
    home.ok(&["resume", "elsewhere"]);
    let view = home.finished("elsewhere");
    assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("2 is a symbolic link, not a directory")), "{view}");
}
