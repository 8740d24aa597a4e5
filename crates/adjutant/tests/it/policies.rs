//! Policies and grants: configured rules answer approvals, and one approval answers the same
//! operation again.

use crate::changes::repository;
use crate::mcp::Session;
use crate::support::TestHome;
use adjutant_api::protocol::WorkerAccess;
use serde_json::{Value, json};
use std::process::Command;

fn with_policies(policies: &str) -> TestHome {
    TestHome::with_config(policies)
}

/// A line of the echo agent's script that asks for approval of a command.
fn asks(command: &str) -> String {
    format!(
        "tool request_approval {}",
        json!({"action": format!("run {command}"), "command": command})
    )
}

const RULES: &str = "[[policies]]\nname = \"reads\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = [\"git status\", \"git log -3\"]\n\
    [[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\nreason = \"a person pushes\"\n\
    [[policies]]\nname = \"careful\"\ndecision = \"ask\"\ncommand = \"git log --all\"\n";

fn all(home: &TestHome) -> Vec<Value> {
    home.inbox(&["--all"]).as_array().cloned().expect("a list")
}

#[test]
fn policy_answers_what_it_covers() {
    let home = with_policies(RULES);
    home.start(
        "job",
        &[
            asks("git log -3"),
            asks("git push origin"),
            "say done".to_owned(),
        ]
        .join("\n"),
    );
    assert_eq!(home.finished("job")["outcome"], "succeeded");
    let [allowed, denied] = &all(&home)[..] else {
        panic!("two requests")
    };
    assert_eq!(
        (
            &allowed["answered_by"],
            &allowed["decision"],
            &allowed["status"]
        ),
        (
            &json!("policy reads"),
            &json!("approved"),
            &json!("retrieved")
        )
    );
    assert_eq!(
        (
            &denied["answered_by"],
            &denied["decision"],
            &denied["reason"]
        ),
        (
            &json!("policy no-push"),
            &json!("denied"),
            &json!("a person pushes")
        )
    );
    assert_eq!(allowed["operation"]["command"], "git log -3");
    let log = home.log("job");
    assert!(
        log.contains("by policy reads") && log.contains("a person pushes"),
        "{log}"
    );
    let events = home.ok(&["events", "job"]);
    assert!(
        events.contains("request.asked")
            && events.contains("policy reads")
            && events.contains("policy no-push"),
        "{events}"
    );
    let shown = home.ok(&["show", "job"]);
    assert!(shown.contains("by policy reads"), "{shown}");
}

#[test]
fn uncertain_requests_are_asked() {
    let home = with_policies(RULES);
    for (place, command) in [
        "git log; rm -rf /",
        "git log $(rm x)",
        "GIT_PAGER=x git log",
        "sh -c 'git log'",
        "git log > x",
        "git log --all",
        "make",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("job-{place}");
        home.start(&name, &asks(command));
        home.until_status(&name, "waiting_parent_reply");
    }
    assert!(
        all(&home)
            .iter()
            .all(|request| request["status"] == "pending")
    );
    home.start("options", "approve \"git status\" [options: once|always]");
    home.until_status("options", "waiting_parent_reply");
}

#[test]
fn policy_answers_a_block_at_once() {
    let home = with_policies(
        "[[policies]]\nname = \"own\"\ndecision = \"deny\"\ntool = \"request_approval\"\nreason = \"keep it\"\n",
    );
    home.start(
        "asks",
        "approve-block \"drop the table\"\nresume-here\nsay after",
    );
    assert_eq!(home.finished("asks")["outcome"], "succeeded");
    let log = home.log("asks");
    assert!(
        log.contains("## APPROVAL DENIED") && log.contains("keep it") && log.contains("after"),
        "{log}"
    );
    assert_eq!(all(&home)[0]["answered_by"], "policy own");
}

/// Replaces the configuration at once: a hub that reads a half-written file would read another one.
fn configure(home: &TestHome, text: &str) {
    let (file, new) = (
        home.home.dir.join("config.toml"),
        home.home.dir.join("config.new"),
    );
    std::fs::write(&new, text).expect("the home can be written");
    std::fs::rename(new, file).expect("the home can be written");
}

