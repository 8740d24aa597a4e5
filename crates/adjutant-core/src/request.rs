//! Requests: something a run needs decided, and the one decision that it gets.
//!
//! ```text
//!            ┌─ Answer ──> Answered ── Retrieve ──> Retrieved
//!  Pending ──┼─ Deadline ─> Answered by default, or Expired
//!            └─ Withdraw ─> Withdrawn
//! ```
//! Nothing else ever happens to a request: exactly one decision is accepted, and reading marks,
//! never destroys. One thing can be taken back: a yes to an approval, as long as its run has not
//! received it (a revocation).

use crate::signal::{Delegation, Independence};
use crate::words;
use crate::{Decision, Denied, Moment, Principal, RunId, SteadyTime, Time};
use std::fmt;

/// What kind of decision is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A question in natural language.
    Question,
    /// Leave to do something.
    Approval,
    /// A task for another agent.
    Delegation,
}

words!(RequestKind { Question = "question", Approval = "approval", Delegation = "delegation" });

/// What is asked for, beside the text that names it (the question, the action, the task).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Question,
    Approval {
        /// What exactly would be done: a text, a command, a diff.
        preview: Option<String>,
        risk: Option<String>,
    },
    Delegation(Delegation),
}

impl Subject {
    /// Returns the kind of decision that it needs.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Question => RequestKind::Question,
            Self::Approval { .. } => RequestKind::Approval,
            Self::Delegation(_) => RequestKind::Delegation,
        }
    }

    /// Tells whether the request still makes sense when its run has succeeded: a task for an agent
    /// else that the run did not want to wait for.
    #[must_use]
    pub fn outlives_its_run(&self) -> bool {
        matches!(self, Self::Delegation(Delegation { independence: Independence::Parallel | Independence::Optional, .. }))
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
    pub decision: Decision,
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
    /// Returns the state without its data.
    #[must_use]
    pub fn kind(&self) -> RequestStateKind {
        match self {
            Self::Pending => RequestStateKind::Pending,
            Self::Answered(_) => RequestStateKind::Answered,
            Self::Retrieved { .. } => RequestStateKind::Retrieved,
            Self::Expired { .. } => RequestStateKind::Expired,
            Self::Withdrawn { .. } => RequestStateKind::Withdrawn,
        }
    }

    /// Returns the stable word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// Returns the status in the original protocol.
    #[must_use]
    pub fn message_status(&self) -> MessageStatus {
        match self {
            Self::Pending => MessageStatus::PendingParentReply,
            Self::Answered(_) => MessageStatus::ParentReplied,
            Self::Retrieved { .. } => MessageStatus::AcknowledgedBySubagent,
            Self::Expired { .. } => MessageStatus::Expired,
            Self::Withdrawn { .. } => MessageStatus::Withdrawn,
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

/// A [`RequestState`] without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestStateKind {
    Pending,
    Answered,
    Retrieved,
    Expired,
    Withdrawn,
}

words!(RequestStateKind {
    Pending = "pending",
    Answered = "answered",
    Retrieved = "retrieved",
    Expired = "expired",
    Withdrawn = "withdrawn",
});

/// The status of a request in the original protocol, where a request is a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageStatus {
    PendingParentReply,
    ParentReplied,
    AcknowledgedBySubagent,
    Expired,
    Withdrawn,
}

words!(MessageStatus {
    PendingParentReply = "pending_parent_reply",
    ParentReplied = "parent_replied",
    AcknowledgedBySubagent = "acknowledged_by_subagent",
    Expired = "expired",
    Withdrawn = "withdrawn",
});

/// What a request's rules need to know beside its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTerms {
    pub asker: RunId,
    pub kind: RequestKind,
    pub expires_at: SteadyTime,
    /// The answer to a question that is still open at the deadline; without it the question expires.
    /// An approval or delegation has none: it is denied at the deadline.
    pub default: Option<String>,
    /// A live attempt received the answer with its prompt.
    pub told: bool,
    /// Its run is held until what was approved is done.
    pub held: bool,
}

/// Something that happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEvent {
    Answer {
        by: Principal,
        decision: Decision,
    },
    /// The asker's own read.
    Retrieve,
    /// The clock reached `expires_at`.
    Deadline,
    /// Its run ended or took it back.
    Withdraw,
}

/// Why nobody's silence is a yes.
pub const NOBODY_DECIDED: &str = "nobody decided in time";

