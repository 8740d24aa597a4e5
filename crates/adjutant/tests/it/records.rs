//! The displayed answers, metadata and logs of a run match the stored ones.

use crate::mcp::Session;
use crate::support::TestHome;
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn reply_shows_the_recorded_answer() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let script = "---\nask \"How many workers?\" [options: 1|2|4|8]\nask \"And now?\" [options: 1|2|4|8]\nask \"At last?\" [options: 1|2|4|8]\n\
                  ask \"Which one?\" [options: red|green]\ndone ok";
    let run = session.done("run_subagent", json!({"agent": "echo", "prompt": script}))["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let mut reply = |number: &str, answer: &str| {
        home.until(&format!("{number} is asked"), || {
            (home.inbox(&[])[0]["number"] == number).then_some(())
        });
        session.tool(
            "reply_subagent",
            json!({"message_id": number, "answer": answer}),
        )
    };
    let text = |reply: &Value| {
        reply["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let refused = reply("Q1", "3");
    assert!(
        refused["isError"] == true && text(&refused).contains("the number of option 4: answer 4"),
        "a final answer is not guessed: {refused}"
    );
    let taken = reply("Q1", "4");
    assert!(
        text(&taken).contains("Q1 recorded: option 3, \"4\""),
        "{taken}"
    );
    assert_eq!(
        (
            &taken["structuredContent"]["requests"][0]["option"],
            &taken["structuredContent"]["requests"][0]["answer"]
        ),
        (&json!(3), &json!("4"))
    );
    let taken = reply("Q2", "2");
    assert!(
        text(&taken).contains("Q2 recorded: option 2, \"2\""),
        "an option's text counts before its place: {taken}"
    );
    let taken = reply("Q3", "16");
    assert!(
        text(&taken).contains("Q3 recorded: \"16\""),
        "a number among numbers is an answer: {taken}"
    );
    let refused = reply("Q4", "16");
    assert!(
        refused["isError"] == true && text(&refused).contains("no option 16"),
        "{refused}"
    );
    let said = home.ok(&["reply", "Q4", "2"]);
    assert!(said.contains("option 2, \"green\""), "{said}");
    home.finished(&run);
    let log = home.log(&run);
    for answer in [
        "answer: 4\n",
        "answer: 2\n",
        "answer: 16\n",
        "answer: green\n",
    ] {
        assert!(log.contains(answer), "{answer:?} is missing in {log}");
    }
}

/// Waits until the run's rendered metadata has this value, and returns it.
fn metadata(home: &TestHome, run: &str, field: &str, value: &Value) -> Value {
    let path = home.home.logs_dir().join(format!("{run}.meta.json"));
    home.until(&format!("{field} is {value} in its metadata"), || {
        let meta: Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        (meta[field] == *value).then_some(meta)
    })
}

#[test]
fn compat_status_is_the_metadata_file() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &["--compat"], false);
    let mut started = |script: &str| {
        let run = session.done(
            "run_subagent_echo",
            json!({"input": script, "cwd": home.work()}),
        );
        let run = run["runId"].as_str().expect("runId").to_owned();
        home.until("it has asked", || {
            (home.show(&run)["pending_total"] == 1).then_some(())
        });
        let replied = session.done("reply_subagent", json!({"runId": run, "answer": "this"}));
        (run, replied["updatedMetadata"].clone())
    };
    let (cancelled, updated) = started("---\nask \"Which?\"\nhang");
    let keys = |meta: &Value| {
        meta.as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(&updated),
        keys(&metadata(&home, &cancelled, "runId", &json!(cancelled)))
    );
    let (reported, _) = started("---\nask \"Which?\"\nreport success all done");
    home.ok(&["cancel", &cancelled]);
    for (run, field, value) in [
        (&cancelled, "error", json!("cancelled")),
        (&reported, "summary", json!("all done")),
    ] {
        home.finished(run);
        let file = metadata(&home, run, field, &value);
        let status = session.done("check_subagent_status", json!({"runId": run}));
        for (name, value) in file.as_object().expect("an object") {
            // The copy is written shortly after the change.
            assert_eq!(status[name], *value, "{name} of {run}");
        }
    }
}

