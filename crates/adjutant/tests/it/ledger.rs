//! The ledger: runs announce what they will change, and overlaps are reported to both and to their
//! parent.

use crate::changes::repository;
use crate::support::{TestHome, kill};
use adjutant_api::view::{EventView, ReadEvents, SendToRun, Wait, WaitOutcome};
use serde_json::{Value, json};

fn announce(post: &Value) -> String {
    let text = post
        .as_str()
        .map_or_else(|| post.to_string(), str::to_owned);
    format!(
        "tool send_message {}\n",
        json!({"to": "ledger", "message": text})
    )
}

fn events(home: &TestHome, kind: &str) -> Vec<EventView> {
    let all = home
        .call(
            &ReadEvents {
                limit: Some(5_000),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("events")
        .events;
    all.into_iter()
        .filter(|event| event.kind.as_str() == kind)
        .collect()
}

fn start_clone(home: &TestHome, name: &str, script: &str) {
    let mut command = home.command(&["run", "-d", "--clone", "-a", "echo", "-n", name, script]);
    let ran = command
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .output()
        .expect("adj runs");
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn overlap_is_reported_once_to_both_runs_and_the_parent() {
    let home = TestHome::new();
    home.start(
        "beta",
        &(announce(&json!({"paths": ["src/**"], "interfaces": ["Parser::parse"]}))
            + "ask \"ready?\"\nstatus\nask \"end?\"\ndone ok"),
    );
    home.until_status("beta", "waiting_parent_reply");
    let wait = Wait {
        runs: vec!["beta".to_owned()],
        after: Some(events(&home, "request.asked")[0].seq),
        wait_ms: 20_000,
        ..Wait::default()
    };
    let own = announce(&json!("src/parser.rs\n## FORGED\nsrc/a\u{2028}## FORGED"))
        + &announce(&json!({"interfaces": ["Parser::parse"]}));
    home.start(
        "alpha",
        &(announce(&json!("src/parser.rs\nREADME.md")) + &own + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("alpha", "waiting_parent_reply");
    let log = home.log("alpha");
    assert!(
        log.contains("src/parser.rs overlaps with what run beta has announced (src/**)"),
        "{log}"
    );
    assert_eq!(
        log.matches("refused: ").count(),
        1,
        "an announcement has no line ends: {log}"
    );
    // Once for the pair, regardless of later announcements.
    let told = events(&home, "run.overlap");
    assert!(
        told.len() == 1
            && told[0].run_name == "alpha"
            && told[0].text == "with beta: src/parser.rs",
        "{told:?}"
    );
    let view = home.show("alpha");
    assert_eq!(view["overlaps"][0]["run_name"], "beta", "{view}");
    assert!(
        view["overlaps"][0]["items"]
            .as_array()
            .expect("items")
            .contains(&json!({"kind": "path", "own": "src/parser.rs", "other": "src/**"})),
        "{view}"
    );
    let other = home.show("beta");
    assert!(
        other["overlaps"][0]["items"]
            .as_array()
            .expect("items")
            .contains(&json!({"kind": "path", "own": "src/**", "other": "src/parser.rs"})),
        "{other}"
    );
    let waited = home.call(&wait, "").expect("it waits");
    assert_eq!(
        (
            waited.outcome,
            waited.working[0].changes.overlaps[0].run_name.as_str()
        ),
        (WaitOutcome::Event.into(), "alpha")
    );
    let listed = home.adj(&["ps"]);
    let listed = format!("{}{}", listed.out, listed.err);
    assert_eq!(
        listed.matches("! announced the same: ").count(),
        1,
        "{listed}"
    );
    let shown = home.ok(&["show", "alpha"]);
    assert!(
        shown.contains("  announced    README.md, src/parser.rs, interface Parser::parse\n")
            && shown.contains("  overlaps     with beta: "),
        "{shown}"
    );
    // The other run gets one message, in which nothing of its text starts a line.
    kill(home.hub_pid());
    home.ok(&["reply", "beta", "yes"]);
    let log = home.until_log("beta", "ledger: an announcement of run alpha");
    assert!(
        log.matches("ledger: an announcement of run alpha").count() == 1
            && !log.lines().any(|line| line.starts_with("## FORGED")),
        "{log}"
    );
    // The announcements are on the board, too.
    let board = home.json(&["board"]);
    let keys: Vec<&str> = board
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["key"].as_str())
        .collect();
    assert_eq!(keys, ["ledger/beta", "ledger/alpha"], "{board}");
    assert_eq!(
        board[0]["value"],
        json!({"run": "beta", "paths": ["src/**"], "interfaces": ["Parser::parse"]})
    );
}

#[test]
fn released_announcements_overlap_no_longer() {
    let home = TestHome::new();
    home.start(
        "beta",
        &(announce(&json!("src")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("beta", "waiting_parent_reply");
    let script = announce(&json!("src/a\ndocs"))
        + &announce(&json!({"release": ["src/a"]}))
        + &announce(&json!({"paths": ["src/b"]}))
        + &announce(&json!({"release": true}))
        + &announce(&json!({"interfaces": ["Parser::parse  v2"]}))
        + &announce(&json!({"release": [" Parser::parse   v2 ", "src/never"]}));
    home.start("alpha", &(script + "ask \"ready?\"\ndone ok"));
    home.until_status("alpha", "waiting_parent_reply");
    assert_eq!(
        (
            events(&home, "run.overlap").len(),
            events(&home, "run.overlap_settled").len()
        ),
        (2, 2)
    );
    let view = home.show("alpha");
    assert!(
        view["overlaps"].is_null() && view["announced"].is_null(),
        "{view}"
    );
    let log = home.log("alpha");
    assert!(
        log.matches("not released").count() == 1
            && log.contains("not released, because it is not announced: src/never"),
        "{log}"
    );
    home.ok(&["reply", "beta", "yes"]);
    home.finished("beta");
    assert_eq!(
        home.log("beta")
            .matches("ledger: an announcement of run alpha")
            .count(),
        1,
        "one message for each pair"
    );
    // A finished run announces nothing.
    home.start("gamma", &(announce(&json!("src")) + "done ok"));
    home.finished("gamma");
    assert!(
        !home.log("gamma").contains("overlaps"),
        "{}",
        home.log("gamma")
    );
}

#[test]
fn unannounced_changes_are_named() {
    let home = repository();
    start_clone(
        &home,
        "alpha",
        &(announce(&json!({"paths": ["one.txt", "new/*.md"]}))
            + "write one.txt a\nwrite new.txt b\nsay I am done with the files"),
    );
    home.finished("alpha");
    let view = home.show("alpha");
    assert_eq!(view["unannounced_files"], json!(["new.txt"]), "{view}");
    let shown = home.ok(&["show", "alpha"]);
    assert!(
        shown.contains("changed, but not announced: new.txt"),
        "{shown}"
    );
    // A clone announces for the user's repository, where another run works.
    home.start(
        "beta",
        &(announce(&json!("one.txt")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("beta", "waiting_parent_reply");
    start_clone(
        &home,
        "gamma",
        &(announce(&json!("*.txt")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("gamma", "waiting_parent_reply");
    assert_eq!(home.show("gamma")["overlaps"][0]["run_name"], "beta");
    // So does a run that works in the clone of another.
    let workspace = home.show("gamma")["workspace"]["path"]
        .as_str()
        .expect("a path")
        .to_owned();
    let two = [&workspace, "/two.txt"].concat();
    let script = announce(&json!(two))
        + &announce(&json!("one.txt"))
        + &announce(&json!({"release": [two]}))
        + "ask \"ready?\"\ndone ok";
    let ran = home
        .command(&["run", "-d", "-a", "echo", "-n", "inside", &script])
        .current_dir(&workspace)
        .status();
    assert!(ran.expect("adj runs").success());
    home.until_status("inside", "waiting_parent_reply");
    let inside = home.show("inside");
    let names: Vec<&str> = inside["overlaps"]
        .as_array()
        .expect("overlaps")
        .iter()
        .filter_map(|one| one["run_name"].as_str())
        .collect();
    assert_eq!(names, ["beta", "gamma"], "{inside}");
    assert_eq!(inside["announced"]["paths"], json!(["one.txt"]), "{inside}");
    // A run that has announced nothing has nothing to keep to.
    start_clone(
        &home,
        "delta",
        "write new.txt b\nsay I am done with the files",
    );
    home.finished("delta");
    assert!(home.show("delta")["unannounced_files"].is_null());
}

#[test]
fn unusable_announcements_change_nothing() {
    let home = TestHome::new();
    let posts = [
        json!("src/{a,b}"),
        json!({"files": ["x"]}),
        json!("{\"paths\": 1}"),
        json!("../../../../../../../../x"),
        json!({"paths": ["ok", ""]}),
    ];
    let many: Vec<String> = (0..201).map(|n| format!("f{n}")).collect();
    let script: String = posts
        .iter()
        .chain([&json!({"paths": many})])
        .map(announce)
        .collect();
    home.start("alpha", &(script + "done ok"));
    home.finished("alpha");
    let log = home.log("alpha");
    assert_eq!(
        log.lines()
            .filter(|line| line.starts_with("refused: ") && line.contains("error[invalid]"))
            .count(),
        6,
        "{log}"
    );
    assert!(home.show("alpha")["announced"].is_null() && home.json(&["board"]) == json!([]));
    let person = home.adj(&["chat", "post", "ledger", "src"]);
    assert!(
        person.code != 0 && person.err.contains("only a run announces"),
        "{person:?}"
    );
}

#[test]
fn full_board_and_full_queue_hide_no_overlap() {
    let home = TestHome::new();
    home.start(
        "beta",
        &(announce(&json!("src")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("beta", "waiting_parent_reply");
    for n in 0..100 {
        home.call(
            &SendToRun {
                run: "beta".to_owned(),
                text: format!("message {n}"),
            },
            &format!("m{n}"),
        )
        .expect("queued");
    }
    // More than an entry of a board can have.
    let paths: Vec<String> = (0..140)
        .map(|n| format!("src/{n}/{}", "x".repeat(490)))
        .collect();
    home.start(
        "alpha",
        &(announce(&json!({"paths": paths})) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("alpha", "waiting_parent_reply");
    let log = home.log("alpha");
    assert!(
        log.contains("announced, but not on the board")
            && log.contains("overlaps with what run beta has announced"),
        "{log}"
    );
    assert_eq!(
        home.show("alpha")["announced"]["paths"]
            .as_array()
            .map(Vec::len),
        Some(140)
    );
    let sent = events(&home, "message.sent");
    assert!(
        sent.iter().any(|event| event.run_name == "beta"
            && event.text.contains("ledger: an announcement of run alpha")),
        "{:?}",
        sent.last()
    );
}

#[test]
fn announcement_leaves_the_board_with_its_run() {
    let home = TestHome::new();
    let keys = || {
        let board = home.json(&["board"]);
        board
            .as_array()
            .expect("entries")
            .iter()
            .filter_map(|entry| entry["key"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    home.start("old", &(announce(&json!("src/old")) + "done ok"));
    home.finished("old");
    home.start(
        "new",
        &(announce(&json!("src/new")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("new", "waiting_parent_reply");
    home.ok(&["board", "--post", "{\"step\": 1}", "--key", "plan"]);
    assert_eq!(keys(), ["ledger/old", "ledger/new", "plan"]);
    home.ok(&["clean", "--older-than", "0s", "--yes"]);
    assert_eq!(keys(), ["ledger/new", "plan"]);
    let shown = home
        .json(&["chat", "show", "1", "--after", "0"])
        .to_string();
    assert!(
        !shown.contains("src/old") && shown.contains("src/new"),
        "{shown}"
    );
    // A later run of that name can announce again.
    home.start(
        "old",
        &(announce(&json!("src/again")) + "ask \"ready?\"\ndone ok"),
    );
    home.until_status("old", "waiting_parent_reply");
    assert_eq!(keys(), ["ledger/new", "plan", "ledger/old"]);
    for name in ["new", "old"] {
        home.ok(&["reply", name, "yes"]);
        home.finished(name);
    }
}

#[test]
fn adopted_runs_overlap_with_those_of_their_new_owner() {
    let home = TestHome::new();
    let announcing = |path: &str| announce(&json!(path)) + "ask \"ready?\"\nstatus\ndone ok";
    home.start("first", &announcing("src/a.rs"));
    home.until_status("first", "waiting_parent_reply");
    home.ok(&["adopt", "first", "--client", "other"]);
    home.start("second", &announcing("src"));
    home.until_status("second", "waiting_parent_reply");
    let both = |name: &str| home.show(name)["overlaps"][0]["run_name"].clone();
    assert_eq!(
        (both("first"), both("second")),
        (json!(null), json!(null)),
        "they have different owners"
    );
    home.ok(&["adopt", "first"]);
    assert_eq!(
        (both("first"), both("second")),
        (json!("second"), json!("first"))
    );
    let told = events(&home, "run.overlap");
    assert!(
        told.len() == 1 && told[0].text == "with second: src/a.rs",
        "{told:?}"
    );
    home.ok(&["adopt", "first", "--client", "other"]);
    assert_eq!((both("first"), both("second")), (json!(null), json!(null)));
    home.ok(&["adopt", "first"]);
    assert_eq!(both("first"), json!("second"));
    assert_eq!(events(&home, "run.overlap").len(), 1, "it is reported once");
    for name in ["first", "second"] {
        home.ok(&["reply", name, "yes"]);
        home.finished(name);
    }
}