/// Tells whether a decision takes back a yes: only to an approval, whose effect is in the hands of
/// its run. What a delegation starts is there at once; it can be cancelled.
fn is_revocation(kind: RequestKind, before: &Answer, decision: &Decision) -> bool {
    kind == RequestKind::Approval && matches!((&before.decision, decision), (Decision::Approved { .. }, Decision::Denied { .. }))
}

/// Decides what an event does to a request.
///
/// # Errors
/// A typed refusal; the state is unchanged then. Retrieving what was retrieved is no error and
/// changes nothing (the answer stays readable).
pub fn apply(state: &RequestState, terms: &RequestTerms, event: RequestEvent, now: Moment) -> Result<RequestState, Denied> {
    let Moment { wall: at, steady: now } = now;
    match event {
        RequestEvent::Answer { by, decision } => {
            if by == Principal::Run(terms.asker) {
                return Err(Denied::OwnQuestion);
            }
            decision.fits(terms.kind)?;
            let answered = |decision| RequestState::Answered(Answer { decision, by: AnsweredBy::Principal(by), at });
            match state {
                RequestState::Pending if now >= terms.expires_at => Err(Denied::Expired),
                RequestState::Pending => Ok(answered(decision)),
                RequestState::Answered(before) if is_revocation(terms.kind, before, &decision) => {
                    if terms.told {
                        Err(Denied::Used)
                    } else {
                        Ok(answered(decision))
                    }
                }
                RequestState::Retrieved { answer: before, .. } if is_revocation(terms.kind, before, &decision) => Err(Denied::Used),
                settled => Err(refusal(settled)),
            }
        }
        RequestEvent::Retrieve => match state {
            RequestState::Answered(_) if terms.held => Err(Denied::invalid("message_id", "the approved task is still running")),
            RequestState::Answered(answer) => Ok(RequestState::Retrieved { answer: answer.clone(), at }),
            RequestState::Retrieved { .. } => Ok(state.clone()),
            RequestState::Pending => Err(Denied::invalid("message_id", "not answered yet")),
            RequestState::Expired { .. } => Err(Denied::Expired),
            RequestState::Withdrawn { .. } => Err(Denied::Withdrawn),
        },
        RequestEvent::Deadline => match state {
            RequestState::Pending if now < terms.expires_at => Err(Denied::invalid("deadline", "not reached yet")),
            RequestState::Pending => {
                let by_default = |decision| RequestState::Answered(Answer { decision, by: AnsweredBy::Default, at });
                Ok(match (terms.kind, &terms.default) {
                    (RequestKind::Question, Some(text)) => by_default(Decision::Text(text.clone())),
                    (RequestKind::Question, None) => RequestState::Expired { at },
                    (RequestKind::Approval | RequestKind::Delegation, _) => by_default(Decision::Denied { reason: NOBODY_DECIDED.to_owned() }),
                })
            }
            settled => Err(refusal(settled)),
        },
        RequestEvent::Withdraw => match state {
            RequestState::Pending => Ok(RequestState::Withdrawn { at }),
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
    use crate::decision::DecisionKind;
    use proptest::prelude::*;

    fn run() -> RunId {
        RunId::new(Time(1), [7; 10])
    }

    fn at(ms: i64) -> Moment {
        // The wall clock has no part in it.
        Moment { wall: Time(-ms), steady: SteadyTime(ms) }
    }

    fn kind() -> impl Strategy<Value = RequestKind> {
        prop_oneof![Just(RequestKind::Question), Just(RequestKind::Approval), Just(RequestKind::Delegation)]
    }

    fn decision() -> impl Strategy<Value = Decision> {
        prop_oneof![".{0,8}".prop_map(Decision::Text), Just(Decision::approved()), "[a-z]{0,3}".prop_map(|reason| Decision::Denied { reason }),]
    }

    fn event() -> impl Strategy<Value = RequestEvent> {
        prop_oneof![
            4 => (any::<bool>(), decision())
                .prop_map(|(own, decision)| RequestEvent::Answer { by: if own { Principal::Run(run()) } else { Principal::Person }, decision }),
            1 => Just(RequestEvent::Retrieve),
            1 => Just(RequestEvent::Deadline),
            1 => Just(RequestEvent::Withdraw),
        ]
    }

    fn terms(kind: RequestKind) -> RequestTerms {
        RequestTerms { asker: run(), kind, expires_at: SteadyTime(100), default: None, told: false, held: false }
    }

    proptest! {
        #[test]
        fn one_decision_is_accepted_and_only_revoked(
            kind in kind(),
            events in proptest::collection::vec((event(), 0_i64..200), 0..40),
            default in proptest::option::of("[a-z]{0,3}"),
            told in any::<bool>(),
        ) {
            let terms = RequestTerms { default, told, ..terms(kind) };
            let mut state = RequestState::Pending;
            let mut accepted: Option<Answer> = None;
            let mut now = 0;
            for (event, step) in events {
                now = now.max(step);
                let before = state.clone();
                match apply(&state, &terms, event.clone(), at(now)) {
                    Ok(next) => {
                        if let Some(answer) = next.answer().filter(|answer| Some(*answer) != before.answer()) {
                            if let Some(earlier) = &accepted {
                                prop_assert!(kind == RequestKind::Approval && !told && matches!(before, RequestState::Answered(_)), "only an unused approval");
                                let decisions = (earlier.decision.kind(), answer.decision.kind());
                                prop_assert_eq!(decisions, (Some(DecisionKind::Approved), Some(DecisionKind::Denied)), "never back to a yes");
                            }
                            prop_assert!(answer.by != AnsweredBy::Principal(Principal::Run(run())));
                            prop_assert!(answer.decision.fits(kind).is_ok());
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
        fn nothing_is_decided_after_its_deadline(kind in kind(), late in 0_i64..1_000, decision in decision()) {
            prop_assume!(decision.fits(kind).is_ok());
            let answer = RequestEvent::Answer { by: Principal::Person, decision };
            prop_assert_eq!(apply(&RequestState::Pending, &terms(kind), answer, at(100 + late)), Err(Denied::Expired));
        }

        #[test]
        fn used_approval_cannot_be_revoked(retrieved in any::<bool>(), told in any::<bool>()) {
            let terms = RequestTerms { told, ..terms(RequestKind::Approval) };
            let yes = RequestEvent::Answer { by: Principal::Person, decision: Decision::approved() };
            let no = RequestEvent::Answer { by: Principal::Person, decision: Decision::Denied { reason: "wait".to_owned() } };
            let mut state = apply(&RequestState::Pending, &terms, yes, at(1)).expect("a person may approve");
            if retrieved {
                state = apply(&state, &terms, RequestEvent::Retrieve, at(2)).expect("the asker reads");
            }
            let revoked = apply(&state, &terms, no, at(3));
            if told || retrieved {
                prop_assert_eq!(revoked, Err(Denied::Used));
            } else {
                let text = revoked.expect("not used yet").answer().map(|answer| answer.decision.to_text());
                prop_assert_eq!(text, Some("denied: wait".to_owned()));
            }
        }
    }

    #[test]
    fn silence_never_approves() {
        let text = |kind, default| {
            let settled = apply(&RequestState::Pending, &RequestTerms { default, ..terms(kind) }, RequestEvent::Deadline, at(100));
            settled.expect("the deadline has come").answer().map(|answer| (answer.decision.to_text(), answer.by.to_string()))
        };
        let denied = Some(("denied: nobody decided in time".to_owned(), "default".to_owned()));
        for default in [None, Some("approve".to_owned()), Some("approved".to_owned())] {
            assert_eq!((text(RequestKind::Approval, default.clone()), text(RequestKind::Delegation, default)), (denied.clone(), denied.clone()));
        }
        assert_eq!(text(RequestKind::Question, None), None);
        assert_eq!(text(RequestKind::Question, Some("b".to_owned())), Some(("b".to_owned(), "default".to_owned())));
    }

    #[test]
    fn what_is_still_under_way_is_not_read() {
        let terms = RequestTerms { held: true, ..terms(RequestKind::Delegation) };
        let yes = RequestEvent::Answer { by: Principal::Person, decision: Decision::approved() };
        let state = apply(&RequestState::Pending, &terms, yes, at(1)).expect("a person may approve");
        assert!(apply(&state, &terms, RequestEvent::Retrieve, at(2)).is_err());
        assert!(apply(&state, &RequestTerms { held: false, ..terms }, RequestEvent::Retrieve, at(2)).is_ok());
    }

    #[test]
    fn an_empty_answer_is_an_answer() {
        let terms = terms(RequestKind::Question);
        let answer = RequestEvent::Answer { by: Principal::Person, decision: Decision::Text(String::new()) };
        let answered = apply(&RequestState::Pending, &terms, answer, at(1)).expect("a person may answer");
        assert_eq!(answered.answer().map(|a| a.decision.to_text()), Some(String::new()));
        let retrieved = apply(&answered, &terms, RequestEvent::Retrieve, at(2)).expect("the asker reads");
        assert_eq!(apply(&retrieved, &terms, RequestEvent::Retrieve, at(3)), Ok(retrieved.clone()), "reading again changes nothing");
    }
}
