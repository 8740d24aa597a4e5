//! Settling requests.

use crate::store::handover::{message_id, settled_text};
use crate::store::requests::{due_requests, write_states};
use crate::store::{Request, StoreError, Tx, has_queued_messages};
use adjutant_core::cascade::{Cause, Step};
use adjutant_core::request::apply;
use adjutant_core::run::Retention;
use adjutant_core::{
    Answer, AnsweredBy, Principal, PromptVia, RequestEvent, RequestState, RunEvent, RunState,
    StopReason,
};

/// What follows when a request is settled stops no run: it resumes its own, at most.
const STOPS_NOTHING: Retention = Retention { stopped_ms: 0 };

impl Tx<'_> {
    /// Applies an event to a request and records it. Returns the updated request.
    ///
    /// # Errors
    /// The core rejects the event.
    pub fn advance_request(
        &mut self,
        request: &Request,
        event: RequestEvent,
    ) -> Result<Request, StoreError> {
        let next = apply(&request.state, &request.terms(), event, self.moment())?;
        self.announce_settling(request);
        self.flow(STOPS_NOTHING, |tx, _| write_states(tx, request, &[next]))
    }

    /// Like [`Tx::advance_request`], for a request whose asker waits: an answer is retrieved at
    /// once and passed to the waiting call. The history has both events.
    ///
    /// # Errors
    /// The core rejects the event.
    pub fn answer_waiting_call(
        &mut self,
        request: &Request,
        event: RequestEvent,
    ) -> Result<Request, StoreError> {
        self.connection()
            .announce(|connection| has_queued_messages(connection, request.run));
        let answered = apply(&request.state, &request.terms(), event, self.moment())?;
        let retrieved = apply(
            &answered,
            &request.terms(),
            RequestEvent::Retrieve,
            self.moment(),
        )?;
        self.announce_settling(request);
        let settled = self.flow(STOPS_NOTHING, |tx, _| {
            write_states(tx, request, &[answered, retrieved])
        })?;
        // If messages are queued, the waiting call reads them together with the answer by itself.
        if !has_queued_messages(self.connection(), request.run)? {
            self.deliver_settled(&settled);
        }
        Ok(settled)
    }

    /// Settles every request whose deadline has passed, and returns the updated requests.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn apply_request_deadlines(&mut self) -> Result<Vec<Request>, StoreError> {
        due_requests(self.connection(), self.steady())?
            .iter()
            .map(|request| self.advance_request(request, RequestEvent::Deadline))
            .collect()
    }

    /// Delivers the outcome of a request that was made by a signal block: on the process's input if
    /// it accepts messages; otherwise a waiting process is stopped and its run resumes with the
    /// outcome.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn deliver_outcome(
        &mut self,
        request: &Request,
        retention: Retention,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| tx.deliver(request))
    }

    /// Announces the reads of what follows when a pending request is settled.
    fn announce_settling(&self, request: &Request) {
        if request.blocking && request.state == RequestState::Pending {
            self.announce_estimate_check(request.run);
        }
    }

    pub(super) fn settle(
        &mut self,
        request: &Request,
        event: RequestEvent,
    ) -> Result<(), StoreError> {
        let next = apply(&request.state, &request.terms(), event, self.moment())?;
        self.announce_settling(request);
        write_states(self, request, &[next]).map(drop)
    }

    pub(super) fn deliver(&mut self, request: &Request) -> Result<(), StoreError> {
        if !request.by_block || !request.is_ready() {
            return Ok(());
        }
        let run = self.run(request.run)?;
        // The prompt of its next attempt has the outcome.
        if run.state != RunState::Running {
            return Ok(());
        }
        if run.prompt_via == PromptVia::Stream {
            let by = match &request.state {
                RequestState::Answered(Answer {
                    by: AnsweredBy::Principal(by),
                    ..
                }) => by.clone(),
                _ => Principal::Person,
            };
            let id = message_id(self.now());
            self.send_message(&run, &by, id, &settled_text(request))?;
            return match request.state {
                RequestState::Answered(_) => self.settle(request, RequestEvent::Retrieve),
                _ => self.record_receipt(request, run.attempt),
            };
        }
        // The process is stopped once, with the last outcome for which it waits.
        if request.blocking && !run.is_waiting() {
            self.then(Step::Advance {
                run: run.id,
                event: RunEvent::StopAsked(StopReason::Parked),
                cause: Cause::hub("to resume with the answer"),
            });
        }
        Ok(())
    }
}
