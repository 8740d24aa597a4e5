//! The log store: logs of ended attempts in a directory or at a provider.

mod buckets;
mod server;

use crate::support::{TestHome, kill, lock_pid};
use adjutant_api::view::{ReadLogs, ReadResult};
use adjutant_home::logs::kept::AttemptLogs;
use adjutant_home::logs::log_path;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Output of several parts, of which the log keeps all.
const LONG: &str = "flood 3000000\ndone yes";

/// Returns a home with a directory as its log store.
fn home_with_directory() -> (TestHome, tempfile::TempDir) {
    let store = tempfile::Builder::new()
        .prefix("adj-logs-")
        .tempdir()
        .expect("a directory");
    (TestHome::with_config(&setting(store.path())), store)
}

pub fn setting(dir: &Path) -> String {
    format!("log_store = \"file://{}\"\n", dir.display())
}

fn is_moved(home: &TestHome, run_id: &str, attempt: u32) -> bool {
    let logs = AttemptLogs {
        home: home.home.dir.clone(),
        run_id: run_id.to_owned(),
        attempt,
    };
    logs.moved().expect("a record").is_some() && !log_path(&home.home.dir, run_id, attempt).exists()
}

/// Waits until the logs of an attempt are only in the log store.
pub fn until_moved(home: &TestHome, run: &str, attempt: u32) {
    let id = home.run_id(run);
    home.until("the logs are in the log store", || {
        is_moved(home, &id, attempt).then_some(())
    });
}

/// Lists the files below a directory.
fn files_below(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found.sort();
    found
}

#[test]
fn logs_are_moved_and_read_from_the_log_store() {
    let (home, store) = home_with_directory();
    home.start("long", LONG);
    home.start("small", "line 20000\ndone yes");
    for run in ["long", "small"] {
        assert_eq!(home.finished(run)["outcome"], "succeeded");
        until_moved(&home, run, 1);
    }
    let id = home.run_id("long");
    let text = files_below(&store.path().join(&id))
        .into_iter()
        .find(|file| file.contains("/text-") && !file.contains("times"))
        .expect("an object");
    let whole = std::fs::read_to_string(text).expect("the log");
    assert!(whole.len() > 2_000_000, "{}", whole.len());
    assert!(home.log("long").trim_end() == whole.trim_end());
    // Parts of it are the same as those of a file.
    let read = |call: ReadLogs| {
        home.call(
            &ReadLogs {
                run: "long".to_owned(),
                ..call
            },
            "",
        )
        .expect("a page")
    };
    let page = read(ReadLogs {
        after: Some(1_000_001),
        max_bytes: Some(5_000),
        times: true,
        ..ReadLogs::default()
    });
    assert_eq!(
        (page.from, page.next, page.text.as_str()),
        (1_000_001, 1_005_001, &whole[1_000_001..1_005_001])
    );
    assert!(
        page.total == whole.len() as u64
            && page.path.is_empty()
            && !page.ended
            && page.times.is_some(),
        "{}",
        page.total
    );
    let last = read(ReadLogs {
        max_bytes: Some(100),
        ..ReadLogs::default()
    });
    assert!(last.ended && whole.ends_with(&last.text), "{last:?}");
    let found = home.ok(&["logs", "--grep", "succeeded", "long"]);
    assert_eq!(
        found.lines().count(),
        whole
            .lines()
            .filter(|line| line.contains("succeeded"))
            .count()
    );
    assert_eq!(home.show("long")["log_path"], json!(""));
    // The result stays in the home, as a copy.
    let result = home
        .call(
            &ReadResult {
                run: "small".to_owned(),
            },
            "",
        )
        .expect("a result");
    assert!(
        !result.is_cut && result.result.len() >= 20_000,
        "{} bytes",
        result.result.len()
    );
    // Objects are removed with their run.
    home.ok(&["rm", "long"]);
    assert!(files_below(&store.path().join(&id)).is_empty());
    assert!(!files_below(&store.path().join(home.run_id("small"))).is_empty());
}

#[test]
fn log_spans_attempts_in_the_log_store_and_the_home() {
    let (home, _store) = home_with_directory();
    home.start(
        "two",
        "say first line\nhang\nresume-here\nsay second line\nhang",
    );
    home.until_log("two", "first line");
    home.ok(&["pause", "two"]);
    home.until_status("two", "stopped");
    until_moved(&home, "two", 1);
    assert!(home.log("two").contains("first line"));
    home.ok(&["resume", "--detach", "two"]);
    let log = home.until_log("two", "second line");
    assert!(log.find("first line") < log.find("second line"), "{log}");
    let page = home
        .call(
            &ReadLogs {
                run: "two".to_owned(),
                after: Some(0),
                ..ReadLogs::default()
            },
            "",
        )
        .expect("a page");
    home.ok(&["cancel", "two"]);
    home.finished("two");
    until_moved(&home, "two", 2);
    let moved = home
        .call(
            &ReadLogs {
                run: "two".to_owned(),
                after: Some(0),
                ..ReadLogs::default()
            },
            "",
        )
        .expect("a page");
    assert!(
        moved.text.starts_with(&page.text) && moved.ended,
        "{moved:?}"
    );
}

