//! Agents: configured CLI programs, identified by name.

use crate::fence::Fence;
use crate::limits::NAME_BYTES_MAX;
use crate::words;
use crate::workspace::Isolation;
use std::collections::BTreeMap;
use std::fmt;

/// The name of a configured agent: 1 to 50 of `[a-z0-9_-]`, beginning with a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

/// Why a text cannot name an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an agent name: use 1 to {NAME_BYTES_MAX} of a-z, 0-9, _ and -, beginning with a letter"
)]
pub struct AgentNameError;

impl AgentName {
    /// Parses an agent's name.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, AgentNameError> {
        let well_formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(AgentNameError)
        }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Largest edit distance between a mistyped name and a suggested one.
const TYPING_ERRORS_MAX: usize = 2;

/// Returns the known name that a misspelled one probably means.
#[must_use]
pub fn suggested_name<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let near = known
        .into_iter()
        .map(|name| (edit_distance(&typed, name), name));
    let (distance, name) = near.min()?;
    (distance <= TYPING_ERRORS_MAX && distance < name.len()).then_some(name)
}

/// Returns the edit distance of two texts: insertions, removals, replacements and swaps of adjacent
/// characters.
#[must_use]
pub fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1; to.len() + 1];
        for (j, b) in to.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(a != b))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The adapter that drives one kind of CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HarnessKind {
    /// The built-in scripted agent.
    Echo,
    /// Any program: prompt in, text out.
    Plain,
    /// A vendor's CLI, driven by its preset.
    Vendor,
}

words!(HarnessKind { Echo = "echo", Plain = "plain", Vendor = "vendor" });

/// What a run may do without approval.
/// Each profile includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Permissions {
    /// Read everything, change nothing.
    Read,
    /// Change files in its working directory.
    #[default]
    Edit,
    /// Everything.
    Full,
}

words!(Permissions { Read = "read", Edit = "edit", Full = "full" });

/// How the prompt reaches the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptVia {
    /// On standard input, which is closed after it.
    Stdin,
    /// As the last argument.
    Arg,
    /// As the first message on standard input, which stays open for later messages.
    Stream,
}

words!(PromptVia { Stdin = "stdin", Arg = "arg", Stream = "stream" });

/// An agent whose model is only called through the gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentGate {
    /// The variable of the dispatcher with the key of the API, which the agent never gets. `None`:
    /// the key is in a file.
    pub key_variable: Option<String>,
}

/// What the dispatcher of one run sets in addition to its agent's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentOverrides {
    /// The model, passed as the preset says.
    pub model: Option<String>,
    /// Arguments after all others.
    pub args: Vec<String>,
    /// The names of its variables. Their values are secret and stored apart.
    pub env: Vec<String>,
}

/// A resolved agent. A run keeps the copy from its dispatch, so that later changes of the
/// configuration do not affect it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub name: AgentName,
    pub harness: HarnessKind,
    /// The preset of a vendor's CLI, as opaque text. Empty for other agents.
    pub preset: String,
    pub permissions: Permissions,
    /// Whether the working directory's configuration of agents (servers, hooks, settings) is used.
    pub trust_repo: bool,
    /// Whether its runs work in their own workspaces.
    pub isolation: Isolation,
    /// The program, absolute or found on `PATH`, and its first arguments. Empty for `echo`, and for
    /// a vendor's CLI with its default command.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub prompt: PromptVia,
    /// Variables of the agent, in addition to the passed ones.
    pub env: BTreeMap<String, String>,
    /// Variables of the dispatcher that are passed in addition to those of the preset. A name may
    /// end in `*`.
    pub env_pass: Vec<String>,
    /// How its model is called through the gate. `None`: without a gate.
    pub gate: Option<AgentGate>,
    pub description: String,
    /// Active time after which an attempt is stopped. `None`: no limit.
    pub timeout_ms: Option<i64>,
    /// Timeout of one wait for an answer, see [`crate::limits::PATIENCE_MS_DEFAULT`].
    pub patience_ms: i64,
    /// How long the agent may be silent before it is reported. `None`: without a limit.
    pub stall_ms: Option<i64>,
    /// Memory of all its processes above which a run is stopped, in bytes. `None`: no limit.
    pub memory_bytes_max: Option<u64>,
    pub grace_ms: i64,
    /// How long the agent may be silent after its report before its run needs attention. `None`:
    /// without a limit.
    pub report_grace_ms: Option<i64>,
    /// Whether it is ended then instead.
    pub ends_after_report: bool,
    /// Whether a run resumes by itself after a usage limit or an overload.
    pub auto_resume: bool,
    pub fence: Fence,
    /// Absolute directories that a fence leaves writable too.
    pub fence_write: Vec<String>,
    /// Whether its prompt begins with the identity statement. Without one it gets the task only, in
    /// every attempt.
    pub has_identity: bool,
    pub overrides: AgentOverrides,
}

impl AgentSpec {
    /// Lets the scripted agent receive messages while it works, if its script waits for one.
    pub fn receive_expected_messages(&mut self, script: &str) {
        if self.harness == HarnessKind::Echo
            && script.lines().any(|line| line.trim() == "expect-message")
        {
            self.prompt = PromptVia::Stream;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_name_suggests_the_nearest_known_one() {
        let known = ["claude", "codex", "amp", "q"];
        for (typed, meant) in [
            ("cluade", Some("claude")),
            ("Claude", Some("claude")),
            ("codx", Some("codex")),
            ("x", None),
            ("gemini", None),
            ("", None),
        ] {
            assert_eq!(suggested_name(typed, known), meant, "{typed}");
        }
    }
}
