//! Waits: hints, cursors, caps, Tasks, and the death of the hub.

use super::{PATIENCE, Session, run_of, text};
use crate::support::TestHome;
use adjutant_api::view::GetHub;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Some clients stop an agent that repeats the same call.
#[test]
fn model_that_follows_the_hints_never_repeats_a_call() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nask \"Which?\"\ndone ok"}),
    ));
    home.until("it asks", || {
        (home.show(&run)["pending_total"] == 1).then_some(())
    });
    let asked = session.done("wait_for_subagents", json!({}));
    assert_eq!(asked["outcome"], "event");
    session.done(
        "reply_subagent",
        json!({"message_id": "Q1", "answer": "this"}),
    );
    home.finished(&run);
    let hanging = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nhang"}),
    ));
    // With the earlier cursor, the end that happened meanwhile is reported, because it is not
    // confirmed yet.
    let mut arguments = json!({"wait_s": 1, "cursor": asked["cursor"]});
    let ended = session.done("wait_for_subagents", arguments.clone());
    assert_eq!(ended["ended"][0]["run_id"], run.as_str(), "{ended}");
    let mut calls: Vec<Value> = vec![arguments];
    let mut waited = ended;
    for _ in 0..6 {
        arguments = json!({"wait_s": 0, "cursor": waited["cursor"]});
        assert!(
            !calls.contains(&arguments),
            "the {}th call repeats one: {arguments}",
            calls.len()
        );
        calls.push(arguments.clone());
        waited = session.done("wait_for_subagents", arguments);
        let next = waited["next"].as_str().expect("what to do");
        if waited["outcome"] == "timeout" {
            assert_eq!(
                next,
                format!(
                    "wait_for_subagents cursor={}",
                    waited["cursor"].as_str().expect("a text")
                )
            );
        }
    }
    assert_eq!(
        (
            &waited["outcome"],
            waited["working"].as_array().map(Vec::len)
        ),
        (&json!("timeout"), Some(1)),
        "{waited}"
    );
    // The cursor denotes the same position: later events are reported once.
    home.ok(&["cancel", &hanging]);
    home.finished(&hanging);
    let cursor = waited["cursor"].as_str().expect("a text").to_owned();
    assert!(cursor.contains('.'), "{cursor}");
    let ended = session.done("wait_for_subagents", json!({"cursor": cursor}));
    assert_eq!(ended["ended"][0]["run_id"], hanging.as_str(), "{ended}");
    let again = session.done(
        "wait_for_subagents",
        json!({"cursor": ended["cursor"], "wait_s": 0}),
    );
    assert_eq!(
        (
            &again["outcome"],
            again["ended"].as_array().map_or(0, Vec::len)
        ),
        (&json!("idle"), 0),
        "{again}"
    );
    // Earlier forms of cursors are accepted.
    let number: i64 = cursor
        .split('.')
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a position");
    for old in [json!(number), json!(number.to_string()), json!("")] {
        assert_eq!(
            session.done(
                "wait_for_subagents",
                json!({"run_ids": [run], "cursor": old, "wait_s": 0})
            )["cursor"],
            again["cursor"]
        );
    }
    let refused = session.tool("wait_for_subagents", json!({"cursor": "soon"}));
    assert!(
        refused["isError"] == true && text(&refused).contains("is not a cursor"),
        "{refused}"
    );
}

#[test]
fn wait_survives_the_hubs_death_as_one_call() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--max-wait", "60"], true);
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nhang"}),
    ));
    let waiting = session.send(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"run_ids": [run], "until": "all"}}),
    );
    // Here only the wait starts hubs, so a new hub shows that the wait continues.
    let mut last = 0;
    for _ in 0..3 {
        last = home.until("another hub is there", || {
            home.call(&GetHub {}, "")
                .ok()
                .map(|hub| hub.pid)
                .filter(|pid| *pid != last)
        });
        crate::support::kill(last);
    }
    home.ok(&["cancel", &run]);
    let waited = session.reply(waiting);
    assert_eq!(
        waited["result"]["structuredContent"]["ended"][0]["status"], "cancelled",
        "{waited}"
    );
}