#[test]
fn follower_continues_while_logs_are_moved() {
    let (home, _store) = home_with_directory();
    home.start("long", LONG);
    let followed = home.ok(&["logs", "-f", "long"]);
    home.finished("long");
    until_moved(&home, "long", 1);
    assert!(home.log("long").trim_end() == followed.trim_end());
}

/// Starts a hub that dies at a failpoint.
fn hub_that_dies(home: &TestHome, failpoint: &str) -> std::process::Child {
    home.ok(&["stop"]);
    let fired = home.work().join("fired");
    let mut hub = home.command(&["__hub"]);
    hub.env("ADJ_FAILPOINT", format!("{failpoint}={}", fired.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let hub = hub.spawn().expect("a hub");
    home.until("the hub takes calls", || {
        home.call(&adjutant_api::view::GetHub {}, "").ok()
    });
    hub
}

#[test]
fn next_hub_moves_the_logs_of_a_killed_one() {
    for failpoint in ["logs.object_stored", "logs.index_stored", "logs.moved"] {
        let (home, store) = home_with_directory();
        let mut hub = hub_that_dies(&home, failpoint);
        home.start("long", LONG);
        assert!(
            !hub.wait().expect("it dies").success() && home.work().join("fired").exists(),
            "{failpoint}"
        );
        assert_eq!(home.finished("long")["outcome"], "succeeded", "{failpoint}");
        let log = home.log("long");
        assert!(log.len() > 2_000_000, "{failpoint}: {} bytes", log.len());
        until_moved(&home, "long", 1);
        assert!(home.log("long") == log, "{failpoint}");
        let objects = files_below(&store.path().join(home.run_id("long")));
        assert_eq!(
            objects
                .iter()
                .filter(|file| file.contains("/text-") && !file.contains("times"))
                .count(),
            1,
            "{objects:?}"
        );
    }
}

#[test]
fn runs_continue_without_the_log_store_and_logs_stay() {
    let (home, store) = home_with_directory();
    home.start("before", "say earlier\ndone yes");
    home.finished("before");
    until_moved(&home, "before", 1);
    let aside = store.path().with_extension("aside");
    std::fs::rename(store.path(), &aside).expect("the directory is moved");
    home.ok(&["stop"]);
    home.start("during", "say meanwhile\ndone yes");
    assert_eq!(home.finished("during")["outcome"], "succeeded");
    assert!(home.log("during").contains("meanwhile"));
    let refused = home.adj(&["logs", "before"]);
    assert!(
        refused.code == 6
            && refused.err.contains("does not exist")
            && refused.err.contains("adj doctor"),
        "{refused:?}"
    );
    // A run is not removed while its objects would remain.
    let kept = home.adj(&["rm", "before"]);
    assert!(
        kept.code != 0 || (kept.out.clone() + &kept.err).contains("--force"),
        "{kept:?}"
    );
    assert!(home.adj(&["show", "before"]).code == 0);
    kill(home.hub_pid());
    std::fs::rename(&aside, store.path()).expect("the directory is back");
    home.until("the hub is dead", || {
        home.adj(&["ps"]).code.eq(&0).then_some(())
    });
    until_moved(&home, "during", 1);
    assert!(home.log("before").contains("earlier") && home.log("during").contains("meanwhile"));
}

#[test]
fn missing_directory_is_not_created_again() {
    let (home, store) = home_with_directory();
    home.start("before", "say earlier\ndone yes");
    home.finished("before");
    until_moved(&home, "before", 1);
    let aside = store.path().with_extension("aside");
    std::fs::rename(store.path(), &aside).expect("the directory is moved");
    home.start("during", "say meanwhile\ndone yes");
    home.finished("during");
    home.until("the problem is shown", || {
        home.adj(&["doctor"])
            .out
            .contains("logs cannot be moved")
            .then_some(())
    });
    assert!(!store.path().exists() && home.log("during").contains("meanwhile"));
    let refused = home.adj(&["logs", "before"]);
    assert!(
        refused.code == 6 && refused.err.contains("is gone"),
        "{refused:?}"
    );
    std::fs::rename(&aside, store.path()).expect("the directory is back");
    until_moved(&home, "during", 1);
    assert!(home.log("before").contains("earlier"));
}

#[test]
fn logs_of_an_attempt_whose_supervisor_has_died_are_moved() {
    let (home, _store) = home_with_directory();
    home.start("dies", "say there\nhang");
    home.until_log("dies", "there");
    let dir = home.attempt_dir("dies");
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        kill(lock_pid(&lock));
    }
    until_moved(&home, "dies", 1);
    assert!(home.log("dies").contains("there"));
}

#[test]
fn unusable_log_store_is_refused_when_the_hub_starts() {
    let home = TestHome::with_config("log_store = \"s3://bucket?secret=canary\"\n");
    for args in [["ps", "-a"], ["config", "show"]] {
        let refused = home.adj(&args);
        assert!(
            refused.code != 0
                && refused.err.contains("log_store")
                && !refused.err.contains("canary"),
            "{refused:?}"
        );
    }
    let config = "log_store = \"s3://bucket/logs?endpoint=http://127.0.0.1:9\"\nlog_store_credentials = \"keys\"\n";
    let home = TestHome::with_config(config);
    std::fs::write(home.home.dir.join("keys"), "AWS_ACCESS_KEY_ID=canary\n").expect("a file");
    let refused = home.adj(&["ps"]);
    assert!(
        refused.code != 0 && refused.err.contains("chmod 600") && !refused.err.contains("canary"),
        "{refused:?}"
    );
    let shown = home.json(&["config", "show"]);
    assert_eq!(
        shown["log_store"],
        json!("s3://bucket/logs?endpoint=http://127.0.0.1:9")
    );
}

/// A server that accepts connections and answers nothing. Sends the beginning of each request.
fn silent_server() -> (String, mpsc::Receiver<(String, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let setting = format!(
        "log_store = \"s3://logs/adj?endpoint=http://{}\"\n",
        listener.local_addr().expect("an address")
    );
    let (send, requests) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = [0; 2048];
            let read = stream.read(&mut head).unwrap_or(0);
            if send
                .send((String::from_utf8_lossy(&head[..read]).into_owned(), stream))
                .is_err()
            {
                return;
            }
        }
    });
    (setting + "log_store_credentials = \"keys\"\n", requests)
}

