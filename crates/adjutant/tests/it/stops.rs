//! A run that stops itself: what it can still finish, and how it resumes.

use crate::signals::home_with;
use crate::support::TestHome;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Creates a home whose scripted agent has this grace period.
fn home_with_grace(grace: &str) -> TestHome {
    TestHome::with_config(&format!(
        "[agents.echo]\nharness = \"echo\"\ngrace = \"{grace}\"\n"
    ))
}

fn stop(form: &str) -> String {
    let fields = json!({"stop_reason": "blocker", "blocker_type": "missing_info", "details": "no direction", "state_snapshot": "at 3 of 7"});
    if form == "tool" {
        format!("tool stop_work {fields}\n")
    } else {
        format!("block STOP_WORK {fields}\n")
    }
}

fn question(form: &str) -> String {
    if form == "tool" {
        "tool ask_parent {\"question\": \"left or right?\", \"wait_s\": 0}\n".to_owned()
    } else {
        format!(
            "block CLARIFICATION_NEEDED {}\n",
            json!({"reason": "left or right?"})
        )
    }
}

fn delegation(form: &str) -> String {
    let task = "\"---\\ndone set up\" [blocks]";
    if form == "tool" {
        format!("delegate {task} [nowait]\n")
    } else {
        format!("delegate-block {task}\n")
    }
}

/// Returns the prompt of attempt `n` of a run.
fn prompt(home: &TestHome, run: &str, n: u32) -> String {
    let path = home
        .home
        .logs_dir()
        .join(format!("{}.{n}.prompt.md", home.run_id(run)));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Asserts that the run has resumed exactly once, with its state, and has finished. Returns its
/// prompt.
fn resumed_once(home: &TestHome, run: &str) -> String {
    let view = home.finished(run);
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{view}"
    );
    let prompt = prompt(home, run, 2);
    assert!(
        prompt.contains("## STATE RESTORATION") && prompt.contains("at 3 of 7"),
        "{prompt}"
    );
    prompt
}

/// Returns every order of a stop and a request, by block and by tool.
fn orders(request: fn(&str) -> String) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for form in ["block", "tool"] {
        for other in ["block", "tool"] {
            all.push((
                format!("{form}-before-{other}"),
                format!("{}{}", request(form), stop(other)),
            ));
            all.push((
                format!("{form}-after-{other}"),
                format!("{}{}", stop(other), request(form)),
            ));
        }
    }
    all
}

#[test]
fn stop_with_an_open_question_resumes_with_the_answer() {
    let home = home_with_grace("8s");
    for (name, script) in orders(question) {
        home.start(&name, &format!("{script}fail 0\nresume-here\ndone fine"));
        let view = home.until_status(&name, "stopped");
        assert_eq!(
            (&view["reason"], &view["checkpoint"]["state_snapshot"]),
            (&json!("blocker"), &json!("at 3 of 7")),
            "{name}: {view}"
        );
        assert_eq!(
            home.adj(&["wait", &name]).code,
            3,
            "{name}: the question needs attention"
        );
        home.ok(&["reply", &name, "left"]);
        let prompt = resumed_once(&home, &name);
        assert!(
            prompt.contains("## CLARIFICATION RESPONSE") && prompt.contains("A: left"),
            "{name}: {prompt}"
        );
    }
}

#[test]
fn stop_with_a_blocking_delegation_resumes_with_its_result() {
    let home = home_with_grace("8s");
    for (name, script) in orders(delegation) {
        home.start(&name, &format!("{script}fail 0\nresume-here\ndone fine"));
        assert_eq!(
            home.until_status(&name, "stopped")["reason"],
            "blocker",
            "{name}"
        );
        home.ok(&["approve", &name]);
        let prompt = resumed_once(&home, &name);
        assert!(
            prompt.contains("## DELEGATION APPROVED")
                && prompt.contains("Result: succeeded: set up"),
            "{name}: {prompt}"
        );
    }
    home.start(
        "denied",
        &format!(
            "{}{}fail 0\nresume-here\ndone fine",
            delegation("block"),
            stop("block")
        ),
    );
    home.until_status("denied", "stopped");
    home.ok(&["deny", "denied", "too early"]);
    let prompt = resumed_once(&home, "denied");
    assert!(
        prompt.contains("## DELEGATION DENIED") && prompt.contains("Reason: too early"),
        "{prompt}"
    );
}

