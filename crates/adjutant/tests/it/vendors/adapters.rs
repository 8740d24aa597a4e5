//! The adapters that speak ACP for Claude Code and Codex, as agents without a preset.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use crate::support::skip;
use serde_json::json;
use std::path::PathBuf;

/// Returns a case in which an adapter starts the CLI: its package, and the variable that names the
/// CLI's program.
fn adapted(cli: Cli, package: &str, variable: &str, turns: impl Into<Vec<Turn>>) -> Option<Case> {
    let Some(packages) = std::env::var_os("ADJ_ACP").map(PathBuf::from) else {
        skip("ADJ_ACP names no directory with the ACP adapters; run .ci/acp");
        return None;
    };
    let case = Case::new(cli, turns)?;
    let adapter = packages
        .join("node_modules/@agentclientprotocol")
        .join(package)
        .join("dist/index.js");
    let declaration = json!({
        "harness": "acp",
        "command": [case.program("node"), adapter],
        "env": { variable: case.program(cli.name()) },
        "env_pass": ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_*", "DISABLE_*", "OPENAI_API_KEY"],
    });
    Some(case.with_agent("adapter", &declaration))
}

/// A worker's tools need no approval, also the one that stops its work.
fn asks_and_stops_without_an_approval(cli: Cli, package: &str, variable: &str) {
    let turns = [
        Turn::call("ask_parent", json!({ "question": "Which colour?" })),
        Turn::call(
            "stop_work",
            json!({ "stop_reason": "blocker", "details": "no paint", "state_snapshot": "one wall is done" }),
        ),
        Turn::say("I wait for paint."),
    ];
    let Some(case) = adapted(cli, package, variable, turns) else {
        return;
    };
    case.starts("edit");
    case.until_asked("Which colour?");
    case.replies("blue");
    let view = case.becomes("stopped");
    assert_eq!(
        (&view["reason"], &view["attention"]["details"]),
        (&json!("blocker"), &json!("no paint")),
        "{view}\n{}",
        case.story()
    );
    let all = case.home.inbox(&["--all"]);
    let kinds: Vec<&str> = all
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|request| request["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["question"], "{all}\n{}", case.story());
    // The checkpoint comes back with the resume.
    // Claude Code's asks for a title of the session too.
    case.model
        .add_turns([Turn::Computed(|_| Turn::say("It is done now."))]);
    case.says(&["resume", "job", "here is the paint"]);
    case.succeeds("It is done now.");
    assert!(
        case.model
            .seen()
            .iter()
            .any(|seen| seen.body.to_string().contains("here is the paint")),
        "{}",
        case.story()
    );
}

#[test]
fn codex_adapter_asks_and_stops_without_an_approval() {
    asks_and_stops_without_an_approval(Cli::Codex, "codex-acp", "CODEX_PATH");
}

#[test]
fn claude_adapter_asks_and_stops_without_an_approval() {
    asks_and_stops_without_an_approval(Cli::Claude, "claude-agent-acp", "CLAUDE_CODE_EXECUTABLE");
}
