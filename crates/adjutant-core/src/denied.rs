//! Refusals: every error of the rules, as a type.

use crate::{AnsweredBy, BudgetKind, Outcome, RequestKind, shorten};

/// Maximum number of characters of a caller's text in an error.
const GIVEN_CHARS_MAX: usize = 80;

/// Why something was refused. The state is then unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Unknown, malformed or another owner's: indistinguishable on purpose.
    #[error("no such {what}: {given}")]
    NotFound { what: &'static str, given: String },
    /// It may have been confirmed, but the database was set back.
    #[error(
        "no such {what}: {given}; it may have been lost when the database of the hub was set back (noticed {at})"
    )]
    Lost {
        what: &'static str,
        given: String,
        at: String,
    },
    /// No run has this name, but one that the caller may see has a similar name.
    #[error("no such run: {given}; did you mean {meant}?")]
    Misspelled { given: String, meant: String },
    /// A prefix that matches several.
    #[error("{given} could be any of {candidates}")]
    Ambiguous { given: String, candidates: String },
    /// The principal may never do this.
    #[error("{who} may not {action}")]
    NotAllowed {
        who: &'static str,
        action: &'static str,
    },
    /// Another answer was accepted before.
    #[error("already answered by {0}")]
    AnsweredBy(AnsweredBy),
    /// The question expired before this answer.
    #[error("the question has expired")]
    Expired,
    /// The question was withdrawn, for instance because its run ended.
    #[error("the question was withdrawn")]
    Withdrawn,
    /// A decision that is not valid for this kind of request.
    #[error("{} {} cannot be {wanted}", article(*.kind), .kind.word())]
    Unfitting {
        kind: RequestKind,
        wanted: &'static str,
    },
    /// The run has received the approval, so it can no longer be revoked.
    #[error("the approval has already been used")]
    Used,
    /// The decision refers to other content than the request has now.
    #[error("the request has changed since it was shown")]
    NotAsShown,
    /// A run tried to answer itself.
    #[error("a run cannot answer its own question")]
    OwnQuestion,
    /// A finished run never changes.
    #[error("{run} has finished ({outcome})")]
    RunFinished { run: String, outcome: Outcome },
    /// The run has no open request to answer.
    #[error("{run} has no open question")]
    NoOpenRequest { run: String },
    /// The run's state does not allow this.
    #[error("{}", wrong_state(run, state, wanted))]
    WrongState {
        run: String,
        state: &'static str,
        wanted: &'static str,
    },
    /// The same idempotency key was used with another body.
    #[error("this idempotency key was used before with different content")]
    KeyReused,
    /// A limit was reached.
    #[error("the limit for {what} is {limit}")]
    Limit { what: &'static str, limit: u64 },
    /// A budget is used up, or less is left than requested.
    #[error("{problem}")]
    Budget {
        problem: String,
        /// The run whose budget has too little, and of what.
        of: Option<(String, BudgetKind)>,
    },
    /// The state differs from what the caller expects.
    #[error("{what}: {problem}")]
    Conflict { what: &'static str, problem: String },
    /// A run works in the directory, and the configuration lets no other run share it.
    #[error("{run} is working in this directory (refuse_shared_directory = true)")]
    DirectoryInUse { run: String },
    /// A field has no usable value.
    #[error("{field}: {problem}")]
    Invalid {
        field: &'static str,
        problem: String,
    },
    /// One of several changes was refused, so none was made.
    #[error("{which}: {why}; the others were not changed either")]
    OneOf { which: String, why: Box<Denied> },
}

impl Denied {
    /// Returns the refusal for something unknown, malformed or foreign.
    #[must_use]
    pub fn not_found(what: &'static str, given: &str) -> Self {
        Self::NotFound {
            what,
            given: excerpt(given),
        }
    }

    /// Returns the refusal for a name of a run that is probably misspelled.
    #[must_use]
    pub fn misspelled(given: &str, meant: &str) -> Self {
        Self::Misspelled {
            given: excerpt(given),
            meant: meant.to_owned(),
        }
    }

    /// Returns the refusal of one of several changes.
    #[must_use]
    pub fn one_of(which: &str, why: Self) -> Self {
        Self::OneOf {
            which: excerpt(which),
            why: Box::new(why),
        }
    }

    /// Returns the refusal for a state that differs from what the caller expects.
    #[must_use]
    pub fn conflict(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Conflict {
            what,
            problem: problem.into(),
        }
    }

    /// Returns the refusal for an invalid field.
    #[must_use]
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            problem: problem.into(),
        }
    }
}

fn wrong_state(run: &str, state: &str, wanted: &str) -> String {
    if state == wanted {
        format!("{run} is already {state}")
    } else {
        format!("{run} is {state} and cannot be {wanted}")
    }
}

fn article(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Question | RequestKind::Delegation => "a",
        RequestKind::Approval => "an",
    }
}

/// Shortens a caller's text for an error: at most [`GIVEN_CHARS_MAX`] characters, no control
/// characters.
fn excerpt(given: &str) -> String {
    match &*shorten::to_chars(given, GIVEN_CHARS_MAX) {
        "" => "(empty)".to_owned(),
        shown => shown.replace(char::is_control, "\u{fffd}"),
    }
}
