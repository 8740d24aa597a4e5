//! A real CLI as the agent of a chat, like Gemini in the original protocol.

use super::Cli;
use super::case::Case;
use crate::chats::said;
use crate::model::Turn;

const FIRST: &str = "An index on the created column would help.";
const SECOND: &str = "Yes, for both tables.";

#[test]
fn gemini_remembers_its_earlier_answers() {
    let Some(case) = Case::new(Cli::Gemini, [Turn::say(FIRST), Turn::say(SECOND)]) else {
        return;
    };
    case.says(&["chat", "start", "Slow endpoints", "--with", "gemini"]);
    assert!(
        case.says(&["chat", "post", "1", "Why is the list slow?"])
            .contains(FIRST),
        "{}",
        case.story()
    );
    assert!(
        case.says(&["chat", "post", "1", "@gemini on both tables?"])
            .contains(SECOND),
        "{}",
        case.story()
    );
    let told = case.asked(2)[1].body.to_string();
    let window = [
        "=== CHAT HISTORY - \\\"Slow endpoints\\\" ===",
        "[person]: Why is the list slow?",
        &format!("[gemini]: {FIRST}"),
    ];
    assert!(window.iter().all(|line| told.contains(line)), "{told}");
    assert_eq!(
        told.matches("on both tables?").count(),
        1,
        "the new message is there once: {told}"
    );
    let names: Vec<String> = said(&case.home, 1)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["person", "gemini", "person", "gemini"]);
}

#[test]
fn failure_of_gemini_is_an_entry_after_the_message() {
    let Some(case) = Case::new(
        Cli::Gemini,
        [Turn::Unauthorized, Turn::Unauthorized, Turn::Unauthorized],
    ) else {
        return;
    };
    case.says(&["chat", "start", "t", "--with", "gemini"]);
    case.fails(&["chat", "post", "1", "Are you there?"]);
    let all = said(&case.home, 1);
    assert_eq!(all[0], ("person".to_owned(), "Are you there?".to_owned()));
    assert!(
        all.len() == 2 && all[1].0 == "gemini" && all[1].1.contains("could not answer"),
        "{all:?}\n{}",
        case.story()
    );
    assert!(all[1].1.contains("not signed in"), "it says why: {all:?}");
    let stats = case.home.json(&["chat", "stats", "1"]);
    assert_eq!(
        (&stats["answered"], &stats["failed"]),
        (&0.into(), &1.into())
    );
}
