//! Asking questions.

use crate::clock;
use crate::ops::checks::{check_size, checked_clarification, checked_expiry, checked_options};
use crate::ops::requests::messages::messages_for;
use crate::ops::requests::read::{await_answer, read_own, subscribe_to_answer};
use crate::ops::requests::receipts::request_of_receipt;
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup, render};
use crate::store::{
    Connection, NewRequest, Request, Run, Store, StoreError, Tx, has_queued_messages,
};
use crate::view::{
    Ask, AskAndWait, AskTogether, Call, ClarificationView, RequestList, RequestView,
    WithdrawRequest,
};
use adjutant_core::signal::{Clarification, SignalKind, Source};
use adjutant_core::{
    Action, Denied, Principal, RequestEvent, RequestId, RequestState, SteadyTime, Subject, limits,
};

/// Maximum number of questions asked together in one call.
const TOGETHER_MAX: usize = 20;

/// Opens a question of the calling run. Durable when it returns.
///
/// # Errors
/// The caller is not a run, the run is not live, or a field is unusable.
pub async fn ask(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    ask: Ask,
) -> Result<RequestView, OpError> {
    let Caller { who, key } = caller.clone();
    let (request, may_have_messages) =
        open_question(store, settings, caller, new_id(), ask).await?;
    let messages = if may_have_messages {
        messages_for(store, &who, key.as_ref()).await?
    } else {
        Vec::new()
    };
    Ok(RequestView {
        messages,
        ..render::request(&request)
    })
}

/// Opens a question of the calling run, then waits until it is settled or the deadline. It
/// stays open if the wait fails.
///
/// # Errors
/// As for `ask`.
pub async fn ask_and_wait(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: AskAndWait,
) -> Result<RequestView, OpError> {
    let AskAndWait { ask, wait_ms } = call;
    let Caller { who, key } = caller;
    let deadline = crate::ops::end_of_wait(wait_ms);
    // A repeated call about the same question may have another wait.
    let body = serde_json::to_vec(&ask).map_err(|error| OpError::Io(error.to_string()))?;
    let key = key.map(|key| key.for_part(Ask::NAME, &body));
    let id = new_id();
    let waiting = if let Principal::Run(run) = who {
        Some((run, subscribe_to_answer(store, run, id)))
    } else {
        None
    };
    // Boxed, so that it takes no memory while the call waits.
    let (request, may_have_messages) = Box::pin(open_question(
        store,
        settings,
        Caller {
            who,
            key: key.clone(),
        },
        id,
        ask,
    ))
    .await?;
    let asked = render::request(&request);
    let Some((run, listener)) = waiting else {
        return Ok(asked);
    };
    let answered = if request.id == id && !may_have_messages {
        await_answer(store, run, key, request, deadline, listener).await
    } else {
        drop(listener);
        Box::pin(read_own(store, run, key, request.id, deadline)).await
    };
    Ok(answered.unwrap_or_else(|error| {
        tracing::warn!(%error, question = asked.number, "the wait for its answer failed");
        asked
    }))
}

/// Opens a question of the calling run. Returns it, and whether messages may be waiting for the
/// run.
async fn open_question(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    id: RequestId,
    ask: Ask,
) -> Result<(Request, bool), OpError> {
    lookup::check(&caller.who, Action::Ask)?;
    validate(&ask)?;
    let expiry_ms = settings.expiry_ms(ask.expires_s);
    let open = move |tx: &mut Tx<'_>, who: &Principal| {
        let run = lookup::run(tx.connection(), who, Action::Ask, "")?;
        let new = new_question(&run, id, ask, tx.steady().plus_ms(expiry_ms));
        let request = tx.as_signal(Some(SignalKind::Clarification), Source::Tool, |tx| {
            tx.ask(&run, &new)
        })?;
        Ok((request, has_queued_messages(tx.connection(), run.id)?))
    };
    // A repeated call may have delivered messages before.
    let as_asked = |tx: &mut Tx<'_>, id: String| {
        Ok((
            Request {
                state: RequestState::Pending,
                ..request_of_receipt(tx, &id)?
            },
            true,
        ))
    };
    let announce = |connection: &Connection, who: &Principal| {
        if let Principal::Run(run) = who {
            connection.announce(|connection| has_queued_messages(connection, *run));
        }
    };
    caller
        .write_with_receipt(
            store,
            announce,
            open,
            |(request, _)| request.id.to_string(),
            as_asked,
        )
        .await
}

