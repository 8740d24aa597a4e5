//! Delegation: a run asks for another agent to do a task. Its parent or the person approves,
//! approves with changes, or denies. The new run is the requester's child.

use crate::mcp::Session;
use crate::support::{TestHome, kill};
use adjutant_api::view::{AnswerOne, AnswerRequests, DecisionWord, ListRequests};
use serde_json::{Value, json};
use std::sync::Barrier;

/// Creates a home with an agent `stream` that reads messages live.
fn home_with(config: &str) -> TestHome {
    TestHome::with_config(&format!(
        "{config}\n[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n"
    ))
}

/// Returns the child runs of a run.
fn children(home: &TestHome, run: &str) -> Vec<Value> {
    let id = home.run_id(run);
    let all = home.json(&["ps", "-a"]);
    all.as_array()
        .into_iter()
        .flatten()
        .filter(|view| view["parent"] == id.as_str())
        .cloned()
        .collect()
}

fn only_child(home: &TestHome, run: &str) -> Value {
    let all = children(home, run);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn asked(home: &TestHome, kind: &str) -> Value {
    home.until(&format!("a {kind} is open"), || {
        let inbox = home.inbox(&[]);
        inbox
            .as_array()
            .into_iter()
            .flatten()
            .find(|request| request["kind"] == kind)
            .cloned()
    })
}

fn approve(home: &TestHome, number: &str, key: &str) -> Result<(), String> {
    let one = AnswerOne {
        message_id: Some(number.to_owned()),
        decision: Some(DecisionWord::Approve),
        ..AnswerOne::default()
    };
    home.call(&AnswerRequests { answers: vec![one] }, key)
        .map(|_| ())
        .map_err(|error| error.code)
}

#[test]
fn run_waits_for_its_child_and_gets_the_result() {
    let home = home_with("");
    home.start("audit", "delegate \"---\\nask \\\"which?\\\"\\ndone tests are set up\" [blocks] [reason: no tests yet] [context: see PLAN.md] [priority: P0]\nsay after");
    let request = asked(&home, "delegation");
    let delegation = &request["delegation"];
    assert_eq!(
        (&delegation["independence"], &delegation["priority"]),
        (&json!("blocks_current_work"), &json!("P0"))
    );
    assert_eq!(
        (&delegation["reason"], &delegation["context_required"]),
        (&json!("no tests yet"), &json!("see PLAN.md"))
    );
    assert_eq!(home.show("audit")["status"], "waiting_parent_reply");
    let refused = home.adj(&["reply", "Q1", "sure"]);
    assert!(
        refused.code == 2
            && refused
                .err
                .contains("a delegation cannot be answered in words"),
        "{refused:?}"
    );

    let told = home.ok(&["approve", "Q1"]);
    let child = only_child(&home, "audit");
    let name = child["name"].as_str().expect("a name");
    assert!(told.contains(&format!("started {name}")), "{told}");
    assert_eq!(
        (&child["root"], &child["owner"], &child["agent"]),
        (
            &json!(home.run_id("audit")),
            &json!("person"),
            &json!("echo")
        )
    );
    // A wait for the parent reports the child's question.
    let waited = home.adj(&["wait", "audit"]);
    assert!(
        waited.code == 3 && waited.err.contains("adj reply Q2"),
        "{waited:?}"
    );
    assert_eq!(
        home.adj(&["wait", "--until", "all", "audit"]).code,
        3,
        "nothing goes on until the child is answered"
    );
    assert!(!home.log("audit").contains("after"), "it is held");
    let listed = home.ok(&["ps"]);
    assert!(listed.contains(&format!("└ {name}")), "{listed}");
    home.ok(&["reply", "Q2", "this"]);

    assert_eq!(home.finished("audit")["outcome"], "succeeded");
    let log = home.log("audit");
    assert!(
        log.contains("answer: approved\nchild: succeeded: tests are set up\nafter"),
        "{log}"
    );
    let shown = home.show(name);
    assert_eq!(shown["parent_name"], "audit");
    assert_eq!(home.show("audit")["children"], json!([name]));
    let prompt = std::fs::read_to_string(home.home.logs_dir().join(format!(
        "{}.prompt.md",
        child["run_id"].as_str().expect("an id")
    )))
    .expect("a prompt");
    assert!(
        prompt.contains("Run audit delegated this task to you.")
            && prompt.contains("## CONTEXT\n\n    see PLAN.md"),
        "{prompt}"
    );
}

#[test]
fn parallel_delegation_reports_its_end_to_the_run() {
    let home = home_with("");
    home.start_agent("stream", "audit", "delegate \"---\\nask \\\"go?\\\"\\ndone refactored\"\nsay going on\nexpect-message\nsay end");
    asked(&home, "delegation");
    home.ok(&["approve", "audit"]);
    home.until_log("audit", "going on");
    asked(&home, "question");
    home.ok(&["reply", "Q2", "go"]);
    home.finished("audit");
    let log = home.log("audit");
    assert!(
        log.contains("message: ## DELEGATION APPROVED")
            && log.contains("Result: succeeded: refactored"),
        "{log}"
    );
    assert_eq!(home.show("audit")["outcome"], "succeeded");
}

#[test]
fn optional_child_starts_when_a_slot_is_free() {
    let home = home_with("live_runs_max = 1");
    let journal = home.work().join("journal").display().to_string();
    home.start(
        "audit",
        &format!("delegate \"---\\njournal {journal} optional\" [optional]\nask \"hold?\""),
    );
    asked(&home, "delegation");
    home.ok(&["approve", "audit"]);
    asked(&home, "question");
    home.start("other", &format!("journal {journal} other"));
    let child = only_child(&home, "audit");
    assert_eq!(
        (&child["state"], &home.show("other")["state"]),
        (&json!("queued"), &json!("queued"))
    );
    home.ok(&["reply", "Q2", "done"]);
    home.finished(child["name"].as_str().expect("a name"));
    let order: Vec<String> = std::fs::read_to_string(&journal)
        .expect("a journal")
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap_or("").to_owned())
        .collect();
    assert_eq!(order, ["other", "optional"]);
}

