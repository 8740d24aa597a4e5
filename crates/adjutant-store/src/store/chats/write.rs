//! Changing chats. The transaction that adds an entry assigns its number, so entries are totally
//! ordered without gaps.

use super::read::{chat_by_id, entry_by_seq, unread_before};
use crate::store::db::{Connection, params};
use crate::store::records::chat::{Chat, ChatEntry};
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::chat::{
    Budget, ChatId, ChatKind, EntryKind, Participant, Scope, WINDOW_CHARS_DEFAULT,
};
use adjutant_core::peer::SPEAKERS_MAX;
use adjutant_core::{Denied, Time};

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

/// Returns whether a participant has joined a chat under this name.
fn has_joined(
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

    /// Adds an entry and notifies the chat's waiters. The author becomes a participant, except an
    /// agent that only summarised or failed to answer.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_entry(&mut self, chat: ChatId, new: &NewEntry) -> Result<ChatEntry, StoreError> {
        self.add_entry_of(chat, new, self.now())
    }

    /// Like [`Tx::add_entry`], for an entry that was written at an earlier time.
    pub(in crate::store) fn add_entry_of(
        &mut self,
        chat: ChatId,
        new: &NewEntry,
        at: Time,
    ) -> Result<ChatEntry, StoreError> {
        let now = self.now().0;
        let who = new.author.to_string();
        let said = i64::from(new.kind.is_conversation());
        self.connection()
            .announce(|connection| has_joined(connection, chat, &who, &new.name));
        self.prepare("UPDATE chats SET last_seq = last_seq + 1, last_at = ?2, said = said + ?3 WHERE id = ?1")?.run(params![chat.0, now, said])?;
        let seq: i64 = self
            .prepare("SELECT last_seq FROM chats WHERE id = ?1")?
            .read_row([chat.0])?;
        let id = self
            .prepare(
                "INSERT INTO chat_messages (chat, seq, kind, author, name, label, text, at, reply_to, hops, pinned, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .insert(
                "id",
                params![chat.0, seq, new.kind.word(), who, new.name, new.label, new.text, at.0, new.reply_to, new.hops, new.pinned, new.key],
            )?;
        self.note_entry(id, at)?;
        self.add_deliveries_of_entry(id)?;
        if new.kind == EntryKind::Summary {
            self.prepare("UPDATE chats SET summary_seq = ?2 WHERE id = ?1")?
                .run(params![chat.0, seq])?;
        }
        if !matches!(new.author, Participant::Hub | Participant::FromFile(_)) {
            let is_participant = match &new.author {
                Participant::Agent(_) => new.kind.is_conversation(),
                // Another hub names its participants as it likes.
                Participant::Peer(author) => {
                    let (speakers, is_known) = self.peer_speakers(chat, &author.peer, &who)?;
                    is_known || speakers < SPEAKERS_MAX
                }
                Participant::Principal(_) | Participant::Hub | Participant::FromFile(_) => true,
            };
            if is_participant {
                self.join_chat(chat, &new.author, &new.name)?;
            }
            // An author who has read everything has also read its own entry.
            self.prepare(
                "UPDATE chat_members SET said = said + ?4, seen_at = ?5, read_seq = CASE WHEN read_seq = ?3 - 1 THEN ?3 ELSE read_seq END
                 WHERE chat = ?1 AND who = ?2",
            )?
            .run(params![chat.0, who, seq, said, now])?;
        }
        self.notify(Topic::Chat(chat));
        self.notify(Topic::Outbox);
        self.entry(chat, seq)
    }

    fn entry(&self, chat: ChatId, seq: i64) -> Result<ChatEntry, StoreError> {
        entry_by_seq(self.connection(), chat, seq)?
            .ok_or_else(|| Denied::not_found("message", &format!("{chat}.{seq}")).into())
    }

    /// Replaces an entry's text and keeps the old version. `by` becomes the author of a board
    /// entry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn revise_entry(
        &mut self,
        entry: &ChatEntry,
        text: &str,
        by: Option<(&Participant, &str)>,
    ) -> Result<ChatEntry, StoreError> {
        let said_at = entry.edited_at.unwrap_or(entry.at);
        self.prepare("INSERT INTO chat_revisions (message, revision, author, name, text, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.run(params![
            entry.id,
            entry.revision,
            entry.author.to_string(),
            entry.name,
            entry.text,
            said_at.0
        ])?;
        self.unindex_entry(entry.id)?;
        self.prepare("UPDATE chat_messages SET text = ?2, revision = revision + 1, edited_at = ?3 WHERE id = ?1")?.run(params![
            entry.id,
            text,
            self.now().0
        ])?;
        if let Some((author, name)) = by {
            self.prepare(
                "UPDATE chat_messages SET author = ?2, name = ?3 WHERE id = ?1 AND key IS NOT NULL",
            )?
            .run(params![entry.id, author.to_string(), name])?;
        }
        self.index_again(entry.id)?;
        self.note_change(entry)?;
        self.entry(entry.chat, entry.seq)
    }

    /// Assigns a number to a change of an entry and notifies the chat's waiters.
    fn note_change(&mut self, entry: &ChatEntry) -> Result<(), StoreError> {
        self.prepare("UPDATE chats SET changes = changes + 1 WHERE id = ?1")?
            .run([entry.chat.0])?;
        self.prepare("UPDATE chat_messages SET changed = (SELECT changes FROM chats WHERE id = ?2) WHERE id = ?1")?
            .run(params![entry.id, entry.chat.0])?;
        self.notify(Topic::Chat(entry.chat));
        Ok(())
    }

    /// Pins or unpins an entry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn pin_entry(&mut self, entry: &ChatEntry, pinned: bool) -> Result<ChatEntry, StoreError> {
        self.prepare("UPDATE chat_messages SET pinned = ?2 WHERE id = ?1")?
            .run(params![entry.id, pinned])?;
        self.note_change(entry)?;
        self.entry(entry.chat, entry.seq)
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
