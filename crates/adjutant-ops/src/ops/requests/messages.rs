//! Messages that a run receives with its own tool calls, when its process reads no input.

use crate::ops::{OpError, render};
use crate::store::{
    Connection, Key, Store, StoreError, Tx, has_queued_messages, has_unread_notes, is_key_used,
    messages_by_id, queued_messages,
};
use crate::view::MessageView;
use adjutant_core::{Principal, PromptVia, RunId};

/// Suffix of the idempotency key for messages delivered with a call.
pub(super) const MESSAGES: &str = "messages";

/// Delivers queued messages with one of the run's own calls. A repeated call under the same key
/// gets the same messages, since its reply may have been lost.
pub(in crate::ops) async fn deliver_queued_messages(
    store: &Store,
    run: RunId,
    key: Option<&Key>,
) -> Result<Vec<MessageView>, OpError> {
    let key = key.map(|key| key.with_suffix(MESSAGES));
    let has_none = |connection: &Connection| {
        announce_messages(connection, run, key.as_ref());
        connection.announce(|connection| has_unread_notes(connection, run));
        Ok::<_, StoreError>(
            has_no_messages(connection, run, key.as_ref())? && !has_unread_notes(connection, run)?,
        )
    };
    if store.read(has_none)? {
        return Ok(Vec::new());
    }
    Ok(store
        .write(move |tx| deliver_messages_with_call(tx, run, key.as_ref()))
        .await?)
}

/// Like [`deliver_queued_messages`], for any caller. Only a run has messages.
pub(in crate::ops) async fn messages_for(
    store: &Store,
    who: &Principal,
    key: Option<&Key>,
) -> Result<Vec<MessageView>, OpError> {
    match who {
        Principal::Run(run) => deliver_queued_messages(store, *run, key).await,
        Principal::Person | Principal::Client(_) => Ok(Vec::new()),
    }
}

/// Announces the reads of [`has_no_messages`].
pub(super) fn announce_messages(connection: &Connection, run: RunId, key: Option<&Key>) {
    connection.announce(|connection| has_queued_messages(connection, run));
    if let Some(key) = key {
        connection.announce(|connection| is_key_used(connection, &Principal::Run(run), key));
    }
}

/// Returns whether a run's call has no messages to deliver, and delivered none before.
pub(super) fn has_no_messages(
    connection: &Connection,
    run: RunId,
    key: Option<&Key>,
) -> Result<bool, StoreError> {
    if has_queued_messages(connection, run)? {
        return Ok(false);
    }
    Ok(!key.map_or(Ok(false), |key| {
        is_key_used(connection, &Principal::Run(run), key)
    })?)
}

/// Marks a run's queued messages as delivered with one of its own calls. `key` is the key of the
/// messages, not of the call.
pub(super) fn deliver_messages_with_call(
    tx: &mut Tx<'_>,
    run: RunId,
    key: Option<&Key>,
) -> Result<Vec<MessageView>, StoreError> {
    let has_none = has_no_messages(tx.connection(), run, key)?;
    tx.set_messages_read(run)?;
    if has_none {
        return Ok(Vec::new());
    }
    let run = tx.run(run)?;
    if run.prompt_via == PromptVia::Stream {
        return Ok(Vec::new());
    }
    let take = |tx: &mut Tx<'_>| {
        let ids: Vec<_> = queued_messages(tx.connection(), run.id)?
            .into_iter()
            .map(|message| message.id)
            .collect();
        tx.deliver_messages(&run, &ids, "tool_result")?;
        Ok(ids)
    };
    let ids = tx.once(&Principal::Run(run.id), key, take)?;
    Ok(messages_by_id(tx.connection(), &ids)?
        .iter()
        .map(|message| render::message(message, &run.name))
        .collect())
}
