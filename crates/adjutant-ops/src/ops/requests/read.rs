//! Reading requests and their answers, and waiting for them.

use crate::ops::requests::messages::{
    MESSAGES, announce_messages, deliver_messages_with_call, has_no_messages,
};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, lookup, render};
use crate::store::{
    Connection, Key, Request, RequestsOf, Store, StoreError, Subscription, Topic, Tx,
    requests_page, requests_together,
};
use crate::view::{ListRequests, ReadRequest, ReadTogether, RequestList, RequestView};
use adjutant_core::{Action, Principal, RequestEvent, RequestId, RequestNo, RequestState, RunId};
use tokio::time::Instant;

/// Default number of requests in a list.
const LIST_DEFAULT: u32 = 100;
/// Maximum number of requests in a list.
const LIST_MAX: u32 = 1000;

/// Reads one request, waiting until it is settled or the deadline. The asker's read of an
/// answer marks it as retrieved.
///
/// # Errors
/// Unknown or foreign.
pub async fn read_request(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: ReadRequest,
) -> Result<RequestView, OpError> {
    let Caller { who, key } = caller;
    let deadline = crate::ops::end_of_wait(call.wait_ms);
    let look = |connection: &Connection| {
        lookup::request(connection, &who, Action::ReadAnswer, &call.message_id)
    };
    // An id gives its topic directly; a short number is looked up first.
    let id = match RequestId::parse(&call.message_id) {
        Ok(id) => id,
        Err(_) => store.read(look)?.id,
    };
    if let Principal::Run(run) = who {
        return read_own(store, run, key, id, deadline).await;
    }
    let subscription = store.wake_ups().subscribe(vec![Topic::Request(id)]);
    loop {
        let request = store.read(look)?;
        if request.state.is_settled() || Instant::now() >= deadline {
            let mut views = [render::request(&request)];
            store.read(|connection| {
                render::add_room(
                    connection,
                    &settings.config_or_builtin(),
                    store.queued_runs(),
                    &mut views,
                )
            })?;
            let [view] = views;
            return Ok(view);
        }
        if tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .is_err()
        {
            continue;
        }
    }
}

/// Reads a group of the calling run's questions, waiting until no blocking one is open or the
/// deadline. Answers are marked as retrieved only then, so a caller that dies while waiting
/// loses none.
///
/// # Errors
/// Unknown or foreign.
pub async fn read_together(
    store: &Store,
    caller: Caller,
    call: ReadTogether,
) -> Result<RequestList, OpError> {
    let Caller { who, key } = caller;
    lookup::check(&who, Action::Ask)?;
    let key = key.map(|key| key.with_suffix(MESSAGES));
    let deadline = crate::ops::end_of_wait(call.wait_ms);
    let look = |connection: &Connection| {
        requests_together(
            connection,
            &lookup::request(connection, &who, Action::ReadAnswer, &call.message_id)?,
        )
    };
    let topics = store
        .read(look)?
        .iter()
        .map(|request| Topic::Request(request.id))
        .collect();
    let subscription = store.wake_ups().subscribe(topics);
    while store
        .read(look)?
        .iter()
        .any(|request| request.blocking && !request.is_ready())
    {
        if tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .is_err()
        {
            break;
        }
    }
    let ids: Vec<RequestId> = store.read(look)?.iter().map(|request| request.id).collect();
    let views = store
        .write(move |tx| {
            let mut views = Vec::with_capacity(ids.len());
            for id in ids {
                let request = retrieve(tx, &who, id)?;
                let messages = if views.is_empty() {
                    deliver_messages_with_call(tx, request.run, key.as_ref())?
                } else {
                    Vec::new()
                };
                views.push(RequestView {
                    messages,
                    ..render::request(&request)
                });
            }
            Ok(views)
        })
        .await?;
    Ok(RequestList {
        requests: views,
        more: 0,
    })
}

/// Lists requests that the caller may answer, oldest first.
///
/// # Errors
/// The run is unknown or foreign.
pub fn list_requests(
    store: &Store,
    settings: &Settings,
    who: &Principal,
    call: &ListRequests,
) -> Result<RequestList, OpError> {
    lookup::check(who, Action::ListRequests)?;
    let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    let (found, more) = store.read(|connection| match &call.run {
        Some(run) => {
            let run = lookup::run(connection, who, Action::See, run)?;
            requests_page(
                connection,
                RequestsOf::Run(run.id),
                call.all,
                RequestNo(0),
                limit,
            )
        }
        None => requests_page(
            connection,
            RequestsOf::Answerer(who),
            call.all,
            RequestNo(0),
            limit,
        ),
    })?;
    let mut requests = render::requests(&found);
    store.read(|connection| {
        render::add_room(
            connection,
            &settings.config_or_builtin(),
            store.queued_runs(),
            &mut requests,
        )
    })?;
    Ok(RequestList { requests, more })
}

