//! Changing chats and their participants.

use super::read::{chat_by_id, unread_before};
use crate::store::db::{Connection, params};
use crate::store::records::chat::Chat;
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::Denied;
use adjutant_core::chat::{Budget, ChatId, ChatKind, Participant, Scope, WINDOW_CHARS_DEFAULT};

/// The data of a new chat.
#[derive(Debug, Clone)]
pub struct NewChat {
    pub kind: ChatKind,
    pub title: String,
    pub scope: Scope,
    pub private: bool,
    pub pair: Option<String>,
    pub template: Option<String>,
    pub instructions: Option<String>,
    pub window: Budget,
    pub turns_max: u32,
    pub branch_of: Option<(ChatId, i64)>,
    pub started_by: Participant,
    pub started_name: String,
}

/// Returns whether a participant has joined a chat under this name.
pub(super) fn has_joined(
    connection: &Connection,
    chat: ChatId,
    who: &str,
    name: &str,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM chat_members WHERE chat = ?1 AND who = ?2 AND name = ?3 AND joined_at IS NOT NULL";
    Ok(connection
        .prepare_cached(sql)?
        .exists(params![chat.0, who, name])?)
}

impl Tx<'_> {
    /// Starts a chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn start_chat(&mut self, new: &NewChat) -> Result<Chat, StoreError> {
        let now = self.now().0;
        let (window_chars, window_tokens) = match new.window {
            Budget::Chars(chars) => (chars, None),
            Budget::Tokens(tokens) => (WINDOW_CHARS_DEFAULT, Some(tokens)),
        };
        let id = self
            .prepare(
                "INSERT INTO chats (kind, title, owner, root, private, pair, template, instructions, window_chars, turns_max, branch_of, branch_seq,
             started_by, started_name, started_at, last_at, window_tokens)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?15, ?16)",
            )?
            .insert(
                "id",
                params![
                    new.kind.word(),
                    new.title,
                    new.scope.owner.to_string(),
                    new.scope.root.map(|root| root.to_string()),
                    new.private,
                    new.pair,
                    new.template,
                    new.instructions,
                    i64::try_from(window_chars).unwrap_or(i64::MAX),
                    new.turns_max,
                    new.branch_of.map(|(chat, _)| chat.0),
                    new.branch_of.map(|(_, seq)| seq),
                    new.started_by.to_string(),
                    new.started_name,
                    now,
                    window_tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX))
                ],
            )?;
        let id = ChatId(id);
        if let Some((parent, seq)) = new.branch_of {
            self.prepare(
                "UPDATE chats SET branch_said = (SELECT count(*) FROM chat_messages WHERE chat = ?2 AND seq <= ?3 AND kind IN ('message', 'answer'))
                 WHERE id = ?1",
            )?
            .run(params![id.0, parent.0, seq])?;
        }
        self.chat(id)
    }

    /// Reads a chat that must exist.
    ///
    /// # Errors
    /// `NotFound`, or a failure of the store.
    pub fn chat(&self, id: ChatId) -> Result<Chat, StoreError> {
        chat_by_id(self.connection(), id)?
            .ok_or_else(|| Denied::not_found("chat", &id.to_string()).into())
    }

    /// Adds a participant, or updates its display name.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn join_chat(
        &mut self,
        chat: ChatId,
        who: &Participant,
        name: &str,
    ) -> Result<(), StoreError> {
        let who = who.to_string();
        if has_joined(self.connection(), chat, &who, name)? {
            return Ok(());
        }
        self.prepare(
            "INSERT INTO chat_members (chat, who, name, joined_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (chat, who) DO UPDATE SET name = excluded.name, joined_at = coalesce(chat_members.joined_at, excluded.joined_at)
             WHERE chat_members.name <> excluded.name OR chat_members.joined_at IS NULL",
        )?
        .run(params![chat.0, who, name, self.now().0])?;
        Ok(())
    }

    /// Archives or restores a chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn archive_chat(&mut self, chat: ChatId, archived: bool) -> Result<Chat, StoreError> {
        self.prepare("UPDATE chats SET archived = ?2 WHERE id = ?1")?
            .run(params![chat.0, archived])?;
        self.notify(Topic::Chat(chat));
        self.chat(chat)
    }

    /// Records that an entry mentions a participant.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn mention(
        &mut self,
        chat: ChatId,
        who: &Participant,
        name: &str,
        seq: i64,
    ) -> Result<(), StoreError> {
        self.join_chat(chat, who, name)?;
        self.prepare("UPDATE chat_members SET mention_seq = ?3 WHERE chat = ?1 AND who = ?2")?
            .run(params![chat.0, who.to_string(), seq])?;
        self.notify(Topic::Mention(who.to_string()));
        Ok(())
    }
}

/// Advances a participant's read cursor over the entries `first` to `seq`, unless unread entries of
/// other authors precede them. It never moves back.
pub(in crate::store) fn advance_read_cursor(
    tx: &mut Tx<'_>,
    chat: ChatId,
    who: &Participant,
    name: &str,
    first: i64,
    seq: i64,
) -> Result<(), StoreError> {
    if unread_before(tx.connection(), chat, &who.to_string(), first)? > 0 {
        return Ok(());
    }
    tx.prepare(
        "INSERT INTO chat_members (chat, who, name, read_seq, seen_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (chat, who) DO UPDATE SET read_seq = larger(chat_members.read_seq, excluded.read_seq), seen_at = excluded.seen_at",
    )?
    .run(params![chat.0, who.to_string(), name, seq, tx.now().0])?;
    Ok(())
}

/// Makes the next entry of a chat have a number above this one.
pub(in crate::store) fn skip_to(tx: &mut Tx<'_>, chat: ChatId, seq: i64) -> Result<(), StoreError> {
    tx.prepare("UPDATE chats SET last_seq = ?2 WHERE id = ?1")?
        .run(params![chat.0, seq])?;
    Ok(())
}
