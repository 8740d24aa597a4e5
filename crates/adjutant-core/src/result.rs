//! The result of a run: why it ended, and a substitute for a last message without content.

use crate::quote::{quote_block, quote_line};
use crate::report::Claim;
use crate::run::{Cause, Failure, Outcome, RunState, StopReason};
use crate::words;
use std::fmt::Write as _;

/// Longest message that can count as a pointer to earlier messages, in characters.
const POINTER_CHARS_MAX: usize = 240;
/// Shortest message that is kept as substantial, in characters.
const SUBSTANTIAL_CHARS_MIN: usize = 40;
/// Maximum number of messages, files and commits that a reconstructed result names.
pub const MESSAGES_MAX: usize = 3;
const FILES_MAX: usize = 50;
const COMMITS_MAX: usize = 20;
/// Longest message in a reconstructed result, in bytes; of a longer one its end.
pub const MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of characters of a file's name or a commit's subject.
const NAME_CHARS_MAX: usize = 200;

/// Why a run's work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndReason {
    Completed,
    /// Only a part of the work is done: the run reports that, or it was stopped and can be resumed.
    Partial,
    /// A limit of time, turns or money was reached.
    Limit,
    /// The model's context is full.
    Context,
    RateLimited,
    /// The service of its model fails or has no capacity.
    Overloaded,
    Error,
    Cancelled,
}

words!(EndReason {
    Completed = "completed",
    Partial = "partial",
    Limit = "limit",
    Context = "context",
    RateLimited = "rate_limited",
    Overloaded = "overloaded",
    Error = "error",
    Cancelled = "cancelled",
});

/// Returns why a run's work ended. `None`: the run is live or queued, or waits for an answer.
#[must_use]
pub fn end_reason(state: RunState, claim: Option<Claim>) -> Option<EndReason> {
    match state {
        RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => None,
        RunState::Stopped {
            reason: StopReason::Parked,
            ..
        } => None,
        RunState::Stopped { reason, .. }
        | RunState::Finished(Outcome::Failed(Failure::NotResumed(reason))) => Some(of_stop(reason)),
        RunState::Finished(Outcome::Succeeded) if claim == Some(Claim::Partial) => {
            Some(EndReason::Partial)
        }
        RunState::Finished(Outcome::Succeeded) => Some(EndReason::Completed),
        RunState::Finished(Outcome::Cancelled) => Some(EndReason::Cancelled),
        RunState::Finished(Outcome::SpawnFailed | Outcome::Lost) => Some(EndReason::Error),
        RunState::Finished(Outcome::Failed(Failure::Agent(cause))) => Some(of_cause(cause)),
        RunState::Finished(Outcome::Failed(Failure::Unanswered)) => Some(EndReason::Partial),
        RunState::Finished(Outcome::Failed(Failure::Exit(_) | Failure::Reported)) => {
            Some(EndReason::Error)
        }
    }
}

fn of_stop(reason: StopReason) -> EndReason {
    match reason {
        StopReason::Cancelled => EndReason::Cancelled,
        StopReason::ResourceLimit
        | StopReason::MemoryLimit
        | StopReason::MemoryPressure
        | StopReason::Budget => EndReason::Limit,
        StopReason::RateLimited => EndReason::RateLimited,
        StopReason::Overloaded => EndReason::Overloaded,
        StopReason::Parked
        | StopReason::Paused
        | StopReason::Blocker
        | StopReason::UnreadableBlock => EndReason::Partial,
        StopReason::Error | StopReason::SupervisorLost | StopReason::HostLost => EndReason::Error,
    }
}

fn of_cause(cause: Cause) -> EndReason {
    match cause {
        Cause::RateLimited => EndReason::RateLimited,
        Cause::Overloaded => EndReason::Overloaded,
        Cause::ContextExhausted => EndReason::Context,
        Cause::LimitReached | Cause::NoCredit => EndReason::Limit,
        Cause::NotSignedIn
        | Cause::ModelUnavailable
        | Cause::Network
        | Cause::TooOld
        | Cause::SessionLost
        | Cause::NotPermitted
        | Cause::Refused
        | Cause::NoWord
        | Cause::Agent => EndReason::Error,
    }
}

