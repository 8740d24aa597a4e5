//! Unread mentions of the caller.

use super::caller::ChatCaller;
use super::render;
use crate::ops::{OpError, lookup};
use crate::store::{Connection, Store, StoreError, mentions_of, unread};
use crate::view::{ListMentions, MentionView, Mentions};
use adjutant_core::{Action, Principal};

const MENTIONS_DEFAULT: u32 = 20;
const MENTIONS_MAX: u32 = 1_000;

/// Lists the chats with unread mentions of the caller.
///
/// # Errors
/// A failure of the store.
pub fn list_mentions(
    store: &Store,
    who: &Principal,
    call: &ListMentions,
) -> Result<Mentions, OpError> {
    lookup::check(who, Action::ListChats)?;
    let limit = call
        .limit
        .unwrap_or(MENTIONS_DEFAULT)
        .clamp(1, MENTIONS_MAX);
    Ok(store.read(|connection| mentions_for(connection, who, limit))?)
}

/// Returns the chats with unread mentions of a principal.
pub(in crate::ops) fn mentions_for(
    connection: &Connection,
    who: &Principal,
    limit: u32,
) -> Result<Mentions, StoreError> {
    let caller = ChatCaller::of(connection, who)?;
    let name = who.to_string();
    let mut found = mentions_of(connection, &name, limit + 1)?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let mut mentions = Vec::new();
    for one in found {
        if caller.sees(connection, &one.chat)? {
            mentions.push(MentionView {
                chat_id: one.chat.id.0,
                title: one.chat.title.clone(),
                kind: one.chat.kind.into(),
                unread: unread(connection, one.chat.id, &name, one.read_seq)?,
                message: render::entry(&one.entry),
            });
        }
    }
    Ok(Mentions { mentions, more })
}
