//! What a dialogue asks of the attempt: lines to write, permissions to decide about, the end.

use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// What follows from a line of the agent's.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// This goes to its input.
    Write(Vec<u8>),
    /// It has read a message.
    Delivered(String),
    /// It wants to do something that is not its to decide. With the id of one that is open, it takes that one's place:
    /// what was asked then is not asked any more.
    Permission(Permission),
    /// It asks questions, and waits for their answers. With the id of an open request, they take its place.
    Elicit(Elicitation),
    /// It asks no more for the permission or the answers with this id.
    Withdraw(String),
    /// A call that was allowed is another one now.
    Changed(Changed),
    /// Something for the log.
    Note(String),
    /// Its work has failed, in these words.
    Failed(String),
    /// There is nothing more to be said: its input ends, and it should.
    Close,
}

/// Something that an agent may not do by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The protocol's id of the question.
    pub id: String,
    pub tool: String,
    /// What it wants to do with it, whole.
    pub input: String,
    /// It is one of our own tools.
    pub is_own_tool: bool,
    /// The files that it changes, where it says that this is all it does: nothing of that is checked yet.
    pub edits: Vec<PathBuf>,
}

/// Questions that an agent asks by one request of its protocol.
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

/// A call that was allowed, and what it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub tool: String,
    pub allowed: String,
    pub now: String,
}

/// What was decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow,
    /// Why not, for the agent.
    Deny(String),
}

/// One line: JSON escapes every newline within.
pub fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Returns a file's path when it lies in a directory by its name. Whether it really does is checked
/// where it is decided: links are not followed here. Some agents take `~` for the user's home.
pub fn named_within(dir: &Path, file: &Path) -> Option<PathBuf> {
    let begins_at_home = file.as_os_str().as_encoded_bytes().starts_with(b"~");
    let steps_out = begins_at_home || file.components().any(|part| part == Component::ParentDir);
    let file = dir.join(file);
    (!steps_out && file.starts_with(dir)).then_some(file)
}