/// Why a last message does not count as a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultGap {
    Empty,
    /// The agent's output ended within the message.
    Cut,
    /// The message only refers to earlier messages, or only states that the work is done.
    Pointer,
}

words!(ResultGap { Empty = "empty", Cut = "cut", Pointer = "pointer" });

impl ResultGap {
    /// Describes the gap, for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Empty => "is empty",
            Self::Cut => "was cut off",
            Self::Pointer => "only refers to earlier work",
        }
    }
}

/// Returns why a last message does not count as a result, or `None` if it does. `is_cut`: the
/// output ended within it.
#[must_use]
pub fn result_gap(text: &str, is_cut: bool) -> Option<ResultGap> {
    if text.trim().is_empty() {
        return Some(ResultGap::Empty);
    }
    if is_cut {
        return Some(ResultGap::Cut);
    }
    is_pointer(text).then_some(ResultGap::Pointer)
}

/// Words of a sentence that only states that the work is done. It must contain one of the last
/// four.
const DONE_WORDS: [&str; 16] = [
    "all",
    "the",
    "task",
    "tasks",
    "work",
    "is",
    "are",
    "now",
    "everything",
    "ok",
    "okay",
    "successfully",
    "done",
    "finished",
    "complete",
    "completed",
];
/// Words of a sentence that only refers to an earlier message. It must contain one of the last
/// four.
const POINTER_WORDS: [&str; 49] = [
    "see",
    "please",
    "refer",
    "to",
    "the",
    "my",
    "as",
    "i",
    "have",
    "i've",
    "has",
    "been",
    "was",
    "were",
    "is",
    "are",
    "for",
    "in",
    "of",
    "and",
    "described",
    "mentioned",
    "said",
    "stated",
    "explained",
    "noted",
    "reported",
    "listed",
    "given",
    "shown",
    "provided",
    "summarized",
    "summarised",
    "summary",
    "report",
    "results",
    "result",
    "answer",
    "message",
    "messages",
    "details",
    "response",
    "output",
    "full",
    "last",
    "above",
    "previous",
    "previously",
    "earlier",
];
/// Number of words at the end of each list of which a sentence must contain one.
const MARKS: usize = 4;

/// Returns whether a text only refers to earlier messages or only states that the work is done. A
/// sentence with any other word counts as an answer.
fn is_pointer(text: &str) -> bool {
    if text.chars().count() > POINTER_CHARS_MAX {
        return false;
    }
    let mut sentences = text
        .split(['.', '!', '?', ';', ':', '\n'])
        .map(words_of)
        .filter(|words| !words.is_empty())
        .peekable();
    sentences.peek().is_some()
        && sentences.all(|words| {
            consists_of(&words, &DONE_WORDS)
                || words.len() > 1 && consists_of(&words, &POINTER_WORDS)
        })
}

fn words_of(sentence: &str) -> Vec<String> {
    let word = |word: &str| {
        word.trim_matches(|c: char| !c.is_alphanumeric())
            .replace('’', "'")
            .to_lowercase()
    };
    // A number or a sign may be the answer, so tokens without letters are kept unchanged.
    let kept = |raw: &str| {
        if raw.chars().any(char::is_alphanumeric) {
            word(raw)
        } else {
            raw.trim_matches(['*', '_', '"', '\'', '`', ',', '(', ')', '-', '✅'])
                .to_owned()
        }
    };
    sentence
        .split_whitespace()
        .map(kept)
        .filter(|word| !word.is_empty())
        .collect()
}

fn consists_of(words: &[String], list: &[&str]) -> bool {
    let marks = &list[list.len() - MARKS..];
    words.iter().all(|word| list.contains(&word.as_str()))
        && words.iter().any(|word| marks.contains(&word.as_str()))
}

/// Returns whether a message is substantial enough to replace a last message without content.
#[must_use]
pub fn is_substantial(message: &str) -> bool {
    message
        .trim()
        .chars()
        .nth(SUBSTANTIAL_CHARS_MIN - 1)
        .is_some()
        && !is_pointer(message)
}

