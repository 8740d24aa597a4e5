//! Reading chats.

use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::render;
use crate::ops::chats::wake::{has_messages, topics_of};
use crate::ops::{OpError, Ops};
use crate::store::{
    ChatEntry, Connection, StoreError, Topic, Tx, changes_of, entries_after, entries_beyond,
    entries_changed, entries_last, member, position_in_chat, unread_before,
};
use crate::view::{ChatPage, ShowChat};
use adjutant_core::{Action, Principal};
use tokio::time::Instant;

/// Default number of entries in a page.
const SHOW_DEFAULT: u32 = 50;
const SHOW_MAX: u32 = 1_000;
/// Changed entries in one page.
const CHANGED_MAX: u32 = 20;
/// Maximum text in one page, in bytes; a single larger entry is still shown.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Ops {
    /// Reads a chat, waiting for new entries if there are none.
    ///
    /// # Errors
    /// Unknown or foreign.
    pub async fn show_chat(&self, who: &Principal, call: &ShowChat) -> Result<ChatPage, OpError> {
        Self::check(who, Action::ReadChat)?;
        let limit = call.limit.unwrap_or(SHOW_DEFAULT).clamp(1, SHOW_MAX);
        let deadline = crate::ops::end_of_wait(call.wait_ms);
        let (caller, chat, own) = self.store.read(|connection| {
            let caller = ChatCaller::of(connection, who)?;
            let chat = caller.chat(connection, call.chat_id)?;
            let own = member(connection, chat.id, &who.to_string())?;
            Ok((caller, chat, own))
        })?;
        let read_seq = own.as_ref().map_or(0, |own| own.read_seq);
        let after = call.after.or((call.wait_ms > 0).then_some(read_seq));
        let position = after
            .map(|after| {
                self.store.read(|connection| {
                    position_in_chat(connection, self.store.eras(), &chat, after)
                })
            })
            .transpose()?;
        let (after, reset) = (
            position.map(|position| position.after),
            position.is_some_and(|position| position.is_reset),
        );
        let mut topics = topics_of(who);
        topics.push(Topic::Chat(chat.id));
        let subscription = self.store.wake_ups().subscribe(topics);
        let mut waiting = None;
        let mut changes = match call.changes {
            Some(changes) => changes,
            None => self
                .store
                .read(|connection| changes_of(connection, chat.id))?,
        };
        let (entries, changed) = loop {
            let (entries, changed) = self.store.read(|connection| {
                let entries = match after {
                    Some(after) => entries_after(connection, chat.id, after, limit)?,
                    None => entries_last(connection, chat.id, limit)?,
                };
                let changed = entries_changed(connection, chat.id, changes, CHANGED_MAX)?;
                Ok::<_, StoreError>((entries, changed))
            })?;
            // An entry that the reader has not seen is new, not changed.
            let shown_to =
                after.unwrap_or_else(|| entries.first().map_or(0, |entry| entry.seq - 1));
            let (mut changed, last) = changed;
            changed.retain(|entry| entry.seq <= shown_to);
            changes = last;
            // End the wait when messages for the run arrive.
            let is_over = Instant::now() >= deadline
                || self
                    .store
                    .read(|connection| has_messages(connection, who))?;
            if !entries.is_empty() || !changed.is_empty() || reset || is_over {
                break (
                    within_bytes(entries, after.is_none()),
                    within_bytes(changed, false),
                );
            }
            waiting.get_or_insert_with(|| self.presence.enter(chat.id, &who.to_string()));
            if tokio::time::timeout_at(deadline, subscription.wait())
                .await
                .is_err()
            {
                continue;
            }
        };
        let cursor = entries
            .last()
            .map_or_else(|| after.unwrap_or(0), |entry| entry.seq);
        let first = entries.first().map_or(cursor, |entry| entry.seq);
        let waited = waiting.take().is_some();
        let page = |connection: &Connection, unread_before| {
            let chat = caller.chat(connection, call.chat_id)?;
            let mut view = render::full(connection, &caller, &self.presence, &chat)?;
            if let Some(followed) = &mut view.followed {
                followed.problem = followed
                    .problem
                    .take()
                    .or_else(|| self.links.problem(chat.id));
            }
            let more = entries_beyond(connection, self.store.eras(), &chat, cursor)?;
            Ok::<_, StoreError>(ChatPage {
                chat: view,
                messages: entries
                    .iter()
                    .map(|entry| render::with_receipts(connection, &caller, entry))
                    .collect::<Result<_, _>>()?,
                changed: changed
                    .iter()
                    .map(|entry| render::with_receipts(connection, &caller, entry))
                    .collect::<Result<_, _>>()?,
                cursor,
                changes,
                more,
                reset,
                unread_before,
                read_to: read_seq,
            })
        };
        let before =
            |connection: &Connection| unread_before(connection, chat.id, &who.to_string(), first);
        if call.peek || entries.is_empty() || cursor <= read_seq {
            return Ok(self
                .store
                .read(|connection| page(connection, before(connection)?))?);
        }
        let (id, name, reader) = (chat.id, caller.name.clone(), caller.participant());
        let mark = move |tx: &mut Tx<'_>| tx.read_chat(id, &reader, &name, first, cursor);
        if waited {
            // A waiting reader gets the page before the read position is durable.
            let mut page = self
                .store
                .read(|connection| page(connection, before(connection)?))?;
            self.store.write_later(mark);
            if page.more == 0 {
                page.chat.unread = 0;
                page.chat.mentioned = false;
            }
            return Ok(page);
        }
        let before = self.store.read(before)?;
        self.store.write(mark).await?;
        Ok(self.store.read(|connection| page(connection, before))?)
    }
}

/// Truncates a page to the size of one reply, keeping its beginning or its end.
fn within_bytes(mut entries: Vec<ChatEntry>, from_end: bool) -> Vec<ChatEntry> {
    if from_end {
        entries.reverse();
    }
    let mut bytes = 0;
    let kept = entries.iter().take_while(|entry| {
        bytes += entry.text.len();
        bytes <= PAGE_BYTES_MAX
    });
    let kept = kept.count().max(1);
    entries.truncate(kept);
    if from_end {
        entries.reverse();
    }
    entries
}
