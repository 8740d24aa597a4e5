//! Agents: configured CLI programs, by name, and how one kind of them is driven.

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
#[error("not an agent name: use 1 to {NAME_BYTES_MAX} of a-z, 0-9, _ and -, beginning with a letter")]
pub struct AgentNameError;

impl AgentName {
    /// Parses an agent's name.
    ///
    /// # Errors
    /// Anything that is not a name as described on the type.
    pub fn parse(text: &str) -> Result<Self, AgentNameError> {
        let well_formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if well_formed { Ok(Self(text.to_owned())) } else { Err(AgentNameError) }
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Most letters in which a mistyped name may differ from the one that is suggested.
const TYPING_ERRORS_MAX: usize = 2;

/// Returns the known name that a misspelled one probably means.
#[must_use]
pub fn suggested_name<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let near = known.into_iter().map(|name| (edit_distance(&typed, name), name));
    let (distance, name) = near.min()?;
    (distance <= TYPING_ERRORS_MAX && distance < name.len()).then_some(name)
}

/// Counts the characters to insert, remove or replace to make one text of the other; swapping two adjacent ones
/// counts once.
fn edit_distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1; to.len() + 1];
        for (j, b) in to.iter().enumerate() {
            row[j + 1] = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
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
    /// A vendor's CLI, as its preset says.
    Vendor,
}

words!(HarnessKind { Echo = "echo", Plain = "plain", Vendor = "vendor" });

/// What a run may do without anybody's approval.
/// What comes later includes what comes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Permissions {
    /// Look at everything, change nothing.
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
    /// On standard input, which is then closed.
    Stdin,
    /// As the last argument.
    Arg,
    /// As the first message on standard input, which stays open for later messages.
    Stream,
}

words!(PromptVia { Stdin = "stdin", Arg = "arg", Stream = "stream" });

/// One agent, resolved and ready to start. A run keeps a copy from its dispatch, so that a later
/// change of configuration changes no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub name: AgentName,
    pub harness: HarnessKind,
    /// How a vendor's CLI is driven, as its preset has it: an opaque text here. Empty for the others.
    pub preset: String,
    pub permissions: Permissions,
    /// What the working directory says about agents (servers, hooks, settings) is honoured.
    pub trust_repo: bool,
    /// Whether its runs work in workspaces of their own.
    pub isolation: Isolation,
    /// The program, absolute or found on `PATH`, and its first arguments. Empty for `echo`, and for
    /// a vendor's CLI under its usual name.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub prompt: PromptVia,
    /// Set for the agent on top of the allow-list.
    pub env: BTreeMap<String, String>,
    /// Variables of the dispatcher that it gets beside those of its preset; a name may end in `*`.
    pub env_pass: Vec<String>,
    pub description: String,
    /// Active time after which an attempt is stopped. `None`: no limit.
    pub timeout_ms: Option<i64>,
    /// How long one wait for an answer goes on, see [`crate::limits::PATIENCE_MS_DEFAULT`].
    pub patience_ms: i64,
    /// How long it may be silent before that is reported. `None`: for ever.
    pub stall_ms: Option<i64>,
    pub grace_ms: i64,
    pub fence: Fence,
    /// Absolute directories that a fence leaves writable too.
    pub fence_write: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_name_suggests_the_nearest_known_one() {
        let known = ["claude", "codex", "amp", "q"];
        for (typed, meant) in
            [("cluade", Some("claude")), ("Claude", Some("claude")), ("codx", Some("codex")), ("x", None), ("gemini", None), ("", None)]
        {
            assert_eq!(suggested_name(typed, known), meant, "{typed}");
        }
    }
}
