//! `adj mcp --facade codex` with the real CLI.

use super::Cli;
use super::case::Case;
use super::user::OTHER_MODEL;
use crate::mcp::Session;
use crate::model::Turn;
use serde_json::json;

/// The reply is a turn of the same session of Codex, whose usage counts once.
#[test]
fn facade_continues_the_session_of_codex() {
    let Some(case) = Case::new(
        Cli::Codex,
        [Turn::write("first.txt", "one\n"), Turn::say("first done")],
    ) else {
        return;
    };
    let mut session = Session::of(case.command(&["mcp", "--facade", "codex"]));
    session.initialize();
    let first = session.done(
        "codex",
        json!({"prompt": "write it", "sandbox": "danger-full-access", "approval-policy": "never"}),
    );
    assert_eq!(first["content"], "first done", "{}", case.story());
    case.model.add_turns([Turn::say("second done")]);
    let second = session.done(
        "codex-reply",
        json!({"threadId": first["threadId"], "prompt": "and now the rest"}),
    );
    assert_eq!(
        second,
        json!({"threadId": first["threadId"], "content": "second done"}),
        "{}",
        case.story()
    );
    let seen = case.asked(3);
    assert!(
        seen[2].body.to_string().contains("and now the rest"),
        "{}",
        case.story()
    );
    assert_eq!(
        seen[2].results.len(),
        1,
        "it remembers the written file: {}",
        case.story()
    );
    let runs = case.home.json(&["ps", "-a"]);
    let used = |n: usize| runs[n]["usage"]["input_tokens"].as_u64();
    assert_eq!((used(1), used(0)), (Some(200), Some(100)), "{runs}");
    // Without the session, the prompt tells what happened.
    case.forgets_sessions();
    case.model.add_turns([Turn::say("third done")]);
    let third = session.done(
        "codex-reply",
        json!({"threadId": first["threadId"], "prompt": "the last task"}),
    );
    assert_eq!(third["content"], "third done", "{}", case.story());
    let told = case.asked(4)[3].body.to_string();
    for text in [
        "You continue the work of the run",
        "and now the rest",
        "second done",
        "the last task",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    // The model of a call is the one that the CLI asks for.
    case.model.add_turns([Turn::say("fourth done")]);
    let fourth = session.done(
        "codex",
        json!({"prompt": "say it", "sandbox": "danger-full-access", "model": OTHER_MODEL}),
    );
    assert_eq!(
        (fourth["content"].as_str(), case.asked(5)[4].model.as_str()),
        (Some("fourth done"), OTHER_MODEL),
        "{}",
        case.story()
    );
}
