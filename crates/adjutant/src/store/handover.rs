//! Getting what became of a request to its run, where no call of the run waits for it.

use super::{Request, StoreError, Tx};
use adjutant_core::resume::{Became, Decided, Delegated, Open, Ruled, Stands, Told};
use adjutant_core::run::Retention;
use adjutant_core::{
    Answer, AnsweredBy, Decision, Matter, Principal, PromptVia, RequestEvent, RequestId, RequestState, RunEvent, RunState, StopReason, Time,
};

/// Returns what a run is told about its request.
#[must_use]
pub fn told(request: &Request) -> Told {
    let number = request.no.to_string();
    let decision = request.state.answer().map(|answer| &answer.decision);
    match (&request.matter, decision) {
        (Matter::Approval { .. }, Some(Decision::Approved { note, .. })) => {
            Told::Ruled(Ruled { number, action: request.question.clone(), approved: true, words: note.clone() })
        }
        (Matter::Approval { .. }, Some(Decision::Denied { reason })) => {
            Told::Ruled(Ruled { number, action: request.question.clone(), approved: false, words: Some(reason.clone()) })
        }
        (Matter::Delegation(delegation), Some(Decision::Approved { changes, note })) => {
            let task = adjutant_core::tree::changed(delegation, changes).task.trim().to_owned();
            let child = request.child.as_ref().map_or_else(String::new, |(id, name)| format!("{name} (run {id})"));
            let (coordination, note) = (delegation.coordination.clone(), note.clone());
            Told::Delegated(Delegated::Approved { task, child, coordination, note, result: request.outcome.clone() })
        }
        (Matter::Delegation(delegation), Some(Decision::Denied { reason })) => {
            Told::Delegated(Delegated::Denied { task: delegation.task.trim().to_owned(), reason: reason.clone() })
        }
        (_, decision) => {
            let became = match (decision, &request.state) {
                (Some(decision), _) => Became::Answered(decision.to_text()),
                (None, RequestState::Withdrawn { .. }) => Became::Withdrawn,
                (None, _) => Became::Expired,
            };
            let (own_id, context, clarification) = (request.own_id.clone(), request.context.clone(), request.clarification.clone());
            Told::Decided(Decided { number, own_id, question: request.question.clone(), context, became, clarification })
        }
    }
}

/// Returns what a run is told about its request that nothing has come of yet.
#[must_use]
pub fn still_open(request: &Request) -> Open {
    let (text, stands) = match (&request.matter, &request.child, request.state.answer().map(|answer| &answer.decision)) {
        (Matter::Delegation(delegation), Some((_, child)), Some(Decision::Approved { changes, .. })) => {
            let stands = Stands::AtWork { child: child.clone(), independence: delegation.independence };
            (adjutant_core::tree::changed(delegation, changes).task, stands)
        }
        _ => (request.question.clone(), Stands::Undecided { blocking: request.blocking }),
    };
    Open { number: request.no.to_string(), own_id: request.own_id.clone(), kind: request.matter.kind(), text, by_block: request.by_block, stands }
}

pub(super) fn told_text(request: &Request) -> String {
    told(request).to_text()
}

/// Draws the id of a message.
pub(super) fn message_id(now: Time) -> RequestId {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    RequestId::new(now, bytes)
}

impl Tx<'_> {
    /// Gets what became of a request that a block made to its run: onto the input of a process
    /// that takes one; else a process that waits is stopped, and begun anew with it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn hand_over(&mut self, request: &Request, retention: Retention) -> Result<(), StoreError> {
        if !request.by_block || !request.is_ready() {
            return Ok(());
        }
        let run = self.run(request.run)?;
        if run.state != RunState::Running {
            return Ok(());
        }
        if run.prompt_via == PromptVia::Stream {
            let by = match &request.state {
                RequestState::Answered(Answer { by: AnsweredBy::Principal(by), .. }) => by.clone(),
                _ => Principal::Person,
            };
            self.send_message(&run, &by, message_id(self.now()), &told_text(request))?;
            return match request.state {
                RequestState::Answered(_) => self.settle(request, RequestEvent::Retrieve).map(|_| ()),
                _ => self.tell(request, run.attempt),
            };
        }
        if !request.blocking || run.is_waiting() {
            return Ok(());
        }
        self.advance(&run, RunEvent::StopAsked(StopReason::Parked), retention, "hub", "to begin anew with the answer").map(|_| ())
    }
}
