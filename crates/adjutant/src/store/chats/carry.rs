//! Carrying chats out of a home and into another, nothing lost.

use super::{Chat, ChatEntry, Member, Revision, chat_by_id, entries_after, members, revisions_of};
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::Denied;
use adjutant_core::chat::ChatId;
use rusqlite::{Connection, params};

/// A part of a chat as it is carried.
#[derive(Debug)]
pub struct Export {
    pub chat: Chat,
    /// With the first part.
    pub members: Vec<Member>,
    pub entries: Vec<(ChatEntry, Vec<Revision>)>,
}

/// One entry of a file.
#[derive(Debug, Clone)]
pub struct Imported {
    pub entry: ChatEntry,
    pub revisions: Vec<Revision>,
}

/// Reads a chat, or the part of it behind an entry.
///
/// # Errors
/// A failure of the store.
pub fn export_of(connection: &Connection, id: ChatId, after: i64, limit: u32) -> Result<Option<Export>, StoreError> {
    let Some(chat) = chat_by_id(connection, id)? else { return Ok(None) };
    let members = if after == 0 { members(connection, id)? } else { Vec::new() };
    let entries = entries_after(connection, id, after, limit)?;
    let entries = entries.into_iter().map(|entry| Ok((revisions_of(connection, entry.id)?, entry))).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(Some(Export { chat, members, entries: entries.into_iter().map(|(revisions, entry)| (entry, revisions)).collect() }))
}

impl Tx<'_> {
    /// Marks a chat that was just started as one from a file, with what the file says of it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn mark_imported(&mut self, chat: ChatId, archived: bool, started_at: i64, last_at: i64, members: &[Member]) -> Result<(), StoreError> {
        self.prepare("UPDATE chats SET imported = 1, archived = ?2, started_at = ?3, last_at = ?4 WHERE id = ?1")?
            .execute(params![chat.0, archived, started_at, last_at])?;
        for member in members {
            let Member { who, name, joined_at, read_seq, mention_seq, said, seen_at } = member;
            self.prepare(
                "INSERT INTO chat_members (chat, who, name, joined_at, read_seq, mention_seq, said, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
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

    /// Adds an entry of a file to a chat from a file: as it is there.
    ///
    /// # Errors
    /// It is not the next one.
    pub fn import_entry(&mut self, chat: ChatId, imported: &Imported) -> Result<(), StoreError> {
        let Imported { entry, revisions } = imported;
        let ChatEntry { id: _, chat: _, seq, kind, author, name, label, text, at, reply_to, hops, pinned, revision, edited_at, key } = entry;
        let moved = self
            .prepare(
                "UPDATE chats SET last_seq = ?2, said = said + ?3, summary_seq = CASE WHEN ?4 THEN ?2 ELSE summary_seq END
                 WHERE id = ?1 AND imported = 1 AND last_seq = ?2 - 1",
            )?
            .execute(params![chat.0, seq, i64::from(kind.is_said()), *kind == adjutant_core::chat::EntryKind::Summary])?;
        if moved != 1 {
            return Err(Denied::invalid("seq", format!("entry {seq} is not the next one of an imported chat")).into());
        }
        self.prepare(
            "INSERT INTO chat_messages (chat, seq, kind, author, name, label, text, at, reply_to, hops, pinned, revision, edited_at, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
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
        ])?;
        let id = self.connection().last_insert_rowid();
        self.index_now_and_then(id)?;
        for Revision { revision, author, name, text, at } in revisions {
            self.prepare("INSERT INTO chat_revisions (message, revision, author, name, text, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![id, revision, author, name, text, at.0])?;
        }
        self.ring(Topic::Chat(chat));
        Ok(())
    }
}
