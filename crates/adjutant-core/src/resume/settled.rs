//! Settled requests and messages, as a later attempt reads them.

use crate::quote::{quote_field, quote_label, quote_line};
use crate::signal::Clarification;

/// Maximum number of characters of a name, a path or a word within a line.
pub(super) const NAME_CHARS_MAX: usize = 300;

/// One question and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledQuestion {
    /// `Q12`.
    pub number: String,
    /// The run's own id of the question.
    pub own_id: Option<String>,
    pub question: String,
    pub context: Option<String>,
    pub outcome: QuestionOutcome,
    /// The context of questions that the run asked together. Only one of them has it.
    pub clarification: Option<Clarification>,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionOutcome {
    Answered(String),
    Expired,
    Withdrawn,
}

/// A decision about an action of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledApproval {
    pub number: String,
    pub action: String,
    pub approved: bool,
    /// The reason of a denial, or the note of an approval.
    pub words: Option<String>,
}

/// The outcome of a delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettledDelegation {
    Approved {
        task: String,
        child: String,
        /// The run's description of how both work in parallel.
        coordination: Option<String>,
        /// The note of the approval.
        note: Option<String>,
        result: Option<String>,
    },
    Denied {
        task: String,
        reason: String,
    },
}

/// Joins the lines that are present.
pub(super) fn lines<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Quotes an optional text after its label.
pub(super) fn field(label: &str, text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
        .map(|text| quote_field(label, text))
}

impl SettledQuestion {
    /// Returns the labels of the question and of its answer, with the run's own id if there is one.
    pub(super) fn labels(&self) -> (String, String) {
        let own = self
            .own_id
            .as_deref()
            .map(quote_label)
            .filter(|id| !id.is_empty());
        match own {
            None => (self.number.clone(), "A".to_owned()),
            Some(id) => match id.strip_prefix('Q') {
                Some(rest) => (format!("Q{rest}"), format!("A{rest}")),
                None => (format!("Q ({id})"), format!("A ({id})")),
            },
        }
    }

    /// Formats the outcome for a run that remembers the question.
    #[must_use]
    pub fn to_text(&self) -> String {
        let (question, answer) = self.labels();
        let answer = match &self.outcome {
            QuestionOutcome::Answered(text) => quote_field(&answer, text),
            QuestionOutcome::Expired => {
                "Nobody answered in time. Decide for yourself and say so in your report.".to_owned()
            }
            QuestionOutcome::Withdrawn => "The question was withdrawn.".to_owned(),
        };
        lines([
            Some(quote_field(&question, &self.question)),
            Some(answer),
            field("Context", self.context.as_ref()),
        ])
    }

    /// Formats the outcome for a run that does not remember the request.
    pub(super) fn to_recap(&self) -> String {
        let clarification = self.clarification.clone().unwrap_or_default();
        let state = [
            field("You were at", clarification.blocked_at.as_ref()),
            field("State at that time", clarification.state.as_ref()),
        ];
        let state = lines(state);
        let gap = if state.is_empty() { "" } else { "\n" };
        format!("{}{gap}{state}", self.to_text())
    }
}

impl SettledApproval {
    /// Formats the outcome under its heading.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self {
            number,
            action,
            approved,
            words,
        } = self;
        let (heading, label) = if *approved {
            ("## APPROVAL GRANTED", "Note")
        } else {
            ("## APPROVAL DENIED", "Reason")
        };
        let bounds = if *approved {
            "This covers what you showed and nothing else."
        } else {
            "Do not do it. Find another way, or report that there is none."
        };
        let text = lines([
            Some(quote_field(number, action)),
            field(label, words.as_ref()),
            Some(bounds.to_owned()),
        ]);
        format!("{heading}\n\n{text}")
    }

    pub(super) fn to_recap(&self) -> String {
        let Self {
            number,
            action,
            approved,
            words,
        } = self;
        let action = Some(quote_field(number, action));
        if *approved {
            let bounds =
                "Approved at that time. Check whether it was done; ask again before you do it now."
                    .to_owned();
            lines([action, Some(bounds), field("Note", words.as_ref())])
        } else {
            lines([
                action,
                Some("Denied.".to_owned()),
                field("Reason", words.as_ref()),
            ])
        }
    }
}

impl SettledDelegation {
    /// Formats the outcome under its heading.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Approved {
                task,
                child,
                coordination,
                note,
                result,
            } => {
                let text = lines([
                    Some(format!(
                        "New agent launched: {}",
                        quote_line(child, NAME_CHARS_MAX)
                    )),
                    Some(quote_field("Task", task)),
                    field("Result", result.as_ref()),
                    field("Coordination", coordination.as_ref()),
                    field("Note", note.as_ref()),
                ]);
                format!("## DELEGATION APPROVED\n\n{text}")
            }
            Self::Denied { task, reason } => format!(
                "## DELEGATION DENIED\n\n{}\n{}",
                quote_field("Task", task),
                quote_field("Reason", reason)
            ),
        }
    }

    pub(super) fn to_recap(&self) -> String {
        match self {
            Self::Approved {
                task,
                child,
                coordination: _,
                note,
                result,
            } => {
                let label = format!(
                    "Delegated to {}",
                    quote_line(child, NAME_CHARS_MAX).replace(':', "_")
                );
                lines([
                    Some(quote_field(&label, task)),
                    field("Result", result.as_ref()),
                    field("Note", note.as_ref()),
                ])
            }
            Self::Denied { task, reason } => format!(
                "{}\n{}",
                quote_field("Not delegated", task),
                quote_field("Reason", reason)
            ),
        }
    }
}

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettledRequest {
    Question(SettledQuestion),
    Approval(SettledApproval),
    Delegation(SettledDelegation),
}

impl SettledRequest {
    /// Formats the outcome for a live run.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Question(decided) => decided.to_text(),
            Self::Approval(approvals) => approvals.to_text(),
            Self::Delegation(delegations) => delegations.to_text(),
        }
    }

    /// Formats the outcome for a run that does not remember the request.
    pub(super) fn to_recap(&self) -> String {
        match self {
            Self::Question(decided) => decided.to_recap(),
            Self::Approval(approvals) => approvals.to_recap(),
            Self::Delegation(delegations) => delegations.to_recap(),
        }
    }
}

/// A message to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    pub from: String,
    pub text: String,
}

impl SentMessage {
    pub(super) fn to_text(&self) -> String {
        let from = quote_line(&self.from, NAME_CHARS_MAX).replace(": ", ":_");
        quote_field(&format!("From {from}"), &self.text)
    }
}
