//! Steps that a dialogue asks the attempt to take: write lines, decide permissions, close the
//! input.

use adjutant_core::policy::Operation;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// A step that follows from a line of the agent.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Write these bytes to the agent's input.
    Write(Vec<u8>),
    /// The agent has read the message with this id.
    Delivered(String),
    /// The agent requests permission. A request with the id of an open one replaces it.
    Permission(Permission),
    /// The agent asks questions and waits for answers. A request with the id of an open one
    /// replaces it.
    Elicit(Elicitation),
    /// The agent withdraws the permission request or elicitation with this id.
    Withdraw(String),
    /// A call changed after it was allowed.
    Changed(ChangedCall),
    /// A note for the log.
    Note(String),
    /// The agent failed, with this message.
    Failed(String),
    /// A turn has ended, and the agent continues with another one.
    TurnEnded,
    /// The work is done: close the agent's input, so that it exits.
    Close,
}

/// A request for permission to call a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The protocol's id of the request.
    pub id: String,
    pub tool: String,
    /// The complete input of the call.
    pub input: String,
    /// The tool is one of Adjutant's.
    pub is_own_tool: bool,
    /// The files that the call changes, if it claims to do nothing else. Not verified.
    pub edits: Vec<PathBuf>,
    /// The call as policies see it, with paths as they are stated.
    pub operation: Box<Operation>,
}

/// Questions of an agent in one request of its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elicitation {
    /// The protocol's id of the request.
    pub id: String,
    pub questions: Vec<Question>,
}

/// A question to the run's parent or to the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub text: String,
    pub context: Option<String>,
    /// Answers to choose from. Empty: any text.
    pub options: Vec<String>,
}

/// A call that changed after it was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedCall {
    pub tool: String,
    pub allowed: String,
    pub now: String,
}

/// The decision about a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// The reason, for the agent.
    Deny(String),
}

/// Encodes a value as one line. JSON escapes newlines within it.
pub fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Returns the path of a file that is, judged by its name, below a directory. Links are not
/// resolved here; the decision does that. A leading `~` is refused, because some agents expand it
/// to the user's home.
pub(crate) fn named_within(dir: &Path, file: &Path) -> Option<PathBuf> {
    let begins_at_home = file.as_os_str().as_encoded_bytes().starts_with(b"~");
    let steps_out = begins_at_home || file.components().any(|part| part == Component::ParentDir);
    let file = dir.join(file);
    (!steps_out && file.starts_with(dir)).then_some(file)
}