/// Reads a request for its asker. An answer that arrives during this wait is marked as
/// retrieved by the answering transaction.
pub(super) async fn read_own(
    store: &Store,
    run: RunId,
    key: Option<Key>,
    id: RequestId,
    deadline: Instant,
) -> Result<RequestView, OpError> {
    let listener = if Instant::now() < deadline {
        Some(subscribe_to_answer(store, run, id))
    } else {
        None
    };
    read_when_settled(store, run, key, id, deadline, listener, None).await
}

/// Subscribes to the answer to a request of a run, which then counts as waiting for it.
pub(super) fn subscribe_to_answer(store: &Store, run: RunId, id: RequestId) -> Subscription {
    store.wake_ups().subscribe(vec![Topic::Answer(run, id)])
}

/// Waits like `read_own` for the answer to a question that was just asked by a run without
/// waiting messages. `listener` was there before the question.
pub(super) async fn await_answer(
    store: &Store,
    run: RunId,
    key: Option<Key>,
    asked: Request,
    deadline: Instant,
    listener: Subscription,
) -> Result<RequestView, OpError> {
    read_when_settled(
        store,
        run,
        key,
        asked.id,
        deadline,
        Some(listener),
        Some(asked),
    )
    .await
}

async fn read_when_settled(
    store: &Store,
    run: RunId,
    key: Option<Key>,
    id: RequestId,
    deadline: Instant,
    subscription: Option<Subscription>,
    asked: Option<Request>,
) -> Result<RequestView, OpError> {
    let who = Principal::Run(run);
    let key = key.map(|key| key.with_suffix(MESSAGES));
    let look = |connection: &Connection| {
        announce_messages(connection, run, key.as_ref());
        let request = lookup::request(connection, &who, Action::ReadAnswer, &id.to_string())?;
        let nothing_along = has_no_messages(connection, request.run, key.as_ref())?;
        Ok((request, nothing_along))
    };
    let (mut request, mut nothing_along) = match asked {
        Some(asked) => (asked, true),
        None => store.read(look)?,
    };
    if let Some(subscription) = subscription {
        // A blocking delegation is ready when its child run has ended.
        while !request.is_ready() {
            if tokio::time::timeout_at(deadline, subscription.wait())
                .await
                .is_err()
            {
                // An answer being committed may rely on this listener, so read it in a
                // transaction.
                drop(subscription);
                return Box::pin(read_and_retrieve(store, who, key, id)).await;
            }
            if let Some(settled) = subscription.settled().filter(|_| nothing_along) {
                return Ok(render::request(&settled));
            }
            (request, nothing_along) = store.read(look)?;
        }
    }
    let is_ready = match request.state {
        RequestState::Answered(_) => !request.held,
        RequestState::Expired { .. } => request.delivered_to.is_none(),
        RequestState::Pending | RequestState::Retrieved { .. } | RequestState::Withdrawn { .. } => {
            false
        }
    };
    if is_ready || !nothing_along {
        return Box::pin(read_and_retrieve(store, who, key, id)).await;
    }
    Ok(render::request(&request))
}

/// Reads a request for its asker in one transaction: marks an answer as retrieved, and takes
/// queued messages.
async fn read_and_retrieve(
    store: &Store,
    who: Principal,
    key: Option<Key>,
    id: RequestId,
) -> Result<RequestView, OpError> {
    let (request, messages) = store
        .write(move |tx| {
            if let Principal::Run(run) = who {
                announce_messages(tx.connection(), run, key.as_ref());
            }
            let request = retrieve(tx, &who, id)?;
            let messages = deliver_messages_with_call(tx, request.run, key.as_ref())?;
            Ok((request, messages))
        })
        .await?;
    Ok(RequestView {
        messages,
        ..render::request(&request)
    })
}

/// Reads a request for its asker and marks its outcome as retrieved.
fn retrieve(tx: &mut Tx<'_>, who: &Principal, id: RequestId) -> Result<Request, StoreError> {
    let request = lookup::request(tx.connection(), who, Action::ReadAnswer, &id.to_string())?;
    match request.state {
        RequestState::Answered(_) if !request.held => {
            tx.advance_request(&request, RequestEvent::Retrieve)
        }
        RequestState::Expired { .. } if request.delivered_to.is_none() => {
            let attempt = tx.run(request.run)?.attempt;
            tx.record_receipt(&request, attempt)?;
            Ok(request)
        }
        _ => Ok(request),
    }
}
