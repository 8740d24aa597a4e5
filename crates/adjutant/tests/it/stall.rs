//! Silent agents.

use crate::support::TestHome;
use adjutant_api::view::{ReadEvents, Wait, WaitOutcome, WaitUntil};
use adjutant_core::EventKind;

/// Several times the silence that is allowed here.
const A_WHILE_MS: u64 = 3_000;

#[test]
fn silence_is_reported_once_and_cleared() {
    let home = TestHome::with_config(
        "[agents.quiet]\nharness = \"echo\"\nprompt = \"stream\"\nstall = \"1s\"\n",
    );
    home.ok(&[
        "run",
        "--detach",
        "-a",
        "quiet",
        "--name",
        "job",
        "expect-message\nask \"Go on?\"\ndone it is done",
    ]);
    // The caller need not name the run.
    let wait = Wait {
        until: WaitUntil::Attention,
        wait_ms: 20_000,
        ..Wait::default()
    };
    let woken = home
        .call(
            &Wait {
                runs: vec!["job".to_owned()],
                after: Some(0),
                ..wait.clone()
            },
            "",
        )
        .expect("it wakes");
    assert_eq!(
        (woken.outcome.as_str(), woken.ended.len(), woken.needs.len()),
        ("event", 0, 0),
        "{woken:?}"
    );
    assert!(
        woken.working[0].condition.silent_since.is_some(),
        "{woken:?}"
    );
    let again = home
        .call(
            &Wait {
                after: Some(woken.cursor),
                wait_ms: 0,
                ..wait.clone()
            },
            "",
        )
        .expect("it returns");
    assert_eq!(again.outcome, WaitOutcome::Timeout, "once: {again:?}");
    assert!(
        again.working[0].condition.silent_since.is_some(),
        "and shown for as long as it lasts: {again:?}"
    );
    assert!(home.ok(&["ps"]).contains("silent"));
    assert!(home.ok(&["show", "job"]).contains("no output and no call"));

    home.ok(&["send", "job", "are you there?"]);
    let asked = home.until_status("job", "waiting_parent_reply");
    assert!(asked.get("silent_since").is_none(), "{asked}");
    let cursor = asked["cursor"].as_i64().expect("a cursor");
    let quiet = home
        .call(
            &ReadEvents {
                run: Some("job".to_owned()),
                after: cursor,
                wait_ms: A_WHILE_MS,
                ..ReadEvents::default()
            },
            "",
        )
        .expect("it reads");
    assert!(
        quiet
            .events
            .iter()
            .all(|event| event.kind != EventKind::RunStalled),
        "a run that waits for an answer is not silent: {quiet:?}"
    );
    home.ok(&["reply", "job", "yes"]);
    home.ok(&["wait", "job"]);
    let all = home
        .call(
            &ReadEvents {
                run: Some("job".to_owned()),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("it reads")
        .events;
    let kinds: Vec<&str> = all
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|kind| matches!(*kind, "run.stalled" | "run.stirred" | "run.stopping"))
        .collect();
    assert!(
        kinds.starts_with(&["run.stalled", "run.stirred"]) && !kinds.contains(&"run.stopping"),
        "reported and cleared, and no run was stopped: {kinds:?}"
    );
}

#[test]
fn stall_never_reports_no_silence() {
    let home = TestHome::with_config(
        "[agents.quiet]\nharness = \"echo\"\nstall = \"never\"\n[agents.loud]\nharness = \"echo\"\nstall = \"1s\"\n",
    );
    home.ok(&["run", "--detach", "-a", "quiet", "--name", "calm", "hang"]);
    home.ok(&["run", "--detach", "-a", "loud", "--name", "loud", "hang"]);
    home.until("the other one is reported", || {
        home.show("loud").get("silent_since").cloned()
    });
    assert!(home.show("calm").get("silent_since").is_none());
    home.ok(&["cancel", "calm"]);
    home.ok(&["cancel", "loud"]);
}

#[test]
fn wait_for_the_end_ignores_silence() {
    let home = TestHome::with_config(
        "[agents.quiet]\nharness = \"echo\"\nprompt = \"stream\"\nstall = \"1s\"\n",
    );
    let waiting = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            home.adj(&[
                "run",
                "--wait",
                "-a",
                "quiet",
                "--name",
                "job",
                "expect-message\ndone it is done",
            ])
        });
        home.until("it is reported", || {
            home.adj(&["--json", "show", "job"])
                .out
                .contains("silent_since")
                .then_some(())
        });
        home.ok(&["send", "job", "go on"]);
        waiter.join().expect("it ends")
    });
    assert_eq!(waiting.code, 0, "{waiting:?}");
    assert!(
        waiting.out.contains("done") && waiting.err.contains("silent"),
        "{waiting:?}"
    );
}
