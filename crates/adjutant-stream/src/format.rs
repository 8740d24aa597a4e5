//! What a CLI's output means: the rules for its lines, and what its text says beside the answer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What its lines mean.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Success has to be stated by an event. Otherwise the exit status decides, unless an event
    /// stated a failure.
    #[serde(default)]
    pub end_is_stated: bool,
    /// The usage that it states is that of the whole session, resumed ones included.
    #[serde(default)]
    pub usage_of_session: bool,
    /// The tokens that it states are those of its last model call only.
    #[serde(default)]
    pub usage_of_last_call: bool,
    /// It reports success even when its model could not be used: how the lines of such a result
    /// begin.
    #[serde(default)]
    pub failed_results: Vec<String>,
    /// It ends a turn that failed like one that succeeded: success takes words behind its last call of a tool.
    #[serde(default)]
    pub success_needs_answer: bool,
    /// Messages of its own about a failed try that it repeats: they are no words of its model.
    #[serde(default)]
    pub retry_notes: Vec<String>,
    /// How messages of its own begin that are no words of its model: they are logged, and no result.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// It reports success even when its model could not be used: the whole last message in that case.
    #[serde(default)]
    pub failed_messages: Vec<FailedMessage>,
    /// Where a line names the session or sub-agent that it belongs to. One that names another than the run's own
    /// is a sub-agent's: its words, results and end are not the run's.
    #[serde(default)]
    pub speaker: Option<String>,
    /// Lines of standard error about a failed try that it repeats.
    #[serde(default)]
    pub stderr_retries: Vec<StderrRetry>,
}

/// A text known by its beginning and its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailedMessage {
    pub begins: String,
    pub ends: String,
}

/// A line of standard error about a failed try.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StderrRetry {
    /// All of these are in the line.
    pub all: Vec<String>,
    /// What went wrong stands behind this.
    pub after: String,
}

impl StderrRetry {
    /// Returns what a line says went wrong. `None`: it is about something else.
    #[must_use]
    pub fn find<'a>(&self, line: &'a str) -> Option<&'a str> {
        let is_meant = self.all.iter().all(|part| line.contains(part.as_str()));
        let (_, words) = line.split_once(self.after.as_str()).filter(|_| is_meant)?;
        Some(words.trim().trim_matches('"'))
    }
}

impl Stream {
    /// Tells whether a message is a remark of the CLI's own.
    #[must_use]
    pub fn is_remark(&self, message: &str) -> bool {
        self.remarks.iter().any(|beginning| message.starts_with(beginning.as_str()))
    }

    /// Tells whether a message is the CLI's own, about a failed try that it repeats.
    #[must_use]
    pub fn is_retry_note(&self, message: &str) -> bool {
        self.retry_notes.iter().any(|note| message.trim() == note)
    }

    /// Returns the part of a result that says that the work failed.
    #[must_use]
    pub fn failed_line<'a>(&self, result: &'a str) -> Option<&'a str> {
        // What its model said before may stand in front.
        let failed_message =
            |failed: &FailedMessage| result.trim_end().ends_with(failed.ends.as_str()).then(|| result.rfind(failed.begins.as_str())).flatten();
        if let Some(at) = self.failed_messages.iter().find_map(failed_message) {
            return Some(&result[at..]);
        }
        let without_notes = |mut line: &'a str| {
            while let Some(rest) = self.retry_notes.iter().find_map(|note| line.strip_prefix(note.as_str())) {
                line = rest;
            }
            line
        };
        result.lines().map(without_notes).find(|line| self.failed_results.iter().any(|beginning| line.starts_with(beginning.as_str())))
    }
}

/// What one kind of line means. Every path is a row of field names with dots; with `each` it begins
/// at the element (an empty one names the element itself), and `$.` in front takes it back to the line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Paths of the line and what has to be there: words separated by `|`, `*` for anything, `-`
    /// for nothing.
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    /// A list in the line: the rule is for each of its elements.
    #[serde(default)]
    pub each: Option<String>,
    /// As `when`, of the element.
    #[serde(default)]
    pub r#where: BTreeMap<String, String>,
    /// The session's id.
    #[serde(default)]
    pub session: Option<String>,
    /// A whole message of the agent.
    #[serde(default)]
    pub text: Option<String>,
    /// A piece of a message.
    #[serde(default)]
    pub delta: Option<String>,
    /// With `delta`: whose pieces belong together.
    #[serde(default)]
    pub delta_of: Option<String>,
    /// A tool's name, as it is called.
    #[serde(default)]
    pub tool: Option<String>,
    #[serde(default)]
    pub input: Option<String>,
    /// With `tool` or `input`: the call's id. It has one line in the log, written once its input is known.
    #[serde(default)]
    pub call: Option<String>,
    /// With `call`: how far the call is (`pending`, `in_progress`, `completed` or `failed`). Without it, what is said
    /// of the call is all of it.
    #[serde(default)]
    pub call_state: Option<String>,
    /// What it is working on now, of a plan.
    #[serde(default)]
    pub step: Option<String>,
    /// What a tool returned.
    #[serde(default)]
    pub output: Option<String>,
    /// The agent's last answer.
    #[serde(default)]
    pub result: Option<String>,
    /// What went wrong, for people; kept for the case that the work fails.
    #[serde(default)]
    pub error: Option<String>,
    /// What the line says of a sub-agent of the CLI's own.
    #[serde(default)]
    pub subagent: Option<SubagentPaths>,
    /// What went wrong with a try that the CLI repeats, for people: one or several paths, separated by blanks.
    #[serde(default)]
    pub retry: Option<String>,
    /// With `retry`: the stable word of its cause, where the line itself is enough to tell. Otherwise
    /// `failures` find it in the words.
    #[serde(default)]
    pub retry_cause: Option<String>,
    /// When a limit ends that was reached, in seconds since the epoch; kept for the case that the work
    /// fails over it.
    #[serde(default)]
    pub again: Option<String>,
    #[serde(default)]
    pub usage: Option<UsagePaths>,
    #[serde(default)]
    pub end: Option<End>,
    /// The driver has to see this line.
    #[serde(default)]
    pub listen: bool,
}

/// What a line says of a sub-agent of the CLI's own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubagentPaths {
    pub id: String,
    /// It begins with this line; otherwise a line about one that is not known says nothing.
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

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePaths {
    /// Several paths, separated by blanks, are added up.
    #[serde(default)]
    pub input: Option<String>,
    #[serde(default)]
    pub cached: Option<String>,
    #[serde(default)]
    pub output: Option<String>,
    #[serde(default)]
    pub cost_usd: Option<String>,
    /// Each such event counts by itself; otherwise the last one holds.
    #[serde(default)]
    pub add: bool,
    /// The cost is still that of the whole session.
    #[serde(default)]
    pub cost_is_total: bool,
}

/// How the work ended, by the stream's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Success,
    Failure,
}

/// What a text says beside the agent's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainText {
    /// How the lines begin that it prints before its answer.
    #[serde(default)]
    pub banner: Vec<String>,
    /// How a line begins after which it tries again: what it said before is no answer, and no failure.
    #[serde(default)]
    pub retries: Vec<String>,
}

impl PlainText {
    /// Returns the answer in a text that it has printed.
    #[must_use]
    pub fn answer<'a>(&self, text: &'a str) -> &'a str {
        let begins = |line: &str, with: &[String]| with.iter().any(|beginning| line.starts_with(beginning.as_str()));
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