#[test]
fn every_log_of_a_resumed_run_is_named() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let prompt = "---\nsay first words\nhang\nresume-here\nsay second words";
    let run = session.done("run_subagent", json!({"agent": "echo", "prompt": prompt}))["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    home.until_log(&run, "first words");
    home.ok(&["pause", &run]);
    home.until_status(&run, "stopped");
    home.ok(&["resume", &run]);
    home.finished(&run);
    let files = [format!("{run}.log"), format!("{run}.2.log")]
        .map(|name| home.home.logs_dir().join(name).display().to_string());
    let page = session.tool("get_subagent_logs", json!({"run_id": run, "after": 0}));
    let text = page["content"][0]["text"].as_str().expect("a text");
    assert!(
        text.contains(&format!("whole log: {}", files.join(", "))),
        "{text}"
    );
    assert_eq!(page["structuredContent"]["paths"], json!(files));
    let (view, shown) = (home.show(&run), home.ok(&["show", &run]));
    assert_eq!(
        (&view["log_path"], &view["log_paths"]),
        (&json!(files[1]), &json!(files))
    );
    assert!(files.iter().all(|file| shown.contains(file)), "{shown}");
    let whole: String = files
        .iter()
        .map(|file| std::fs::read_to_string(Path::new(file)).expect("a log"))
        .collect();
    assert!(
        whole.contains("first words") && whole.contains("second words"),
        "{whole}"
    );
}

#[test]
fn parent_reads_the_signal_history() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let stop = json!({"stop_reason": "blocker", "details": "no network"});
    let script = format!(
        "---\nprogress 10 begun\nblock PROGRESS {{\"colour\": \"red\"}}\ntool stop_work {stop}\nfail 0"
    );
    let run = session.done("run_subagent", json!({"agent": "echo", "prompt": script}))["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    home.until_status(&run, "stopped");
    let looked = session.tool(
        "check_subagent_status",
        json!({"run_id": run, "history": true}),
    );
    let (text, data) = (
        looked["content"][0]["text"].as_str().expect("a text"),
        &looked["structuredContent"],
    );
    for told in [
        "run.progress [PROGRESS by tool]",
        "signal.malformed [PROGRESS by block]",
        "run.checkpoint [STOP_WORK by tool]",
        "run.stopped",
    ] {
        assert!(text.contains(told), "{told} is missing in {text}");
    }
    let signals: Vec<&Value> = data["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["signal"] == "STOP_WORK")
        .collect();
    assert!(
        signals
            .iter()
            .any(|event| event["kind"] == "run.checkpoint" && event["source"] == "tool"),
        "{data}"
    );
    let later = session.done(
        "check_subagent_status",
        json!({"run_id": run, "events_after": data["events_next"]}),
    );
    assert_eq!(later["events"], json!([]), "nothing came since");
    assert!(session.done("check_subagent_status", json!({"run_id": run}))["events"].is_null());
    let shown = home.ok(&["show", &run]);
    assert!(
        shown.contains("STOP_WORK by tool") && shown.contains("adj events"),
        "{shown}"
    );
}

#[test]
fn dispatch_without_criteria_gets_a_hint() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let mut started = |more: Value| {
        let mut args = json!({"agent": "echo", "prompt": "---\nsay x"});
        args.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        session.tool("run_subagent", args)["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    assert!(started(json!({})).contains("hint: neither criteria nor accept defines success"));
    for measured in [
        json!({"criteria": "it says x"}),
        json!({"accept": ["true"]}),
    ] {
        assert!(!started(measured.clone()).contains("hint:"), "{measured}");
    }
}

#[test]
fn delegation_request_shows_runs_in_its_directory() {
    let home =
        TestHome::with_config("live_runs_max = 3\n[delegation]\ndepth_max = 2\nchildren_max = 5\n");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], false);
    let run = session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\ndelegate \"---\\ndone fine\" [blocks]"}),
    );
    let run = run["run_id"].as_str().expect("an id").to_owned();
    home.until("it delegates", || {
        (home.inbox(&[])[0]["kind"] == "delegation").then_some(())
    });
    let told = "1 of 3 places for live runs, 0 queued; it would be at depth 2 of 2; its run has 0 of 5 delegations";
    let listed = session.tool("get_pending_questions", json!({}));
    assert!(
        listed["content"][0]["text"]
            .as_str()
            .is_some_and(|text| text.contains(told)),
        "{listed}"
    );
    let room = &listed["structuredContent"]["questions"][0]["delegation"]["room"];
    assert_eq!(
        (&room["live"], &room["live_max"], &room["tree_total"]),
        (&json!(1), &json!(3), &json!(1)),
        "{room}"
    );
    for shown in [
        session.tool("check_subagent_status", json!({"run_id": run})),
        session.tool("wait_for_subagents", json!({"wait_s": 5})),
    ] {
        assert!(
            shown["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains(told)),
            "{shown}"
        );
    }
    assert!(
        home.ok(&["show", &run])
            .replace("\n  ", " ")
            .contains("in use: 1 of 3 places")
    );
    home.ok(&["approve", "Q1"]);
    home.finished(&run);
    assert!(
        home.inbox(&["--all"])[0]["delegation"]["room"].is_null(),
        "it is decided"
    );
}
