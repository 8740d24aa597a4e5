//! Requests: something a run needs decided, and the one answer that it gets.
//!
//! ```text
//!            ┌─ Answer ──> Answered ── Retrieve ──> Retrieved
//!  Pending ──┼─ Deadline ─> Answered by default, or Expired
//!            └─ Withdraw ─> Withdrawn
//! ```
//! Nothing else ever happens to a request: exactly one answer is accepted, and reading marks,
//! never destroys.

use crate::{Denied, Principal, RunId, Time};
use std::fmt;

/// What kind of decision is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A question in natural language.
    Question,
}

impl RequestKind {
    /// Returns the stable word for this kind.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Question => "question",
        }
    }
}

/// Who gave the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnsweredBy {
    Principal(Principal),
    /// Nobody: the default that the asker declared came true at the deadline.
    Default,
}

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The one accepted answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    pub by: AnsweredBy,
    pub at: Time,
}

/// Where a request is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestState {
    Pending,
    Answered(Answer),
    Retrieved { answer: Answer, at: Time },
    Expired { at: Time },
    Withdrawn { at: Time },
}

impl RequestState {
    /// Returns the stable word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered(_) => "answered",
            Self::Retrieved { .. } => "retrieved",
            Self::Expired { .. } => "expired",
            Self::Withdrawn { .. } => "withdrawn",
        }
    }

    /// Returns the message status of the original protocol.
    #[must_use]
    pub fn message_status(&self) -> &'static str {
        match self {
            Self::Pending => "pending_parent_reply",
            Self::Answered(_) => "parent_replied",
            Self::Retrieved { .. } => "acknowledged_by_subagent",
            Self::Expired { .. } => "expired",
            Self::Withdrawn { .. } => "withdrawn",
        }
    }

    /// Returns the accepted answer, read or not.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered(answer) | Self::Retrieved { answer, .. } => Some(answer),
            Self::Pending | Self::Expired { .. } | Self::Withdrawn { .. } => None,
        }
    }

    /// Tells whether nothing but reading can happen any more.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Pending)
    }
}

/// What a request's rules need to know beside its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTerms {
    pub asker: RunId,
    pub expires_at: Time,
    /// Becomes the answer at the deadline.
    pub default: Option<String>,
}

/// Something that happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEvent {
    Answer {
        by: Principal,
        text: String,
    },
    /// The asker's own read.
    Retrieve,
    /// The clock reached `expires_at`.
    Deadline,
    /// Its run ended or took it back.
    Withdraw,
}

/// Decides what an event does to a request.
///
/// # Errors
/// A typed refusal; the state is unchanged then. Retrieving what was retrieved is no error and
/// changes nothing (the answer stays readable).
pub fn apply(state: &RequestState, terms: &RequestTerms, event: RequestEvent, now: Time) -> Result<RequestState, Denied> {
    match event {
        RequestEvent::Answer { by, text } => {
            if by == Principal::Run(terms.asker) {
                return Err(Denied::OwnQuestion);
            }
            match state {
                RequestState::Pending if now >= terms.expires_at => Err(Denied::Expired),
                RequestState::Pending => Ok(RequestState::Answered(Answer { text, by: AnsweredBy::Principal(by), at: now })),
                settled => Err(refusal(settled)),
            }
        }
        RequestEvent::Retrieve => match state {
            RequestState::Answered(answer) => Ok(RequestState::Retrieved { answer: answer.clone(), at: now }),
            RequestState::Retrieved { .. } => Ok(state.clone()),
            RequestState::Pending => Err(Denied::invalid("message_id", "not answered yet")),
            RequestState::Expired { .. } => Err(Denied::Expired),
            RequestState::Withdrawn { .. } => Err(Denied::Withdrawn),
        },
        RequestEvent::Deadline => match state {
            RequestState::Pending if now < terms.expires_at => Err(Denied::invalid("deadline", "not reached yet")),
            RequestState::Pending => Ok(match &terms.default {
                Some(text) => RequestState::Answered(Answer { text: text.clone(), by: AnsweredBy::Default, at: now }),
                None => RequestState::Expired { at: now },
            }),
            settled => Err(refusal(settled)),
        },
        RequestEvent::Withdraw => match state {
            RequestState::Pending => Ok(RequestState::Withdrawn { at: now }),
            settled => Err(refusal(settled)),
        },
    }
}

fn refusal(settled: &RequestState) -> Denied {
    match settled {
        RequestState::Answered(answer) | RequestState::Retrieved { answer, .. } => Denied::AnsweredBy(answer.by.clone()),
        RequestState::Expired { .. } => Denied::Expired,
        RequestState::Withdrawn { .. } => Denied::Withdrawn,
        RequestState::Pending => Denied::invalid("message_id", "still pending"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run() -> RunId {
        RunId::new(Time(1), [7; 10])
    }

    fn event() -> impl Strategy<Value = RequestEvent> {
        prop_oneof![
            (any::<bool>(), ".{0,8}")
                .prop_map(|(own, text)| RequestEvent::Answer { by: if own { Principal::Run(run()) } else { Principal::Person }, text }),
            Just(RequestEvent::Retrieve),
            Just(RequestEvent::Deadline),
            Just(RequestEvent::Withdraw),
        ]
    }

    proptest! {
        #[test]
        fn exactly_one_answer_is_ever_accepted(events in proptest::collection::vec((event(), 0_i64..200), 0..40), default in proptest::option::of("[a-z]{0,3}")) {
            let terms = RequestTerms { asker: run(), expires_at: Time(100), default };
            let mut state = RequestState::Pending;
            let mut accepted: Option<Answer> = None;
            let mut now = Time(0);
            for (event, step) in events {
                now = Time(now.0.max(step));
                let before = state.clone();
                match apply(&state, &terms, event.clone(), now) {
                    Ok(next) => {
                        if let (None, Some(answer)) = (before.answer(), next.answer()) {
                            prop_assert!(accepted.is_none());
                            prop_assert!(answer.by != AnsweredBy::Principal(Principal::Run(run())));
                            accepted = Some(answer.clone());
                        }
                        prop_assert!(!before.is_settled() || next.is_settled());
                        state = next;
                    }
                    Err(_) => prop_assert_eq!(&before, &state),
                }
                prop_assert_eq!(state.answer(), accepted.as_ref(), "an accepted answer stays readable");
            }
        }

        #[test]
        fn nothing_is_answered_after_its_deadline(late in 0_i64..1_000, text in ".{0,8}") {
            let terms = RequestTerms { asker: run(), expires_at: Time(100), default: None };
            let answer = RequestEvent::Answer { by: Principal::Person, text };
            prop_assert_eq!(apply(&RequestState::Pending, &terms, answer, Time(100 + late)), Err(Denied::Expired));
        }
    }

    #[test]
    fn an_empty_answer_is_an_answer() {
        let terms = RequestTerms { asker: run(), expires_at: Time(100), default: None };
        let answered = apply(&RequestState::Pending, &terms, RequestEvent::Answer { by: Principal::Person, text: String::new() }, Time(1))
            .expect("a person may answer");
        assert_eq!(answered.answer().map(|a| a.text.as_str()), Some(""));
        let retrieved = apply(&answered, &terms, RequestEvent::Retrieve, Time(2)).expect("the asker reads");
        assert_eq!(apply(&retrieved, &terms, RequestEvent::Retrieve, Time(3)), Ok(retrieved.clone()), "reading again changes nothing");
    }
}
