//! Permission profiles that an agent does not support are refused wherever a run would start,
//! before anything is changed.

use crate::chats::{client, said, start};
use crate::support::{Ran, TestHome};
use serde_json::{Value, json};

const WHY: &str = "it asks for nothing before it uses a tool";

/// Returns the configuration of a CLI that prints its input. `profiles` is the table of its
/// permissions.
fn declared(profiles: &str) -> String {
    format!(
        "[agents.free]\nharness = \"free\"\n[presets.free]\ntitle = \"Free\"\ndriver = \"plain\"\ncommand = [\"/bin/cat\"]\n\
         permissions = {{ {profiles} }}\ncan = {{}}\nabout = {{ vendor = \"x\", install = \"x\", sign_in = \"x\" }}\n"
    )
}

fn only_full() -> String {
    declared(&format!(
        "read.unsupported = \"{WHY}\", edit.unsupported = \"{WHY}\", full.about = \"is not asked\""
    ))
}

fn refused(ran: &Ran, agent: &str, profile: &str) {
    assert_eq!(ran.code, 2, "{ran:?}");
    for part in [
        "error[unsupported_profile]",
        &format!("{agent} does not support {profile}: "),
    ] {
        assert!(ran.err.contains(part), "{part}: {ran:?}");
    }
}

fn runs(home: &TestHome) -> usize {
    home.json(&["ps", "-a"]).as_array().expect("a list").len()
}

#[test]
fn unsupported_profile_is_refused_over_every_interface() {
    let home = TestHome::with_config(&only_full());
    let ran = home.adj(&["run", "-a", "free", "hello"]);
    refused(&ran, "free", "edit");
    assert!(
        ran.err.contains(WHY) && ran.err.contains("supported profiles: full"),
        "{ran:?}"
    );
    refused(
        &home.adj(&["run", "-a", "free", "--permissions", "read", "hello"]),
        "free",
        "read",
    );
    let mut alice = client(&home, "alice", &[]);
    let told = alice.tool(
        "run_subagent",
        json!({"agent": "free", "prompt": "hello", "cwd": home.work()}),
    );
    let text = told["content"][0]["text"].as_str().unwrap_or_default();
    assert!(
        told["isError"] == true
            && text.contains("unsupported_profile")
            && text.contains(WHY)
            && text.contains("full"),
        "{told}"
    );
    assert_eq!(runs(&home), 0, "nothing was started");
    let ran = home.adj(&["run", "-a", "free", "--permissions", "full", "-w", "hello"]);
    assert!(ran.code == 0 && ran.out.contains("hello"), "{ran:?}");
}

#[test]
fn agents_shows_refused_profiles_with_reasons() {
    let home = TestHome::with_config(&format!(
        "{}[agents.any]\nharness = \"plain\"\ncommand = [\"/bin/cat\"]\n",
        only_full()
    ));
    let shown = home.ok(&["agents", "free"]);
    assert!(
        shown.contains(&format!("refused: {WHY}")) && shown.contains("is not asked"),
        "{shown}"
    );
    let data = home.json(&["agents", "free"]);
    assert_eq!(
        data["unsupported_profiles"],
        json!({"read": WHY, "edit": WHY}),
        "{data}"
    );
    let shown = home.ok(&["agents", "any"]);
    assert!(shown.contains("edit (not enforced"), "{shown}");
    let list = client(&home, "alice", &[])
        .tool("list_agents", json!({}))
        .to_string();
    assert!(list.contains("permissions: only full"), "{list}");
}

#[test]
fn agents_test_uses_a_supported_profile() {
    let home = TestHome::with_config(&only_full());
    let ran = home.adj(&["agents", "test", "free", "--timeout", "5s"]);
    assert!(
        ran.err.contains("edit is not supported; testing with full"),
        "{ran:?}"
    );
    assert!(
        home.json(&["ps", "-a"])
            .as_array()
            .expect("a list")
            .iter()
            .all(|run| run["permissions"] == "full"),
        "{ran:?}"
    );
}

#[test]
fn delegation_to_an_unsupported_profile_stays_open() {
    let home = TestHome::with_config(&only_full());
    for profile in ["read", "edit"] {
        let prompt = "delegate \"do it\" [blocks] [agent: free]\nsay after";
        home.ok(&[
            "run",
            "--detach",
            "-a",
            "echo",
            "--name",
            profile,
            "--permissions",
            profile,
            prompt,
        ]);
        home.until_status(profile, "waiting_parent_reply");
        refused(&home.adj(&["approve", profile]), "free", profile);
        assert_eq!(home.show(profile)["status"], "waiting_parent_reply");
        home.ok(&["deny", profile, "not by that one"]);
        home.finished(profile);
    }
    assert_eq!(runs(&home), 2, "no child was started");
}

#[test]
fn chat_reports_an_unsupported_profile() {
    let home = TestHome::with_config(&only_full());
    let mut alice = client(&home, "alice", &[]);
    let chat = start(&mut alice, "t", &["free"]);
    alice.done(
        "send_message",
        json!({"chat_id": chat, "to": "free", "message": "go", "wait_s": 30}),
    );
    let said: Vec<Value> = said(&home, chat)
        .into_iter()
        .map(|(_, text)| text.into())
        .collect();
    assert!(
        said.iter().any(|text| text
            .as_str()
            .is_some_and(|text| text.contains(&format!("free does not support edit: {WHY}")))),
        "{said:?}"
    );
    assert_eq!(runs(&home), 0);
}

#[test]
fn old_run_is_not_resumed_with_an_unsupported_profile() {
    let home = TestHome::with_config(&declared("edit.about = \"asks\""));
    home.ok(&[
        "run",
        "-a",
        "free",
        "--name",
        "job",
        "-w",
        "```adjutant-signal\n```",
    ]);
    std::fs::write(home.home.dir.join("config.toml"), only_full())
        .expect("the configuration can be written");
    refused(&home.adj(&["retry", "job"]), "free", "edit");
    assert_eq!(runs(&home), 1);
}

#[test]
fn plain_program_never_gets_a_narrower_profile() {
    let home =
        TestHome::with_config("[agents.any]\nharness = \"plain\"\ncommand = [\"/bin/cat\"]\n");
    home.ok(&["run", "-a", "any", "--name", "job", "-w", "hello"]);
    assert_eq!(home.show("job")["permissions_not_enforced"], true);
    let shown = home.ok(&["show", "job"]);
    assert!(
        shown.contains("edit (not enforced: the agent is a plain program)"),
        "{shown}"
    );
    home.ok(&["run", "-a", "any", "--permissions", "edit", "-w", "hello"]);
    let ran = home.adj(&["run", "-a", "any", "--permissions", "read", "hello"]);
    refused(&ran, "any", "read");
    assert!(
        ran.err
            .contains("permissions are not enforced for this agent, which is configured with edit"),
        "{ran:?}"
    );
    // A run that may only read cannot delegate to it.
    home.ok(&[
        "run",
        "--detach",
        "-a",
        "echo",
        "--name",
        "asks",
        "--permissions",
        "read",
        "delegate \"x\" [blocks] [agent: any]\nsay after",
    ]);
    home.until_status("asks", "waiting_parent_reply");
    refused(&home.adj(&["approve", "asks"]), "any", "read");
    assert_eq!(runs(&home), 3);
}
