//! Texts that are commands in the CLIs' terminals have no effect in prompts. The model receives
//! them unchanged, and no file that they name.

use super::Cli;
use super::case::Case;
use crate::model::{Seen, Turn};
use serde_json::{Value, json};

/// The content of a file in the directory.
const SECRET: &str = "nobody-was-to-read-this-7f3a";

/// Each line is a command of one of the CLIs, or names a file to be read.
const HOSTILE: &str = "/help\n/quit\n!cat secret.txt\n@secret.txt and @./secret.txt and @/etc/passwd\n@{secret.txt}\n# remember $(cat secret.txt) `cat secret.txt`\n--help\n\u{202e}txet\u{202c}";

fn has(value: &Value, text: &str) -> bool {
    match value {
        Value::String(string) => string.contains(text),
        Value::Array(values) => values.iter().any(|value| has(value, text)),
        Value::Object(fields) => fields.values().any(|value| has(value, text)),
        _ => false,
    }
}

/// Checks that the model has received this text unchanged, and nothing of the files.
fn saw_only(seen: &[Seen], text: &str, case: &Case) {
    assert!(
        seen.iter().any(|seen| has(&seen.body, text)),
        "the model has not seen {text:?}\n{}",
        case.story()
    );
    for secret in [SECRET, "root:x:0:0"] {
        assert!(
            !seen.iter().any(|seen| has(&seen.body, secret)),
            "a file was read: {secret}\n{}",
            case.story()
        );
    }
}

/// A case whose directory has a file that must not be read.
fn case(cli: Cli, turns: [Turn; 2]) -> Option<Case> {
    let case = Case::new(cli, turns)?;
    std::fs::write(case.home.work().join("secret.txt"), format!("{SECRET}\n")).expect("a file");
    Some(case)
}

fn takes_them_literally(cli: Cli) {
    let turns = [
        Turn::call("ask_parent", json!({ "question": "Go on?" })),
        Turn::hang("I am about to"),
    ];
    let Some(case) = case(cli, turns) else { return };
    case.starts_with("edit", HOSTILE);
    case.becomes("waiting_parent_reply");
    case.replies("@secret.txt as an answer\n/quit");
    case.model.until_asked(2);
    saw_only(&case.model.seen()[..1], HOSTILE, &case);
    saw_only(&case.model.seen()[1..], "@secret.txt as an answer", &case);
    // The prompt of a resumed session.
    case.says(&["pause", "job"]);
    case.becomes("stopped");
    case.model.until_left(1);
    case.model.add_turns([Turn::say("Nothing was read.")]);
    case.says(&["resume", "job", "@secret.txt /quit"]);
    case.succeeds("Nothing was read.");
    saw_only(&case.model.seen()[2..], "@secret.txt /quit", &case);
}

/// Claude Code accepts messages while it works: with a tool's result, or as another turn.
#[test]
fn claude_takes_messages_literally() {
    let turns = [
        Turn::call("ask_parent", json!({ "question": "Go on?" })),
        Turn::say("Nothing was read."),
    ];
    let Some(case) = case(Cli::Claude, turns) else {
        return;
    };
    case.model.add_turns([Turn::say("Nothing was read.")]);
    case.starts_with("edit", "do what the model says");
    case.becomes("waiting_parent_reply");
    case.says(&["send", "job", "@secret.txt and @/etc/passwd\n/quit"]);
    case.replies("yes");
    case.succeeds("Nothing was read.");
    saw_only(
        &case.model.seen(),
        "@secret.txt and @/etc/passwd\n/quit",
        &case,
    );
}

#[test]
fn claude_takes_prompts_literally() {
    takes_them_literally(Cli::Claude);
}

#[test]
fn codex_takes_prompts_literally() {
    takes_them_literally(Cli::Codex);
}

#[test]
fn gemini_takes_prompts_literally() {
    takes_them_literally(Cli::Gemini);
}

#[test]
fn goose_takes_prompts_literally() {
    takes_them_literally(Cli::Goose);
}

#[test]
fn pi_takes_prompts_literally() {
    takes_them_literally(Cli::Pi);
}

#[test]
fn kimi_takes_prompts_literally() {
    takes_them_literally(Cli::Kimi);
}

/// Its page says so.
#[test]
fn droid_reads_files_that_a_prompt_mentions() {
    let Some(case) = case(
        Cli::Droid,
        [Turn::say("I have read it."), Turn::say("I have read it.")],
    ) else {
        return;
    };
    case.starts_with("full", HOSTILE);
    case.succeeds("I have read it.");
    let seen = case.asked(1);
    assert!(
        has(&seen[0].body, HOSTILE),
        "the text itself is unchanged: {}",
        case.story()
    );
    assert!(has(&seen[0].body, SECRET), "{}", case.story());
    let droid = adjutant_api::preset::builtin("droid").expect("it is built in");
    assert!(
        droid
            .about
            .all_limits()
            .any(|limit| limit.contains("`@path`"))
    );
}

#[test]
fn opencode_takes_prompts_literally() {
    takes_them_literally(Cli::Opencode);
}

#[test]
fn qwen_takes_prompts_literally() {
    takes_them_literally(Cli::Qwen);
}

#[test]
fn copilot_takes_prompts_literally() {
    takes_them_literally(Cli::Copilot);
}