#[test]
fn wait_returns_at_its_cap_with_a_cursor() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--max-wait", "1"], false);
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nhang"}),
    ));
    let began = Instant::now();
    let waited = session.done(
        "wait_for_subagents",
        json!({"run_ids": [run], "wait_s": 3600}),
    );
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < PATIENCE);
    assert_eq!(
        (
            &waited["outcome"],
            waited["working"].as_array().map(Vec::len)
        ),
        (&json!("timeout"), Some(1))
    );
    let cursor = waited["cursor"].as_str().expect("a cursor");
    assert!(
        waited["next"]
            .as_str()
            .is_some_and(|next| next.contains(&format!("cursor={cursor}"))),
        "{waited}"
    );
}

#[test]
fn wait_is_kept_as_a_task_beyond_its_connection() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true).with_tasks();
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nsleep 0.5\nask \"Ready?\"\ndone ok"}),
    ));
    let created = session.request(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"run_ids": [run]}}),
    );
    assert_eq!(
        (
            &created["result"]["resultType"],
            &created["result"]["status"]
        ),
        (&json!("task"), &json!("working")),
        "{created}"
    );
    let task = created["result"]["taskId"].clone();
    session.close();
    crate::support::kill(home.hub_pid());

    let mut session = Session::open(&home.home.dir, &home.work(), &[], true).with_tasks();
    let ended = home.until("the Task has ended", || {
        let got = session.request("tasks/get", json!({"taskId": task}));
        assert!(got["error"].is_null(), "{got}");
        (got["result"]["status"] == "completed").then(|| got["result"].clone())
    });
    assert_eq!(
        ended["result"]["structuredContent"]["needs"][0]["question"], "Ready?",
        "{ended}"
    );
    assert!(text(&ended["result"]).contains("Ready?"));
    // A condition that is already met needs no Task.
    let at_once = session.tool("wait_for_subagents", json!({"run_ids": [run]}));
    assert_eq!(at_once["structuredContent"]["needs"][0]["message_id"], "Q1");

    session.done(
        "reply_subagent",
        json!({"message_id": "Q1", "answer": "yes"}),
    );
    let hanging = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nhang"}),
    ));
    let other = session.request(
        "tools/call",
        json!({"name": "wait_for_subagents", "arguments": {"run_ids": [hanging]}}),
    )["result"]["taskId"]
        .clone();
    assert!(
        session.request(
            "tasks/update",
            json!({"taskId": other, "inputResponses": {}})
        )["error"]
            .is_null()
    );
    assert!(session.request("tasks/cancel", json!({"taskId": other}))["error"].is_null());
    assert_eq!(
        session.request("tasks/get", json!({"taskId": other}))["result"]["status"],
        "cancelled"
    );
    assert!(
        home.show(&hanging)["outcome"].is_null(),
        "only the wait was cancelled"
    );
    assert_eq!(
        session.request(
            "tasks/get",
            json!({"taskId": "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11"})
        )["error"]["code"],
        -32602
    );
    let mut stranger = Session::open(
        &home.home.dir,
        &home.work(),
        &["--client", "stranger"],
        true,
    )
    .with_tasks();
    assert_eq!(
        stranger.request("tasks/get", json!({"taskId": task}))["error"]["code"],
        -32602
    );
}

#[test]
fn waiting_start_of_a_run_is_kept_as_a_task() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true).with_tasks();
    let arguments = json!({"agent": "echo", "name": "job", "prompt": "---\nask \"Ready?\"\nhang", "wait_s": 1, "idempotency_key": "k1"});
    let created = session.request(
        "tools/call",
        json!({"name": "run_subagent", "arguments": arguments}),
    );
    // The run may have asked before the first look.
    let result = if created["result"]["resultType"] == "task" {
        let task = created["result"]["taskId"].clone();
        session.close();
        crate::support::kill(home.hub_pid());
        session = Session::open(&home.home.dir, &home.work(), &[], true).with_tasks();
        home.until("the Task has ended", || {
            let got = session.request("tasks/get", json!({"taskId": task}));
            (got["result"]["status"] == "completed").then(|| got["result"]["result"].clone())
        })
    } else {
        created["result"].clone()
    };
    assert!(text(&result).contains("Ready?"), "{result}");
    // The result has the fields that the tool's output schema requires.
    let data = &result["structuredContent"];
    assert!(
        data["run_id"].is_string()
            && data["name"] == "job"
            && data["status"].is_string()
            && data["next"].is_string(),
        "{data}"
    );
    // Without a wait, the run is returned at once.
    let started = session.tool(
        "run_subagent",
        json!({"agent": "echo", "name": "other", "prompt": "---\nhang"}),
    );
    assert_eq!(started["structuredContent"]["name"], "other", "{started}");
}
