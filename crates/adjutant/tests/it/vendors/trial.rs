//! `adj agents`, and `adj agents test` with each real CLI and a model that follows the prompt.

use super::Cli;
use super::case::Case;
use crate::model::{Seen, Turn};
use crate::support::Ran;
use adjutant_api::preset::{self, TestedVersions};
use regex::Regex;
use serde_json::{Value, json};

/// Returns the next turn of a model that follows the instructions of `adj agents test`.
fn follow(seen: &Seen) -> Turn {
    let told = seen.body.to_string();
    let word = |kind: &str| {
        Regex::new(&format!("{kind}-[0-9a-f]{{8}}"))
            .expect("a pattern")
            .find(&told)
            .map(|word| word.as_str().to_owned())
    };
    if told.contains("Ready?") {
        return match seen.results.len() {
            0 => Turn::shell("setsid -w sh -c 'sleep 3600 >/dev/null 2>&1 & echo started'"),
            1 => Turn::call("ask_parent", json!({ "question": "Ready?" })),
            _ => Turn::hang("I am about to"),
        };
    }
    match (word("amber"), word("birch"), seen.results.len()) {
        (Some(first), Some(second), _) => {
            let words = format!("{first} {second}");
            if told.contains(&words) {
                Turn::Say(words)
            } else {
                Turn::call(
                    "update_subagent_status",
                    json!({ "status": "success", "summary": words }),
                )
            }
        }
        (_, _, 0) => Turn::call(
            "update_subagent_status",
            json!({ "status": "running", "percent": 10, "summary": "adjutant-test" }),
        ),
        (None, ..) => Turn::call("ask_parent", json!({ "question": "Which word?" })),
        (Some(first), None, 1 | 2) => {
            let left = json!({ "stop_reason": "blocker", "details": "waits for the second word", "state_snapshot": format!("the first word is {first}") });
            Turn::call("stop_work", left)
        }
        (Some(_), None, _) => Turn::say("I have stopped."),
    }
}

fn verdicts(ran: &Ran) -> Vec<(String, String, String)> {
    let word = |check: &Value, name: &str| check[name].as_str().expect("a text").to_owned();
    let data = ran.data();
    let checks = data["checks"].as_array().expect("checks").iter();
    checks
        .map(|check| {
            (
                word(check, "check"),
                word(check, "verdict"),
                word(check, "reason"),
            )
        })
        .collect()
}

fn passes_its_test(cli: Cli) {
    let Some(case) = Case::new(cli, [Turn::Computed(follow)]) else {
        return;
    };
    let ran: Ran = case
        .command(&["--json", "agents", "test", cli.name()])
        .output()
        .expect("adj starts")
        .into();
    let found = verdicts(&ran);
    let of = |name: &str| {
        found
            .iter()
            .find(|(check, ..)| check == name)
            .unwrap_or_else(|| panic!("no check {name}: {found:?}"))
    };
    let seen = || {
        format!(
            "{ran:?}\n{:#?}",
            case.model
                .seen()
                .iter()
                .map(|seen| (seen.tools.len(), &seen.results))
                .collect::<Vec<_>>()
        )
    };
    for check in [
        "our tools",
        "question",
        "resume",
        "report",
        "command",
        "cancel",
    ] {
        assert_eq!(of(check).1, "pass", "{check}: {}", seen());
    }
    assert_eq!(
        of("usage").1,
        if cli.tells_usage() {
            "pass"
        } else {
            "not_applicable"
        },
        "{}",
        seen()
    );
    // Codex's sandbox ends with its command, together with the processes that the command left
    // running.
    let found = if cli == Cli::Codex {
        "not checked with a child process"
    } else {
        "in its own session"
    };
    assert!(of("cancel").2.contains(found), "{}", seen());
    let (asks, own_session) = (cli != Cli::Codex, cli != Cli::Gemini);
    assert_eq!(
        of("approvals").1,
        if asks { "pass" } else { "not_applicable" },
        "{}",
        seen()
    );
    if own_session {
        assert!(of("resume").2.contains("in its own session"), "{}", seen());
    }
    assert_eq!(ran.code, 0, "{}", seen());
}

