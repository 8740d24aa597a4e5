//! An agent configured with one line: Adjutant's tools, approvals, edits, sessions, keys, its end.

use super::{Rig, line};
use serde_json::{Value, json};

const REPORT: &str = r#"do: ["tool","complete_task",{"status":"success","summary":"it is done"}]"#;

#[test]
fn one_line_of_configuration_is_enough() {
    for args in [&[][..], &["--stdio"]] {
        let Some(rig) = Rig::with(args) else { return };
        let ask = r#"do: ["tool","ask_parent",{"question":"Which database?"}]"#;
        rig.start(
            "mine",
            "job",
            &[r#"do: ["tool","update_subagent_status",{"status":"running","percent":10,"summary":"begun"}]"#, ask, r#"do: ["say","bye"]"#],
            &[],
        );
        rig.home.until_status("job", "waiting_parent_reply");
        rig.home.ok(&["reply", "Q1", "PostgreSQL"]);
        let view = rig.home.finished("job");
        assert_eq!(view["outcome"], "succeeded", "{args:?} {view}");
        let log = rig.home.log("job");
        assert!(
            log.contains("PostgreSQL")
                && view["result"]
                    .as_str()
                    .is_some_and(|result| result.contains("bye")),
            "{args:?} {log}"
        );
        rig.until_none_is_left("job");
    }
}

#[test]
fn permission_requests_are_decided() {
    let Some(rig) = Rig::with(&[]) else { return };
    let ask = r#"do: ["ask",{"toolCallId":"c1","title":"Shell","kind":"execute","rawInput":{"command":"make all"}}]"#;
    rig.start(
        "mine",
        "job",
        &[
            ask,
            ask.replace("c1", "c2").as_str(),
            ask.replace("c1", "c3").as_str(),
        ],
        &[],
    );
    let asked = rig
        .home
        .until("it asks", || rig.home.inbox(&[]).get(0).cloned());
    assert!(
        asked["preview"]
            .as_str()
            .is_some_and(|shown| shown.contains("make all")),
        "{asked}"
    );
    rig.home.ok(&["approve", "Q1"]);
    rig.home.until("it asks again", || {
        (rig.home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    rig.home.ok(&["deny", "Q2", "not today"]);
    rig.home.until("it asks again", || {
        (rig.home.inbox(&[])[0]["number"] == "Q3").then_some(())
    });
    rig.home.ok(&["approve", "Q3"]);
    rig.home.finished("job");
    let log = rig.home.log("job");
    let decided: Vec<&str> = log
        .lines()
        .filter_map(|line| line.strip_prefix("decided: "))
        .collect();
    // Never by the option that also allows later calls.
    assert_eq!(decided, ["once", "no", "once"], "{log}");
}

#[test]
fn approval_never_covers_later_calls() {
    let Some(rig) = Rig::with(&[]) else { return };
    let only_always = r#"do: ["ask",{"toolCallId":"c1","title":"Shell","kind":"execute"},[{"optionId":"always","name":"A","kind":"allow_always"},{"optionId":"no","name":"N","kind":"reject_once"}]]"#;
    rig.start("mine", "job", &[only_always], &[]);
    rig.home
        .until("it asks", || rig.home.inbox(&[]).get(0).cloned());
    rig.home.ok(&["approve", "Q1"]);
    rig.home.finished("job");
    assert!(
        rig.home.log("job").contains("decided: no"),
        "{}",
        rig.home.log("job")
    );
    let (_, log) = {
        rig.start("mine", "free", &[only_always], &["--permissions", "full"]);
        (rig.home.finished("free"), rig.home.log("free"))
    };
    assert!(log.contains("decided: always"), "{log}");
}

#[test]
fn edits_inside_are_allowed_only_in_edit() {
    let Some(rig) = Rig::with(&[]) else { return };
    let (view, log) = rig.ran(&[r#"do: ["edit","in.txt","x"]"#], &[]);
    assert!(
        view["outcome"] == "succeeded" && log.contains("edit in.txt: once"),
        "{log}"
    );
    assert_eq!(
        std::fs::read_to_string(rig.home.work().join("in.txt")).expect("it was written"),
        "x"
    );
    for (run, file, permissions) in [
        ("outside", "../out.txt", "edit"),
        ("reads", "b.txt", "read"),
    ] {
        rig.start(
            "mine",
            run,
            &[&format!(r#"do: ["edit","{file}","x"]"#)],
            &["--permissions", permissions],
        );
        rig.home.until_status(run, "waiting_parent_reply");
        rig.home.ok(&["deny", run, "no"]);
        rig.home.finished(run);
        assert!(!rig.home.work().join(file).exists(), "{run}");
    }
}

#[test]
fn session_is_resumed_if_supported() {
    for (args, own) in [(&["--load"][..], true), (&["--resume"], true), (&[], false)] {
        let Some(rig) = Rig::with(args) else { return };
        let stop = r#"do: ["tool","stop_work",{"stop_reason":"blocker","details":"waits"}]"#;
        rig.start(
            "mine",
            "job",
            &[stop, r#"then: ["who"]"#, r#"then: ["say","on"]"#],
            &[],
        );
        let stopped = rig.home.until_status("job", "stopped");
        let session = stopped["session"].as_str().expect("a session").to_owned();
        rig.home.ok(&["resume", "job", "go on"]);
        let view = rig.home.until("its second attempt has ended", || {
            let view = rig.home.show("job");
            (view["attempt"] == 2
                && view["status"] != "running"
                && view["status"] != "queued"
                && view["status"] != "starting")
                .then_some(view)
        });
        let log = rig.home.log("job");
        assert_eq!(
            log.contains(&format!("session {session}, turn 2")),
            own,
            "{args:?} {log}"
        );
        // What a loaded session repeats is not reported again.
        assert!(!log.contains("words of yesterday"), "{log}");
        assert_eq!(view["session"] == session.as_str(), own, "{args:?} {view}");
    }
}

#[test]
fn cancelled_agent_leaves_nothing() {
    let Some(rig) = Rig::with(&[]) else { return };
    rig.start(
        "mine",
        "job",
        &[
            r#"do: ["child"]"#,
            r#"do: ["say","hanging"]"#,
            r#"do: ["hang"]"#,
        ],
        &[],
    );
    rig.home.until_log("job", "hanging");
    rig.home.ok(&["cancel", "job"]);
    assert_eq!(rig.home.finished("job")["outcome"], "cancelled");
    rig.until_none_is_left("job");
}

#[test]
fn agent_that_changes_to_a_mode_without_asking_is_ended() {
    let modes = json!({"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "go", "name": "Go", "description": "Never asks"}]});
    let Some(rig) = Rig::with(&["--modes", &modes.to_string()]) else {
        return;
    };
    let changes = r#"do: ["update",{"sessionUpdate":"current_mode_update","currentModeId":"go"}]"#;
    let works = r#"do: ["hang"]"#;
    for permissions in ["read", "edit"] {
        rig.start(
            "mine",
            permissions,
            &[changes, works],
            &["--permissions", permissions],
        );
        let view = rig.home.finished(permissions);
        let reason = view["reason"].as_str().unwrap_or_default();
        assert!(
            view["outcome"] == "failed"
                && reason.contains("unsupported profile")
                && reason.contains("go"),
            "{view}"
        );
        rig.until_none_is_left(permissions);
    }
    rig.start(
        "mine",
        "full",
        &[changes, r#"do: ["say","it went on"]"#],
        &["--permissions", "full"],
    );
    assert_eq!(rig.home.finished("full")["outcome"], "succeeded");
    let other = r#"do: ["update",{"sessionUpdate":"current_mode_update","currentModeId":"ask"}]"#;
    rig.start(
        "mine",
        "asks",
        &[other, r#"do: ["say","it went on"]"#],
        &["--permissions", "read"],
    );
    assert_eq!(rig.home.finished("asks")["outcome"], "succeeded");
}

#[test]
fn agent_without_a_mode_that_asks_is_refused() {
    let modes = |current: &str, ids: &[&str]| {
        let list: Vec<Value> = ids.iter().map(|id| json!({"id": id, "name": id})).collect();
        json!({"currentModeId": current, "availableModes": list}).to_string()
    };
    let mode = r#"do: ["mode"]"#;
    let Some(rig) = Rig::with(&["--modes", &modes("yolo", &["yolo", "default", "plan"])]) else {
        return;
    };
    for (run, permissions, expected) in [
        ("reads", "read", "mode default"),
        ("edits", "edit", "mode default"),
        ("full", "full", "mode yolo"),
    ] {
        rig.start("mine", run, &[mode], &["--permissions", permissions]);
        rig.home.finished(run);
        assert!(
            rig.home.log(run).contains(expected),
            "{run} {}",
            rig.home.log(run)
        );
    }
    let Some(reckless) = Rig::with(&["--modes", &modes("yolo", &["yolo", "autopilot"])]) else {
        return;
    };
    let (view, log) = reckless.ran(&[mode], &[]);
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        view["outcome"] == "failed"
            && reason.contains("unsupported profile")
            && reason.contains("yolo, autopilot"),
        "{view}"
    );
    assert!(!log.contains("mode yolo"), "it received no task: {log}");
    // An agent that ignores the change of its mode.
    let Some(stubborn) = Rig::with(&["--stubborn", "--modes", &modes("yolo", &["yolo", "ask"])])
    else {
        return;
    };
    let (view, _) = stubborn.ran(&[mode], &[]);
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("it stays in \"yolo\"")),
        "{view}"
    );
    let options = json!([{"id": "mode", "name": "Mode", "category": "mode", "type": "select", "currentValue": "auto", "options": [{"value": "auto", "name": "Auto"}, {"value": "ask", "name": "Ask"}]}]).to_string();
    let Some(by_option) = Rig::with(&["--options", &options]) else {
        return;
    };
    let (_, log) = by_option.ran(&[mode], &[]);
    assert!(log.contains(r#"options {"mode":"ask"}"#), "{log}");
    let Some(stuck) = Rig::with(&["--stubborn", "--options", &options]) else {
        return;
    };
    let (view, _) = stuck.ran(&[mode], &[]);
    assert!(
        view["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("it stays in \"auto\"")),
        "{view}"
    );
}

#[test]
fn each_agent_gets_its_own_keys() {
    let config = format!(
        "{}env_pass = [\"MY_KEY\"]\n{}[presets.x]\ndriver = \"acp\"\ncommand = [\"my-agent\"]\nenv_pass = [\"OTHER_*\"]\n[agents.preset]\nharness = \"x\"\n\
         [agents.plain]\nharness = \"plain\"\ncommand = [\"/usr/bin/env\"]\nenv_pass = [\"MY_KEY\"]\n",
        line("mine", "my-agent", &[]),
        line("none", "my-agent", &[]),
    );
    let Some(rig) = Rig::new(&config) else { return };
    let env = [
        ("MY_KEY", "canary-mine"),
        ("OTHER_KEY", "canary-other"),
        ("OPENAI_API_KEY", "canary-vendor"),
    ];
    for (agent, expected) in [
        ("mine", "key canary-mine, other none"),
        ("none", "key none, other none"),
        ("preset", "key none, other canary-other"),
    ] {
        let ran = rig.adj_with(&["run", "-a", agent, "-w", "do: [\"who\"]\n"], &env);
        assert!(
            ran.code == 0 && ran.out.contains(expected),
            "{agent} {ran:?}"
        );
    }
    rig.adj_with(&["run", "-a", "plain", "-n", "env", "-w", "x"], &env);
    let log = rig.home.log("env");
    assert!(
        log.contains("MY_KEY=canary-mine")
            && !log.contains("canary-other")
            && !log.contains("canary-vendor"),
        "{log}"
    );
    // The keys are credentials under any name.
    rig.home.ok(&["stop"]);
    for file in ["adj.db", "adj.db-wal", "hub.log"] {
        let bytes = std::fs::read(rig.home.home.dir.join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // The agent's output is its result.
        let found = text.matches("canary-other").count() + text.matches("canary-vendor").count();
        assert!(
            found == text.matches("key none, other canary-other").count(),
            "{file}"
        );
    }
}

#[test]
fn missing_sign_in_is_explained() {
    let Some(rig) = Rig::with(&["--auth"]) else {
        return;
    };
    let (view, _) = rig.ran(&[REPORT], &[]);
    let reason = view["reason"].as_str().unwrap_or_default();
    assert!(
        view["outcome"] == "failed" && reason.contains("not_signed_in")
            || reason.contains("not signed in"),
        "{view}"
    );
    assert!(
        reason.contains("it signs in by Log in (run acp-agent login)"),
        "{view}"
    );
}

#[test]
fn agents_on_both_sdks_pass_their_test() {
    for (program, args) in [
        ("my-agent", &["--follow", "--load"][..]),
        ("my-agent", &["--follow", "--resume", "--stdio"]),
        ("py-agent", &["--follow"]),
    ] {
        let Some(rig) = Rig::new(&line("mine", program, args)) else {
            return;
        };
        let ran = rig.adj(&["--json", "agents", "test", "mine"]);
        let checks = ran.data()["checks"].as_array().expect("checks").clone();
        for name in [
            "our tools",
            "question",
            "resume",
            "report",
            "command",
            "approvals",
            "cancel",
        ] {
            let found = checks
                .iter()
                .find(|check| check["check"] == name)
                .unwrap_or_else(|| panic!("no check {name}: {ran:?}"));
            assert_eq!(found["verdict"], "pass", "{program} {name}: {ran:?}");
        }
        let reason = |name: &str| {
            checks
                .iter()
                .find(|check| check["check"] == name)
                .and_then(|check| check["reason"].as_str())
                .unwrap_or_default()
        };
        assert!(
            reason("resume").contains("in its own session")
                && reason("cancel").contains("in its own session"),
            "{program}: {checks:?}"
        );
        assert_eq!(ran.code, 0, "{program}: {ran:?}");
    }
}

#[test]
fn agent_whose_command_does_not_run_fails_its_test() {
    let Some(rig) = Rig::new(&line(
        "mine",
        "my-agent",
        &["--follow", "--load", "--no-shell"],
    )) else {
        return;
    };
    let ran = rig.adj(&["--json", "agents", "test", "mine"]);
    let checks = ran.data()["checks"].as_array().expect("checks").clone();
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check["verdict"] == "fail")
        .filter_map(|check| check["check"].as_str())
        .collect();
    assert_eq!(
        (failed.as_slice(), ran.code),
        (&["command"][..], 1),
        "{ran:?}"
    );
    // In profile `read`, an agent need not have commands.
    let config = line("mine", "my-agent", &["--follow", "--load", "--no-shell"])
        + "permissions = \"read\"\n";
    std::fs::write(rig.home.home.dir.join("config.toml"), config)
        .expect("the configuration can be written");
    let ran = rig.adj(&["--json", "agents", "test", "mine"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}
