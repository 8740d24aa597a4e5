//! Messages to a run, queued until they are delivered.

use super::{Run, StoreError, Tx, append_event};
use crate::store::db::{Connection, params, row, select};
use adjutant_core::chat::{ChatId, Receipt};
use adjutant_core::{EventKind, Principal, RequestId, RunId, Time};

/// Maximum number of undelivered messages of a run that other runs and chats cause.
pub const QUEUED_MAX: usize = 100;

row! {
    /// One message to a run.
    #[derive(Debug, Clone)]
    pub struct Message, named "message of run {}" {
        pub run: RunId,
        pub id: String,
        pub sender: String,
        pub text: String,
        pub sent_at: Time,
        /// `queued`, `live` or `tool_result`.
        pub delivery: String,
        pub delivered_at: Option<Time>,
    }
}

/// Reads a run's queued messages, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn queued_messages(connection: &Connection, run: RunId) -> Result<Vec<Message>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            Message,
            "FROM messages WHERE run = ?1 AND delivery = 'queued' ORDER BY no LIMIT 100"
        ))?
        .read_rows([run.to_string()])?)
}

/// Returns whether a run has queued messages.
///
/// # Errors
/// A failure of the store.
pub fn has_queued_messages(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM messages WHERE run = ?1 AND delivery = 'queued'")?
        .exists([run.to_string()])?)
}

/// Returns whether a run has fewer undelivered messages than [`QUEUED_MAX`].
///
/// # Errors
/// A failure of the store.
pub fn has_capacity_for_message(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(queued_messages(connection, run)?.len() < QUEUED_MAX)
}

/// Returns whether a run was given messages that carry chat entries, and has not acted since.
///
/// # Errors
/// A failure of the store.
pub fn has_unread_notes(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM messages WHERE run = ?1 AND note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued'";
    Ok(connection.prepare_cached(sql)?.exists([run.to_string()])?)
}

/// Reads the newest `limit` messages that were delivered to a run, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn delivered_messages(
    connection: &Connection,
    run: RunId,
    limit: u32,
) -> Result<Vec<Message>, StoreError> {
    let mut newest: Vec<Message> = connection
        .prepare_cached(select!(
            Message,
            "FROM messages WHERE run = ?1 AND delivery <> 'queued' ORDER BY no DESC LIMIT ?2"
        ))?
        .read_rows(params![run.to_string(), limit])?;
    newest.reverse();
    Ok(newest)
}

/// Reads messages by their ids, in that order.
///
/// # Errors
/// A failure of the store.
pub fn messages_by_id(connection: &Connection, ids: &[String]) -> Result<Vec<Message>, StoreError> {
    let mut statement =
        connection.prepare_cached(select!(Message, "FROM messages WHERE id = ?1"))?;
    ids.iter()
        .filter_map(|id| {
            statement
                .find_row([id])
                .map_err(StoreError::from)
                .transpose()
        })
        .collect()
}

/// The receipt of a chat entry that was sent to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteReceipt {
    pub run: RunId,
    pub name: String,
    pub receipt: Receipt,
    /// When that happened.
    pub at: Time,
    /// Whether the run has ended and cannot resume.
    pub has_ended: bool,
}

/// Reads the receipts of a chat entry, one for each run that it was sent to.
///
/// # Errors
/// A failure of the store.
pub fn receipts_of(connection: &Connection, entry: i64) -> Result<Vec<NoteReceipt>, StoreError> {
    type Row = (RunId, String, Time, Option<Time>, Option<Time>, bool, Time);
    let rows: Vec<Row> = connection
        .prepare_cached(
            "SELECT r.id, r.name, m.sent_at, m.delivered_at, m.read_at, r.state = 'finished', r.updated_at
             FROM messages m JOIN runs r ON r.id = m.run WHERE m.note_of = ?1 ORDER BY m.no",
        )?
        .read_rows([entry])?;
    let receipt = |(run, name, sent, delivered, read, has_ended, updated): Row| {
        let receipt = Receipt::of(delivered.is_some(), read.is_some(), has_ended);
        let at = match receipt {
            Receipt::Accepted | Receipt::NotSent => sent,
            Receipt::HandedOver => delivered.unwrap_or(sent),
            Receipt::Read => read.unwrap_or(sent),
            Receipt::RunEnded => updated,
        };
        Ok(NoteReceipt {
            run,
            name,
            receipt,
            at,
            has_ended,
        })
    };
    rows.into_iter().map(receipt).collect()
}

