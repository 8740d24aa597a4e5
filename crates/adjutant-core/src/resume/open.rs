//! Open requests, as a later attempt reads them.

use super::settled::NAME_CHARS_MAX;
use crate::RequestKind;
use crate::quote::{quote_label, quote_line};
use crate::signal::Independence;

/// Maximum number of requests that are listed as still open; the others are only counted.
pub const OPEN_NAMED_MAX: usize = 20;
/// Maximum number of characters of a request's text, which the run itself has written.
pub(super) const OPEN_TEXT_CHARS: usize = 300;

/// An open request of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    pub number: String,
    /// The run's own id of the request.
    pub own_id: Option<String>,
    pub kind: RequestKind,
    /// The question, the action, or the task.
    pub text: String,
    /// The outcome is delivered to the run. Otherwise the run gets it by a call.
    pub by_block: bool,
    pub state: OpenRequestState,
}

/// The state of an open request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenRequestState {
    /// There is no decision yet.
    Undecided { blocking: bool },
    /// A delegation was approved, and the child run has not ended.
    ChildRunning {
        child: String,
        independence: Independence,
    },
}

impl OpenRequest {
    pub(super) fn to_text(&self) -> String {
        let Self {
            number,
            own_id,
            kind,
            text,
            by_block,
            state,
        } = self;
        let words = quote_line(text, OPEN_TEXT_CHARS);
        let own = own_id
            .as_deref()
            .map(quote_label)
            .filter(|id| !id.is_empty())
            .map_or_else(String::new, |id| format!(" (your {id})"));
        let (about, next) = match (state, by_block) {
            (OpenRequestState::Undecided { blocking: true }, false) => (
                "not decided yet".to_owned(),
                format!("Call check_answer with message_id {number}: it waits for the answer."),
            ),
            (OpenRequestState::Undecided { blocking: false }, false) => (
                "not decided yet".to_owned(),
                format!("Call check_answer with message_id {number} when you need the answer."),
            ),
            (OpenRequestState::Undecided { blocking: true }, true) => (
                "not decided yet".to_owned(),
                "The answer will be delivered to you. When you cannot continue without it, end."
                    .to_owned(),
            ),
            (OpenRequestState::Undecided { blocking: false }, true) => (
                "not decided yet".to_owned(),
                "Continue without the answer.".to_owned(),
            ),
            (
                OpenRequestState::ChildRunning {
                    child,
                    independence,
                },
                by_block,
            ) => {
                let next = match (independence, by_block) {
                    (Independence::Blocks, false) => format!("Call check_answer with message_id {number}: it waits for the result."),
                    (Independence::Blocks, true) => "The result will be delivered to you. When you cannot continue without it, end.".to_owned(),
                    (Independence::Parallel, _) => "You get a message when it has ended.".to_owned(),
                    (Independence::Optional, _) => "Nothing depends on it.".to_owned(),
                };
                (
                    format!(
                        "approved, run {} is working on it",
                        quote_line(child, NAME_CHARS_MAX)
                    ),
                    next,
                )
            }
        };
        format!(
            "- {number}{own}, {} ({about}): {words}\n  {next}",
            kind.word()
        )
    }
}
