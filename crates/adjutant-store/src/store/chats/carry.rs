//! Lossless export and import of chats.

use super::entries::remove_revisions;
use super::read::{chat_by_id, entries_after, members, revisions_of};
use crate::store::db::{Connection, params};
use crate::store::records::chat::{Chat, ChatEntry, Member, Revision};
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::{ChatId, EntryKind};
use adjutant_core::{Denied, SteadyTime};

/// Maximum number of entries of an abandoned import that one transaction removes, so that other
/// writers do not wait long.
const REMOVED_MAX: usize = 1_000;

/// A part of an exported chat.
#[derive(Debug)]
pub struct Export {
    pub chat: Chat,
    /// Only in the first part.
    pub members: Vec<Member>,
    pub entries: Vec<(ChatEntry, Vec<Revision>)>,
}

/// One entry to import.
#[derive(Debug, Clone)]
pub struct Imported {
    pub entry: ChatEntry,
    pub revisions: Vec<Revision>,
}

/// Reads a part of a chat: the entries after `after`.
///
/// # Errors
/// A failure of the store.
pub fn export_of(
    connection: &Connection,
    id: ChatId,
    after: i64,
    limit: u32,
) -> Result<Option<Export>, StoreError> {
    let Some(chat) = chat_by_id(connection, id)? else {
        return Ok(None);
    };
    let members = if after == 0 {
        members(connection, id)?
    } else {
        Vec::new()
    };
    let entries = entries_after(connection, id, after, limit)?;
    let entries = entries
        .into_iter()
        .map(|entry| Ok((revisions_of(connection, entry.id)?, entry)))
        .collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Some(Export {
        chat,
        members,
        entries: entries
            .into_iter()
            .map(|(revisions, entry)| (entry, revisions))
            .collect(),
    }))
}

impl Tx<'_> {
    /// Marks a new chat as imported, with the properties from the file. It is hidden until
    /// [`Tx::end_import`].
    ///
    /// # Errors
    /// A failure of the store.
    pub fn mark_imported(
        &mut self,
        chat: ChatId,
        archived: bool,
        started_at: i64,
        last_at: i64,
        members: &[Member],
    ) -> Result<(), StoreError> {
        self.prepare("UPDATE chats SET imported = 1, archived = ?2, started_at = ?3, last_at = ?4, importing = ?5 WHERE id = ?1")?.run(params![
            chat.0,
            archived,
            started_at,
            last_at,
            self.steady().0
        ])?;
        for member in members {
            let Member {
                who,
                name,
                joined_at,
                read_seq,
                mention_seq,
                said,
                seen_at,
            } = member;
            self.prepare(
                "INSERT INTO chat_members (chat, who, name, joined_at, read_seq, mention_seq, said, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .run(params![
                chat.0,
                who.to_string(),
                name,
                joined_at.map(|at| at.0),
                read_seq,
                mention_seq,
                said,
                seen_at.map(|at| at.0)
            ])?;
        }
        Ok(())
    }

    /// Records that another part of a file was imported.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_import(&mut self, chat: ChatId) -> Result<(), StoreError> {
        self.prepare("UPDATE chats SET importing = ?2 WHERE id = ?1 AND importing >= 0")?
            .run(params![chat.0, self.steady().0])?;
        Ok(())
    }

    /// Records that the import is complete, which makes the chat visible.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_import(&mut self, chat: ChatId) -> Result<(), StoreError> {
        self.prepare("UPDATE chats SET importing = NULL WHERE id = ?1")?
            .run([chat.0])?;
        self.notify(Topic::Chat(chat));
        Ok(())
    }
}

/// Inserts the next entry of an imported chat, unchanged, without its earlier versions. Returns its
/// id.
pub(in crate::store) fn insert_imported(
    tx: &mut Tx<'_>,
    chat: ChatId,
    entry: &ChatEntry,
) -> Result<i64, StoreError> {
    let ChatEntry {
        id: _,
        chat: _,
        seq,
        kind,
        author,
        name,
        label,
        text,
        at,
        reply_to,
        hops,
        pinned,
        revision,
        edited_at,
        key,
    } = entry;
    let moved = tx
        .prepare(
            "UPDATE chats SET last_seq = ?2, said = said + ?3, summary_seq = CASE WHEN ?4 = 1 THEN ?2 ELSE summary_seq END
             WHERE id = ?1 AND importing >= 0 AND last_seq < ?2",
        )?
        .execute(params![chat.0, seq, i64::from(kind.is_conversation()), *kind == EntryKind::Summary])?;
    if moved != 1 {
        return Err(Denied::invalid(
            "seq",
            format!("entry {seq} is not the next one of an imported chat"),
        )
        .into());
    }
    Ok(tx
        .prepare(
            "INSERT INTO chat_messages (chat, seq, kind, author, name, label, text, at, reply_to, hops, pinned, revision, edited_at, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .insert(
            "id",
            params![
                chat.0,
                seq,
                kind.word(),
                author.to_string(),
                name,
                label,
                text,
                at.0,
                reply_to,
                hops,
                pinned,
                revision,
                edited_at.map(|at| at.0),
                key
            ],
        )?)
}

/// Inserts the earlier versions of an imported entry.
pub(in crate::store) fn insert_revisions(
    tx: &mut Tx<'_>,
    entry: i64,
    revisions: &[Revision],
) -> Result<(), StoreError> {
    for Revision {
        revision,
        author,
        name,
        text,
        at,
    } in revisions
    {
        tx.prepare("INSERT INTO chat_revisions (message, revision, author, name, text, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .run(params![entry, revision, author, name, text, at.0])?;
    }
    Ok(())
}

/// Finds an abandoned import, one without progress since `before`.
pub(in crate::store) fn abandoned_import(
    connection: &Connection,
    before: SteadyTime,
) -> Result<Option<ChatId>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT id FROM chats WHERE importing < ?1 ORDER BY id LIMIT 1")?
        .find_row([before.0])?)
}

/// Reads the ids and numbers of the newest entries of a chat, newest first, as many as one
/// transaction removes.
pub(in crate::store) fn entries_to_remove(
    connection: &Connection,
    chat: ChatId,
) -> Result<Vec<(i64, i64)>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT id, seq FROM chat_messages WHERE chat = ?1 ORDER BY seq DESC LIMIT ?2",
        )?
        .read_rows(params![
            chat.0,
            i64::try_from(REMOVED_MAX).unwrap_or(i64::MAX)
        ])?)
}

/// Removes an entry with its earlier versions.
pub(in crate::store) fn remove_entry(tx: &mut Tx<'_>, entry: i64) -> Result<(), StoreError> {
    remove_revisions(tx, entry)?;
    tx.prepare("DELETE FROM chat_messages WHERE id = ?1")?
        .run([entry])?;
    Ok(())
}

/// Records that the entries of an abandoned import from this number on are removed.
pub(in crate::store) fn shorten_import(
    tx: &mut Tx<'_>,
    chat: ChatId,
    first_removed: i64,
) -> Result<(), StoreError> {
    // A negative time: the import cannot continue after the removed entries.
    tx.prepare("UPDATE chats SET last_seq = ?2, importing = -1 WHERE id = ?1")?
        .run(params![chat.0, first_removed - 1])?;
    Ok(())
}

/// Removes a chat without entries.
pub(in crate::store) fn remove_chat(tx: &mut Tx<'_>, chat: ChatId) -> Result<(), StoreError> {
    tx.prepare("DELETE FROM chat_members WHERE chat = ?1")?
        .run([chat.0])?;
    tx.prepare("DELETE FROM chats WHERE id = ?1")?
        .run([chat.0])?;
    Ok(())
}
