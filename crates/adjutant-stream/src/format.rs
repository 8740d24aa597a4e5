//! The format of a CLI's output: rules for JSON lines, and the parts of plain text that are not the
//! answer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to interpret a CLI's JSON lines.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Success requires an event that states it. Otherwise the exit status decides, unless an event
    /// stated a failure.
    #[serde(default)]
    pub end_is_stated: bool,
    /// Reported usage covers the whole session, including earlier attempts that it resumes.
    #[serde(default)]
    pub usage_of_session: bool,
    /// The reported input includes tokens read from the cache.
    #[serde(default)]
    pub cached_in_input: bool,
    /// Reported tokens cover only the last model call.
    #[serde(default)]
    pub usage_of_last_call: bool,
    /// Prefixes of result lines that mean failure, for a CLI that reports success even when its
    /// model could not be used.
    #[serde(default)]
    pub failed_results: Vec<String>,
    /// Success requires text after the last tool call, for a CLI that ends failed and successful
    /// turns alike.
    #[serde(default)]
    pub success_needs_answer: bool,
    /// Messages that the CLI itself writes before it retries a failed call. They are not the
    /// model's text.
    #[serde(default)]
    pub retry_notes: Vec<String>,
    /// Prefixes of other messages that the CLI itself writes. They are logged and are not the
    /// model's text.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// Last messages that mean failure, for a CLI that reports success even when its model could
    /// not be used.
    #[serde(default)]
    pub failed_messages: Vec<FailedMessage>,
    /// Path of the session or sub-agent that a line belongs to. A line of another session than the
    /// run's own is a sub-agent's: its text, result and end are not the run's.
    #[serde(default)]
    pub speaker: Option<String>,
    /// Lines of standard error, or of the CLI's own log, that report a failed call before the CLI
    /// retries it.
    #[serde(default)]
    pub stderr_retries: Vec<StderrRetry>,
}

/// A failure message, recognized by its prefix and suffix.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedMessage {
    pub begins: String,
    pub ends: String,
}

/// A line of standard error or of a log that reports a failed call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StderrRetry {
    /// Substrings that the line must contain. `{session}` stands for the session, in a log that has
    /// lines of others.
    pub all: Vec<String>,
    /// The error message follows this substring.
    pub after: String,
    /// The error message ends before this substring.
    #[serde(default)]
    pub before: Option<String>,
}

impl StderrRetry {
    /// Returns the error message in a line, or `None` if the line does not match.
    #[must_use]
    pub fn find<'a>(&self, line: &'a str, session: Option<&str>) -> Option<&'a str> {
        const SESSION: &str = "{session}";
        let is_meant = self
            .all
            .iter()
            .all(|part| match (part.contains(SESSION), session) {
                (false, _) => line.contains(part.as_str()),
                (true, Some(session)) => line.contains(&part.replace(SESSION, session)),
                (true, None) => false,
            });
        let (_, words) = line.split_once(self.after.as_str()).filter(|_| is_meant)?;
        let words = self
            .before
            .as_deref()
            .and_then(|before| words.split_once(before))
            .map_or(words, |(words, _)| words);
        Some(words.trim().trim_matches('"'))
    }
}

impl Stream {
    /// Returns whether the CLI itself wrote a message (see `remarks`).
    #[must_use]
    pub(crate) fn is_remark(&self, message: &str) -> bool {
        self.remarks
            .iter()
            .any(|beginning| message.starts_with(beginning.as_str()))
    }

    /// Returns whether a message announces that the CLI retries a failed call.
    #[must_use]
    pub(crate) fn is_retry_note(&self, message: &str) -> bool {
        self.retry_notes.iter().any(|note| message.trim() == note)
    }

    /// Returns the part of a result that reports a failure.
    #[must_use]
    pub fn failed_line<'a>(&self, result: &'a str) -> Option<&'a str> {
        // Text of the model may precede the message.
        let failed_message = |failed: &FailedMessage| {
            result
                .trim_end()
                .ends_with(failed.ends.as_str())
                .then(|| result.rfind(failed.begins.as_str()))
                .flatten()
        };
        if let Some(at) = self.failed_messages.iter().find_map(failed_message) {
            return Some(&result[at..]);
        }
        let without_notes = |mut line: &'a str| {
            while let Some(rest) = self
                .retry_notes
                .iter()
                .find_map(|note| line.strip_prefix(note.as_str()))
            {
                line = rest;
            }
            line
        };
        result.lines().map(without_notes).find(|line| {
            self.failed_results
                .iter()
                .any(|beginning| line.starts_with(beginning.as_str()))
        })
    }
}

