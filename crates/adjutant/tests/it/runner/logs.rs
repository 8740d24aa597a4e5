//! Logs of runs on a runner, read through the hub.

use super::Pair;
use super::access::{post, token};
use adjutant_api::view::ReadLogs;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn log_is_read_while_the_run_works_and_after_its_end() {
    let pair = Pair::new("60s");
    pair.start(
        "far",
        "say the first line\nask \"Go on?\"\nsay the second line\ndone yes",
    );
    pair.until_status("far", "waiting_parent_reply");
    let working = pair.until("the log has the first line", || {
        let page = pair.hub.json(&["logs", "far"]);
        page["text"]
            .as_str()
            .is_some_and(|text| text.contains("the first line"))
            .then_some(page)
    });
    assert_eq!(
        (&working["ended"], &working["path"]),
        (&json!(false), &json!("")),
        "no path of another machine is named: {working}"
    );
    assert!(
        !working["text"]
            .as_str()
            .is_some_and(|text| text.contains("the second line")),
        "{working}"
    );
    pair.hub.ok(&["reply", "far", "yes"]);
    pair.hub.finished("far");
    let ended = pair.hub.json(&["logs", "far"]);
    assert_eq!(ended["ended"], json!(true), "{ended}");
    assert_eq!(
        ended["text"].as_str(),
        Some(pair.log_there("far", 1).as_str()),
        "{ended}"
    );
    // Parts of it, with the positions of the whole.
    let first = pair
        .hub
        .call(
            &ReadLogs {
                run: "far".to_owned(),
                after: Some(4),
                max_bytes: Some(5),
                ..ReadLogs::default()
            },
            "",
        )
        .expect("a page");
    let whole = pair.log_there("far", 1);
    assert_eq!(
        (first.text.as_str(), first.next, first.total),
        (&whole[4..9], 9, whole.len() as u64)
    );
    let found = pair.hub.ok(&["logs", "far", "--grep", "second"]);
    assert!(
        found.contains("the second line") && !found.contains("the first line"),
        "{found}"
    );
}

