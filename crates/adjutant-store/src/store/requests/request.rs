//! One request, and the data of a new one.

use adjutant_core::request::RequestTerms;
use adjutant_core::signal::Clarification;
use adjutant_core::{
    AttemptNo, Principal, RequestId, RequestNo, RequestState, RunId, SteadyTime, Subject, Time,
};

/// One stored request.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: RequestId,
    pub no: RequestNo,
    pub run: RunId,
    pub run_name: String,
    /// The owner of the run, who may answer.
    pub owner: Principal,
    pub subject: Subject,
    /// The question, the action, or the task.
    pub question: String,
    /// The run's own name for the question.
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// The fields that the run stated with a group of questions.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// For a question: the answer if none arrives before the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    /// The request was made by a signal block in the run's output, so no call of the run waits for the answer.
    pub by_block: bool,
    pub group: Option<Group>,
    /// The attempt that received the answer with its prompt.
    pub delivered_to: Option<AttemptNo>,
    /// The run that a delegation started, with its name.
    pub child: Option<(RunId, String)>,
    /// How the child run ended, as text.
    pub outcome: Option<String>,
    /// Whether the asking run is held until the child run ends.
    pub held: bool,
    pub patience_ms: i64,
    pub state: RequestState,
    pub asked_at: Time,
    pub expires_at: SteadyTime,
    /// When it was asked, on the steady clock. `None`: an older version has not recorded it.
    pub waits_since: Option<SteadyTime>,
    /// The people to whom it was escalated, and when.
    pub escalated: Vec<(String, Time)>,
}

/// The position of a question in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The number of the first question, which identifies the group.
    pub first: RequestNo,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

/// The data of a new request.
#[derive(Debug, Clone)]
pub struct NewRequest {
    pub id: RequestId,
    pub subject: Subject,
    pub question: String,
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// In a group, only the first question has it.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// For a question: the answer if none arrives before the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    pub by_block: bool,
    pub patience_ms: i64,
    pub expires_at: SteadyTime,
}

impl Request {
    pub(super) fn terms(&self) -> RequestTerms {
        RequestTerms {
            asker: self.run,
            kind: self.subject.kind(),
            expires_at: self.expires_at,
            default: self.default.clone(),
            is_delivered: self.delivered_to.is_some(),
            held: self.held,
        }
    }

    /// Returns whether the run can continue with the outcome.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_settled() && !self.held
    }
}
