//! Streams of the real CLIs, recorded by the tests beside this one (`ADJ_RECORD_STREAMS=1`): they are
//! understood here without any CLI.

use adjutant::preset::{self, End};
use adjutant_stream::rules::{Rules, StreamEvent};
use std::path::{Path, PathBuf};

/// Where the streams lie, one directory for each CLI.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams")
}

/// What there is to know about a stream.
#[derive(Debug, Default, PartialEq)]
struct Understood {
    /// When a limit ends.
    limit_reset_at_s: Option<u64>,
    sessions: usize,
    /// Tools called and what they returned.
    tools: String,
    outputs: String,
    /// The agent's words.
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
            StreamEvent::Text(text) | StreamEvent::Delta { text, .. } | StreamEvent::Result(text) => known.words.push_str(&text),
            StreamEvent::Tool { name, input } | StreamEvent::Call { name, input, .. } => known.tools.push_str(&format!("{name} {input}\n")),
            StreamEvent::Output(text) => known.outputs.push_str(&format!("{text}\n")),
            StreamEvent::Retry { error: text, .. } => known.errors.push_str(&format!("{text}\n")),
            StreamEvent::Error(text) => known.errors.push_str(&format!("{text}\n")),
            StreamEvent::Usage(usage) => known.used_tokens = known.used_tokens.max(usage.input_tokens),
            StreamEvent::End(end) => known.ends.push(end),
            StreamEvent::LimitReset(seconds) => known.limit_reset_at_s = Some(seconds),
            StreamEvent::DialogueLine | StreamEvent::Speaker(_) | StreamEvent::Subagent { .. } | StreamEvent::Step(_) | StreamEvent::Cost(_) => {}
        });
        assert!(is_read, "{cli} wrote a line that is none: {line}");
    }
    known
}

/// Understands a recorded stream, twice: a line that nobody knows yet changes nothing.
fn recorded(cli: &str, name: &str) -> Understood {
    let file = directory().join(cli).join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines: Vec<&str> = text.lines().collect();
    let known = understand(cli, &lines);
    let news = r#"{"type":"event_of_next_year","method":"session/event_of_next_year","params":{"text":["x"]}}"#;
    let with_news: Vec<&str> = lines.iter().flat_map(|line| [news, *line]).collect();
    assert_eq!(understand(cli, &with_news), known, "{cli}, {name}");
    known
}

const ALL: [&str; 4] = ["claude", "codex", "gemini", "goose"];

#[test]
fn a_question_and_an_edit_are_understood() {
    for cli in ALL {
        let known = recorded(cli, "asks");
        assert!(known.sessions > 0, "{cli}: {known:?}");
        // What it asked permission for, Gemini CLI does not announce a second time.
        assert!(known.tools.contains("ask") || cli == "gemini", "{cli}: {known:?}");
        assert!(known.outputs.contains("blue"), "{cli}: {known:?}");
        assert!(known.words.contains("The paint is blue."), "{cli}: {known:?}");
        assert_eq!((known.ends, known.errors.as_str()), (vec![End::Success], ""), "{cli}");
        assert!(known.used_tokens >= 100, "{cli}");
    }
}

#[test]
fn a_denial_is_no_failure() {
    for cli in ALL {
        let known = recorded(cli, "denied");
        assert_eq!(known.ends, [End::Success], "{cli}: {known:?}");
        assert!(known.words.contains("So be it."), "{cli}: {known:?}");
    }
}

#[test]
fn a_cancelled_stream_is_no_success() {
    for cli in ALL {
        let known = recorded(cli, "cancelled");
        assert!(!known.ends.contains(&End::Success), "{cli}: {known:?}");
    }
}

#[test]
fn a_resumed_session_says_its_new_answer() {
    for cli in ALL {
        let known = recorded(cli, "resumed");
        assert_eq!(known.ends, [End::Success], "{cli}: {known:?}");
        assert!(known.words.ends_with("It is done now."), "{cli}: {known:?}");
    }
}

#[test]
fn end_of_a_limit_is_read_from_a_field() {
    for cli in ["claude", "codex"] {
        let known = recorded(cli, "used_up");
        assert_eq!(known.ends, [End::Failure], "{cli}: {known:?}");
        assert!(known.limit_reset_at_s.is_some_and(|at| at > 1_795_000_000), "{cli}: {known:?}");
    }
}

#[test]
fn end_of_a_limit_is_read_from_words() {
    for cli in ["claude", "codex"] {
        let known = recorded(cli, "limited");
        assert_eq!(known.ends, [End::Failure], "{cli}: {known:?}");
        assert!(known.errors.contains("429"), "{cli}: {known:?}");
    }
}