/// Reads the queued messages of a run that carry these entries of a chat.
pub(super) fn messages_with_entries(
    connection: &Connection,
    run: RunId,
    chat: ChatId,
    first: i64,
    last: i64,
) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT q.id FROM messages q JOIN chat_messages m ON m.id = q.entry
             WHERE q.run = ?1 AND q.delivery = 'queued' AND m.chat = ?2 AND m.seq BETWEEN ?3 AND ?4",
        )?
        .read_rows(params![run.to_string(), chat.0, first, last])?)
}

/// Marks a queued message as delivered. Returns the chat entry that it carries, if any. `None`: it
/// is not queued.
pub(super) fn mark_delivered(
    tx: &mut Tx<'_>,
    run: RunId,
    id: &str,
    how: &'static str,
) -> Result<Option<Option<i64>>, StoreError> {
    Ok(tx
        .prepare("UPDATE messages SET delivery = ?3, delivered_at = ?4 WHERE id = ?1 AND run = ?2 AND delivery = 'queued' RETURNING entry")?
        .find_row(params![id, run.to_string(), how, tx.now().0])?)
}

/// Records that a run has read a message.
pub(super) fn set_message_read(tx: &mut Tx<'_>, id: &str) -> Result<(), StoreError> {
    tx.prepare("UPDATE messages SET read_at = coalesce(read_at, ?2) WHERE id = ?1")?
        .run(params![id, tx.now().0])?;
    Ok(())
}

impl Tx<'_> {
    /// Queues a message for a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn send_message(
        &mut self,
        run: &Run,
        by: &Principal,
        id: RequestId,
        text: &str,
    ) -> Result<Message, StoreError> {
        self.send_text(run, &by.to_string(), id, text)
    }

    /// Queues a message for a run, from a sender of this name.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn send_text(
        &mut self,
        run: &Run,
        sender: &str,
        id: RequestId,
        text: &str,
    ) -> Result<Message, StoreError> {
        let message = Message {
            id: id.to_string(),
            run: run.id,
            sender: sender.to_owned(),
            text: text.to_owned(),
            sent_at: self.now(),
            delivery: "queued".to_owned(),
            delivered_at: None,
        };
        self.prepare(
            "INSERT INTO messages (id, run, sender, text, sent_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .insert(
            "no",
            params![
                message.id,
                run.id.to_string(),
                message.sender,
                text,
                self.now().0
            ],
        )?;
        let seq = append_event(
            self,
            EventKind::MessageSent,
            run.id,
            &run.owner.to_string(),
            None,
            &message.sender,
            &super::events::first_line(text),
        )?;
        self.touch(run.id, seq)?;
        Ok(message)
    }

    /// Queues a message for a run that carries a chat entry, whole or cut.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn send_entry(
        &mut self,
        run: &Run,
        by: &Principal,
        id: RequestId,
        text: &str,
        entry: i64,
        is_whole: bool,
    ) -> Result<(), StoreError> {
        let message = self.send_message(run, by, id, text)?;
        let update =
            "UPDATE messages SET note_of = ?2, entry = CASE WHEN ?3 = 1 THEN ?2 END WHERE id = ?1";
        self.prepare(update)?
            .run(params![message.id, entry, is_whole])?;
        Ok(())
    }

    /// Records that a run has acted after it was given its messages: it has read them.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_messages_read(&mut self, run: RunId) -> Result<(), StoreError> {
        Ok(self.connection().run_if(
            "SELECT 1 FROM messages WHERE run = ?1 AND note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued' AND ?2 > 0",
            "UPDATE messages SET read_at = ?2 WHERE run = ?1 AND note_of IS NOT NULL AND read_at IS NULL AND delivery <> 'queued'",
            (run.to_string(), self.now().0),
        )?)
    }
}