#[test]
fn logs_of_several_attempts_are_moved_at_a_time() {
    let (setting, requests) = silent_server();
    let home = TestHome::with_config(&setting);
    server::write_keys(&home, "secret");
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        home.start(name, "done yes");
        home.finished(name);
    }
    let ids = names.map(|name| home.run_id(name));
    let mut open = Vec::new();
    let mut moving = BTreeSet::new();
    while moving.len() < 4 {
        let (head, stream) = requests
            .recv_timeout(Duration::from_secs(60))
            .expect("a request");
        moving.extend(ids.iter().filter(|id| head.contains(*id)));
        open.push(stream);
    }
    // The check of the log store ends although the server answers nothing.
    let began = Instant::now();
    let doctor = home.adj(&["doctor"]);
    assert!(
        doctor.code == 1
            && doctor.out.contains("no reply in 8s")
            && began.elapsed() < Duration::from_secs(60),
        "{doctor:?}"
    );
    open.extend(
        requests
            .try_iter()
            .inspect(|(head, _)| assert!(!head.contains(&ids[4]), "no fifth is begun: {head}"))
            .map(|(_, stream)| stream),
    );
    drop(open);
}

#[test]
fn doctor_tries_the_log_store() {
    let (home, store) = home_with_directory();
    home.ok(&["ps"]);
    let doctor = home.adj(&["doctor"]).out;
    assert!(
        doctor.contains("✓ log store    OK, ")
            && doctor.contains(&format!("file://{}", store.path().display())),
        "{doctor}"
    );
    assert!(
        files_below(store.path()).is_empty(),
        "nothing of the check is left"
    );
    // No log was moved yet, so nothing has failed.
    let aside = store.path().with_extension("aside");
    std::fs::rename(store.path(), &aside).expect("the directory is moved");
    let doctor = home.adj(&["doctor"]);
    assert!(
        doctor.code == 1 && doctor.out.contains("✗ log store") && doctor.out.contains("is gone"),
        "{doctor:?}"
    );
    std::fs::rename(&aside, store.path()).expect("the directory is back");
    assert!(home.adj(&["doctor"]).out.contains("✓ log store"));
}

#[test]
fn error_names_the_log_store_that_has_the_logs() {
    let (home, store) = home_with_directory();
    home.start("small", "say hello\ndone yes");
    home.finished("small");
    until_moved(&home, "small", 1);
    let other = tempfile::Builder::new()
        .prefix("adj-logs-")
        .tempdir()
        .expect("a directory");
    for config in [setting(other.path()), String::new()] {
        home.ok(&["stop"]);
        std::fs::write(home.home.dir.join("config.toml"), config).expect("written");
        let refused = home.adj(&["logs", "small"]);
        assert!(
            refused.code == 6
                && refused
                    .err
                    .contains(&format!("were moved to file://{}", store.path().display())),
            "{refused:?}"
        );
    }
}
