//! Finding chats.

use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::wake::{has_messages, topics_of};
use crate::ops::chats::{render, team};
use crate::ops::{OpError, lookup};
use crate::store::{Connection, Store, StoreError, chats_newest, mentions_of, newest_mention};
use crate::view::{ChatFilter, ChatList, ListChats, Word};
use adjutant_core::{Action, Denied, Principal};
use tokio::time::Instant;

/// Default number of chats in a list.
const LIST_DEFAULT: u32 = 20;
const LIST_MAX: u32 = 1_000;
/// Maximum number of chats with unread entries that are checked for access.
const UNREAD_CHATS_MAX: u32 = 20;

/// Lists chats that the caller may see, newest entry first, and a run's siblings. Optionally
/// waits until something unread mentions the caller.
///
/// # Errors
/// An unknown status.
pub async fn list_chats(
    store: &Store,
    who: &Principal,
    call: &ListChats,
) -> Result<ChatList, OpError> {
    lookup::check(who, Action::ListChats)?;
    let archived = match call.status.as_ref().map(Word::known) {
        None | Some(Some(ChatFilter::Active)) => Some(false),
        Some(Some(ChatFilter::Archived)) => Some(true),
        Some(Some(ChatFilter::All)) => None,
        Some(None) => {
            return Err(Denied::invalid("status", "use active, archived or all").into());
        }
    };
    let limit = call.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    if call.wait_ms > 0 {
        until_named(store, who, crate::ops::end_of_wait(call.wait_ms)).await?;
    }
    Ok(store.read(|connection| {
        let caller = ChatCaller::of(connection, who)?;
        let (team, team_more) = team::of(connection, &caller)?;
        let mut found = chats_newest(connection, &caller.viewer, archived, limit + 1)?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let chats = found
            .iter()
            .map(|chat| render::brief(connection, &caller, chat))
            .collect::<Result<_, _>>()?;
        Ok(ChatList {
            chats,
            more,
            team,
            team_more,
        })
    })?)
}

/// Waits until something unread mentions the caller, or the deadline.
async fn until_named(store: &Store, who: &Principal, deadline: Instant) -> Result<(), OpError> {
    let name = who.to_string();
    let subscription = store.wake_ups().subscribe(topics_of(who));
    let look = |connection: &Connection| {
        let caller = ChatCaller::of(connection, who)?;
        let mut is_named = has_messages(connection, who)?;
        for one in mentions_of(connection, &name, UNREAD_CHATS_MAX)? {
            is_named |= caller.sees(connection, &one.chat)?;
        }
        Ok::<_, StoreError>((is_named, newest_mention(connection, &name)?))
    };
    let (mut is_named, before) = store.read(look)?;
    while !is_named
        && tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .is_ok()
    {
        let (unread, newest) = store.read(look)?;
        // A mention that was delivered to the process meanwhile is read, but still counts as
        // new.
        is_named = unread || newest > before;
    }
    Ok(())
}
