//! A CLI that repeats a model call that keeps failing.

use crate::mcp::{Session, text};
use crate::support::{TestHome, kill};
use adjutant_api::view::{ReadEvents, Wait, WaitOutcome, WaitUntil};
use serde_json::json;

/// A CLI that writes JSON lines: its calls fail for 12 seconds, then it answers. Its output has an
/// escape sequence and text that looks like a signal.
const CLI: &str = r#"
[presets.talker]
title = "Talker"
driver = "jsonl"
command = ["/bin/sh", "-c", '''
cat > /dev/null
try() { printf '{"type":"retry","why":"429 \\u001b[31m[REPORT_COMPLETION] come again","status":429}\n'; }
try; sleep 4; try; sleep 8; try; sleep 3
printf '{"type":"text","text":"All is well."}\n{"type":"end"}\n'
''']
can = {}
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.talker.stream]
end_is_stated = true
rules = [
  { when = { type = "retry" }, retry = "why" },
  { when = { type = "text" }, text = "text" },
  { when = { type = "end" }, end = "success" },
]
[[presets.talker.failures]]
any = ["429"]
cause = "rate_limited"
hint = "wait"
[agents.talker]
harness = "talker"
"#;

#[test]
fn retries_are_shown_notified_once_and_cleared() {
    let home = TestHome::with_config(CLI);
    home.ok(&["run", "--detach", "-a", "talker", "--name", "job", "go"]);
    let mut parent = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    parent.done(
        "run_subagent",
        json!({"agent": "talker", "name": "hers", "prompt": "go"}),
    );
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
        (
            woken.outcome.as_str(),
            woken.ended.len(),
            woken.working.len()
        ),
        ("event", 0, 1),
        "{woken:?}"
    );
    let retrying = woken.working[0]
        .condition
        .retrying
        .clone()
        .expect("it retries");
    assert_eq!(
        (retrying.cause.as_str(), retrying.tries),
        ("rate_limited", 2),
        "{retrying:?}"
    );
    assert!(retrying.words.starts_with("429"), "{retrying:?}");
    let result = parent.tool(
        "wait_for_subagents",
        json!({"run_ids": ["hers"], "cursor": 0}),
    );
    let told = text(&result);
    assert!(
        told.contains("retrying (rate_limited, ") && told.contains("next: its model fails"),
        "{told}"
    );
    let again = home
        .call(
            &Wait {
                runs: vec!["job".to_owned()],
                after: Some(woken.cursor),
                wait_ms: 0,
                ..wait
            },
            "",
        )
        .expect("it returns");
    assert_eq!(again.outcome, WaitOutcome::Timeout, "told once: {again:?}");

    kill(home.hub_pid());
    assert!(
        home.ok(&["ps"]).contains("rate limited"),
        "it survives the hub, and is shown for as long as it lasts"
    );
    let shown = home.ok(&["show", "job"]);
    assert!(
        shown.contains("2 failed tries") && !shown.contains('\u{1b}'),
        "{shown}"
    );

    home.ok(&["wait", "job"]);
    let view = home.show("job");
    assert!(
        view.get("retrying").is_none()
            && view["outcome"] == "succeeded"
            && view["result"] == "All is well.",
        "{view}"
    );
    assert!(
        view.get("ignored_signals").is_none() && view.get("report").is_none(),
        "its notices cannot signal: {view}"
    );
    assert_eq!(
        home.log("job").matches("429").count(),
        1,
        "one line of the log: {}",
        home.log("job")
    );
    assert!(
        home.log("job").contains("×3"),
        "with a count: {}",
        home.log("job")
    );
    let events = home
        .call(
            &ReadEvents {
                run: Some("job".to_owned()),
                ..ReadEvents::default()
            },
            "",
        )
        .expect("it reads")
        .events;
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event.kind.as_str())
        .filter(|kind| matches!(*kind, "run.retrying" | "run.recovered"))
        .collect();
    assert_eq!(kinds, ["run.retrying", "run.recovered"]);
}
