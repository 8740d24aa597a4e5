//! Reading chats.

use crate::ops::chats::caller::ChatCaller;
use crate::ops::chats::followed::FollowedStates;
use crate::ops::chats::presence::Presence;
use crate::ops::chats::render;
use crate::ops::chats::wake::{has_messages, topics_of};
use crate::ops::{OpError, lookup};
use crate::store::{
    ChatEntry, Connection, Store, StoreError, Topic, Tx, changes_of, entries_after, entries_beyond,
    entries_changed, entries_last, member, position_in_chat, unread_before,
};
use crate::view::{ChatPage, ShowChat};
use adjutant_core::chat::ChatId;
use adjutant_core::{Action, Principal};
use tokio::time::Instant;

/// Default number of entries in a page.
const SHOW_DEFAULT: u32 = 50;
const SHOW_MAX: u32 = 1_000;
/// Changed entries in one page.
const CHANGED_MAX: u32 = 20;
/// Maximum text in one page, in bytes; a single larger entry is still shown.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Reads a chat, waiting for new entries if there are none.
///
/// # Errors
/// Unknown or foreign.
pub async fn show_chat(
    store: &Store,
    presence: &Presence,
    followed: &FollowedStates,
    who: &Principal,
    call: &ShowChat,
) -> Result<ChatPage, OpError> {
    lookup::check(who, Action::ReadChat)?;
    let deadline = crate::ops::end_of_wait(call.wait_ms);
    let reader = reader_of(store, who, call)?;
    let read = await_entries(store, presence, &reader, call, deadline).await?;
    let cursor = read.cursor(&reader);
    if call.peek || read.entries.is_empty() || cursor <= reader.read_seq {
        return Ok(store.read(|connection| {
            let unread_before = reader.unread_before(connection, &read, cursor)?;
            page(
                store,
                presence,
                followed,
                connection,
                &reader,
                &read,
                unread_before,
            )
        })?);
    }
    mark_read(store, presence, followed, &reader, &read).await
}

/// Reads where the caller is in the chat.
fn reader_of<'a>(
    store: &Store,
    who: &'a Principal,
    call: &ShowChat,
) -> Result<Reader<'a>, OpError> {
    let (caller, chat, own) = store.read(|connection| {
        let caller = ChatCaller::of(connection, who)?;
        let chat = caller.chat(connection, call.chat_id)?;
        let own = member(connection, chat.id, &who.to_string())?;
        Ok((caller, chat, own))
    })?;
    let read_seq = own.as_ref().map_or(0, |own| own.read_seq);
    let after = call.after.or((call.wait_ms > 0).then_some(read_seq));
    let position = after
        .map(|after| {
            store.read(|connection| position_in_chat(connection, store.eras(), &chat, after))
        })
        .transpose()?;
    Ok(Reader {
        who,
        caller,
        chat: chat.id,
        read_seq,
        after: position.map(|position| position.after),
        is_reset: position.is_some_and(|position| position.is_reset),
    })
}

/// Reads the entries of a page, once there are some or the wait is over.
async fn await_entries(
    store: &Store,
    presence: &Presence,
    reader: &Reader<'_>,
    call: &ShowChat,
    deadline: Instant,
) -> Result<EntriesRead, OpError> {
    let limit = call.limit.unwrap_or(SHOW_DEFAULT).clamp(1, SHOW_MAX);
    let mut topics = topics_of(reader.who);
    topics.push(Topic::Chat(reader.chat));
    let subscription = store.wake_ups().subscribe(topics);
    let mut waiting = None;
    let mut changes = match call.changes {
        Some(changes) => changes,
        None => store.read(|connection| changes_of(connection, reader.chat))?,
    };
    loop {
        let mut read = store.read(|connection| reader.read(connection, limit, changes))?;
        changes = read.changes;
        // End the wait when messages for the run arrive.
        let is_over = Instant::now() >= deadline
            || store.read(|connection| has_messages(connection, reader.who))?;
        if !read.entries.is_empty() || !read.changed.is_empty() || reader.is_reset || is_over {
            read.entries = within_bytes(read.entries, reader.after.is_none());
            read.changed = within_bytes(read.changed, false);
            read.has_waited = waiting.is_some();
            return Ok(read);
        }
        waiting.get_or_insert_with(|| presence.enter(reader.chat, &reader.who.to_string()));
        if tokio::time::timeout_at(deadline, subscription.wait())
            .await
            .is_err()
        {
            continue;
        }
    }
}

