//! Requests of a run for a decision, and the one decision that each gets.
//!
//! ```text
//!            ┌─ Answer ──> Answered ── Retrieve ──> Retrieved
//!  Pending ──┼─ Deadline ─> Answered by default, or Expired
//!            └─ Withdraw ─> Withdrawn
//! ```
//! Exactly one decision is accepted, and reading it only marks it. The one exception is revocation:
//! an approval can be revoked until its run has received it.

use crate::policy::{GrantNo, Operation, PolicyName, approval_parts, parts_line};
use crate::signal::{Delegation, Independence};
use crate::{Decision, Denied, Moment, Principal, RunId, SteadyTime, Time, words};
use std::fmt;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// A question in natural language.
    Question,
    /// Approval of an action.
    Approval,
    /// A task for another agent.
    Delegation,
}

words!(RequestKind { Question = "question", Approval = "approval", Delegation = "delegation" });

impl RequestKind {
    /// Says what a run does with such a request, after the name of the run.
    #[must_use]
    pub const fn asks(self) -> &'static str {
        match self {
            Self::Question => "asks",
            Self::Approval => "asks for approval",
            Self::Delegation => "wants to delegate a task",
        }
    }

    /// Says it in one word.
    #[must_use]
    pub const fn asks_shortly(self) -> &'static str {
        match self {
            Self::Question => "asks",
            Self::Approval => "approve",
            Self::Delegation => "delegate",
        }
    }
}

/// The content of a request, without its text (the question, the action, the task).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Question,
    Approval {
        /// What exactly would be done: a text, a command or a diff.
        preview: Option<String>,
        risk: Option<String>,
        /// The action as policies and grants see it.
        operation: Box<Operation>,
    },
    Delegation(Delegation),
}

impl Subject {
    /// Returns the kind of the request.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Question => RequestKind::Question,
            Self::Approval { .. } => RequestKind::Approval,
            Self::Delegation(_) => RequestKind::Delegation,
        }
    }

    /// Returns whether a request of this subject asks for the same as another one with the same
    /// text.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Question, Self::Question) => true,
            (Self::Approval { preview, .. }, Self::Approval { preview: other, .. }) => {
                preview == other
            }
            (Self::Delegation(delegation), Self::Delegation(other)) => delegation == other,
            _ => false,
        }
    }

    /// Formats a request in one line: its text, and for an approval everything that it allows. Long
    /// parts are cut, with a mark.
    #[must_use]
    pub fn line(&self, text: &str) -> String {
        let parts = match self {
            Self::Approval {
                preview,
                risk: _,
                operation,
            } => approval_parts(Some(operation), preview.as_deref()),
            Self::Question | Self::Delegation(_) => Vec::new(),
        };
        parts_line(text, &parts)
    }

    /// Returns whether the request stays open after its run has succeeded: a delegated task that
    /// the run does not wait for.
    #[must_use]
    pub fn outlives_its_run(&self) -> bool {
        matches!(
            self,
            Self::Delegation(Delegation {
                independence: Independence::Parallel | Independence::Optional,
                ..
            })
        )
    }
}

/// The words with which a risk is stated to be low or medium.
pub const LOW_RISKS: [&str; 8] = [
    "none",
    "no",
    "minimal",
    "negligible",
    "low",
    "medium",
    "moderate",
    "minor",
];

/// Returns whether an approval needs more than one plain key: its risk is stated, and its first
/// word does not say that it is low or medium. A risk is free text of the agent, so an unknown one
/// counts as high.
#[must_use]
pub fn is_high_risk(risk: Option<&str>) -> bool {
    let first = |text: &str| {
        text.trim()
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default()
            .to_lowercase()
    };
    risk.is_some_and(|risk| !risk.trim().is_empty() && !LOW_RISKS.contains(&first(risk).as_str()))
}

/// The author of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnsweredBy {
    Principal(Principal),
    /// A person, with a link that was sent to them.
    Link(LinkName),
    /// The asker's default, applied at the deadline.
    Default,
    Rule(Rule),
}

/// The name of the person to whom links are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkName(String);

impl LinkName {
    pub const BYTES_MAX: usize = 64;