/// Opens several questions of the calling run as one group. Durable when it returns.
///
/// # Errors
/// As for `ask`; no question is opened then.
pub async fn ask_together(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: AskTogether,
) -> Result<RequestList, OpError> {
    lookup::check(&caller.who, Action::Ask)?;
    if call.questions.is_empty() || call.questions.len() > TOGETHER_MAX {
        return Err(Denied::invalid("questions", format!("give 1 to {TOGETHER_MAX}")).into());
    }
    checked_clarification(call.clarification.as_ref())?;
    let mut asks = Vec::with_capacity(call.questions.len());
    let mut clarification = call.clarification;
    for mut ask in call.questions {
        ask.clarification = clarification.take();
        validate(&ask)?;
        let id = new_id();
        asks.push((id, settings.expiry_ms(ask.expires_s), ask));
    }
    let open = move |tx: &mut Tx<'_>, who: &Principal| {
        let run = lookup::run(tx.connection(), who, Action::Ask, "")?;
        let requests: Vec<_> = asks
            .into_iter()
            .map(|(id, expiry_ms, ask)| new_question(&run, id, ask, tx.steady().plus_ms(expiry_ms)))
            .collect();
        tx.may_refuse_late()?;
        tx.as_signal(Some(SignalKind::Clarification), Source::Tool, |tx| {
            tx.ask_together(&run, &requests)
        })
    };
    let receipt = |requests: &Vec<Request>| {
        requests
            .iter()
            .map(|request| request.id.to_string())
            .collect::<Vec<_>>()
    };
    let as_asked = |tx: &mut Tx<'_>, ids: Vec<String>| {
        ids.iter()
            .map(|id| {
                Ok(Request {
                    state: RequestState::Pending,
                    ..request_of_receipt(tx, id)?
                })
            })
            .collect::<Result<Vec<_>, StoreError>>()
    };
    let Caller { who, key } = caller.clone();
    let requests = caller
        .write_with_receipt(store, |_, _| {}, open, receipt, as_asked)
        .await?;
    let mut requests = render::requests(&requests);
    if let Some(first) = requests.first_mut() {
        first.messages = messages_for(store, &who, key.as_ref()).await?;
    }
    Ok(RequestList { requests, more: 0 })
}

/// Withdraws an open request of the calling run.
///
/// # Errors
/// It is not the run's, or settled.
pub async fn withdraw_request(
    store: &Store,
    caller: Caller,
    call: WithdrawRequest,
) -> Result<RequestView, OpError> {
    let withdraw = move |tx: &mut Tx<'_>, who: &Principal| {
        let request = lookup::request(tx.connection(), who, Action::Ask, &call.message_id)?;
        Ok(render::request(
            &tx.advance_request(&request, RequestEvent::Withdraw)?,
        ))
    };
    caller.write(store, withdraw).await
}

fn new_id() -> RequestId {
    RequestId::new(clock::now(), crate::ops::random())
}

fn validate(ask: &Ask) -> Result<(), Denied> {
    if ask.question.trim().is_empty() {
        return Err(Denied::invalid(
            "question",
            "is empty: say what you need to know",
        ));
    }
    check_size("question", &ask.question, limits::TEXT_BYTES_MAX)?;
    check_size(
        "context",
        ask.context.as_deref().unwrap_or(""),
        limits::TEXT_BYTES_MAX,
    )?;
    check_size(
        "default",
        ask.default.as_deref().unwrap_or(""),
        limits::TEXT_BYTES_MAX,
    )?;
    check_size(
        "question_id",
        ask.question_id.as_deref().unwrap_or(""),
        limits::OPTION_BYTES_MAX,
    )?;
    checked_clarification(ask.clarification.as_ref())?;
    checked_options(&ask.options)?;
    checked_expiry(ask.expires_s, 1)
}

fn new_question(run: &Run, id: RequestId, ask: Ask, expires_at: SteadyTime) -> NewRequest {
    NewRequest {
        id,
        subject: Subject::Question,
        question: ask.question,
        own_id: ask.question_id.filter(|id| !id.trim().is_empty()),
        context: ask.context,
        clarification: ask
            .clarification
            .map(to_clarification)
            .filter(|clarification| !clarification.is_empty()),
        options: ask.options,
        default: ask.default,
        blocking: ask.blocking,
        by_block: false,
        patience_ms: run.patience_ms,
        expires_at,
    }
}

fn to_clarification(view: ClarificationView) -> Clarification {
    let ClarificationView {
        reason,
        blocked_at,
        can_resume_with,
        current_state,
    } = view;
    let filled = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    Clarification {
        reason: filled(reason),
        blocked_at: filled(blocked_at),
        resume_with: filled(can_resume_with),
        state: filled(current_state),
    }
}