fn page(
    store: &Store,
    presence: &Presence,
    followed: &FollowedStates,
    connection: &Connection,
    reader: &Reader<'_>,
    read: &EntriesRead,
    unread_before: i64,
) -> Result<ChatPage, StoreError> {
    let cursor = read.cursor(reader);
    let chat = reader.caller.chat(connection, reader.chat.0)?;
    let mut view = render::full(connection, &reader.caller, presence, &chat)?;
    if let Some(copy) = &mut view.followed {
        copy.problem = copy.problem.take().or_else(|| followed.problem(chat.id));
    }
    let more = entries_beyond(connection, store.eras(), &chat, cursor)?;
    let views = |entries: &[ChatEntry]| {
        entries
            .iter()
            .map(|entry| render::with_receipts(connection, &reader.caller, entry))
            .collect::<Result<_, _>>()
    };
    Ok(ChatPage {
        chat: view,
        messages: views(&read.entries)?,
        changed: views(&read.changed)?,
        cursor,
        changes: read.changes,
        more,
        reset: reader.is_reset,
        unread_before,
        read_to: reader.read_seq,
    })
}

/// Returns the page, and moves the position up to which the caller has read.
async fn mark_read(
    store: &Store,
    presence: &Presence,
    followed: &FollowedStates,
    reader: &Reader<'_>,
    read: &EntriesRead,
) -> Result<ChatPage, OpError> {
    let cursor = read.cursor(reader);
    let first = read.first(cursor);
    let (id, name, who) = (
        reader.chat,
        reader.caller.name.clone(),
        reader.caller.participant(),
    );
    let mark = move |tx: &mut Tx<'_>| tx.read_chat(id, &who, &name, first, cursor);
    if read.has_waited {
        // A waiting reader gets the page before the read position is durable.
        let mut page = store.read(|connection| {
            let unread_before = reader.unread_before(connection, read, cursor)?;
            page(
                store,
                presence,
                followed,
                connection,
                reader,
                read,
                unread_before,
            )
        })?;
        store.write_later(mark);
        if page.more == 0 {
            page.chat.unread = 0;
            page.chat.mentioned = false;
        }
        return Ok(page);
    }
    let unread_before = store.read(|connection| reader.unread_before(connection, read, cursor))?;
    store.write(mark).await?;
    Ok(store.read(|connection| {
        page(
            store,
            presence,
            followed,
            connection,
            reader,
            read,
            unread_before,
        )
    })?)
}

/// Who reads a chat, and from where.
struct Reader<'a> {
    who: &'a Principal,
    caller: ChatCaller,
    chat: ChatId,
    /// Up to which entry the caller had read.
    read_seq: i64,
    /// The entry after which the page begins. `None`: it has the last entries.
    after: Option<i64>,
    /// The given position is of a time that the database has lost.
    is_reset: bool,
}

impl Reader<'_> {
    fn read(
        &self,
        connection: &Connection,
        limit: u32,
        changes: i64,
    ) -> Result<EntriesRead, StoreError> {
        let entries = match self.after {
            Some(after) => entries_after(connection, self.chat, after, limit)?,
            None => entries_last(connection, self.chat, limit)?,
        };
        let (mut changed, changes) = entries_changed(connection, self.chat, changes, CHANGED_MAX)?;
        // An entry that the reader has not seen is new, not changed.
        let shown_to = self
            .after
            .unwrap_or_else(|| entries.first().map_or(0, |entry| entry.seq - 1));
        changed.retain(|entry| entry.seq <= shown_to);
        Ok(EntriesRead {
            entries,
            changed,
            changes,
            has_waited: false,
        })
    }

    fn unread_before(
        &self,
        connection: &Connection,
        read: &EntriesRead,
        cursor: i64,
    ) -> Result<i64, StoreError> {
        let who = self.who.to_string();
        unread_before(connection, self.chat, &who, read.first(cursor))
    }
}

/// The entries of a page.
struct EntriesRead {
    entries: Vec<ChatEntry>,
    /// Earlier entries that were changed.
    changed: Vec<ChatEntry>,
    /// Up to which change they were read.
    changes: i64,
    has_waited: bool,
}

impl EntriesRead {
    /// Returns the last entry that the caller has seen after this page.
    fn cursor(&self, reader: &Reader<'_>) -> i64 {
        self.entries
            .last()
            .map_or_else(|| reader.after.unwrap_or(0), |entry| entry.seq)
    }

    fn first(&self, cursor: i64) -> i64 {
        self.entries.first().map_or(cursor, |entry| entry.seq)
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
