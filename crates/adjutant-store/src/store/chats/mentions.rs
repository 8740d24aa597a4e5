//! Unread entries addressed to a participant: mentions, direct messages and flags.

use super::read::{chat_by_id, entry_by_seq};
use crate::store::StoreError;
use crate::store::db::{Connection, params};
use crate::store::records::chat::{Chat, ChatEntry};
use adjutant_core::chat::ChatId;

/// The newest unread entry of a chat that is addressed to a participant.
#[derive(Debug, Clone)]
pub struct Mention {
    pub chat: Chat,
    pub entry: ChatEntry,
    /// The last entry that the participant has read.
    pub read_seq: i64,
}

/// Returns the id of the newest entry that mentions a participant, or 0.
///
/// # Errors
/// A failure of the store.
pub fn newest_mention(connection: &Connection, who: &str) -> Result<i64, StoreError> {
    let sql = "SELECT coalesce(max(m.id), 0) FROM chat_members b JOIN chat_messages m ON m.chat = b.chat AND m.seq = b.mention_seq WHERE b.who = ?1";
    Ok(connection.prepare_cached(sql)?.read_row([who])?)
}

/// Returns the id of the newest entry in another chat that mentions a participant, or 0.
///
/// # Errors
/// A failure of the store.
pub fn newest_mention_elsewhere(
    connection: &Connection,
    who: &str,
    chat: ChatId,
) -> Result<i64, StoreError> {
    let sql = "SELECT coalesce(max(m.id), 0) FROM chat_members b JOIN chat_messages m ON m.chat = b.chat AND m.seq = b.mention_seq
         WHERE b.who = ?1 AND b.chat <> ?2";
    Ok(connection
        .prepare_cached(sql)?
        .read_row(params![who, chat.0])?)
}

/// Reads the newest unread entry for a participant in each chat, newest first.
///
/// # Errors
/// A failure of the store.
pub fn mentions_of(
    connection: &Connection,
    who: &str,
    limit: u32,
) -> Result<Vec<Mention>, StoreError> {
    let found: Vec<(i64, i64, i64)> = connection
        .prepare_cached("SELECT chat, mention_seq, read_seq FROM chat_members WHERE who = ?1 AND mention_seq > read_seq ORDER BY chat DESC LIMIT ?2")?
        .read_rows(params![who, limit])?;
    let mut mentions = Vec::new();
    for (chat, seq, read_seq) in found {
        let id = ChatId(chat);
        let chat = chat_by_id(connection, id)?.ok_or_else(|| {
            StoreError::Corrupt(format!("a participant of chat {chat}, which is not there"))
        })?;
        // The member data of an imported chat may refer to an entry that does not exist.
        let Some(entry) = entry_by_seq(connection, id, seq)? else {
            continue;
        };
        mentions.push(Mention {
            chat,
            entry,
            read_seq,
        });
    }
    Ok(mentions)
}