    /// Parses a name: 1 to 64 bytes without control characters.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, Denied> {
        if text.trim().is_empty()
            || text.len() > Self::BYTES_MAX
            || text.chars().any(char::is_control)
        {
            return Err(Denied::invalid(
                "person",
                "use 1 to 64 bytes without control characters",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for LinkName {
    fn default() -> Self {
        Self("person".to_owned())
    }
}

/// A rule that answers an approval for the party that configured or granted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    Policy(PolicyName),
    Grant(GrantNo),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(name) => write!(f, "{POLICY}{name}"),
            Self::Grant(no) => write!(f, "{GRANT}{no}"),
        }
    }
}

const POLICY: &str = "policy ";
const GRANT: &str = "grant ";
const LINK: &str = "link ";
const DEFAULT: &str = "default";

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Link(name) => write!(f, "{LINK}{}", name.as_str()),
            Self::Default => f.write_str(DEFAULT),
            Self::Rule(rule) => rule.fmt(f),
        }
    }
}

impl AnsweredBy {
    /// Parses the output of `Display`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == DEFAULT {
            return Some(Self::Default);
        }
        if let Some(name) = text.strip_prefix(POLICY) {
            return PolicyName::parse(name)
                .ok()
                .map(|name| Self::Rule(Rule::Policy(name)));
        }
        if let Some(no) = text.strip_prefix(GRANT) {
            return GrantNo::parse(no)
                .ok()
                .map(|no| Self::Rule(Rule::Grant(no)));
        }
        if let Some(name) = text.strip_prefix(LINK) {
            return LinkName::parse(name).ok().map(Self::Link);
        }
        Principal::parse(text).map(Self::Principal)
    }
}

/// The accepted answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub decision: Decision,
    pub by: AnsweredBy,
    pub at: Time,
}

/// The state of a request.
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

    /// Returns the accepted answer, whether or not it has been read.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answered(answer) | Self::Retrieved { answer, .. } => Some(answer),
            Self::Pending | Self::Expired { .. } | Self::Withdrawn { .. } => None,
        }
    }

    /// Returns whether the request is decided, so that it can only be read.
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

/// The terms of a request, which the rules need in addition to its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTerms {
    pub asker: RunId,
    pub kind: RequestKind,
    pub expires_at: SteadyTime,
    /// The answer that a question gets at its deadline; without it, the question expires. Approvals
    /// and delegations have no default: they are denied at the deadline.
    pub default: Option<String>,
    /// A live attempt has received the answer in its prompt.
    pub is_delivered: bool,
    /// The run is held until the approved task is done.
    pub held: bool,
}

/// An event of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEvent {
    Answer {
        by: Principal,
        decision: Decision,
    },
    /// A person answers with a link. It answers pending requests only, so it revokes nothing.
    AnswerByLink {
        name: LinkName,
        decision: Decision,
    },
    /// A policy or a grant answers an approval.
    Apply {
        rule: Rule,
        decision: Decision,
    },
    /// The asker reads the answer.
    Retrieve,
    /// The clock has reached `expires_at`.
    Deadline,
    /// The run ended or withdrew the request.
    Withdraw,
}

/// The reason of a denial at the deadline.
pub(crate) const NO_DECISION_IN_TIME: &str = "nobody decided in time";

/// Returns whether a decision revokes an approval. A delegation cannot be revoked, because its run
/// starts at once; it can be cancelled.
fn is_revocation(kind: RequestKind, before: &Answer, decision: &Decision) -> bool {
    kind == RequestKind::Approval
        && matches!(
            (&before.decision, decision),
            (Decision::Approved { .. }, Decision::Denied { .. })
        )
}