#[test]
fn log_is_followed_across_a_restart_of_the_runner() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say before\nask \"Go on?\"\nsay after\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    let followed = pair
        .hub
        .command(&["logs", "-f", "far"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("adj logs");
    pair.kill_runner();
    pair.start_runner();
    pair.hub.ok(&["reply", "far", "yes"]);
    pair.hub.finished("far");
    let output = followed.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (before, after) = (text.find("before"), text.find("after"));
    assert!(
        output.status.success() && before.is_some() && before < after,
        "{text}"
    );
    assert_eq!(
        (
            text.matches("before").count(),
            text.matches("after").count()
        ),
        (1, 1),
        "{text}"
    );
}

#[test]
fn log_of_an_unreachable_runner_is_an_error() {
    let mut pair = Pair::new("60s");
    pair.start("far", "say hello\nask \"Go on?\"\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    let shown = pair.hub.json(&["show", "far"]);
    assert_eq!(
        (
            &shown["log_path"],
            &shown["log_paths"],
            &shown["log_runner"]
        ),
        (&json!(""), &json!([]), &json!("gpu1")),
        "{shown}"
    );
    assert!(
        pair.hub
            .ok(&["show", "far"])
            .contains("on the runner gpu1: adj logs far")
    );
    pair.kill_runner();
    let file = format!("the file in its home: logs/{}.log", pair.hub.run_id("far"));
    let is_refused = |args: &[&str], problem: &str| {
        let output = pair.hub.adj(args);
        let text = format!("{}{}", output.out, output.err);
        assert_eq!(output.code, 6, "{args:?}: {text}");
        assert!(
            text.contains(&format!("the log of far is on the runner gpu1, {problem}")),
            "{args:?}: {text}"
        );
        assert!(
            text.contains("start adj runner on the machine of gpu1"),
            "{args:?}: {text}"
        );
        text
    };
    assert!(is_refused(&["logs", "far"], "which does not answer").contains(&file));
    pair.kill_hub();
    pair.revive_hub();
    is_refused(&["logs", "--raw", "far"], "which is not connected");
    let text = is_refused(&["logs", "--json", "far"], "which is not connected");
    assert!(
        text.contains("\"unreachable\"") && !text.contains("\"ended\""),
        "{text}"
    );
    // Over HTTP.
    let reader = token(&pair, "reader", "read-only");
    let (status, body) = post(&pair, &reader, "/api/v1/logs", &[], &json!({"run": "far"}));
    assert!(
        status == "503"
            && body.contains("\"unreachable\"")
            && body.contains("which is not connected"),
        "{status} {body}"
    );
    pair.start_runner();
    assert!(pair.hub.ok(&["logs", "far"]).contains("hello"));
}

#[test]
fn follow_of_a_log_on_a_lost_runner_fails() {
    let mut pair = Pair::new("10s");
    pair.start("far", "say before\nask \"Go on?\"\nsay after\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    pair.until("the log has a line", || {
        pair.hub
            .adj(&["logs", "far"])
            .out
            .contains("before")
            .then_some(())
    });
    let mut followed = pair
        .hub
        .command(&["logs", "-f", "far"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("adj logs");
    let mut lines = BufReader::new(followed.stdout.take().expect("a pipe")).lines();
    assert!(
        lines.any(|line| line.is_ok_and(|line| line.contains("before"))),
        "it has begun to follow"
    );
    pair.kill_runner();
    // While the run is live, a call that waits gets no output, and is not told that the log is
    // complete.
    let page = pair
        .hub
        .call(
            &ReadLogs {
                run: "far".to_owned(),
                after: Some(3),
                wait_ms: 1,
                ..ReadLogs::default()
            },
            "",
        )
        .expect("a page");
    assert!(!page.ended, "{page:?}");
    pair.until("the runner is lost", || {
        (pair.hub.show("far")["state"] == "stopped").then_some(())
    });
    let output = followed.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(6)
            && err.contains("the log of far is on the runner gpu1, which"),
        "{err}"
    );
    // The run can be resumed nevertheless.
    pair.hub.ok(&["resume", "--detach", "far"]);
}

#[test]
fn another_runner_cannot_answer_a_read() {
    let pair = Pair::new("60s");
    pair.start("far", "say hello\nask \"Go on?\"\ndone yes");
    pair.until_status("far", "waiting_parent_reply");
    pair.until("the log has a line", || {
        pair.hub
            .adj(&["logs", "far"])
            .out
            .contains("hello")
            .then_some(())
    });
    let (other, home) = (token(&pair, "other", "runner"), "00112233445566778899");
    let (_, joined) = post(
        &pair,
        &other,
        "/runner/join",
        &[],
        &json!({"home_id": home, "pools": ["gpu"], "slots": 1}),
    );
    let joined: Value = serde_json::from_str(&joined).expect("JSON");
    let own = [
        (
            "adj-runner-session",
            joined["session"].as_str().expect("a session"),
        ),
        ("adj-runner-home", home),
    ];
    // The runner cannot answer for a moment.
    pair.signal_runner(Signal::STOP);
    let reading = pair
        .hub
        .command(&["logs", "far"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("adj logs");
    let forged = json!({"run_id": "", "name": "", "text": "forged", "from": 0, "next": 6, "total": 6, "omitted": 0, "ended": true, "path": ""});
    for number in 0..20 {
        let (status, body) = post(
            &pair,
            &other,
            "/runner/log",
            &own,
            &json!({"number": number, "page": forged}),
        );
        assert!(
            status == "404" && body.contains("read of a log"),
            "{status} {body}"
        );
    }
    pair.signal_runner(Signal::CONT);
    let output = reading.wait_with_output().expect("it ends");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("forged"),
        "{output:?}"
    );
    pair.until("the runner answers", || {
        pair.hub
            .adj(&["logs", "far"])
            .out
            .contains("hello")
            .then_some(())
    });
}
