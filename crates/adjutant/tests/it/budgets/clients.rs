//! What an MCP client may state and raise, as `adj mcp` takes it.

use crate::mcp::{Session, run_of, text};
use crate::support::TestHome;
use serde_json::{Value, json};

fn budget(view: &Value, kind: &str) -> Value {
    view["budgets"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|budget| budget["kind"] == kind)
        .cloned()
        .unwrap_or_default()
}

fn refused(session: &mut Session, tool: &str, arguments: Value) -> String {
    let result = session.tool(tool, arguments);
    assert_eq!(result["isError"], true, "{result}");
    text(&result).to_owned()
}

#[test]
fn client_states_and_raises_no_more_than_is_configured() {
    let home = TestHome::with_config("budget = \"cost=5\"\n");
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let task = |budget: &str| json!({"agent": "echo", "prompt": "---\nhang", "budget": budget});
    for (stated, problem) in [
        ("cost=9", "allows $5.00 of cost at most"),
        ("cost=-1", "is not a budget"),
        ("tokens=9,hard", "cannot be measured"),
    ] {
        let told = refused(&mut session, "run_subagent", task(stated));
        assert!(told.contains(problem), "{stated}: {told}");
    }
    assert_eq!(home.ok(&["ps", "--all", "--quiet"]), "");
    let plain = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nhang"}),
    ));
    assert_eq!(
        budget(&home.show(&plain), "cost")["amount"],
        5_000_000,
        "the configured one"
    );
    let run = run_of(&session.done("run_subagent", task("cost=2,tokens=50k")));
    let raise = |budget: &str| json!({"run_id": run, "action": "resume", "budget": budget});
    session.done("steer_subagent", raise("cost=3"));
    let told = refused(&mut session, "steer_subagent", raise("cost=0.01"));
    assert!(
        told.contains("allows $5.00 of cost at most: a person can raise it"),
        "{told}"
    );
    // What a person has raised beyond that concerns no other kind.
    home.ok(&["budget", &run, "--add", "cost=20"]);
    session.done("steer_subagent", raise("tokens=1k"));
    let view = home.show(&run);
    assert_eq!(
        (
            &budget(&view, "cost")["amount"],
            &budget(&view, "tokens")["amount"]
        ),
        (&json!(25_000_000), &json!(51_000)),
        "{view}"
    );
    // A retry by the client gets what the client may have; one by the person gets it all.
    home.ok(&["cancel", &run]);
    home.finished(&run);
    let again = run_of(&session.done("steer_subagent", json!({"run_id": run, "action": "retry"})));
    let view = home.show(&again);
    assert_eq!(
        (
            &budget(&view, "cost")["amount"],
            &budget(&view, "tokens")["amount"]
        ),
        (&json!(5_000_000), &json!(51_000)),
        "{view}"
    );
    let again = home.json(&["retry", &run]);
    assert_eq!(budget(&again, "cost")["amount"], 25_000_000, "{again}");
}

#[test]
fn raise_that_resumes_carries_what_the_run_needs_to_know() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": "---\nsay ready\nhang", "budget": "time=1s"}),
    ));
    let view = home.until("it is stopped", || {
        Some(home.show(&run)).filter(|view| view["state"] == "stopped")
    });
    assert_eq!(view["attention"]["why"], "budget", "{view}");
    session.done(
        "steer_subagent",
        json!({"run_id": run, "action": "resume", "budget": "time=1h", "text": "the schema is fixed", "next_step": "begin with the tests"}),
    );
    home.until("it works again", || {
        Some(home.show(&run)).filter(|view| view["state"] == "running" && view["attempt"] == 2)
    });
    let path = home
        .home
        .logs_dir()
        .join(format!("{}.2.prompt.md", home.run_id(&run)));
    let prompt = std::fs::read_to_string(path).expect("a prompt");
    assert!(
        prompt.contains("the schema is fixed") && prompt.contains("begin with the tests"),
        "{prompt}"
    );
    // A working run cannot take them so, and its budget stays.
    let told = refused(
        &mut session,
        "steer_subagent",
        json!({"run_id": run, "action": "resume", "budget": "time=1h", "text": "now this"}),
    );
    assert!(told.contains("running"), "{told}");
    assert_eq!(budget(&home.show(&run), "time")["amount"], 3_601_000);
    session.done(
        "steer_subagent",
        json!({"run_id": run, "action": "resume", "budget": "time=1h"}),
    );
    assert_eq!(budget(&home.show(&run), "time")["amount"], 7_201_000);
}

#[test]
fn delegated_budget_is_taken_from_the_requesters() {
    let home = TestHome::new();
    let ask = |tokens: &str| {
        format!(
            "tool delegate_work {{\"new_task_description\":\"---\\nhang\",\"independence\":\"can_proceed_parallel\",\"budget\":\"tokens={tokens}\",\"wait_s\":0}}\n"
        )
    };
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let prompt = format!("---\n{}{}hang", ask("9k"), ask("4k"));
    let run = run_of(&session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": prompt, "budget": "tokens=10k"}),
    ));
    home.until("both delegations are open", || {
        (home.inbox(&[]).as_array().map_or(0, Vec::len) == 2).then_some(())
    });
    session.done(
        "reply_subagent",
        json!({"message_id": "Q1", "decision": "approve"}),
    );
    let view = home.show(&run);
    assert_eq!(
        (&view["budgets"][0]["reserved"], &view["budgets"][0]["left"]),
        (&json!(9_000), &json!(1_000)),
        "{view}"
    );
    let child = home.show(view["children"][0].as_str().expect("a child"));
    assert_eq!(
        (&child["budgets"][0]["of"], &child["budgets"][0]["amount"]),
        (&child["name"], &json!(9_000)),
        "{child}"
    );
    let told = refused(
        &mut session,
        "reply_subagent",
        json!({"message_id": "Q2", "decision": "approve"}),
    );
    assert!(told.contains("has left (1k)"), "{told}");
    let child = child["name"].as_str().expect("a name");
    home.ok(&["cancel", child]);
    home.finished(child);
    assert!(home.show(&run)["budgets"][0]["reserved"].is_null());
    session.done(
        "reply_subagent",
        json!({"message_id": "Q2", "decision": "approve"}),
    );
    assert_eq!(home.show(&run)["budgets"][0]["reserved"], 4_000);
}
