//! The kinds and the sources of signals.

use crate::words;
use crate::words::Words;

/// The kind of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignalKind {
    Clarification,
    Stop,
    Delegation,
    Completion,
    Progress,
    Approval,
}

impl SignalKind {
    pub const ALL: [Self; 6] = [
        Self::Clarification,
        Self::Stop,
        Self::Delegation,
        Self::Completion,
        Self::Progress,
        Self::Approval,
    ];

    /// Returns the word in the brackets of a block's first line, which is also `signal_type` in the
    /// JSON form.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::Clarification => "CLARIFICATION_NEEDED",
            Self::Stop => "STOP_WORK",
            Self::Delegation => "DELEGATE_WORK",
            Self::Completion => "COMPLETION_REPORT",
            Self::Progress => "PROGRESS",
            Self::Approval => "APPROVAL_NEEDED",
        }
    }

    /// Returns which fields a block of this kind needs, as a sentence for the run that writes it.
    #[must_use]
    pub fn needed(self) -> &'static str {
        match self {
            Self::Clarification => "It needs questions (a list, each with text) or reason.",
            Self::Stop => "It needs stop_reason (blocker, error or completion) and details.",
            Self::Delegation => "It needs new_task_description.",
            Self::Completion => "It needs status (success, partial_success or failed) and summary.",
            Self::Progress => "It needs percent or note.",
            Self::Approval => "It needs action.",
        }
    }

    /// Returns the kind with this tag.
    #[must_use]
    pub fn from_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.tag() == tag)
    }

    /// Returns the kind whose tag a run has written, in any case.
    #[must_use]
    pub fn from_spoken_tag(tag: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.tag().eq_ignore_ascii_case(tag.trim()))
    }
}

impl Words for SignalKind {
    fn word(self) -> &'static str {
        self.tag()
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::from_tag(word)
    }
}

/// The source of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A call of one of Adjutant's tools.
    Tool,
    /// A block in the run's output.
    Block,
}

words!(Source { Tool = "tool", Block = "block" });
