//! The fields of each kind of block, and the shape of their values.

use super::kind::SignalKind;

/// The shape of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A word, a number or a name. Text on the next line does not belong to it.
    Line,
    /// Text of any length.
    Text,
    /// A list of texts.
    Texts,
    /// A list of questions.
    Questions,
}

use Shape::{Line, Questions, Text, Texts};

/// The fields of every kind.
const HEAD: &[(&str, Shape)] = &[
    ("agent_id", Line),
    ("timestamp", Line),
    ("signal_type", Line),
];
const CLARIFICATION: &[(&str, Shape)] = &[
    ("reason", Text),
    ("blocked_at", Text),
    ("questions", Questions),
    ("can_resume_with", Text),
    ("current_state", Text),
];
/// The fields of one question.
pub(super) const QUESTION: &[(&str, Shape)] = &[
    ("question_id", Line),
    ("text", Text),
    ("context", Text),
    ("options", Texts),
    ("type", Line),
    ("current_assumption", Text),
];
const STOP: &[(&str, Shape)] = &[
    ("stop_reason", Line),
    ("blocker_type", Line),
    ("details", Text),
    ("completed_work", Text),
    ("blocked_work", Text),
    ("state_snapshot", Text),
    ("resume_requirements", Text),
    ("error_recovery", Text),
    ("working_directory", Line),
];
const DELEGATION: &[(&str, Shape)] = &[
    ("new_task_description", Text),
    ("delegation_reason", Text),
    ("independence", Line),
    ("priority", Line),
    ("context_required", Text),
    ("coordination", Text),
    ("estimated_duration", Line),
    ("agent", Line),
    ("directory", Line),
    ("budget", Line),
];
const COMPLETION: &[(&str, Shape)] = &[
    ("status", Line),
    ("summary", Text),
    ("deliverables", Texts),
    ("metrics_achieved", Text),
    ("issues_encountered", Text),
    ("recommendations", Text),
    ("total_duration", Line),
];
const PROGRESS: &[(&str, Shape)] = &[("percent", Line), ("note", Text), ("eta", Line)];
const APPROVAL: &[(&str, Shape)] = &[
    ("action", Text),
    ("reason", Text),
    ("preview", Text),
    ("risk", Text),
    ("options", Texts),
    ("default", Line),
];

/// Returns the name and the shape of a field of this kind. `name` is in lower case with
/// underscores.
pub(super) fn field_of(kind: SignalKind, name: &str) -> Option<(&'static str, Shape)> {
    let own = match kind {
        SignalKind::Clarification => CLARIFICATION,
        SignalKind::Stop => STOP,
        SignalKind::Delegation => DELEGATION,
        SignalKind::Completion => COMPLETION,
        SignalKind::Progress => PROGRESS,
        SignalKind::Approval => APPROVAL,
    };
    find(HEAD, name).or_else(|| find(own, name))
}

/// Returns the entry of a table with this name.
pub(super) fn find(
    table: &'static [(&'static str, Shape)],
    name: &str,
) -> Option<(&'static str, Shape)> {
    table.iter().copied().find(|(known, _)| *known == name)
}