#[test]
fn claude_passes_its_test() {
    passes_its_test(Cli::Claude);
}

#[test]
fn codex_passes_its_test() {
    passes_its_test(Cli::Codex);
}

#[test]
fn gemini_passes_its_test() {
    passes_its_test(Cli::Gemini);
}

#[test]
fn goose_passes_its_test() {
    passes_its_test(Cli::Goose);
}

#[test]
fn pi_passes_its_test() {
    passes_its_test(Cli::Pi);
}

#[test]
fn kimi_passes_its_test() {
    passes_its_test(Cli::Kimi);
}

#[test]
fn opencode_passes_its_test() {
    passes_its_test(Cli::Opencode);
}

#[test]
fn kilo_passes_its_test() {
    passes_its_test(Cli::Kilo);
}

#[test]
fn cline_passes_its_test() {
    passes_its_test(Cli::Cline);
}

#[test]
fn qwen_passes_its_test() {
    passes_its_test(Cli::Qwen);
}

#[test]
fn copilot_passes_its_test() {
    passes_its_test(Cli::Copilot);
}

#[test]
fn agent_without_a_valid_key_fails_its_test() {
    let Some(case) = Case::new(Cli::Claude, [Turn::Unauthorized]) else {
        return;
    };
    let ran: Ran = case
        .command(&["--json", "agents", "test", "claude"])
        .output()
        .expect("adj starts")
        .into();
    assert_eq!(ran.code, 1, "{ran:?}");
    let found = verdicts(&ran);
    assert!(
        found[0].1 == "fail" && found[0].2.contains("not signed in"),
        "{found:?}"
    );
}

/// Returns the tested versions of a preset. The tests drive the highest one.
fn tried(name: &str) -> TestedVersions {
    preset::builtin(name)
        .and_then(|preset| preset.about.tested_versions())
        .expect("it was tried")
}

/// Returns whether an installed CLI has not reported its version within the limit.
fn is_late(agent: &Value) -> bool {
    agent["version_note"]
        .as_str()
        .is_some_and(|note| note.starts_with("cannot read its version: "))
}

#[test]
fn list_shows_versions_and_sign_ins() {
    let Some(case) = Case::new(Cli::Codex, []) else {
        return;
    };
    let list = |args: &[&str]| {
        let ran: Ran = case.command(args).output().expect("adj starts").into();
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    // The list does not wait for versions, and asks again for those that a busy machine did not
    // report in time.
    let agents = case.home.until("every version is known", || {
        let agents = list(&["--json", "agents"]).data();
        let is_known = agents
            .as_array()
            .expect("a list")
            .iter()
            .all(|agent| agent["version_pending"].is_null() && !is_late(agent));
        is_known.then_some(agents)
    });
    let of = |name: &str| {
        agents
            .as_array()
            .expect("a list")
            .iter()
            .find(|agent| agent["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    for name in ["claude", "codex", "gemini", "goose"] {
        let agent = of(name);
        let version = tried(name).highest.to_string();
        assert_eq!(
            (&agent["version"], &agent["version_note"]),
            (&json!(version), &Value::Null),
            "{agent}"
        );
        assert_eq!(
            (&agent["sign_in"]["found"], &agent["documented_only"]),
            (&json!(true), &json!(false)),
            "{agent}"
        );
    }
    assert_eq!(of("kiro")["found"], false);
    let table = list(&["agents"]);
    // There is room for a description in 100 columns.
    let header = table.out.lines().next().unwrap_or_default();
    assert!(header.chars().count() <= 90, "{}", table.out);
    assert!(
        table.out.contains(&tried("claude").highest.to_string())
            && table.err.contains("not found on PATH: "),
        "{table:?}"
    );
    let one = list(&["agents", "codex"]);
    assert!(
        one.out.contains(" (tested: ") && one.out.contains("found OPENAI_API_KEY"),
        "{one:?}"
    );
}