/// Returns the state of a request after an event.
///
/// # Errors
/// A typed refusal; the state is then unchanged. Retrieving an answer again is not an error and
/// changes nothing.
pub fn apply(
    state: &RequestState,
    terms: &RequestTerms,
    event: RequestEvent,
    now: Moment,
) -> Result<RequestState, Denied> {
    match event {
        RequestEvent::Answer { by, .. } if by == Principal::Run(terms.asker) => {
            Err(Denied::OwnQuestion)
        }
        RequestEvent::Answer { by, decision } => {
            answer(state, terms, AnsweredBy::Principal(by), decision, now)
        }
        RequestEvent::AnswerByLink { name, decision } => {
            answer(state, terms, AnsweredBy::Link(name), decision, now)
        }
        RequestEvent::Apply { rule, decision } => {
            answer(state, terms, AnsweredBy::Rule(rule), decision, now)
        }
        RequestEvent::Retrieve => retrieve(state, terms, now.wall),
        RequestEvent::Deadline => match state {
            RequestState::Pending if now.steady < terms.expires_at => {
                Err(Denied::invalid("deadline", "not reached yet"))
            }
            RequestState::Pending => Ok(expired(terms, now.wall)),
            settled => Err(refusal(settled)),
        },
        RequestEvent::Withdraw => match state {
            RequestState::Pending => Ok(RequestState::Withdrawn { at: now.wall }),
            settled => Err(refusal(settled)),
        },
    }
}

/// Answers a request. Only a principal can revoke an approval.
fn answer(
    state: &RequestState,
    terms: &RequestTerms,
    by: AnsweredBy,
    decision: Decision,
    now: Moment,
) -> Result<RequestState, Denied> {
    decision.check_fits(terms.kind)?;
    if matches!(by, AnsweredBy::Rule(_)) && terms.kind != RequestKind::Approval {
        return Err(Denied::Unfitting {
            kind: terms.kind,
            wanted: "answered by a rule",
        });
    }
    let revokes = |before: &Answer| {
        matches!(by, AnsweredBy::Principal(_)) && is_revocation(terms.kind, before, &decision)
    };
    match state {
        RequestState::Pending if now.steady >= terms.expires_at => return Err(Denied::Expired),
        RequestState::Pending => {}
        RequestState::Answered(before) if revokes(before) && terms.is_delivered => {
            return Err(Denied::Used);
        }
        RequestState::Answered(before) if revokes(before) => {}
        RequestState::Retrieved { answer: before, .. } if revokes(before) => {
            return Err(Denied::Used);
        }
        settled => return Err(refusal(settled)),
    }
    let at = now.wall;
    Ok(RequestState::Answered(Answer { decision, by, at }))
}

fn retrieve(state: &RequestState, terms: &RequestTerms, at: Time) -> Result<RequestState, Denied> {
    match state {
        RequestState::Answered(_) if terms.held => Err(Denied::invalid(
            "message_id",
            "the approved task is still running",
        )),
        RequestState::Answered(answer) => Ok(RequestState::Retrieved {
            answer: answer.clone(),
            at,
        }),
        RequestState::Retrieved { .. } => Ok(state.clone()),
        RequestState::Pending => Err(Denied::invalid("message_id", "not answered yet")),
        RequestState::Expired { .. } => Err(Denied::Expired),
        RequestState::Withdrawn { .. } => Err(Denied::Withdrawn),
    }
}

/// Returns the state of a request that nobody has decided in time.
fn expired(terms: &RequestTerms, at: Time) -> RequestState {
    let decision = match (terms.kind, &terms.default) {
        (RequestKind::Question, Some(text)) => Decision::Text(text.clone()),
        (RequestKind::Question, None) => return RequestState::Expired { at },
        (RequestKind::Approval | RequestKind::Delegation, _) => Decision::Denied {
            reason: NO_DECISION_IN_TIME.to_owned(),
        },
    };
    let by = AnsweredBy::Default;
    RequestState::Answered(Answer { decision, by, at })
}