#[test]
fn stop_while_its_child_works_resumes_when_the_child_ends() {
    let home = home_with_grace("8s");
    let child = "delegate \"---\\nask \\\"which?\\\"\\ndone set up\" [blocks] [nowait]";
    home.start(
        "held",
        &format!(
            "{child}\nask \"stop now?\"\n{}fail 0\nresume-here\ndone fine",
            stop("tool")
        ),
    );
    home.until("it has asked", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    home.ok(&["approve", "Q1"]);
    home.until("the child asks", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    home.ok(&["reply", "Q2", "yes"]);
    home.until_status("held", "stopped");
    home.ok(&["reply", "Q3", "this"]);
    assert!(resumed_once(&home, "held").contains("Result: succeeded: set up"));
}

#[test]
fn stop_with_an_open_question_resumes_at_its_expiry() {
    let home = home_with_grace("8s");
    let ask = "tool ask_parent {\"question\": \"left or right?\", \"wait_s\": 0, \"expires_s\": 2}";
    home.start(
        "alone",
        &format!("{ask}\n{}fail 0\nresume-here\ndone fine", stop("tool")),
    );
    let prompt = resumed_once(&home, "alone");
    assert!(prompt.contains("Nobody answered in time"), "{prompt}");
}

#[test]
fn answer_within_the_grace_resumes_the_run_once() {
    let home = home_with_grace("4s");
    home.start(
        "hasty",
        &format!(
            "{}{}hang\nresume-here\ndone fine",
            question("tool"),
            stop("tool")
        ),
    );
    home.until("it stops", || {
        (home.show("hasty")["state"] == "stopping").then_some(())
    });
    home.ok(&["reply", "hasty", "right"]);
    assert_eq!(
        home.show("hasty")["state"],
        "stopping",
        "the answer came before its process has ended"
    );
    assert!(resumed_once(&home, "hasty").contains("A: right"));
}

#[test]
fn unread_answer_resumes_a_stopped_run() {
    let home = home_with_grace("8s");
    home.start(
        "deaf",
        &format!(
            "{}ask \"stop now?\"\n{}fail 0\nresume-here\ndone fine",
            question("tool"),
            stop("tool")
        ),
    );
    home.until("it has asked", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    home.ok(&["reply", "Q1", "left"]);
    home.ok(&["reply", "Q2", "yes"]);
    assert!(resumed_once(&home, "deaf").contains("A: left"));
}

#[test]
fn plain_stop_stays_stopped() {
    let home = home_with_grace("8s");
    // Both questions were settled before the stop, so the run waits for neither.
    home.start(
        "plain",
        &format!(
            "ask \"go on?\"\nask \"which?\" [nonblocking]\n{}fail 0\nresume-here\ndone fine",
            stop("tool")
        ),
    );
    home.until("it has asked", || {
        (home.adj(&["reply", "plain", "yes"]).code == 0).then_some(())
    });
    home.until_status("plain", "stopped");
    home.ok(&["reply", "plain", "this one"]);
    let view = home.show("plain");
    assert_eq!(
        (&view["status"], &view["reason"], &view["attempt"]),
        (&json!("stopped"), &json!("blocker"), &json!(1)),
        "{view}"
    );
    home.ok(&["resume", "plain", "it is there"]);
    let prompt = resumed_once(&home, "plain");
    assert!(
        prompt.contains("Resolution: it is there") && prompt.contains("A: this one"),
        "{prompt}"
    );
}

#[test]
fn stopping_run_finishes_its_step() {
    let home = home_with(
        "printf '[STOP_WORK]\\nagent_id: %s\\nstop_reason: blocker\\ndetails: x\\n[/STOP_WORK]\\n' \"$id\"\nsleep 0.3\necho saved > half.md\n",
    );
    home.start_agent("scribe", "block", "go");
    let view = home.until_status("block", "stopped");
    assert_eq!(
        (&view["exit_code"], &view["reason"]),
        (&json!(0), &json!("blocker")),
        "{view}"
    );
    assert!(home.work().join("half.md").exists());

    let home = home_with_grace("8s");
    home.start(
        "tool",
        &format!(
            "{}sleep 0.3\nwrite half.md saved\nsay said last",
            stop("tool")
        ),
    );
    let view = home.until_status("tool", "stopped");
    assert_eq!(view["exit_code"], 0, "{view}");
    assert!(
        view["result"]
            .as_str()
            .is_some_and(|result| result.ends_with("said last")),
        "{view}"
    );
    assert!(home.work().join("half.md").exists());
    assert!(
        home.log("tool").contains("end your turn"),
        "its own call has its reply: {}",
        home.log("tool")
    );
}

#[test]
fn stopping_run_is_ended_after_its_grace() {
    let home = home_with_grace("1s");
    home.start("stays", &format!("{}hang", stop("block")));
    let view = home.until_status("stays", "stopped");
    assert_eq!(
        (&view["exit_code"], &view["reason"]),
        (&json!(143), &json!("blocker")),
        "{view}"
    );
}

#[test]
fn cancel_and_time_limit_apply_within_the_grace() {
    let home = home_with_grace("300s");
    let stopping = |name: &str| {
        home.until("it stops", || {
            (home.show(name)["state"] == "stopping").then_some(())
        })
    };
    let begun = Instant::now();
    home.start("cancelled", &format!("{}hang", stop("tool")));
    stopping("cancelled");
    home.ok(&["cancel", "cancelled"]);
    assert_eq!(home.finished("cancelled")["outcome"], "cancelled");

    let script = format!("{}hang\n", stop("tool"));
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "limited",
        "--timeout",
        "3s",
        &script,
    ]);
    let view = home.until_status("limited", "stopped");
    let left: (&Value, &Value) = (&view["reason"], &view["checkpoint"]["state_snapshot"]);
    assert_eq!(
        left,
        (&json!("blocker"), &json!("at 3 of 7")),
        "its own stop and checkpoint stand: {view}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}