#[test]
fn delegation_is_approved_with_changes_or_denied() {
    let home = home_with("");
    home.start(
        "audit",
        "delegate \"Rewrite it all\" [blocks]\ndelegate \"Rewrite it again\"\nsay end",
    );
    asked(&home, "delegation");
    let bad = home.adj(&["approve", "Q1", "--agent", "nobody"]);
    assert_eq!(bad.code, 127, "{bad:?}");
    assert!(
        children(&home, "audit").is_empty(),
        "bad input changes nothing"
    );
    let (file, dir) = (home.work().join("task.md"), home.work().join("docs"));
    std::fs::write(&file, "---\ndone only documented\n").expect("a file");
    std::fs::create_dir(&dir).expect("a directory");
    let (file, dir) = (file.display().to_string(), dir.display().to_string());
    home.ok(&[
        "approve",
        "Q1",
        "--agent",
        "stream",
        "--cwd",
        &dir,
        "--priority",
        "P0",
        "--prompt-file",
        &file,
    ]);
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    let child = only_child(&home, "audit");
    assert_eq!(
        (&child["agent"], &child["cwd"]),
        (
            &json!("stream"),
            &json!(
                std::fs::canonicalize(&dir)
                    .expect("there")
                    .display()
                    .to_string()
            )
        )
    );
    let settled = home.inbox(&["--all"])[0].clone();
    assert_eq!(
        (
            &settled["delegation"]["changes"]["priority"],
            &settled["question"]
        ),
        (&json!("P0"), &json!("Rewrite it all")),
        "{settled}"
    );
    home.ok(&["deny", "Q2", "after the audit"]);
    home.finished("audit");
    let log = home.log("audit");
    assert!(
        log.contains("child: succeeded: only documented")
            && log.contains("answer: denied: after the audit"),
        "{log}"
    );
    assert_eq!(children(&home, "audit").len(), 1);
}

