//! Streams of the real CLIs, recorded by the ignored test below (`ADJ_RECORD_STREAMS=1`), are read
//! without any CLI.

use super::Cli;
use super::case::Case;
use crate::model::Turn;
use adjutant_api::preset::{self, End};
use adjutant_stream::rules::{Rules, StreamEvent};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Returns the directory of the streams, with one subdirectory for each CLI.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams")
}

/// The events of a stream, summarized.
#[derive(Debug, Default, PartialEq)]
struct Understood {
    /// When a limit resets.
    limit_reset_at_s: Option<u64>,
    sessions: usize,
    /// The called tools.
    tools: String,
    outputs: String,
    /// The agent's text.
    words: String,
    errors: String,
    ends: Vec<End>,
    used_tokens: u64,
}

fn understand(cli: &str, lines: &[&str]) -> Understood {
    let rules = Rules::new(&preset::builtin(cli).expect("it is built in").stream);
    let mut known = Understood::default();
    for line in lines {
        let is_read = rules.read(line, &mut |said| match said {
            StreamEvent::Session(id) => known.sessions += usize::from(!id.is_empty()),
            StreamEvent::Text(text)
            | StreamEvent::Delta { text, .. }
            | StreamEvent::Result(text) => known.words.push_str(&text),
            StreamEvent::Tool { name, input } | StreamEvent::Call { name, input, .. } => {
                known.tools.push_str(&format!("{name} {input}\n"))
            }
            StreamEvent::Output(text) => known.outputs.push_str(&format!("{text}\n")),
            StreamEvent::Retry { error: text, .. } => known.errors.push_str(&format!("{text}\n")),
            StreamEvent::Error(text) => known.errors.push_str(&format!("{text}\n")),
            StreamEvent::Usage(usage) => {
                known.used_tokens = known.used_tokens.max(usage.input_tokens)
            }
            StreamEvent::End(end) => known.ends.push(end),
            StreamEvent::LimitReset(seconds) => known.limit_reset_at_s = Some(seconds),
            StreamEvent::DialogueLine
            | StreamEvent::Speaker(_)
            | StreamEvent::Subagent { .. }
            | StreamEvent::Step(_)
            | StreamEvent::Cost(_) => {}
        });
        assert!(is_read, "{cli} wrote a line that is none: {line}");
    }
    known
}

/// Reads a recorded stream twice, the second time with unknown lines, which must change nothing.
fn recorded(cli: &str, name: &str) -> Understood {
    let file = directory().join(cli).join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines: Vec<&str> = text.lines().collect();
    let known = understand(cli, &lines);
    let unknown = r#"{"type":"event_of_next_year","method":"session/event_of_next_year","params":{"text":["x"]}}"#;
    let with_unknown: Vec<&str> = lines.iter().flat_map(|line| [unknown, *line]).collect();
    assert_eq!(understand(cli, &with_unknown), known, "{cli}, {name}");
    known
}

const ALL: [&str; 4] = ["claude", "codex", "gemini", "goose"];

#[test]
fn question_and_edit_are_read() {
    for cli in ALL {
        let known = recorded(cli, "asks");
        assert!(known.sessions > 0, "{cli}: {known:?}");
        // Gemini CLI does not announce a call again after its permission request.
        assert!(
            known.tools.contains("ask") || cli == "gemini",
            "{cli}: {known:?}"
        );
        assert!(known.outputs.contains("blue"), "{cli}: {known:?}");
        assert!(
            known.words.contains("The paint is blue."),
            "{cli}: {known:?}"
        );
        assert_eq!(
            (known.ends, known.errors.as_str()),
            (vec![End::Success], ""),
            "{cli}"
        );
        assert!(known.used_tokens >= 100, "{cli}");
    }
}

#[test]
fn denial_is_not_a_failure() {
    for cli in ALL {
        let known = recorded(cli, "denied");
        assert_eq!(known.ends, [End::Success], "{cli}: {known:?}");
        assert!(known.words.contains("So be it."), "{cli}: {known:?}");
    }
}

