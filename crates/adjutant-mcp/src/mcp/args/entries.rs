//! Entries of arguments that are lists of objects.

use super::param::{DECISIONS, Kind, Param};
use crate::view::{ChangesView, DecisionWord};
use serde::Deserialize;

/// The fields of an entry of `answers`.
pub(super) const ANSWER: [Param; 9] = [
    Param::new("run_id", Kind::Text).also(&["runId", "subagent_id"]),
    Param::new("message_id", Kind::Text).also(&["messageId"]),
    Param::new("answer", Kind::Text).also(&["message"]),
    Param::new("decision", Kind::Word(DECISIONS)),
    Param::new("reason", Kind::Text),
    Param::new("changes", Kind::Changes),
    Param::new("same", Kind::Bool).compat_only(),
    Param::new("for_s", Kind::Count).compat_only(),
    Param::new("uses", Kind::Count).compat_only(),
];

/// The fields of `changes`.
pub(super) const CHANGES: [Param; 4] = [
    Param::new("prompt", Kind::Text).also(&["input"]),
    Param::new("agent", Kind::Text),
    Param::new("cwd", Kind::Text).also(&["directory"]),
    Param::new("priority", Kind::Word(&["P0", "P1", "P2"])),
];

/// The fields of an entry of `questions`.
pub(super) const QUESTION: [Param; 6] = [
    Param::new("question", Kind::Text)
        .also(&["text"])
        .required(),
    Param::new("question_id", Kind::Text),
    Param::new("context", Kind::Text),
    Param::new("options", Kind::Texts),
    Param::new("default", Kind::Text),
    Param::new("blocking", Kind::Bool),
];

/// One answer of `answers`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerEntry {
    pub run_id: Option<String>,
    pub message_id: Option<String>,
    pub answer: Option<String>,
    pub decision: Option<DecisionWord>,
    pub reason: Option<String>,
    pub changes: Option<ChangesView>,
    pub same: Option<bool>,
    pub for_s: Option<u64>,
    pub uses: Option<u64>,
}

/// One question of `questions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionEntry {
    pub question: String,
    pub question_id: Option<String>,
    pub context: Option<String>,
    #[serde(default)]
    pub options: Vec<String>,
    pub default: Option<String>,
    pub blocking: Option<bool>,
}
