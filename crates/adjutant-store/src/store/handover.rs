//! Describes the outcome of a request to its run, if no call of the run waits for it.

use super::Request;
use adjutant_core::resume::{
    OpenRequest, OpenRequestState, QuestionOutcome, SettledApproval, SettledDelegation,
    SettledQuestion, SettledRequest,
};
use adjutant_core::{Decision, RequestId, RequestState, Subject, Time};

/// Describes a settled request for its run.
#[must_use]
pub fn settled_request(request: &Request) -> SettledRequest {
    let number = request.no.to_string();
    let decision = request.state.answer().map(|answer| &answer.decision);
    match (&request.subject, decision) {
        (Subject::Approval { .. }, Some(Decision::Approved { note, .. })) => {
            SettledRequest::Approval(SettledApproval {
                number,
                action: request.question.clone(),
                approved: true,
                words: note.clone(),
            })
        }
        (Subject::Approval { .. }, Some(Decision::Denied { reason })) => {
            SettledRequest::Approval(SettledApproval {
                number,
                action: request.question.clone(),
                approved: false,
                words: Some(reason.clone()),
            })
        }
        (Subject::Delegation(delegation), Some(Decision::Approved { changes, note })) => {
            let task = adjutant_core::tree::with_changes(delegation, changes)
                .task
                .trim()
                .to_owned();
            let child = request
                .child
                .as_ref()
                .map_or_else(String::new, |(id, name)| format!("{name} (run {id})"));
            let (coordination, note) = (delegation.coordination.clone(), note.clone());
            SettledRequest::Delegation(SettledDelegation::Approved {
                task,
                child,
                coordination,
                note,
                result: request.outcome.clone(),
            })
        }
        (Subject::Delegation(delegation), Some(Decision::Denied { reason })) => {
            SettledRequest::Delegation(SettledDelegation::Denied {
                task: delegation.task.trim().to_owned(),
                reason: reason.clone(),
            })
        }
        (_, decision) => {
            let outcome = match (decision, &request.state) {
                (Some(decision), _) => QuestionOutcome::Answered(decision.to_text()),
                (None, RequestState::Withdrawn { .. }) => QuestionOutcome::Withdrawn,
                (None, _) => QuestionOutcome::Expired,
            };
            let (own_id, context, clarification) = (
                request.own_id.clone(),
                request.context.clone(),
                request.clarification.clone(),
            );
            SettledRequest::Question(SettledQuestion {
                number,
                own_id,
                question: request.question.clone(),
                context,
                outcome,
                clarification,
            })
        }
    }
}

/// Describes a request without an outcome for a prompt.
#[must_use]
pub fn open_request(request: &Request) -> OpenRequest {
    let (text, state) = match (
        &request.subject,
        &request.child,
        request.state.answer().map(|answer| &answer.decision),
    ) {
        (
            Subject::Delegation(delegation),
            Some((_, child)),
            Some(Decision::Approved { changes, .. }),
        ) => {
            let state = OpenRequestState::ChildRunning {
                child: child.clone(),
                independence: delegation.independence,
            };
            (
                adjutant_core::tree::with_changes(delegation, changes).task,
                state,
            )
        }
        _ => (
            request.question.clone(),
            OpenRequestState::Undecided {
                blocking: request.blocking,
            },
        ),
    };
    OpenRequest {
        number: request.no.to_string(),
        own_id: request.own_id.clone(),
        kind: request.subject.kind(),
        text,
        by_block: request.by_block,
        state,
    }
}

pub(super) fn settled_text(request: &Request) -> String {
    settled_request(request).to_text()
}

/// Generates the id of a message.
pub(super) fn message_id(now: Time) -> RequestId {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).expect("the kernel provides random bytes");
    RequestId::new(now, bytes)
}