/// How to interpret one kind of line. A path is a list of field names separated by dots. With
/// `each`, paths start at the element (an empty path is the element itself); a path that starts
/// with `$.` starts at the line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Conditions: a path of the line and its value. Alternatives are separated by `|`; `*` matches
    /// any value, `-` an absent one.
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    /// Path of a list. The rule applies to each of its elements.
    #[serde(default)]
    pub each: Option<String>,
    /// Like `when`, for the element.
    #[serde(default)]
    pub r#where: BTreeMap<String, String>,
    /// The session's id.
    #[serde(default)]
    pub session: Option<String>,
    /// A whole message of the agent.
    #[serde(default)]
    pub text: Option<String>,
    /// A chunk of a message.
    #[serde(default)]
    pub delta: Option<String>,
    /// With `delta`: the id of the message that the chunk belongs to.
    #[serde(default)]
    pub delta_of: Option<String>,
    /// The name of a tool that is called.
    #[serde(default)]
    pub tool: Option<String>,
    #[serde(default)]
    pub input: Option<String>,
    /// With `tool` or `input`: the call's id. Messages with the same id share one line in the log.
    #[serde(default)]
    pub call: Option<String>,
    /// With `call`: the state of the call (`pending`, `in_progress`, `completed` or `failed`).
    /// Without it, the call counts as running.
    #[serde(default)]
    pub call_state: Option<String>,
    /// The current step of a plan.
    #[serde(default)]
    pub step: Option<String>,
    /// The output of a tool.
    #[serde(default)]
    pub output: Option<String>,
    /// The agent's last answer.
    #[serde(default)]
    pub result: Option<String>,
    /// An error message, shown if the run fails.
    #[serde(default)]
    pub error: Option<String>,
    /// State of one of the CLI's own sub-agents.
    #[serde(default)]
    pub subagent: Option<SubagentPaths>,
    /// The error of a call that the CLI retries: one or several paths, separated by blanks.
    #[serde(default)]
    pub retry: Option<String>,
    /// With `retry`: the cause, where the kind of line determines it. Otherwise `failures` find it
    /// in the error message.
    #[serde(default)]
    pub retry_cause: Option<String>,
    /// When a usage limit resets, in seconds since the epoch; used if the run fails because of the
    /// limit.
    #[serde(default)]
    pub again: Option<String>,
    #[serde(default)]
    pub usage: Option<UsagePaths>,
    #[serde(default)]
    pub end: Option<End>,
    /// The line is passed to the driver.
    #[serde(default)]
    pub listen: bool,
}

/// Paths of the state of one of the CLI's own sub-agents.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentPaths {
    pub id: String,
    /// The sub-agent starts with this line. Other lines are ignored unless their sub-agent is
    /// known.
    #[serde(default)]
    pub begins: bool,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub about: Option<String>,
    #[serde(default)]
    pub state: Option<String>,
    #[serde(default)]
    pub tokens: Option<String>,
}

/// Paths of usage. The values of several paths, separated by blanks, are summed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePaths {
    #[serde(default)]
    pub input: Option<String>,
    #[serde(default)]
    pub cached: Option<String>,
    #[serde(default)]
    pub output: Option<String>,
    #[serde(default)]
    pub cost_usd: Option<String>,
    /// Usage of several events is summed; otherwise the last event replaces the others.
    #[serde(default)]
    pub add: bool,
    /// The cost covers the whole session, even with `add`.
    #[serde(default)]
    pub cost_is_total: bool,
}

/// The outcome that the stream states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Success,
    Failure,
}

/// The parts of plain text that are not the agent's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainText {
    /// Prefixes of lines that the CLI prints before its answer.
    #[serde(default)]
    pub banner: Vec<String>,
    /// Prefixes of lines after which the CLI retries. Text before such a line is neither an answer
    /// nor a failure.
    #[serde(default)]
    pub retries: Vec<String>,
}

impl PlainText {
    /// Returns the part of printed text that is the answer.
    #[must_use]
    pub fn answer<'a>(&self, text: &'a str) -> &'a str {
        let begins = |line: &str, with: &[String]| {
            with.iter()
                .any(|beginning| line.starts_with(beginning.as_str()))
        };
        let (mut at, mut from, mut is_banner) = (0, 0, !self.banner.is_empty());
        for line in text.split_inclusive('\n') {
            at += line.len();
            is_banner &= line.trim().is_empty() || begins(line, &self.banner);
            if is_banner || begins(line, &self.retries) {
                from = at;
            }
        }
        &text[from..]
    }
}
