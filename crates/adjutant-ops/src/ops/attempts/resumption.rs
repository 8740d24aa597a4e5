//! Collects the content of a new attempt's prompt other than its task.

use crate::store::{
    self, Message, Request, Run, StoreError, Tx, delivered_messages, is_attempt_between, last_stop,
    newest_of, queued_messages, unsettled_of,
};
use adjutant_core::resume::{
    EARLIER_MAX, OPEN_NAMED_MAX, Recap, Resumption, SentMessage, SettledQuestion, SettledRequest,
};
use adjutant_core::{PromptVia, StopReason};
use std::collections::HashSet;

/// Returns queued messages to include in a new attempt's prompt, if its process reads no messages
/// from its input.
pub(super) fn unsent(tx: &Tx<'_>, run: &Run) -> Result<Vec<Message>, StoreError> {
    if run.prompt_via == PromptVia::Stream {
        Ok(Vec::new())
    } else {
        queued_messages(tx.connection(), run.id)
    }
}

/// Returns the content of a new attempt's prompt. `undelivered`: settled requests that no attempt
/// has received yet.
pub(super) fn of(
    tx: &Tx<'_>,
    run: &Run,
    undelivered: &[Request],
) -> Result<Resumption, StoreError> {
    let called_error = run
        .checkpoint
        .as_ref()
        .is_some_and(|checkpoint| checkpoint.blocker_type.as_deref() == Some("error"));
    let checkpoint_is_old = match run.checkpoint_attempt {
        Some(left) => is_attempt_between(tx.connection(), run.id, left, run.attempt)?,
        None => false,
    };
    let (unsettled, open_more) = unsettled_of(tx.connection(), run, OPEN_NAMED_MAX)?;
    let mut resumption = Resumption {
        after_error: called_error || last_stop(tx.connection(), run.id)? == Some(StopReason::Error),
        open: unsettled.iter().map(store::open_request).collect(),
        open_more,
        choice: run.choice,
        checkpoint: crate::ops::evidence::checkpoint(tx.connection(), run)?,
        checkpoint_is_old,
        resolution: run.resolution.clone(),
        working_directory: run.cwd.clone(),
        next_step: run.next_step.clone(),
        messages: unsent(tx, run)?.into_iter().map(to_sent_message).collect(),
        earlier: earlier(tx, run, undelivered, &unsettled)?,
        earlier_messages: earlier_messages(tx, run)?,
        ..Resumption::default()
    };
    for settled in settled_requests(undelivered) {
        match settled {
            SettledRequest::Question(decided) => resumption.decided.push(decided),
            SettledRequest::Approval(approvals) => resumption.approvals.push(approvals),
            SettledRequest::Delegation(delegations) => resumption.delegations.push(delegations),
        }
    }
    Ok(resumption)
}

fn to_sent_message(message: Message) -> SentMessage {
    SentMessage {
        from: message.sender,
        text: message.text,
    }
}

/// Returns the outcomes of requests. The clarification of a group is kept with its first request
/// only.
fn settled_requests<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<SettledRequest> {
    let mut groups = HashSet::new();
    let describe = |request: &Request| {
        let is_first = groups.insert(request.group.map_or(request.no, |group| group.first));
        match store::settled_request(request) {
            SettledRequest::Question(decided) => {
                let clarification = decided.clarification.clone().filter(|_| is_first);
                SettledRequest::Question(SettledQuestion {
                    clarification,
                    ..decided
                })
            }
            other @ (SettledRequest::Approval(_) | SettledRequest::Delegation(_)) => other,
        }
    };
    requests.into_iter().map(describe).collect()
}

/// Returns the messages that earlier attempts received.
fn earlier_messages(tx: &Tx<'_>, run: &Run) -> Result<Recap, StoreError> {
    // One more than is kept, to detect that there are more.
    let limit = u32::try_from(EARLIER_MAX + 1).unwrap_or(u32::MAX);
    let got: Vec<SentMessage> = delivered_messages(tx.connection(), run.id, limit)?
        .into_iter()
        .map(to_sent_message)
        .collect();
    Ok(Recap::of_messages(&got))
}

/// Returns the outcomes that earlier attempts received, without those delivered separately.
fn earlier(
    tx: &Tx<'_>,
    run: &Run,
    undelivered: &[Request],
    unsettled: &[Request],
) -> Result<Recap, StoreError> {
    // One more than is kept, to detect that there are more.
    let limit =
        u32::try_from(undelivered.len() + unsettled.len() + EARLIER_MAX + 1).unwrap_or(u32::MAX);
    let settled = newest_of(tx.connection(), run.id, false, limit)?;
    let is_reported = |request: &Request| {
        undelivered
            .iter()
            .chain(unsettled)
            .any(|besides| besides.id == request.id)
    };
    let answered = settled
        .iter()
        .filter(|request| request.state.answer().is_some() && !is_reported(request));
    Ok(Recap::of_requests(&settled_requests(answered)))
}
