//! Changing the entries of chats. The transaction that adds an entry assigns its number, so entries
//! are totally ordered without gaps.

use super::read::{entry_by_seq, peer_speakers};
use super::write::has_joined;
use crate::store::db::{Connection, params};
use crate::store::records::chat::ChatEntry;
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::{ChatId, EntryKind, Participant};
use adjutant_core::peer::SPEAKERS_MAX;
use adjutant_core::{Denied, Time};

/// The data of a new entry.
#[derive(Debug, Clone)]
pub struct NewEntry {
    pub kind: EntryKind,
    pub author: Participant,
    pub name: String,
    pub label: Option<String>,
    pub text: String,
    pub reply_to: Option<i64>,
    pub hops: u32,
    pub pinned: bool,
    pub key: Option<String>,
}

/// Reads an entry that must exist.
pub(in crate::store) fn entry_of(
    connection: &Connection,
    chat: ChatId,
    seq: i64,
) -> Result<ChatEntry, StoreError> {
    entry_by_seq(connection, chat, seq)?
        .ok_or_else(|| Denied::not_found("message", &format!("{chat}.{seq}")).into())
}

/// Inserts an entry with the next number of its chat. Returns the number and the entry's id.
pub(in crate::store) fn insert_entry(
    tx: &mut Tx<'_>,
    chat: ChatId,
    new: &NewEntry,
    at: Time,
) -> Result<(i64, i64), StoreError> {
    let who = new.author.to_string();
    let said = i64::from(new.kind.is_conversation());
    tx.connection()
        .announce(|connection| has_joined(connection, chat, &who, &new.name));
    tx.prepare(
        "UPDATE chats SET last_seq = last_seq + 1, last_at = ?2, said = said + ?3 WHERE id = ?1",
    )?
    .run(params![chat.0, tx.now().0, said])?;
    let seq: i64 = tx
        .prepare("SELECT last_seq FROM chats WHERE id = ?1")?
        .read_row([chat.0])?;
    let id = tx
        .prepare(
            "INSERT INTO chat_messages (chat, seq, kind, author, name, label, text, at, reply_to, hops, pinned, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .insert(
            "id",
            params![chat.0, seq, new.kind.word(), who, new.name, new.label, new.text, at.0, new.reply_to, new.hops, new.pinned, new.key],
        )?;
    Ok((seq, id))
}

/// Records a new entry at its chat and at its author, who becomes a participant, except an agent
/// that only summarised or failed to answer.
pub(in crate::store) fn note_author(
    tx: &mut Tx<'_>,
    chat: ChatId,
    new: &NewEntry,
    seq: i64,
) -> Result<(), StoreError> {
    if new.kind == EntryKind::Summary {
        tx.prepare("UPDATE chats SET summary_seq = ?2 WHERE id = ?1")?
            .run(params![chat.0, seq])?;
    }
    if matches!(new.author, Participant::Hub | Participant::FromFile(_)) {
        return Ok(());
    }
    let who = new.author.to_string();
    let is_participant = match &new.author {
        Participant::Agent(_) => new.kind.is_conversation(),
        // Another hub names its participants as it likes.
        Participant::Peer(author) => {
            let (speakers, is_known) = peer_speakers(tx.connection(), chat, &author.peer, &who)?;
            is_known || speakers < SPEAKERS_MAX
        }
        Participant::Principal(_) | Participant::Hub | Participant::FromFile(_) => true,
    };
    if is_participant {
        tx.join_chat(chat, &new.author, &new.name)?;
    }
    // An author who has read everything has also read its own entry.
    tx.prepare(
        "UPDATE chat_members SET said = said + ?4, seen_at = ?5, read_seq = CASE WHEN read_seq = ?3 - 1 THEN ?3 ELSE read_seq END
         WHERE chat = ?1 AND who = ?2",
    )?
    .run(params![
        chat.0,
        who,
        seq,
        i64::from(new.kind.is_conversation()),
        tx.now().0
    ])?;
    Ok(())
}

/// Keeps the version of an entry that is about to be replaced.
pub(in crate::store) fn keep_revision(
    tx: &mut Tx<'_>,
    entry: &ChatEntry,
) -> Result<(), StoreError> {
    let said_at = entry.edited_at.unwrap_or(entry.at);
    tx.prepare("INSERT INTO chat_revisions (message, revision, author, name, text, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .run(params![
            entry.id,
            entry.revision,
            entry.author.to_string(),
            entry.name,
            entry.text,
            said_at.0
        ])?;
    Ok(())
}

/// Removes the earlier versions of an entry.
pub(in crate::store) fn remove_revisions(tx: &mut Tx<'_>, entry: i64) -> Result<(), StoreError> {
    tx.prepare("DELETE FROM chat_revisions WHERE message = ?1")?
        .run([entry])?;
    Ok(())
}

/// Replaces the text of an entry. `by` becomes the author of a board entry.
pub(in crate::store) fn set_text(
    tx: &mut Tx<'_>,
    entry: &ChatEntry,
    text: &str,
    by: Option<(&Participant, &str)>,
) -> Result<(), StoreError> {
    tx.prepare(
        "UPDATE chat_messages SET text = ?2, revision = revision + 1, edited_at = ?3 WHERE id = ?1",
    )?
    .run(params![entry.id, text, tx.now().0])?;
    if let Some((author, name)) = by {
        tx.prepare(
            "UPDATE chat_messages SET author = ?2, name = ?3 WHERE id = ?1 AND key IS NOT NULL",
        )?
        .run(params![entry.id, author.to_string(), name])?;
    }
    Ok(())
}

/// Assigns a number to a change of an entry and notifies the chat's waiters.
pub(in crate::store) fn note_change(tx: &mut Tx<'_>, entry: &ChatEntry) -> Result<(), StoreError> {
    tx.prepare("UPDATE chats SET changes = changes + 1 WHERE id = ?1")?
        .run([entry.chat.0])?;
    tx.prepare("UPDATE chat_messages SET changed = (SELECT changes FROM chats WHERE id = ?2) WHERE id = ?1")?
        .run(params![entry.id, entry.chat.0])?;
    tx.notify(Topic::Chat(entry.chat));
    Ok(())
}

impl Tx<'_> {
    /// Pins or unpins an entry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn pin_entry(&mut self, entry: &ChatEntry, pinned: bool) -> Result<ChatEntry, StoreError> {
        self.prepare("UPDATE chat_messages SET pinned = ?2 WHERE id = ?1")?
            .run(params![entry.id, pinned])?;
        note_change(self, entry)?;
        entry_of(self.connection(), entry.chat, entry.seq)
    }
}
