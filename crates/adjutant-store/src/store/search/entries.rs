//! Searching chat entries.

use super::unspaced::joined;
use super::{FoundText, Hit, Part, Query, Terms, collect, tag};
use crate::store::db::{Params, Record, params_from_iter};
use crate::store::{ChatEntry, Connection, StoreError, Tx, chats_of_others};
use adjutant_core::chat::{ChatId, Viewer};
use adjutant_core::{Principal, Time};

const HOUR_MS: i64 = 3_600_000;
/// Maximum number of chats of other owners that a search includes, newest first.
const FOREIGN_MAX: u32 = 64;

/// How many entries are indexed together. Indexing one entry alone would cost more than writing it.
const INDEXED_AT_ONCE: i64 = 64;

/// Returns whether there are entries that a search cannot find before [`Tx::index_entries`].
///
/// # Errors
/// A failure of the store.
pub fn has_unindexed_entries(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT coalesce((SELECT max(id) FROM chat_messages), 0) > (SELECT entry FROM chat_seen)")?
        .read_row([])?)
}

impl Tx<'_> {
    /// Indexes all entries that are not indexed yet.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn index_entries(&mut self) -> Result<(), StoreError> {
        change_index(
            self,
            "INSERT INTO chat_fts (rowid, tags, text) SELECT id, tags, text FROM chat_search WHERE id > (SELECT entry FROM chat_seen)",
            [],
        )?;
        self.prepare("UPDATE chat_seen SET entry = larger(entry, coalesce((SELECT max(id) FROM chat_messages), 0))")?.run([])?;
        Ok(())
    }
}

/// Records the hour of a new entry. Every [`INDEXED_AT_ONCE`]th entry triggers the indexing of
/// the batch.
pub(in crate::store) fn note_entry(
    tx: &mut Tx<'_>,
    entry: i64,
    at: Time,
) -> Result<(), StoreError> {
    let hour = at.0.div_euclid(HOUR_MS);
    let upsert = "INSERT INTO chat_hours (hour, first, last) VALUES (?1, ?2, ?2) ON CONFLICT (hour) DO UPDATE SET last = excluded.last";
    tx.prepare(upsert)?.run([hour, entry])?;
    if entry % INDEXED_AT_ONCE == 0 {
        tx.index_entries()
    } else {
        Ok(())
    }
}

/// Changes the index of entries, if the engine has one.
fn change_index(tx: &mut Tx<'_>, sql: &str, values: impl Params) -> Result<(), StoreError> {
    if tx.connection().has_fts5() {
        tx.prepare(sql)?.run(values)?;
    }
    Ok(())
}

/// Removes an entry from the index, if it is indexed, before it changes.
pub(in crate::store) fn unindex_entry(tx: &mut Tx<'_>, entry: i64) -> Result<(), StoreError> {
    change_index(tx,
        "INSERT INTO chat_fts (chat_fts, rowid, tags, text)
         SELECT 'delete', id, tags, text FROM chat_search WHERE id = ?1 AND id <= (SELECT entry FROM chat_seen)",
        [entry],
    )?;
    Ok(())
}

/// Removes a chat's entries from the index before the chat changes.
pub(in crate::store) fn unindex_chat(tx: &mut Tx<'_>, chat: ChatId) -> Result<(), StoreError> {
    change_index(tx,
        "INSERT INTO chat_fts (chat_fts, rowid, tags, text) SELECT 'delete', id, tags, text FROM chat_search
         WHERE id IN (SELECT id FROM chat_messages WHERE chat = ?1) AND id <= (SELECT entry FROM chat_seen)",
        [chat.0],
    )?;
    Ok(())
}

/// Adds the entries of a changed chat to the index again.
pub(in crate::store) fn index_chat_again(tx: &mut Tx<'_>, chat: ChatId) -> Result<(), StoreError> {
    change_index(tx,
        "INSERT INTO chat_fts (rowid, tags, text) SELECT id, tags, text FROM chat_search
         WHERE id IN (SELECT id FROM chat_messages WHERE chat = ?1) AND id <= (SELECT entry FROM chat_seen)",
        [chat.0],
    )?;
    Ok(())
}