#[test]
fn delegation_into_a_busy_directory_can_be_refused() {
    let home = home_with("refuse_shared_directory = true");
    home.start_agent("stream", "audit", "delegate \"---\\ndone beside\"\nexpect-message\ndelegate \"---\\ndone instead\" [blocks]\ndone all");
    asked(&home, "delegation");
    let refused = home.adj(&["approve", "Q1"]);
    assert!(
        refused.code == 7 && refused.err.contains("audit is working in this directory"),
        "{refused:?}"
    );
    assert!(
        children(&home, "audit").is_empty() && home.inbox(&[])[0]["number"] == "Q1",
        "bad input changes nothing"
    );
    let dir = home.work().join("apart");
    std::fs::create_dir(&dir).expect("a directory");
    home.ok(&["approve", "Q1", "--cwd", &dir.display().to_string()]);
    // A waiting run is not active.
    home.until("the second is asked", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    home.ok(&["approve", "Q2"]);
    assert_eq!(
        (
            &home.finished("audit")["outcome"],
            children(&home, "audit").len()
        ),
        (&json!("succeeded"), 2)
    );
}

#[test]
fn delegation_block_parks_the_run_until_its_child_ends() {
    let home = home_with("");
    let script = "delegate-block \"---\\nask \\\"which?\\\"\\ndone set up\" [blocks]\nresume-here\nsay after";
    home.start("audit", script);
    assert_eq!(home.until_status("audit", "stopped")["reason"], "parked");
    home.ok(&["approve", "audit"]);
    asked(&home, "question");
    assert_eq!(
        home.show("audit")["state"],
        "stopped",
        "it is held until the child has ended"
    );
    home.ok(&["reply", "Q2", "this"]);
    let view = home.finished("audit");
    assert_eq!(
        (&view["outcome"], &view["attempt"]),
        (&json!("succeeded"), &json!(2))
    );
    let (log, child) = (home.log("audit"), only_child(&home, "audit"));
    let launched = format!(
        "## DELEGATION APPROVED\n\nNew agent launched: {} (run",
        child["name"].as_str().expect("a name")
    );
    assert!(
        log.contains(&launched)
            && log.contains("Result: succeeded: set up")
            && log.contains("after"),
        "{log}"
    );

    home.start("denied", script);
    home.until_status("denied", "stopped");
    home.ok(&["deny", "denied", "too early"]);
    home.finished("denied");
    let log = home.log("denied");
    assert!(
        log.contains("## DELEGATION DENIED") && log.contains("Reason: too early"),
        "{log}"
    );
}

#[test]
fn unawaited_delegation_outlives_its_run() {
    let home = home_with("");
    home.start("brief", "delegate-block \"---\\ndone refactored\"\nsay end");
    assert_eq!(home.finished("brief")["outcome"], "succeeded");
    let approved = home.adj(&["approve", "brief"]);
    assert!(
        approved.code == 0
            && approved
                .err
                .contains("brief has ended, so it does not learn of this"),
        "{approved:?}"
    );
    let child = only_child(&home, "brief");
    assert_eq!(
        home.finished(child["name"].as_str().expect("a name"))["outcome"],
        "succeeded"
    );
    assert!(home.inbox(&[]).as_array().is_some_and(Vec::is_empty));
    // A run that works is not called ended.
    home.start("awaited", "delegate-block \"---\\ndone\" [blocks]");
    home.until_status("awaited", "stopped");
    let approved = home.adj(&["approve", "awaited"]);
    assert!(
        approved.code == 0 && !approved.err.contains("has ended"),
        "{approved:?}"
    );
}

#[test]
fn cancelling_a_run_cancels_its_children() {
    let home = home_with("");
    home.start("audit", "delegate \"---\\nhang\" [blocks]");
    asked(&home, "delegation");
    home.ok(&["approve", "audit"]);
    let child = only_child(&home, "audit")["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    home.until_status(&child, "running");
    home.ok(&["cancel", "audit"]);
    assert_eq!(home.finished("audit")["outcome"], "cancelled");
    assert_eq!(home.finished(&child)["outcome"], "cancelled");

    home.start("other", "delegate \"---\\nhang\" [blocks]\nsay after");
    asked(&home, "delegation");
    home.ok(&["approve", "other"]);
    let child = only_child(&home, "other")["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    home.ok(&["cancel", &child]);
    home.finished("other");
    assert!(
        home.log("other").contains("child: cancelled\nafter"),
        "a cancelled child lets its parent go on"
    );
}

#[test]
fn trees_have_limits_and_waiting_runs_lend_their_slot() {
    let home = home_with("live_runs_max = 1\n[delegation]\ndepth_max = 3\nchildren_max = 1\n");
    let task = home.work().join("task.md");
    let deeper = |text: &str| std::fs::write(&task, text).expect("a file");
    let file = task.display().to_string();
    home.start(
        "top",
        "delegate \"first\" [blocks]\ndelegate \"one more\"\nsay end",
    );
    asked(&home, "delegation");
    deeper("---\ndelegate \"second\" [blocks]\ndone first is done");
    home.ok(&["approve", "Q1", "--prompt-file", &file]);
    home.until("the child delegates, too", || {
        (home.inbox(&[])[0]["number"] == "Q2").then_some(())
    });
    deeper("---\ndelegate \"third\" [blocks]\ndone second is done");
    home.ok(&["approve", "Q2", "--prompt-file", &file]);
    home.until("the grandchild delegates, too", || {
        (home.inbox(&[])[0]["number"] == "Q3").then_some(())
    });
    let refused = home.adj(&["approve", "Q3"]);
    assert!(
        refused.code == 8 && refused.err.contains("depth"),
        "{refused:?}"
    );
    assert_eq!(
        home.inbox(&[])[0]["status"],
        "pending",
        "a refused approval changes nothing"
    );
    home.ok(&["deny", "Q3", "deep enough"]);
    home.until("all of them went on, one place for three", || {
        (home.inbox(&[])[0]["number"] == "Q4").then_some(())
    });
    let refused = home.adj(&["approve", "Q4"]);
    assert!(
        refused.code == 8 && refused.err.contains("delegations of one run"),
        "{refused:?}"
    );
    home.ok(&["deny", "Q4", "one is enough"]);
    home.finished("top");
    assert!(home.log("top").contains("child: succeeded: first is done"));
}

#[test]
fn one_of_64_delegations_gets_the_only_slot() {
    const DELEGATIONS: usize = 64;
    let home = home_with("[delegation]\nlive_max = 2\nchildren_max = 100\n");
    let line = "delegate \"---\\nhang\" [nowait]\n";
    home.start("eager", &format!("{}hang", line.repeat(DELEGATIONS)));
    home.until("all are asked", || {
        let list = ListRequests {
            run: None,
            all: false,
            limit: Some(100),
        };
        (home.call(&list, "").ok()?.requests.len() == DELEGATIONS).then_some(())
    });
    let gate = Barrier::new(DELEGATIONS);
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let approvals: Vec<_> = (1..=DELEGATIONS)
            .map(|number| {
                let (home, gate) = (&home, &gate);
                scope.spawn(move || {
                    gate.wait();
                    approve(home, &format!("Q{number}"), &format!("approve-{number}"))
                })
            })
            .collect();
        approvals
            .into_iter()
            .map(|approval| approval.join().expect("no panic"))
            .collect()
    });
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    assert!(
        results
            .iter()
            .all(|result| result.is_ok() || *result == Err("limit".to_owned())),
        "{results:?}"
    );
    only_child(&home, "eager");
    assert_eq!(
        home.show("eager")["pending_total"],
        DELEGATIONS - 1,
        "the others stay open"
    );
    home.ok(&["cancel", "eager"]);
}

#[test]
fn delegation_starts_exactly_one_run() {
    let home = home_with("");
    let journal = home.work().join("journal").display().to_string();
    home.start(
        "audit",
        &format!("delegate \"---\\njournal {journal}\\ndone once\" [blocks]\nsay after"),
    );
    let number = asked(&home, "delegation")["number"]
        .as_str()
        .expect("a number")
        .to_owned();
    let hub = home.hub_pid();
    assert_eq!(approve(&home, &number, "the-key"), Ok(()));
    // The child is recorded with the decision. The next hub starts it, unless this one already has.
    kill(hub);
    home.ok(&["ps"]);
    assert_eq!(
        approve(&home, &number, "the-key"),
        Ok(()),
        "the same call under its key"
    );
    assert_eq!(
        approve(&home, &number, "another-key"),
        Err("already_answered".to_owned())
    );
    assert_eq!(home.finished("audit")["outcome"], "succeeded");
    assert!(home.log("audit").contains("child: succeeded: once\nafter"));
    only_child(&home, "audit");
    assert_eq!(
        std::fs::read_to_string(&journal)
            .expect("a journal")
            .lines()
            .count(),
        1
    );
}

#[test]
fn run_sees_its_children_and_client_its_trees() {
    let home = home_with("");
    let mut alice = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    let look = "tool check_subagent_status {\"run_id\": \"$CHILD\"}\ntool get_subagent_logs {\"run_id\": \"$CHILD\"}";
    let prompt =
        format!("---\ndelegate \"---\\nask \\\"which?\\\"\\ndone x\"\n{look}\nask \"look?\"");
    alice.done(
        "run_subagent",
        json!({"agent": "echo", "name": "audit", "prompt": prompt}),
    );
    let waited = alice.done(
        "wait_for_subagents",
        json!({"run_ids": ["audit"], "wait_s": 30}),
    );
    assert_eq!(
        waited["needs"][0]["delegation"]["independence"], "can_proceed_parallel",
        "{waited}"
    );
    let done = alice.done(
        "reply_subagent",
        json!({"message_id": "Q1", "decision": "approve"}),
    );
    let child = done["requests"][0]["child_name"]
        .as_str()
        .expect("a child")
        .to_owned();
    home.until("both ask", || {
        (home.inbox(&[]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let waited = alice.done(
        "wait_for_subagents",
        json!({"run_ids": ["audit"], "wait_s": 30}),
    );
    assert_eq!(
        waited["needs"].as_array().map(Vec::len),
        Some(2),
        "the child's question, too: {waited}"
    );
    assert_eq!(
        alice.done("check_subagent_status", json!({"run_id": child}))["parent_name"],
        "audit"
    );
    let open = alice.done("get_pending_questions", json!({"run_id": child}));
    let question = open["questions"][0]["message_id"]
        .as_str()
        .expect("a question")
        .to_owned();

    // The requester can only show its child. Another run cannot even do that.
    let log = home.log("audit");
    assert!(
        log.contains(&format!("result: {child} (")) && log.contains("refused: error[not_allowed]"),
        "{log}"
    );
    home.start(
        "nosy",
        &format!(
            "tool check_subagent_status {}\nsay end",
            json!({"run_id": child})
        ),
    );
    home.finished("nosy");
    assert!(
        home.log("nosy").contains("refused: error[not_found]"),
        "{}",
        home.log("nosy")
    );
    let mut bob = Session::open(&home.home.dir, &home.work(), &["--client", "bob"], true);
    assert_eq!(
        bob.tool("check_subagent_status", json!({"run_id": child}))["isError"],
        true
    );
    assert_eq!(
        bob.tool(
            "reply_subagent",
            json!({"message_id": question, "answer": "mine"})
        )["isError"],
        true
    );
    alice.done(
        "steer_subagent",
        json!({"run_id": child, "action": "cancel"}),
    );
    assert_eq!(home.finished(&child)["outcome"], "cancelled");
}

#[test]
fn run_delegates_no_wider_permissions_than_its_own() {
    let home = home_with("[agents.mighty]\nharness = \"echo\"\npermissions = \"full\"\n");
    home.ok(&[
        "run",
        "--detach",
        "-a",
        "echo",
        "--name",
        "job",
        "--permissions",
        "read",
        "delegate \"---\\ndone it\" [blocks] [agent: mighty]\nsay after",
    ]);
    asked(&home, "delegation");
    home.ok(&["approve", "job"]);
    home.ok(&["wait", "job"]);
    assert_eq!(home.show("job")["permissions"], "read");
    let child = only_child(&home, "job");
    assert_eq!(
        (&child["agent"], &child["permissions"]),
        (&json!("mighty"), &json!("read"))
    );
}

#[test]
fn resumed_run_gets_open_requests_and_results() {
    let home = home_with("");
    home.start(
        "par",
        "ask \"which colour?\" [nonblocking]\ndelegate \"---\\nask \\\"child q?\\\"\\ndone refactored\" [blocks]\nresume-here\n\
         tool check_answer {\"message_id\": \"Q2\", \"wait_s\": 60}\ntool check_answer {\"message_id\": \"Q1\", \"wait_s\": 60}\nsay end",
    );
    assert_eq!(asked(&home, "delegation")["number"], "Q2");
    home.ok(&["approve", "Q2"]);
    let child = only_child(&home, "par");
    home.ok(&["pause", "par"]);
    assert_eq!(home.until_status("par", "stopped")["reason"], "paused");
    home.ok(&["resume", "par"]);
    let log = home.until_log("par", "## RESUME INSTRUCTIONS");
    let told = format!(
        "## STILL OPEN\n\nYou have asked for this already. Do not ask for it again.\n\n\
         - Q2, delegation (approved, run {} is working on it): --- ask \"child q?\" done refactored\n  Call check_answer with message_id Q2: it waits for the result.\n\
         - Q1, question (not decided yet): which colour?\n  Call check_answer with message_id Q1 when you need the answer.\n",
        child["name"].as_str().expect("a name")
    );
    assert!(log.contains(&told), "{log}");
    assert_eq!(
        only_child(&home, "par")["run_id"],
        child["run_id"],
        "it was not delegated again"
    );
    home.until("the child has asked", || {
        (home.adj(&["reply", "Q3", "this"]).code == 0).then_some(())
    });
    home.ok(&["reply", "Q1", "blue"]);
    assert_eq!(home.finished("par")["outcome"], "succeeded");
    let log = home.log("par");
    assert!(
        log.contains("succeeded: refactored") && log.contains("blue") && log.contains("\nend"),
        "{log}"
    );
    let all = home.inbox(&["--all"]);
    assert!(
        all.as_array().is_some_and(
            |all| all.len() == 3 && all.iter().all(|request| request["status"] == "retrieved")
        ),
        "{all}"
    );
}
