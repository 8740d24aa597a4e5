//! Logs of runs on a runner, read through the hub.

use super::Pair;
use adjutant::view::ReadLogs;
use serde_json::json;
use std::process::Stdio;

#[test]
fn log_is_read_while_the_run_works_and_after_its_end() {
    let pair = Pair::new("60s");
    pair.start("far", "say the first line\nask \"Go on?\"\nsay the second line\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    let working = pair.until("the log has the first line", || {
        let page = pair.hub.json(&["logs", "far"]);
        page["text"].as_str().is_some_and(|text| text.contains("the first line")).then_some(page)
    });
    assert_eq!((&working["ended"], &working["path"]), (&json!(false), &json!("")), "no path of another machine is named: {working}");
    assert!(!working["text"].as_str().is_some_and(|text| text.contains("the second line")), "{working}");
    pair.hub.ok(&["reply", "far", "yes"]);
    pair.hub.finished("far");
    let ended = pair.hub.json(&["logs", "far"]);
    assert_eq!(ended["ended"], json!(true), "{ended}");
    assert_eq!(ended["text"].as_str(), Some(pair.log_there("far", 1).as_str()), "{ended}");
    // Parts of it, with the positions of the whole.
    let first = pair.hub.call(&ReadLogs { run: "far".to_owned(), after: Some(4), max_bytes: Some(5), ..ReadLogs::default() }, "").expect("a page");
    let whole = pair.log_there("far", 1);
    assert_eq!((first.text.as_str(), first.next, first.total), (&whole[4..9], 9, whole.len() as u64));
    let found = pair.hub.ok(&["logs", "far", "--grep", "second"]);
    assert!(found.contains("the second line") && !found.contains("the first line"), "{found}");
}

#[test]
fn log_is_followed_across_a_restart_of_the_runner() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say before\nask \"Go on?\"\nsay after\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    let followed = pair.hub.command(&["logs", "-f", "far"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("adj logs");
    pair.kill_runner();
    pair.start_runner();
    pair.hub.ok(&["reply", "far", "yes"]);
    pair.hub.finished("far");
    let output = followed.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (before, after) = (text.find("before"), text.find("after"));
    assert!(output.status.success() && before.is_some() && before < after, "{text}");
    assert_eq!((text.matches("before").count(), text.matches("after").count()), (1, 1), "{text}");
}

#[test]
fn log_of_a_runner_that_is_gone_is_named() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say hello\ndone yes");
    pair.hub.finished("far");
    pair.kill_runner();
    let log = pair.hub.ok(&["logs", "far"]);
    assert!(log.contains("the runner gpu1 does not answer; the log is in its home: logs/"), "{log}");
    pair.kill_hub();
    pair.revive_hub();
    let log = pair.hub.ok(&["logs", "far"]);
    assert!(log.contains("the runner gpu1 is not connected; the log is in its home: logs/"), "{log}");
    pair.start_runner();
    let log = pair.hub.ok(&["logs", "far"]);
    assert!(log.contains("hello"), "{log}");
}
