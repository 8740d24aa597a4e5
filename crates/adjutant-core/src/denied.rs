//! Refusals: every "no" that the rules can say, as a type.

use crate::{AnsweredBy, Outcome, RequestKind};

/// Why something was refused. Nothing has changed when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Unknown, malformed or another owner's: indistinguishable on purpose.
    #[error("no such {what}: {given}")]
    NotFound { what: &'static str, given: String },
    /// A prefix that fits several.
    #[error("{given} could be any of {candidates}")]
    Ambiguous { given: String, candidates: String },
    /// The principal has no right to do this at all.
    #[error("{who} may not {action}")]
    NotAllowed { who: &'static str, action: &'static str },
    /// The one answer that counts has been given already.
    #[error("already answered by {0}")]
    AnsweredBy(AnsweredBy),
    /// The question ran out of time before this answer.
    #[error("the question has expired")]
    Expired,
    /// The question was withdrawn, for instance because its run ended.
    #[error("the question was withdrawn")]
    Withdrawn,
    /// A decision that makes no sense for this kind of request.
    #[error("{} {} cannot be {wanted}", article(*.kind), .kind.word())]
    Unfitting { kind: RequestKind, wanted: &'static str },
    /// The run has got the approval already, so it can no longer be taken back.
    #[error("the approval has already been used")]
    Used,
    /// A decision was about another content than the request has.
    #[error("the request has changed since it was shown")]
    NotAsShown,
    /// A run tried to answer itself.
    #[error("a run cannot answer its own question")]
    OwnQuestion,
    /// A finished run never changes.
    #[error("the run has finished ({0})")]
    RunFinished(Outcome),
    /// The run has no open request to answer.
    #[error("{run} has no open question")]
    NoOpenRequest { run: String },
    /// The run is in a state from which this cannot be done.
    #[error("{}", wrong_state(state, wanted))]
    WrongState { state: &'static str, wanted: &'static str },
    /// The same idempotency key came with another body.
    #[error("this idempotency key was used before with different content")]
    KeyReused,
    /// A limit was reached.
    #[error("the limit for {what} is {limit}")]
    Limit { what: &'static str, limit: u64 },
    /// It is no longer, or not now, as the caller takes it to be.
    #[error("{what}: {problem}")]
    Conflict { what: &'static str, problem: String },
    /// A field has no usable value.
    #[error("{field}: {problem}")]
    Invalid { field: &'static str, problem: String },
    /// One of several that were to be done together; so none was.
    #[error("{which}: {why}; the others were not changed either")]
    OneOf { which: String, why: Box<Denied> },
}

impl Denied {
    /// Makes the refusal for something unknown, malformed or foreign.
    #[must_use]
    pub fn not_found(what: &'static str, given: &str) -> Self {
        Self::NotFound { what, given: shown(given) }
    }

    /// Says which of several it is that is refused.
    #[must_use]
    pub fn one_of(which: &str, why: Self) -> Self {
        Self::OneOf { which: shown(which), why: Box::new(why) }
    }

    /// Makes the refusal for something that is not as the caller takes it to be.
    #[must_use]
    pub fn conflict(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Conflict { what, problem: problem.into() }
    }

    /// Makes the refusal for a field without a usable value.
    #[must_use]
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }
}

fn wrong_state(state: &str, wanted: &str) -> String {
    if state == wanted { format!("the run is already {state}") } else { format!("a {state} run cannot be {wanted}") }
}

fn article(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Question | RequestKind::Delegation => "a",
        RequestKind::Approval => "an",
    }
}

/// Shortens what a caller sent so that it can be repeated in an error: at most 80 characters, no
/// control characters.
fn shown(given: &str) -> String {
    let mut text: String = given.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(80).collect();
    if given.chars().nth(80).is_some() {
        text.push('…');
    }
    if text.is_empty() {
        text.push_str("(empty)");
    }
    text
}