/// The evidence of a run's work.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkEvidence<'a> {
    pub last_message: &'a str,
    /// Substantial messages before the last one, the oldest first.
    pub messages: &'a [String],
    /// The run's report, as text.
    pub report: Option<&'a str>,
    pub changed_files: &'a [String],
    /// More files changed than `files` lists.
    pub has_more_files: bool,
    /// The run's commits, the newest first: a short id and the subject.
    pub commits: &'a [String],
}

/// Composes a result to replace a last message without content. Quoted lines are indented, as in a
/// prompt. `None`: there is no evidence beyond the last message.
#[must_use]
pub fn reconstruct(gap: ResultGap, seen: &WorkEvidence<'_>) -> Option<String> {
    let WorkEvidence {
        last_message,
        messages,
        report,
        changed_files,
        has_more_files,
        commits,
    } = *seen;
    let report = report.map(str::trim).filter(|report| !report.is_empty());
    let messages: Vec<&String> = messages
        .iter()
        .filter(|message| !last_message.contains(message.trim()))
        .collect();
    if messages.is_empty() && report.is_none() && changed_files.is_empty() && commits.is_empty() {
        return None;
    }
    let mut out = format!(
        "The last message {}. This result is reconstructed from other evidence.\n",
        gap.label()
    );
    let mut add = |head: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "\n{head}:\n{}", quote_block(text));
    };
    if !last_message.trim().is_empty() {
        add("The last message", last_message);
    }
    if let Some(report) = report {
        add("Its report", report);
    }
    for (at, message) in messages
        .iter()
        .enumerate()
        .skip(messages.len().saturating_sub(MESSAGES_MAX))
    {
        add(
            if at + 1 == messages.len() {
                "The message before"
            } else {
                "An earlier message"
            },
            message,
        );
    }
    let list = |names: &[String], max: usize, has_more: bool| {
        let mut lines: Vec<String> = names
            .iter()
            .take(max)
            .map(|name| quote_line(name, NAME_CHARS_MAX))
            .collect();
        if names.len() > max {
            lines.push(format!("… and {} more", names.len() - max));
        } else if has_more {
            lines.push("… and more".to_owned());
        }
        lines.join("\n")
    };
    if !changed_files.is_empty() {
        add(
            "Changed files",
            &list(changed_files, FILES_MAX, has_more_files),
        );
    }
    if !commits.is_empty() {
        add("Commits", &list(commits, COMMITS_MAX, false));
    }
    Some(out.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SteadyTime;
    use crate::run::Exit;
    use proptest::prelude::*;

    #[test]
    fn short_answer_is_a_result() {
        let answers = [
            "42",
            "Yes",
            "no.",
            "OK",
            "ok",
            "7 tests failed",
            "The bug is described above in parser.rs",
            "Done: 3 files",
            "Done in 4 s",
            "previous",
            "main.rs",
            "It works",
            "See README.md",
            "see above for the 3 reasons",
            "earlier versions only",
            "-",
            "∅",
            "The task is not complete",
            "All 12 are done",
            "Not done",
            "below",
            "see the report",
        ];
        for answer in answers {
            assert_eq!(result_gap(answer, false), None, "{answer}");
        }
    }

    #[test]
    fn reference_to_earlier_work_is_no_result() {
        let pointers = [
            "See above.",
            "done",
            "Done.",
            "**Done!** ✅",
            "As described above.",
            "As I've described above",
            "Please see my previous message.",
            "All done. See the summary above.",
            "The task is complete.",
            "see above\n",
            "The results are above",
            "Everything is done!",
            "My full report was given in the previous message. Done.",
        ];
        for pointer in pointers {
            assert_eq!(
                result_gap(pointer, false),
                Some(ResultGap::Pointer),
                "{pointer}"
            );
        }
        assert_eq!(result_gap(" \n", false), Some(ResultGap::Empty));
        assert_eq!(
            result_gap("The parser now handles", true),
            Some(ResultGap::Cut)
        );
    }

    #[test]
    fn reason_names_limit_context_and_rate() {
        let failed = |cause| {
            end_reason(
                RunState::Finished(Outcome::Failed(Failure::Agent(cause))),
                None,
            )
        };
        assert_eq!(failed(Cause::ContextExhausted), Some(EndReason::Context));
        assert_eq!(failed(Cause::RateLimited), Some(EndReason::RateLimited));
        assert_eq!(failed(Cause::LimitReached), Some(EndReason::Limit));
        assert_eq!(failed(Cause::NoWord), Some(EndReason::Error));
        let stopped = |reason| {
            end_reason(
                RunState::Stopped {
                    reason,
                    until: SteadyTime(0),
                },
                None,
            )
        };
        assert_eq!(stopped(StopReason::ResourceLimit), Some(EndReason::Limit));
        assert_eq!(stopped(StopReason::Parked), None);
        assert_eq!(
            end_reason(
                RunState::Finished(Outcome::Failed(Failure::Exit(Exit::Code(2)))),
                None
            ),
            Some(EndReason::Error)
        );
        let done = |claim| end_reason(RunState::Finished(Outcome::Succeeded), claim);
        assert_eq!(
            (done(None), done(Some(Claim::Partial))),
            (Some(EndReason::Completed), Some(EndReason::Partial))
        );
    }

    #[test]
    fn no_evidence_reconstructs_nothing() {
        assert_eq!(
            reconstruct(
                ResultGap::Pointer,
                &WorkEvidence {
                    last_message: "Done.",
                    ..WorkEvidence::default()
                }
            ),
            None
        );
    }

    proptest! {
        #[test]
        fn text_with_an_unknown_word_is_a_result(before in "(done|see|above|the|\\.| ){0,8}", word in "[b-z]{6,12}[0-9]", after in "(done|above| ){0,4}") {
            prop_assert_eq!(result_gap(&format!("{before} {word} {after}"), false), None);
        }

        #[test]
        fn every_ended_state_has_one_reason(state in states()) {
            let is_over = matches!(state, RunState::Finished(_) | RunState::Stopped { .. });
            let parked = matches!(state, RunState::Stopped { reason: StopReason::Parked, .. });
            prop_assert_eq!(end_reason(state, None).is_some(), is_over && !parked);
            // A claim can only turn a success into a partial one.
            let claimed = end_reason(state, Some(Claim::Partial));
            prop_assert!(claimed == end_reason(state, None) || claimed == Some(EndReason::Partial));
            let completed = end_reason(state, None) == Some(EndReason::Completed);
            prop_assert_eq!(completed, state == RunState::Finished(Outcome::Succeeded));
        }

        #[test]
        fn reconstructed_result_keeps_last_message(
            last in "[ -~]{0,60}", messages in prop::collection::vec("[a-z ]{50,60}", 0..6), files in prop::collection::vec("[a-z/\n]{1,20}", 0..60),
            report in prop::option::of("[a-z\n]{0,40}"),
        ) {
            let seen = WorkEvidence { last_message: &last, messages: &messages, report: report.as_deref(), changed_files: &files, ..WorkEvidence::default() };
            if let Some(text) = reconstruct(ResultGap::Pointer, &seen) {
                prop_assert!(text.contains(quote_block(&last).trim()));
                let own = text.lines().filter(|line| !line.is_empty() && !line.starts_with(crate::quote::INDENT));
                for line in own {
                    prop_assert!(line.ends_with(':') || line.starts_with("The last message only"), "{}", line);
                }
                prop_assert!(text.len() < MESSAGES_MAX * 200 + 60 * 30 + 1_000);
            }
        }
    }

    fn states() -> impl Strategy<Value = RunState> {
        let mut all = vec![RunState::Queued, RunState::Starting, RunState::Running];
        for reason in StopReason::ALL {
            all.push(RunState::Stopping(reason));
            all.push(RunState::Stopped {
                reason,
                until: SteadyTime(1),
            });
            all.push(RunState::Finished(Outcome::Failed(Failure::NotResumed(
                reason,
            ))));
        }
        all.extend(
            [
                Outcome::Succeeded,
                Outcome::Cancelled,
                Outcome::SpawnFailed,
                Outcome::Lost,
            ]
            .map(RunState::Finished),
        );
        let failures = [
            Failure::Unanswered,
            Failure::Reported,
            Failure::Exit(Exit::Signal(9)),
        ]
        .into_iter()
        .chain(Cause::ALL.map(Failure::Agent));
        all.extend(failures.map(|failure| RunState::Finished(Outcome::Failed(failure))));
        prop::sample::select(all)
    }
}