fn refusal(settled: &RequestState) -> Denied {
    match settled {
        RequestState::Answered(answer) | RequestState::Retrieved { answer, .. } => {
            Denied::AnsweredBy(answer.by.clone())
        }
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
        // The wall clock must not matter.
        Moment {
            wall: Time(-ms),
            steady: SteadyTime(ms),
        }
    }

    fn kind() -> impl Strategy<Value = RequestKind> {
        prop_oneof![
            Just(RequestKind::Question),
            Just(RequestKind::Approval),
            Just(RequestKind::Delegation)
        ]
    }

    fn decision() -> impl Strategy<Value = Decision> {
        prop_oneof![
            ".{0,8}".prop_map(Decision::Text),
            Just(Decision::approved()),
            "[a-z]{0,3}".prop_map(|reason| Decision::Denied { reason }),
        ]
    }

    fn event() -> impl Strategy<Value = RequestEvent> {
        prop_oneof![
            4 => (any::<bool>(), decision())
                .prop_map(|(own, decision)| RequestEvent::Answer { by: if own { Principal::Run(run()) } else { Principal::Person }, decision }),
            2 => decision().prop_map(|decision| RequestEvent::AnswerByLink { name: LinkName::default(), decision }),
            1 => decision().prop_map(|decision| RequestEvent::Apply { rule: Rule::Grant(GrantNo(1)), decision }),
            1 => Just(RequestEvent::Retrieve),
            1 => Just(RequestEvent::Deadline),
            1 => Just(RequestEvent::Withdraw),
        ]
    }

    fn terms(kind: RequestKind) -> RequestTerms {
        RequestTerms {
            asker: run(),
            kind,
            expires_at: SteadyTime(100),
            default: None,
            is_delivered: false,
            held: false,
        }
    }

    proptest! {
        #[test]
        fn one_decision_is_accepted_and_only_revoked(
            kind in kind(),
            events in proptest::collection::vec((event(), 0_i64..200), 0..40),
            default in proptest::option::of("[a-z]{0,3}"),
            is_delivered in any::<bool>(),
        ) {
            let terms = RequestTerms { default, is_delivered, ..terms(kind) };
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
                                prop_assert!(kind == RequestKind::Approval && !is_delivered && matches!(before, RequestState::Answered(_)), "only an unused approval");
                                let decisions = (earlier.decision.kind(), answer.decision.kind());
                                prop_assert_eq!(decisions, (Some(DecisionKind::Approved), Some(DecisionKind::Denied)), "a denial is never reversed");
                            }
                            prop_assert!(answer.by != AnsweredBy::Principal(Principal::Run(run())));
                            prop_assert!(answer.decision.check_fits(kind).is_ok());
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
        fn no_decision_is_accepted_after_the_deadline(kind in kind(), late in 0_i64..1_000, decision in decision()) {
            prop_assume!(decision.check_fits(kind).is_ok());
            let answer = RequestEvent::Answer { by: Principal::Person, decision };
            prop_assert_eq!(apply(&RequestState::Pending, &terms(kind), answer, at(100 + late)), Err(Denied::Expired));
        }

        #[test]
        fn used_approval_cannot_be_revoked(retrieved in any::<bool>(), is_delivered in any::<bool>()) {
            let terms = RequestTerms { is_delivered, ..terms(RequestKind::Approval) };
            let yes = RequestEvent::Answer { by: Principal::Person, decision: Decision::approved() };
            let no = RequestEvent::Answer { by: Principal::Person, decision: Decision::Denied { reason: "wait".to_owned() } };
            let mut state = apply(&RequestState::Pending, &terms, yes, at(1)).expect("a person may approve");
            if retrieved {
                state = apply(&state, &terms, RequestEvent::Retrieve, at(2)).expect("the asker reads");
            }
            let revoked = apply(&state, &terms, no, at(3));
            if is_delivered || retrieved {
                prop_assert_eq!(revoked, Err(Denied::Used));
            } else {
                let text = revoked.expect("not used yet").answer().map(|answer| answer.decision.to_text());
                prop_assert_eq!(text, Some("denied: wait".to_owned()));
            }
        }
    }

    #[test]
    fn rule_answers_pending_approvals_only() {
        let rule = Rule::Policy(PolicyName::parse("tests").expect("a name"));
        let event = || RequestEvent::Apply {
            rule: rule.clone(),
            decision: Decision::approved(),
        };
        let answered = apply(
            &RequestState::Pending,
            &terms(RequestKind::Approval),
            event(),
            at(1),
        )
        .expect("it may");
        assert_eq!(
            answered
                .answer()
                .map(|answer| answer.by.to_string())
                .as_deref(),
            Some("policy tests")
        );
        assert!(
            matches!(
                apply(&answered, &terms(RequestKind::Approval), event(), at(2)),
                Err(Denied::AnsweredBy(_))
            ),
            "never a second answer"
        );
        assert!(
            apply(
                &RequestState::Pending,
                &terms(RequestKind::Delegation),
                event(),
                at(1)
            )
            .is_err()
        );
        assert_eq!(
            apply(
                &RequestState::Pending,
                &terms(RequestKind::Approval),
                event(),
                at(100)
            ),
            Err(Denied::Expired)
        );
    }

    #[test]
    fn link_answers_once_and_revokes_nothing() {
        let terms = terms(RequestKind::Approval);
        let event = |decision| RequestEvent::AnswerByLink {
            name: LinkName::parse("anna").expect("a name"),
            decision,
        };
        let denial = || Decision::Denied {
            reason: "no".to_owned(),
        };
        let answered = apply(
            &RequestState::Pending,
            &terms,
            event(Decision::approved()),
            at(1),
        )
        .expect("it may");
        assert_eq!(
            answered
                .answer()
                .map(|answer| answer.by.to_string())
                .as_deref(),
            Some("link anna")
        );
        for decision in [Decision::approved(), denial()] {
            assert!(matches!(
                apply(&answered, &terms, event(decision), at(2)),
                Err(Denied::AnsweredBy(AnsweredBy::Link(_)))
            ));
        }
        assert_eq!(
            apply(&RequestState::Pending, &terms, event(denial()), at(100)),
            Err(Denied::Expired)
        );
    }

    #[test]
    fn author_of_an_answer_round_trips() {
        for text in [
            "person",
            "link anna b",
            "default",
            "client:/w/x",
            "policy tests",
            "grant G3",
        ] {
            assert_eq!(
                AnsweredBy::parse(text).map(|by| by.to_string()).as_deref(),
                Some(text)
            );
        }
        assert!(
            ["policy ", "policy a b", "link ", "grant 3", "anyone"]
                .iter()
                .all(|text| AnsweredBy::parse(text).is_none())
        );
    }

    #[test]
    fn silence_never_approves() {
        let text = |kind, default| {
            let settled = apply(
                &RequestState::Pending,
                &RequestTerms {
                    default,
                    ..terms(kind)
                },
                RequestEvent::Deadline,
                at(100),
            );
            settled
                .expect("the deadline has come")
                .answer()
                .map(|answer| (answer.decision.to_text(), answer.by.to_string()))
        };
        let denied = Some((
            "denied: nobody decided in time".to_owned(),
            "default".to_owned(),
        ));
        for default in [
            None,
            Some("approve".to_owned()),
            Some("approved".to_owned()),
        ] {
            assert_eq!(
                (
                    text(RequestKind::Approval, default.clone()),
                    text(RequestKind::Delegation, default)
                ),
                (denied.clone(), denied.clone())
            );
        }
        assert_eq!(text(RequestKind::Question, None), None);
        assert_eq!(
            text(RequestKind::Question, Some("b".to_owned())),
            Some(("b".to_owned(), "default".to_owned()))
        );
    }

    #[test]
    fn answer_of_a_held_run_cannot_be_retrieved() {
        let terms = RequestTerms {
            held: true,
            ..terms(RequestKind::Delegation)
        };
        let yes = RequestEvent::Answer {
            by: Principal::Person,
            decision: Decision::approved(),
        };
        let state =
            apply(&RequestState::Pending, &terms, yes, at(1)).expect("a person may approve");
        assert!(apply(&state, &terms, RequestEvent::Retrieve, at(2)).is_err());
        assert!(
            apply(
                &state,
                &RequestTerms {
                    held: false,
                    ..terms
                },
                RequestEvent::Retrieve,
                at(2)
            )
            .is_ok()
        );
    }

    #[test]
    fn empty_answer_is_accepted() {
        let terms = terms(RequestKind::Question);
        let answer = RequestEvent::Answer {
            by: Principal::Person,
            decision: Decision::Text(String::new()),
        };
        let answered =
            apply(&RequestState::Pending, &terms, answer, at(1)).expect("a person may answer");
        assert_eq!(
            answered.answer().map(|a| a.decision.to_text()),
            Some(String::new())
        );
        let retrieved =
            apply(&answered, &terms, RequestEvent::Retrieve, at(2)).expect("the asker reads");
        assert_eq!(
            apply(&retrieved, &terms, RequestEvent::Retrieve, at(3)),
            Ok(retrieved.clone()),
            "reading again changes nothing"
        );
    }
}