#[test]
fn cancelled_stream_is_not_a_success() {
    for cli in ALL {
        let known = recorded(cli, "cancelled");
        assert!(!known.ends.contains(&End::Success), "{cli}: {known:?}");
    }
}

#[test]
fn resumed_session_has_its_new_answer() {
    for cli in ALL {
        let known = recorded(cli, "resumed");
        assert_eq!(known.ends, [End::Success], "{cli}: {known:?}");
        assert!(known.words.ends_with("It is done now."), "{cli}: {known:?}");
    }
}

#[test]
fn reset_time_is_read_from_a_field() {
    for cli in ["claude", "codex"] {
        let known = recorded(cli, "used_up");
        assert_eq!(known.ends, [End::Failure], "{cli}: {known:?}");
        assert!(
            known.limit_reset_at_s.is_some_and(|at| at > 1_795_000_000),
            "{cli}: {known:?}"
        );
    }
}

#[test]
fn reset_time_is_read_from_a_message() {
    for cli in ["claude", "codex"] {
        let known = recorded(cli, "limited");
        assert_eq!(known.ends, [End::Failure], "{cli}: {known:?}");
        assert!(known.errors.contains("429"), "{cli}: {known:?}");
    }
}

/// Records the streams again: `ADJ_RECORD_STREAMS=1 cargo test --test it -- --ignored
/// streams_are_recorded`.
#[test]
#[ignore = "writes the fixtures"]
fn streams_are_recorded() {
    assert!(
        std::env::var_os("ADJ_RECORD_STREAMS").is_some(),
        "nothing is recorded without ADJ_RECORD_STREAMS"
    );
    for cli in [Cli::Claude, Cli::Codex, Cli::Gemini, Cli::Goose] {
        record_question(cli);
        record_denial(cli);
        record_interruptions(cli);
        record_limits(cli);
    }
}

fn case(cli: Cli, turns: impl Into<Vec<Turn>>) -> Case {
    Case::new(cli, turns).expect("the CLIs are installed")
}

fn record_question(cli: Cli) {
    let turns = [
        Turn::call("ask_parent", json!({ "question": "Which colour?" })),
        Turn::write("paint.txt", "blue\n"),
        Turn::call(
            "update_subagent_status",
            json!({ "status": "success", "summary": "painted it blue" }),
        ),
        Turn::say("The paint is blue."),
    ];
    let case = case(cli, turns);
    case.starts("edit");
    case.until_asked("Which colour?");
    case.replies("blue");
    case.ends();
    case.records("asks");
}

fn record_denial(cli: Cli) {
    let case = case(
        cli,
        [
            Turn::asking_shell("python3 -c \"open('forbidden.txt', 'w')\""),
            Turn::say("So be it."),
        ],
    );
    case.starts("edit");
    case.until_asked("forbidden.txt");
    case.says(&["deny", "job", "not in this house"]);
    case.succeeds("So be it.");
    case.records("denied");
}

fn record_interruptions(cli: Cli) {
    let case = case(
        cli,
        [
            Turn::write("first.txt", "one\n"),
            Turn::hang("I am about to"),
        ],
    );
    case.starts("full");
    case.model.until_asked(2);
    case.says(&["pause", "job"]);
    case.becomes("stopped");
    case.records("cancelled");
    case.model.add_turns([Turn::say("It is done now.")]);
    case.says(&["resume", "job", "finish it"]);
    case.succeeds("It is done now.");
    case.records("resumed");
}

fn record_limits(cli: Cli) {
    let limited = case(
        cli,
        [Turn::RateLimited { after_s: 1 }, Turn::say("Now it works.")],
    );
    limited.starts("edit");
    if cli.retries_when_limited() {
        limited.succeeds("Now it works.");
    } else {
        limited.becomes("stopped");
    }
    limited.records("limited");
    if !cli.retries_when_limited() {
        let used_up =
            case(cli, [Turn::UsedUp { for_s: 3 }, Turn::say("Now it works.")]).of_a_subscriber();
        used_up.starts("edit");
        used_up.becomes("stopped");
        used_up.records("used_up");
    }
}
