//! One request, and what asks for one.

use adjutant_core::request::RequestTerms;
use adjutant_core::signal::Clarification;
use adjutant_core::{AttemptNo, Principal, RequestId, RequestNo, RequestState, RunId, SteadyTime, Subject, Time};

/// One request as the store has it.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: RequestId,
    pub no: RequestNo,
    pub run: RunId,
    pub run_name: String,
    /// Of the run: who may answer.
    pub owner: Principal,
    pub subject: Subject,
    /// The question, the action, or the task.
    pub question: String,
    /// What the asker itself calls a question.
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// What the asker said along with all the questions that it asked together.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// Of a question: the answer that counts at the deadline.
    pub default: Option<String>,
    pub blocking: bool,
    /// It was asked by a block in the run's output, so no call of the run waits for the answer.
    pub by_block: bool,
    pub group: Option<Group>,
    /// The attempt that received the answer with its prompt.
    pub told: Option<AttemptNo>,
    /// The run that a delegation started, with its name.
    pub child: Option<(RunId, String)>,
    /// How that run ended, in words.
    pub outcome: Option<String>,
    /// The asker is held until that run ends.
    pub held: bool,
    pub patience_ms: i64,
    pub state: RequestState,
    pub asked_at: Time,
    pub expires_at: SteadyTime,
}

/// The place of a request among those that were asked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Of them; stands for all.
    pub first: RequestNo,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

/// What a run asks.
#[derive(Debug, Clone)]
pub struct NewRequest {
    pub id: RequestId,
    pub subject: Subject,
    pub question: String,
    pub own_id: Option<String>,
    pub context: Option<String>,
    /// Of several that are asked together only the first has it.
    pub clarification: Option<Clarification>,
    pub options: Vec<String>,
    /// Of a question: the answer that counts at the deadline.
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
            told: self.told.is_some(),
            held: self.held,
        }
    }

    /// Tells whether there is something that the asker can continue with.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.is_settled() && !self.held
    }
}