/// Adds a changed entry to the index again.
pub(in crate::store) fn index_again(tx: &mut Tx<'_>, entry: i64) -> Result<(), StoreError> {
    change_index(
        tx,
        "INSERT INTO chat_fts (rowid, tags, text) SELECT id, tags, text FROM chat_search WHERE id = ?1 AND id <= (SELECT entry FROM chat_seen)",
        [entry],
    )?;
    Ok(())
}

pub(super) fn find(
    connection: &Connection,
    viewer: &Viewer,
    query: &Query,
    words: &str,
) -> Result<Part, StoreError> {
    let mut terms = Terms::new(words);
    match query.chat {
        // The caller has checked that the viewer may see this chat.
        Some(chat) => terms.tags(&[format!("c{chat}")]),
        None => only_visible(connection, viewer, &mut terms)?,
    }
    if let Some(from) = &query.from {
        terms.tags(&[tag('a', from)]);
        terms.add("m.author = ?", from.clone());
    }
    if query.has_question {
        terms.tags(&["q".to_owned()]);
    }
    // The time limits the range of ids first, so that the rest of the index is not read.
    if let Some(Time(since)) = query.since {
        let first: Option<i64> = connection
            .prepare_cached("SELECT min(first) FROM chat_hours WHERE hour >= ?1")?
            .read_row([since.div_euclid(HOUR_MS)])?;
        terms.add("f.rowid >= ?", first.unwrap_or(i64::MAX));
        terms.add("m.at >= ?", since);
    }
    if let Some(Time(until)) = query.until {
        let last: Option<i64> = connection
            .prepare_cached("SELECT max(last) FROM chat_hours WHERE hour <= ?1")?
            .read_row([until.div_euclid(HOUR_MS)])?;
        terms.add("f.rowid <= ?", last.unwrap_or(0));
        terms.add("m.at < ?", until);
    }
    let order = if query.best {
        terms.among_newest(connection, "chat_fts")?;
        "f.rank"
    } else {
        "f.rowid DESC"
    };
    let sql = format!(
        "{}, c.title, snippet(chat_fts, 1, char(2), char(3), '…', {})
         FROM chat_fts f CROSS JOIN chat_messages m ON m.id = f.rowid CROSS JOIN chats c ON c.id = m.chat
         WHERE chat_fts MATCH ?1 AND c.importing IS NULL{} ORDER BY {order} LIMIT ?{}",
        ChatEntry::SELECT,
        terms.snippet_words,
        terms.conditions,
        terms.values.len() + 1
    );
    let mut statement = connection.prepare_cached(&sql)?;
    collect(
        statement.query(params_from_iter(terms.values(query.limit)))?,
        |row| {
            let (entry, title, snippet): (ChatEntry, _, _) = row.read()?;
            Ok(Hit {
                at: entry.at,
                snippet: joined(snippet),
                found: FoundText::Entry(Box::new(entry), title),
            })
        },
    )
}

/// Restricts a search to chats that the viewer may see, by the general rule.
fn only_visible(
    connection: &Connection,
    viewer: &Viewer,
    terms: &mut Terms,
) -> Result<(), StoreError> {
    const TAKES_PART: &str = "EXISTS (SELECT 1 FROM chat_members p WHERE p.chat = c.id AND p.joined_at IS NOT NULL AND p.who = ?)";
    let who = viewer.who.to_string();
    match &viewer.who {
        Principal::Person => {}
        Principal::Client(_) => {
            let mut tags = vec![tag('o', &who)];
            tags.extend(
                chats_of_others(connection, &viewer.who, FOREIGN_MAX)?
                    .iter()
                    .map(|chat| format!("c{chat}")),
            );
            terms.tags(&tags);
            terms.add(
                &format!("((c.private = 0 AND c.owner = ?) OR {TAKES_PART})"),
                who,
            );
        }
        Principal::Run(_) => {
            let owner = viewer.scope.owner.to_string();
            let root = viewer
                .scope
                .root
                .map(|root| root.to_string())
                .unwrap_or_default();
            terms.tags(&[tag('o', &owner)]);
            terms.add("c.owner = ?", owner);
            terms.add("(c.kind <> 'board' OR c.root IS NULL OR c.root = ?)", root);
            terms.add(&format!("(c.private = 0 OR {TAKES_PART})"), who);
        }
    }
    Ok(())
}
