//! A bucket on a server with the API of S3.

use super::server::{BUCKET, KEY_ID, S3, SECRET, write_keys};
use super::{LONG, files_below, hub_that_dies, is_moved, until_moved};
use crate::support::{TestHome, is_root};
use adjutant_api::view::ReadLogs;

/// Output of several parts of an upload.
const LARGE: &str = "flood 20000000\ndone yes";

#[test]
fn bucket_has_the_logs_and_is_read_in_ranges() {
    let Some(server) = S3::start() else { return };
    let home = server.home(SECRET);
    home.start("large", LARGE);
    assert_eq!(home.finished("large")["outcome"], "succeeded");
    until_moved(&home, "large", 1);
    let objects = files_below(
        &server
            .dir()
            .join(BUCKET)
            .join("adj")
            .join(home.run_id("large")),
    );
    assert!(
        objects.iter().any(|file| file.ends_with("index.json")),
        "{objects:?}"
    );
    let text = objects
        .iter()
        .find(|file| file.contains("/text-") && !file.contains("times"))
        .expect("the log");
    let whole = std::fs::read_to_string(text).expect("the log");
    assert!(
        whole.len() > 15_000_000 && home.log("large").trim_end() == whole.trim_end(),
        "{}",
        whole.len()
    );
    let call = ReadLogs {
        run: "large".to_owned(),
        after: Some(10_000_003),
        max_bytes: Some(70_000),
        ..ReadLogs::default()
    };
    let page = home.call(&call, "").expect("a page");
    assert_eq!(
        (page.from, page.text.as_str()),
        (10_000_003, &whole[10_000_003..10_070_003])
    );
    // The credentials are shown nowhere.
    let shown = home.ok(&["config", "show"])
        + &home.adj(&["doctor"]).out
        + &std::fs::read_to_string(home.home.hub_log()).expect("a log");
    assert!(!shown.contains(SECRET), "{shown}");
    home.ok(&["rm", "large"]);
    assert!(
        files_below(&server.dir().join(BUCKET))
            .iter()
            .all(|file| file.contains("/.")),
        "{:?}",
        files_below(&server.dir().join(BUCKET))
    );
}

#[test]
fn upload_continues_after_the_server_was_killed_in_the_middle() {
    let Some(mut server) = S3::start() else {
        return;
    };
    let home = server.home(SECRET);
    home.start("large", LARGE);
    assert_eq!(home.finished("large")["outcome"], "succeeded");
    // Parts of an unfinished upload are hidden files.
    home.until("parts are at the server", || {
        files_below(server.dir())
            .iter()
            .any(|file| file.contains("/.upload"))
            .then_some(())
    });
    server.kill();
    let id = home.run_id("large");
    assert!(!is_moved(&home, &id, 1));
    assert!(
        home.log("large").len() > 15_000_000,
        "the log is still read here"
    );
    server.resume();
    home.until("the logs are in the log store", || {
        is_moved(&home, &id, 1).then_some(())
    });
    assert!(home.log("large").len() > 15_000_000);
}

#[test]
fn next_hub_continues_an_upload_to_a_bucket() {
    for failpoint in ["logs.object_stored", "logs.index_stored", "logs.moved"] {
        let Some(server) = S3::start() else { return };
        let home = server.home(SECRET);
        let mut hub = hub_that_dies(&home, failpoint);
        home.start("long", LONG);
        assert!(
            !hub.wait().expect("it dies").success() && home.work().join("fired").exists(),
            "{failpoint}"
        );
        let log = home.log("long");
        until_moved(&home, "long", 1);
        assert!(
            home.log("long") == log && log.len() > 2_000_000,
            "{failpoint}"
        );
    }
}

#[test]
fn wrong_credentials_leave_the_logs_here() {
    let Some(server) = S3::start() else { return };
    let home = server.home("wrong");
    home.start("small", "say hello\ndone yes");
    assert_eq!(home.finished("small")["outcome"], "succeeded");
    let log = || std::fs::read_to_string(home.home.hub_log()).expect("a log");
    home.until("the refusal is logged", || {
        log().contains("logs cannot be moved").then_some(())
    });
    assert!(log().contains("access is denied"), "{}", log());
    assert!(
        home.log("small").contains("hello") && files_below(&server.dir().join(BUCKET)).is_empty()
    );
    write_keys(&home, SECRET);
    home.ok(&["stop"]);
    home.ok(&["ps"]);
    until_moved(&home, "small", 1);
    assert!(home.log("small").contains("hello"));
}

#[test]
fn credentials_of_the_environment_reach_only_the_hub() {
    if !is_root("this reads the environment of the hub") {
        return;
    }
    let Some(server) = S3::start() else { return };
    let home = TestHome::with_config(&server.setting());
    let ran = home
        .command(&["ps"])
        .env("AWS_ACCESS_KEY_ID", KEY_ID)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .output()
        .expect("adj starts");
    assert!(ran.status.success(), "{ran:?}");
    home.start("asker", "ask \"Go on?\"\ndone yes");
    home.until_status("asker", "waiting_parent_reply");
    let hub = home.hub_pid();
    let has_secret = |pid: u32| {
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())
            .contains(SECRET)
    };
    assert!(has_secret(hub));
    let others: Vec<(u32, String)> = home
        .processes()
        .into_iter()
        .filter(|(pid, _)| *pid != hub)
        .collect();
    assert!(
        others.len() >= 3 && others.iter().all(|(pid, _)| !has_secret(*pid)),
        "{others:?}"
    );
    home.ok(&["reply", "asker", "yes"]);
    home.finished("asker");
    until_moved(&home, "asker", 1);
    assert!(home.log("asker").contains("answer: yes"));
}
