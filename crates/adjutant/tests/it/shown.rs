//! Text shown to the person is complete and cannot pass for something else.

use crate::support::TestHome;
use adjutant_api::view::{Cancel, Dispatch, Wait, WaitUntil};

#[test]
fn preview_keeps_its_indentation() {
    let home = TestHome::new();
    home.start(
        "asks",
        "approve \"edit\" [preview: def f():\\n    if x:\\n        return 1]",
    );
    home.until_status("asks", "waiting_parent_reply");
    let shown = home.ok(&["show", "asks"]);
    assert!(
        shown.contains("    def f():\n        if x:\n            return 1\n"),
        "{shown}"
    );
}

#[test]
fn unknown_option_number_is_refused() {
    let home = TestHome::new();
    home.start(
        "asks",
        "ask \"Which?\" [options: red|green]\nask \"And?\" [options: 10|20]",
    );
    home.until_status("asks", "waiting_parent_reply");
    for wrong in ["3", "0"] {
        let refused = home.adj(&["--json", "reply", "Q1", wrong]);
        assert!(
            refused.code == 2 && refused.err.contains("1) red, 2) green"),
            "{refused:?}"
        );
    }
    home.ok(&["reply", "asks", "2"]);
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    home.ok(&["reply", "Q2", "20"]);
    home.finished("asks");
    assert!(
        home.log("asks").contains("answer: green") && home.log("asks").contains("answer: 20"),
        "{}",
        home.log("asks")
    );

    let all = home.ok(&["inbox", "-a"]);
    assert!(
        all.contains("\"green\" by you") && all.contains("\"20\" by you"),
        "{all}"
    );
    let shown = home.ok(&["show", "asks"]);
    assert!(shown.contains("Q1 Which? → \"green\" by you"), "{shown}");
}

#[test]
fn failure_beyond_100_ends_is_reported() {
    let home = TestHome::with_config("live_runs_max = 1\n");
    home.start("first", "hang");
    let cwd = home.work().display().to_string();
    let dispatch = |name: &str, prompt: &str| {
        let order = Dispatch {
            agent: "echo".into(),
            name: Some(name.into()),
            prompt: prompt.into(),
            cwd: cwd.clone(),
            ..Dispatch::default()
        };
        home.call(&order, name).expect("it is queued");
    };
    for n in 0..102 {
        let name = format!("run-{n}");
        dispatch(&name, "done");
        home.call(
            &Cancel {
                run: name.clone(),
                reason: None,
            },
            &format!("end {name}"),
        )
        .expect("it is ended");
    }
    dispatch("late", "fail 3");
    home.ok(&["cancel", "first"]);
    home.finished("late");
    let waited = home
        .call(
            &Wait {
                runs: Vec::new(),
                until: WaitUntil::Any,
                after: Some(0),
                new_reports: false,
                wait_ms: 0,
            },
            "",
        )
        .expect("they have ended");
    assert_eq!((waited.ended.len(), waited.ended_more), (100, 4));
    assert_eq!(
        waited.failed.map(|run| run.identity.name),
        Some("late".to_owned()),
        "those that were cancelled have not failed"
    );
}

#[test]
fn whole_configuration_is_printed() {
    let home = TestHome::with_config(
        "[chats]\nturns_max = 3\n[delegation]\ndepth_max = 2\n[chats.templates.mine]\nparticipants = [\"echo\"]\n",
    );
    let shown = home.ok(&["config", "show"]);
    for line in [
        "[delegation]\n",
        "depth_max = 2\n",
        "[chats]\n",
        "turns_max = 3\n",
        "[chats.templates.mine]\n",
        "participants = [\"echo\"]\n",
    ] {
        assert!(shown.contains(line), "{line:?} in {shown}");
    }
    let shown = home.json(&["config", "show"]);
    assert_eq!(
        (
            &shown["chats"]["turns_max"],
            &shown["delegation"]["live_max"]
        ),
        (&serde_json::json!(3), &serde_json::json!(32))
    );
    let refused = TestHome::with_config("[chats]\nturns_max = 0\n").adj(&["config", "show"]);
    assert!(
        refused.code == 2 && refused.err.contains("chats.turns_max"),
        "{refused:?}"
    );
}