#[test]
fn invalid_change_keeps_the_last_valid_policies() {
    let rules = format!("[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n{RULES}");
    let home = with_policies(&rules);
    home.start("first", &asks("git push"));
    home.finished("first");
    configure(
        &home,
        &format!("{rules}[[policies]]\nname = \"all\"\ndecision = \"allow\"\n"),
    );
    let refused = home.adj(&["run", "--detach", "--agent", "echo", "say x"]);
    assert!(
        refused.code != 0 && refused.err.contains("policies[3]: has no condition"),
        "{refused:?}"
    );
    configure(&home, &rules);
    home.start_agent(
        "stream",
        "held",
        &["expect-message".to_owned(), asks("git push"), asks("make")].join("\n"),
    );
    home.until_status("held", "running");
    configure(
        &home,
        "[[policies]]\nname = \"all\"\ndecision = \"allow\"\n",
    );
    home.ok(&["send", "held", "go"]);
    home.until_status("held", "waiting_parent_reply");
    let all = all(&home);
    assert_eq!(
        (&all[1]["answered_by"], &all[2]["status"]),
        (&json!("policy no-push"), &json!("pending")),
        "{all:?}"
    );
}

#[test]
fn policies_are_listed_and_tried_on_recorded_approvals() {
    let home = with_policies("");
    assert!(home.ok(&["policy"]).is_empty());
    for (name, command) in [
        ("a", "git log -3"),
        ("b", "git push"),
        ("c", "make; x"),
        ("d", "make"),
    ] {
        home.start(name, &asks(command));
        home.until_status(name, "waiting_parent_reply");
    }
    let file = home.work().join("rules.toml");
    std::fs::write(&file, RULES).expect("the directory can be written");
    let path = file.display().to_string();
    let tried = home.json(&["policy", "try", &path]);
    assert_eq!(tried["answered"], 2, "{tried}");
    let decisions: Vec<&Value> = tried["approvals"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["decision"])
        .collect();
    assert_eq!(
        decisions,
        [&json!("allow"), &json!("deny"), &Value::Null, &Value::Null]
    );
    assert_eq!(tried["approvals"][0]["policy"], "reads");
    let shown = home.adj(&["policy", "try", &path, "--last", "2"]);
    assert!(
        shown.out.contains("make; x")
            && !shown.out.contains("git log")
            && shown.err.contains("would answer 0 of 2 recorded approvals"),
        "{shown:?}"
    );
    assert!(
        all(&home)
            .iter()
            .all(|request| request["status"] == "pending"),
        "nothing is answered"
    );
    std::fs::write(
        &file,
        "[[policies]]\nname = \"x\"\ndecision = \"allow\"\ncolour = 1\n",
    )
    .expect("the directory can be written");
    let refused = home.adj(&["policy", "try", &path]);
    assert!(
        refused.code == 2 && refused.err.contains("colour"),
        "{refused:?}"
    );

    // Without live runs, a change counts at once.
    home.ok(&["cancel", "a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        home.finished(name);
    }
    configure(&home, RULES);
    home.start("e", &asks("git status"));
    home.finished("e");
    let list = home.json(&["policy"]);
    assert_eq!(
        (
            &list["policies"][0]["name"],
            &list["policies"][0]["answers"],
            &list["policies"][1]["answers"]
        ),
        (&json!("reads"), &json!(1), &json!(0))
    );
    assert_eq!(
        list["policies"][0]["conditions"]["command"],
        json!(["git status", "git log -3"])
    );
    assert!(home.ok(&["policy"]).contains("command: git push"));
}

/// The policies of the README: a trial says why they do not answer, and what to add.
#[test]
fn trial_says_why_a_policy_does_not_answer() {
    let home = with_policies("");
    let readme = include_str!("../../../../README.md");
    let rules = readme
        .split("```toml\n")
        .find(|block| block.starts_with("[[policies]]"))
        .and_then(|block| block.split("```").next());
    let rules = rules.expect("the README has a policy");
    let scripts = [
        "approve \"Run the tests\" [preview: cargo test]".to_owned(),
        asks("cargo test"),
        asks("cargo test; rm -rf /"),
        asks("make"),
    ];
    for (at, script) in scripts.iter().enumerate() {
        home.start(&format!("job-{at}"), script);
        home.until_status(&format!("job-{at}"), "waiting_parent_reply");
    }
    let file = home.work().join("rules.toml");
    let path = file.display().to_string();
    std::fs::write(&file, rules).expect("the directory can be written");
    let tried = home.json(&["policy", "try", &path]);
    let why = |at: usize| {
        tried["approvals"][at]["passed"][0]["why"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for (at, expected) in [
        "states no command",
        "add tool = \"request_approval\"",
        "not a single simple one",
        "another one",
    ]
    .iter()
    .enumerate()
    {
        assert!(why(at).contains(expected), "{at}: {tried}");
    }
    let shown = home.ok(&["policy", "try", &path]);
    assert!(
        shown.contains("WHY") && shown.contains("add tool = \"request_approval\" to the policy"),
        "{shown}"
    );
    // With what it says, the policy answers.
    std::fs::write(
        &file,
        rules.replacen(
            "decision = \"allow\"",
            "decision = \"allow\"\ntool = \"request_approval\"",
            1,
        ),
    )
    .expect("it is written");
    let tried = home.json(&["policy", "try", &path]);
    assert_eq!(
        (&tried["answered"], &tried["approvals"][1]["decision"]),
        (&json!(1), &json!("allow")),
        "{tried}"
    );
}

#[test]
fn check_says_which_policy_would_answer_and_why_others_would_not() {
    let home = TestHome::with_config(
        "[agents.mine]\nharness = \"echo\"\npermissions = \"edit\"\n[[policies]]\nname = \"tests\"\ndecision = \"allow\"\ncommand = [\"cargo test\", \"git log *\"]\n\
         [[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\n\
         [[policies]]\nname = \"careful\"\ndecision = \"ask\"\nagent = \"codex\"\ncommand = \"cargo\"\n",
    );
    let check = |more: &[&str]| home.json(&[&["policy", "check", "-a", "mine"], more].concat());
    let decided = |view: &Value| {
        (
            view["decision"].as_str().unwrap_or("asked").to_owned(),
            view["policy"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let why = |view: &Value, policy: &str| {
        let passed = view["passed"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|passed| passed["policy"] == policy);
        passed
            .and_then(|passed| passed["why"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let both = |decision: &str, policy: &str| (decision.to_owned(), policy.to_owned());
    let denied = check(&["--", "git", "push", "origin", "main"]);
    assert_eq!(decided(&denied), both("deny", "no-push"));
    assert_eq!(
        (why(&denied, "tests"), why(&denied, "careful")),
        (
            "the command is another one".to_owned(),
            "it is for other agents (codex)".to_owned()
        )
    );
    let allowed = check(&["--", "cargo", "test"]);
    assert_eq!(decided(&allowed), both("allow", "tests"));
    // One word is a command line, several are the words of one command.
    assert_eq!(
        why(&check(&["--", "cargo test; rm -rf /"]), "tests"),
        "the command is not a single simple one"
    );
    assert_eq!(
        decided(&check(&["--", "git", "log", "a; b"])),
        both("allow", "tests")
    );
    let own = check(&["--tool", "request_approval", "--", "cargo", "test"]);
    assert_eq!(
        (decided(&own), own["passed"][0]["policy"].clone()),
        (both("asked", ""), json!("tests")),
        "the nearest first: {own}"
    );
    assert!(
        why(&own, "tests").contains("add tool = \"request_approval\""),
        "{own}"
    );
    let of_codex = home.json(&[
        "policy",
        "check",
        "-a",
        "codex",
        "--permissions",
        "full",
        "--",
        "cargo",
        "test",
    ]);
    assert_eq!(
        (decided(&of_codex), why(&of_codex, "tests")),
        (
            both("ask", "careful"),
            "it covers the request, and another policy has precedence".to_owned()
        )
    );
    assert_eq!(
        of_codex["passed"][0]["policy"], "tests",
        "the nearest first"
    );
    let shown = home.adj(&["policy", "check", "-a", "mine", "--", "git", "push"]);
    assert!(
        shown.code == 0
            && shown.out.contains("policy no-push denies it")
            && shown.out.contains("WHY NOT"),
        "{shown:?}"
    );
    assert!(
        shown
            .err
            .contains("for a request of mine with edit permissions and the tool Bash"),
        "{shown:?}"
    );
    let shown = home.adj(&["policy", "check", "-a", "mine", "--", "make"]);
    assert!(
        shown.out.contains("asked: no policy decides about it"),
        "{shown:?}"
    );
    let refused = home.adj(&["policy", "check", "-a", "nobody", "--", "make"]);
    assert!(
        refused.code == 2 && refused.err.contains("nobody is not in the configuration"),
        "{refused:?}"
    );
    let refused = home.adj(&[
        "policy",
        "check",
        "--permissions",
        "all",
        "-a",
        "mine",
        "--",
        "make",
    ]);
    assert!(
        refused.code == 2 && refused.err.contains("read, edit or full"),
        "{refused:?}"
    );
    assert!(all(&home).is_empty(), "nothing was asked");
}

/// Policies of a repository count in a check as they count for a run there.
#[test]
fn check_knows_the_policies_of_the_repository() {
    let home = repository();
    std::fs::write(home.work().join(".adjutant.toml"), "[[policies]]\nname = \"make\"\ndecision = \"allow\"\ncommand = \"make\"\n[[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\n").expect("a file");
    let check = |command: &str| home.json(&["policy", "check", "-a", "sh", "--", command]);
    assert_eq!(
        (&check("git push")["policy"], &check("make")["policy"]),
        (&json!("repo.no-push"), &Value::Null)
    );
    assert!(
        check("make")["repository"].is_string(),
        "it says that they are not trusted"
    );
    home.ok(&["policy", "trust", "."]);
    assert_eq!(
        (&check("make")["policy"], &check("make")["repository"]),
        (&json!("repo.make"), &Value::Null)
    );
    // Everything is asked while the file is invalid.
    std::fs::write(
        home.work().join(".adjutant.toml"),
        "[[policies]]\nname = \"make\"\ncolour = 1\n",
    )
    .expect("a file");
    let unusable = check("make");
    assert_eq!(
        (&unusable["decision"], &unusable["policy"]),
        (&json!("ask"), &json!("repo.unusable")),
        "{unusable}"
    );
}

/// Starts a run with children that each ask for approval of these commands, one after the other.
fn tree(home: &TestHome, name: &str, children: &[&[&str]]) -> Vec<String> {
    let delegate = |commands: &&[&str]| {
        let script = commands
            .iter()
            .map(|command| asks(command))
            .collect::<Vec<_>>()
            .join("\n");
        format!(
            "tool delegate_work {}",
            json!({"new_task_description": script, "wait_s": 0})
        )
    };
    home.start(
        name,
        &children
            .iter()
            .map(delegate)
            .chain(["hang".to_owned()])
            .collect::<Vec<_>>()
            .join("\n"),
    );
    home.until("all are proposed", || {
        (home.inbox(&[name]).as_array().map(Vec::len) == Some(children.len())).then_some(())
    });
    let proposed: Vec<String> = home
        .inbox(&[name])
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["number"].as_str().expect("a number").to_owned())
        .collect();
    let start = |number: &String| {
        home.json(&["approve", number])["requests"][0]["child_name"]
            .as_str()
            .expect("a child")
            .to_owned()
    };
    proposed.iter().map(start).collect()
}

fn pending_of<'a>(all: &'a [Value], run: &str) -> Vec<&'a Value> {
    all.iter()
        .filter(|one| one["run_name"] == run && one["kind"] == "approval")
        .collect()
}

#[test]
fn grant_answers_the_same_operation_of_the_tree() {
    let home = TestHome::new();
    let children = tree(
        &home,
        "root",
        &[&["make", "make", "make x"], &["make", "make"]],
    );
    home.start("other", &asks("make"));
    for run in children.iter().map(String::as_str).chain(["other"]) {
        home.until_status(run, "waiting_parent_reply");
    }
    let number = pending_of(&all(&home), &children[0])[0]["number"]
        .as_str()
        .expect("a number")
        .to_owned();
    let answered = home.json(&["approve", &number, "--same", "--for", "1h"]);
    assert_eq!(
        answered["requests"].as_array().map(Vec::len),
        Some(2),
        "the sibling's too: {answered}"
    );
    assert_eq!(answered["requests"][1]["answered_by"], "grant G1");
    home.finished(&children[1]);
    home.until_status(&children[0], "waiting_parent_reply");
    let all = all(&home);
    let by = |run: &str| {
        pending_of(&all, run)
            .iter()
            .map(|one| one["answered_by"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        by(&children[0]),
        [json!("person"), json!("grant G1"), Value::Null],
        "another command is asked"
    );
    assert_eq!(by(&children[1]), [json!("grant G1"), json!("grant G1")]);
    assert_eq!(by("other"), [Value::Null], "another tree is asked");
    let grants = home.json(&["grants"]);
    let grant = &grants["grants"][0];
    assert_eq!(
        (
            &grant["number"],
            &grant["uses"],
            &grant["root_name"],
            &grant["granted_by"]
        ),
        (&json!("G1"), &json!(3), &json!("root"), &json!("person"))
    );
    assert_eq!(grant["answered"].as_array().map(Vec::len), Some(3));
    assert!(
        grant["expires_at"].is_string()
            && home
                .ok(&["grants"])
                .contains("request_approval; command: make"),
        "{grant}"
    );
    let events = home.ok(&["events", "root"]);
    assert!(events.contains("grant.given"), "{events}");
}

#[test]
fn grant_ends_by_revocation_uses_and_time_and_outlives_the_hub() {
    let home = TestHome::with_config("[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n");
    let commands = ["expect-message".to_owned(), asks("make")].join("\n");
    home.start_agent(
        "stream",
        "job",
        &[
            asks("make"),
            asks("make"),
            commands.clone(),
            asks("test"),
            asks("test"),
            asks("test"),
        ]
        .join("\n"),
    );
    home.until_status("job", "waiting_parent_reply");
    home.ok(&["approve", "job", "--same"]);
    home.until("the second is answered", || {
        (all(&home).len() == 2 && all(&home)[1]["answered_by"] == "grant G1").then_some(())
    });
    home.ok(&["stop"]);
    assert_eq!(home.json(&["grants"])["grants"][0]["state"], "active");
    home.ok(&["grants", "revoke", "G1"]);
    assert_eq!(
        (
            home.adj(&["grants", "revoke", "G1"]).code,
            home.adj(&["grants", "revoke", "G7"]).code
        ),
        (7, 5)
    );
    home.ok(&["send", "job", "go"]);
    home.until("a revoked grant answers nothing", || {
        (all(&home).len() == 3).then_some(())
    });
    assert_eq!(all(&home)[2]["status"], "pending");
    home.ok(&["approve", "Q3"]);
    home.until("the next is asked", || {
        (all(&home).len() == 4).then_some(())
    });
    home.ok(&["approve", "Q4", "--uses", "1"]);
    home.until("the grant is used up", || {
        (all(&home).len() == 6).then_some(())
    });
    let all = all(&home);
    assert_eq!(
        (&all[4]["answered_by"], &all[5]["status"]),
        (&json!("grant G2"), &json!("pending"))
    );
    assert_eq!(home.json(&["grants"])["grants"], json!([]));
    let states: Vec<Value> = home.json(&["grants", "--all"])["grants"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["state"].clone())
        .collect();
    assert_eq!(states, [json!("revoked"), json!("used_up")]);
    assert!(home.ok(&["events", "job"]).contains("grant.revoked"));
}

#[test]
fn grant_ends_with_the_topmost_run() {
    let home = TestHome::with_config("[agents.stream]\nharness = \"echo\"\nprompt = \"stream\"\n");
    let child = [asks("make"), "ask \"which?\"".to_owned(), asks("make")].join("\n");
    let delegate = format!(
        "tool delegate_work {}",
        json!({"new_task_description": child, "agent": "echo", "wait_s": 0})
    );
    home.start_agent(
        "stream",
        "root",
        &[delegate, "expect-message".to_owned(), "say done".to_owned()].join("\n"),
    );
    home.until("it is proposed", || {
        (home.inbox(&["root"]).as_array().map(Vec::len) == Some(1)).then_some(())
    });
    let child = home.json(&["approve", "Q1"])["requests"][0]["child_name"]
        .as_str()
        .expect("a child")
        .to_owned();
    home.until("the child asks", || (all(&home).len() == 2).then_some(()));
    home.ok(&["approve", "Q2", "--same"]);
    home.until("the child asks on", || {
        (all(&home).len() == 3).then_some(())
    });
    assert_eq!(home.json(&["grants"])["grants"][0]["state"], "active");
    home.ok(&["send", "root", "go"]);
    home.finished("root");
    assert_eq!(home.json(&["grants"])["grants"], json!([]));
    assert_eq!(
        home.json(&["grants", "--all"])["grants"][0]["state"],
        "over"
    );
    home.ok(&["reply", "Q3", "this"]);
    home.until("it asks again", || (all(&home).len() == 4).then_some(()));
    assert_eq!(
        all(&home)[3]["status"],
        "pending",
        "the grant has ended with its tree"
    );
    let refused = home.adj(&["approve", "Q4", "--same"]);
    assert!(
        refused.code != 0 && refused.err.contains("grants end with it: approve Q4 once"),
        "{refused:?}"
    );
    home.ok(&["approve", "Q4"]);
    home.finished(&child);
}

#[test]
fn grants_are_given_over_mcp() {
    let home = TestHome::new();
    let mut session = Session::open(&home.home.dir, &home.work(), &[], true);
    let script = [
        "---".to_owned(),
        asks("make"),
        asks("make"),
        asks("test"),
        asks("test"),
        asks("test"),
        asks("lint"),
        asks("lint"),
    ]
    .join("\n");
    session.done(
        "run_subagent",
        json!({"agent": "echo", "prompt": script, "name": "job"}),
    );
    let approves = |session: &mut Session, number: &str, more: Value| {
        home.until("it asks", || {
            all(&home)
                .iter()
                .any(|one| one["number"] == number && one["status"] == "pending")
                .then_some(())
        });
        let mut call = json!({"message_id": number, "decision": "approve"});
        call.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        session.tool("reply_subagent", call)
    };
    for unusable in [
        json!({"uses": 0}),
        json!({"for_s": 0}),
        json!({"uses": -1}),
        json!({"same": "yes"}),
        json!({"for_s": 99_999_999}),
    ] {
        let refused = approves(&mut session, "Q1", unusable.clone());
        assert!(
            refused["isError"] == true && all(&home)[0]["status"] == "pending",
            "{unusable}: {refused}"
        );
    }
    assert_ne!(
        approves(&mut session, "Q1", json!({"same": true}))["isError"],
        true
    );
    assert_ne!(
        approves(&mut session, "Q3", json!({"uses": 1}))["isError"],
        true
    );
    let entry = json!({"answers": [{"message_id": "Q5", "decision": "deny", "reason": "enough"}]});
    home.until("the second use is asked", || {
        all(&home)
            .iter()
            .any(|one| one["number"] == "Q5")
            .then_some(())
    });
    session.done("reply_subagent", entry);
    home.until("it asks", || {
        all(&home)
            .iter()
            .any(|one| one["number"] == "Q6")
            .then_some(())
    });
    session.done("reply_subagent", json!({"answers": [{"message_id": "Q6", "decision": "approve", "same": true, "for_s": 3600, "uses": 5}]}));
    home.finished("job");
    let all = all(&home);
    let by: Vec<&str> = all
        .iter()
        .map(|one| one["answered_by"].as_str().unwrap_or_default())
        .collect();
    let parent = by[0];
    assert_eq!(
        by,
        [
            parent, "grant G1", parent, "grant G2", parent, parent, "grant G3"
        ],
        "{all:?}"
    );
    let grants = home.json(&["grants", "--all"]);
    let terms: Vec<(bool, &Value)> = grants["grants"]
        .as_array()
        .expect("grants")
        .iter()
        .map(|one| (one["expires_at"].is_string(), &one["uses_max"]))
        .collect();
    assert_eq!(
        terms,
        [(false, &Value::Null), (false, &json!(1)), (true, &json!(5))],
        "{grants}"
    );
    assert!(
        grants["grants"][0]["granted_by"] == parent && parent.starts_with("client"),
        "{parent}"
    );
}

#[test]
fn run_states_the_files_of_its_request() {
    let home = with_policies(
        "[[policies]]\nname = \"docs\"\ndecision = \"allow\"\ntool = \"request_approval\"\npath = \"docs/**\"\n[[policies]]\nname = \"keys\"\ndecision = \"deny\"\npath = \"**/*.key\"\n",
    );
    std::fs::create_dir(home.work().join("docs")).expect("a directory");
    std::os::unix::fs::symlink("/etc", home.work().join("docs/etc")).expect("a link");
    let asks = |paths: Value| {
        format!(
            "tool request_approval {}",
            json!({"action": "remove them", "paths": paths, "wait_s": 0})
        )
    };
    let script = [
        json!(["docs/a.md", "docs/b/c.md"]),
        json!(["docs/a.md", "x"]),
        json!(["docs/etc/passwd"]),
        json!(["~/docs/a"]),
        json!(["docs/../../x"]),
        json!(["a.key"]),
    ];
    home.start("job", &script.map(asks).join("\n"));
    home.until("all are asked", || (all(&home).len() == 6).then_some(()));
    let by: Vec<Value> = all(&home)
        .iter()
        .map(|one| one["answered_by"].clone())
        .collect();
    assert_eq!(
        by,
        [
            json!("policy docs"),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            json!("policy keys")
        ],
        "{:?}",
        all(&home)
    );
    let real = home
        .work()
        .canonicalize()
        .expect("a directory")
        .join("docs/a.md")
        .display()
        .to_string();
    assert_eq!(
        all(&home)[0]["operation"]["paths"][0]["real"],
        real.as_str()
    );
    home.ok(&["cancel", "job"]);
}

#[test]
fn child_keeps_the_repository_policies_of_its_parent() {
    let home = repository();
    let rules = "[[policies]]\nname = \"make\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = \"make\"\n[[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\n";
    std::fs::write(home.work().join(".adjutant.toml"), rules)
        .expect("the directory can be written");
    for args in [
        &["add", "."][..],
        &[
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "commit",
            "-qm",
            "rules",
        ],
    ] {
        assert!(
            Command::new("git")
                .args(args)
                .current_dir(home.work())
                .status()
                .expect("git is installed")
                .success()
        );
    }
    home.ok(&["policy", "trust"]);
    // The parent removes the rules from its workspace, and delegates a task there and one
    // elsewhere.
    let child = [asks("git push"), asks("make")].join("\n");
    let delegate = |directory: Option<&str>| {
        let mut call = json!({"new_task_description": child, "wait_s": 0});
        if let Some(directory) = directory {
            call["directory"] = json!(directory);
        }
        format!("tool delegate_work {call}")
    };
    let elsewhere = home.work().with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    for args in [
        &["init", "-q"][..],
        &[
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "x",
        ],
    ] {
        assert!(
            Command::new("git")
                .args(args)
                .current_dir(&elsewhere)
                .status()
                .expect("git is installed")
                .success()
        );
    }
    let script = [
        "write .adjutant.toml #".to_owned(),
        delegate(None),
        delegate(elsewhere.to_str()),
        "hang".to_owned(),
    ];
    home.ok(&[
        "run",
        "-d",
        "--clone",
        "-a",
        "echo",
        "-n",
        "job",
        &script.join("\n"),
    ]);
    home.until("both are proposed", || {
        (home.inbox(&["job"]).as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let [here, there] = ["Q1", "Q2"].map(|number| {
        home.json(&["approve", number])["requests"][0]["child_name"]
            .as_str()
            .expect("a child")
            .to_owned()
    });
    home.finished(&here);
    home.until_status(&there, "waiting_parent_reply");
    let by = |run: &str| {
        pending_of(&all(&home), run)
            .iter()
            .map(|one| one["answered_by"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        by(&here),
        [json!("policy repo.no-push"), json!("policy repo.make")]
    );
    assert_eq!(
        by(&there),
        [json!("policy repo.no-push"), Value::Null],
        "elsewhere they only narrow"
    );
}

#[test]
fn grant_needs_an_approval_and_a_known_operation() {
    let home = with_policies(
        "[[policies]]\nname = \"no-push\"\ndecision = \"deny\"\ncommand = \"git push\"\n",
    );
    home.start("asks", "ask \"which?\"");
    home.start("choice", "approve \"deploy\" [options: once|always]");
    for run in ["asks", "choice"] {
        home.until_status(run, "waiting_parent_reply");
    }
    let refused = home.adj(&["approve", "choice", "--same"]);
    assert!(
        refused.code == 2 && refused.err.contains("offers options"),
        "{refused:?}"
    );
    assert_ne!(home.adj(&["approve", "asks", "--same"]).code, 0);
    assert!(
        home.adj(&["approve", "choice", "--uses", "0"]).code == 2
            && home.adj(&["approve", "choice", "--for", "99d"]).code == 2
    );
    assert!(
        all(&home)
            .iter()
            .all(|request| request["status"] == "pending"),
        "bad input changes nothing"
    );
    assert_eq!(home.json(&["grants", "--all"])["grants"], json!([]));
}

#[test]
fn repository_policies_only_deny_and_ask_until_trusted() {
    let home = with_policies(RULES);
    let file = home.work().join(".adjutant.toml");
    let rules = "[[policies]]\nname = \"make\"\ndecision = \"allow\"\ntool = \"request_approval\"\ncommand = \"make\"\n[[policies]]\nname = \"no-log\"\ndecision = \"deny\"\ncommand = \"git log\"\n";
    std::fs::write(&file, rules).expect("the directory can be written");
    home.start(
        "first",
        &[asks("git status"), asks("git log"), asks("make")].join("\n"),
    );
    home.until_status("first", "waiting_parent_reply");
    let by = |all: &[Value]| {
        all.iter()
            .map(|one| one["answered_by"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        by(&all(&home)),
        [
            json!("policy reads"),
            json!("policy repo.no-log"),
            Value::Null
        ],
        "it denies, and allows nothing"
    );
    let directory = home
        .work()
        .canonicalize()
        .expect("a directory")
        .display()
        .to_string();
    let policies = || {
        let ran = home.adj(&["policy"]);
        format!("{}{}", ran.out, ran.err)
    };
    let why = format!(
        "the policies of {directory}/.adjutant.toml are not trusted, so what they allow is asked: review them, then adj policy trust {directory}"
    );
    let listed = policies();
    assert!(
        listed.contains("repo.make")
            && listed.contains("(allow)")
            && listed.contains("repo.no-log")
            && listed.contains(&why),
        "{listed}"
    );
    assert!(home.ok(&["show", "first"]).contains(&why));
    home.ok(&["cancel", "first"]);

    let trusted = home.ok(&["policy", "trust"]);
    assert!(
        trusted.contains("2 policies") && trusted.contains("1 of which allow"),
        "{trusted}"
    );
    assert!(
        policies().contains(&format!(
            "the policies of {directory}/.adjutant.toml are in effect"
        )),
        "{}",
        policies()
    );
    let other = format!("{rules}[[policies]]\nname = \"x\"\ndecision = \"allow\"\nany = true\n");
    // A run's own change of the file has no effect on it.
    let replace = format!("write .adjutant.toml {}", other.replace('\n', "\\n"));
    home.start("second", &[replace, asks("make"), asks("test")].join("\n"));
    home.until_status("second", "waiting_parent_reply");
    assert_eq!(
        by(&all(&home)[3..]),
        [json!("policy repo.make"), Value::Null]
    );
    assert_eq!(
        std::fs::read_to_string(&file)
            .ok()
            .map(|text| text.contains("any = true")),
        Some(true)
    );

    assert!(
        !home.ok(&["show", "second"]).contains("policies of"),
        "in effect when it started"
    );
    home.start("third", &asks("make"));
    home.until_status("third", "waiting_parent_reply");
    let changed =
        format!("the policies of {directory}/.adjutant.toml have changed since they were trusted");
    assert!(
        home.ok(&["show", "third"]).contains(&changed) && policies().contains(&changed),
        "{}",
        policies()
    );
    std::fs::write(&file, "colour = 1\n").expect("the directory can be written");
    let refused = home.adj(&["policy", "trust"]);
    assert!(
        refused.code == 2
            && refused.err.contains(".adjutant.toml: line 1: ")
            && !refused.err.contains('⏎'),
        "{refused:?}"
    );
    home.start("fourth", &asks("git status"));
    home.until_status("fourth", "waiting_parent_reply");
    assert_eq!(
        by(&all(&home)[5..]),
        [Value::Null, Value::Null],
        "changed since, and unusable: everything is asked"
    );
    let unusable = format!(
        "the policies of {directory}/.adjutant.toml cannot be used, so everything is asked: "
    );
    assert!(
        home.ok(&["show", "fourth"]).contains(&unusable) && policies().contains(&unusable),
        "{}",
        policies()
    );
    assert_eq!(home.json(&["policy"])["repository"]["state"], "unusable");
    std::fs::write(home.work().join("bad.toml"), "live_runs_max = 0\n").expect("a file");
    assert!(
        home.adj(&["policy", "try", "bad.toml"])
            .err
            .contains("bad.toml: line 1: live_runs_max")
    );
}

#[test]
fn readme_shows_a_policy_that_works() {
    // The echo agent asks by `request_approval`, which a policy has to name.
    let shown = crate::readme::block("Policies", "toml").replace(
        "decision = \"allow\"",
        "decision = \"allow\"\ntool = \"request_approval\"",
    );
    let home = with_policies(&shown);
    home.start(
        "job",
        &[asks("cargo test -p core"), asks("cargo test; rm -rf /")].join("\n"),
    );
    home.until_status("job", "waiting_parent_reply");
    let all = all(&home);
    assert_eq!(
        (&all[0]["answered_by"], &all[1]["status"]),
        (&json!("policy tests"), &json!("pending"))
    );
}

#[test]
fn run_states_no_operation_of_its_cli() {
    let home = with_policies(RULES);
    home.start("job", "say ready\nhang");
    home.until_log("job", "ready");
    let access = std::fs::read(home.attempt_dir("job").worker_access()).expect("a way in");
    let access: WorkerAccess = serde_json::from_slice(&access).expect("a way in");
    let asks = |tool: &str| {
        let operation =
            json!({"tool": tool, "command": "git status", "complete": true, "digest": "00"});
        let body = json!({"action": "drop the table", "blocking": false, "operation": operation})
            .to_string();
        let url = format!(
            "{}/api/v1/request-approval",
            access.mcp_url.trim_end_matches("/mcp")
        );
        let bearer = format!("authorization: Bearer {}", access.token);
        let out = Command::new("curl")
            .args(["-s", "--max-time", "60", "-H", &bearer, "-d", &body, &url])
            .output()
            .expect("curl runs");
        serde_json::from_slice::<Value>(&out.stdout).expect("a reply")
    };
    let forged = asks("Bash");
    assert!(
        forged["code"] == "not_allowed"
            && forged["message"]
                .as_str()
                .is_some_and(|text| text.contains("only the supervisor")),
        "{forged}"
    );
    assert!(all(&home).is_empty(), "nothing was asked");
    assert_eq!(
        asks("request_approval")["answered_by"],
        "policy reads",
        "its own request may name a command"
    );
    home.ok(&["cancel", "job"]);
}

#[test]
fn policy_for_commands_allows_no_words_of_a_run() {
    let home = with_policies(
        "[[policies]]\nname = \"tests\"\ndecision = \"allow\"\ncommand = \"cargo test\"\n",
    );
    let call = json!({"action": "run the tests, then drop the table", "command": "cargo test"});
    home.start("job", &format!("tool request_approval {call}"));
    home.until_status("job", "waiting_parent_reply");
    home.ok(&["cancel", "job"]);
}
