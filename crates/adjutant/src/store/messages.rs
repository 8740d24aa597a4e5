//! Messages to a run, queued until they are delivered.

use super::{Run, StoreError, Tx, append_event, entry_by_id};
use adjutant_core::chat::{ChatId, Participant};
use adjutant_core::{EventKind, Principal, RequestId, RunId, Time};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// One message to a run.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: String,
    pub run: RunId,
    pub sender: String,
    pub text: String,
    pub sent_at: Time,
    /// `queued`, `live` or `tool_result`.
    pub delivery: String,
    pub delivered_at: Option<Time>,
}

const COLUMNS: &str = "SELECT id, run, sender, text, sent_at, delivery, delivered_at FROM messages";

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Message, StoreError>> {
    let run: String = row.get(1)?;
    let (id, sender, text, sent_at, delivery): (String, String, String, i64, String) =
        (row.get(0)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
    let delivered_at: Option<i64> = row.get(6)?;
    Ok(RunId::parse(&run)
        .map(|run| Message { id, run, sender, text, sent_at: Time(sent_at), delivery, delivered_at: delivered_at.map(Time) })
        .map_err(|_| StoreError::Corrupt(format!("message of run {run}"))))
}

/// Reads a run's queued messages, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn queued_messages(connection: &Connection, run: RunId) -> Result<Vec<Message>, StoreError> {
    connection
        .prepare_cached(&format!("{COLUMNS} WHERE run = ?1 AND delivery = 'queued' ORDER BY no LIMIT 100"))?
        .query_map([run.to_string()], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect()
}

/// Returns whether a run has queued messages.
///
/// # Errors
/// A failure of the store.
pub fn has_queued_messages(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached("SELECT 1 FROM messages WHERE run = ?1 AND delivery = 'queued'")?.exists([run.to_string()])?)
}

/// Reads the newest `limit` messages that were delivered to a run, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn delivered_messages(connection: &Connection, run: RunId, limit: u32) -> Result<Vec<Message>, StoreError> {
    let mut newest: Vec<Message> = connection
        .prepare_cached(&format!("{COLUMNS} WHERE run = ?1 AND delivery <> 'queued' ORDER BY no DESC LIMIT ?2"))?
        .query_map(params![run.to_string(), limit], read)?
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .collect::<Result<_, _>>()?;
    newest.reverse();
    Ok(newest)
}

/// Reads messages by their ids, in that order.
///
/// # Errors
/// A failure of the store.
pub fn messages_by_id(connection: &Connection, ids: &[String]) -> Result<Vec<Message>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{COLUMNS} WHERE id = ?1"))?;
    ids.iter().filter_map(|id| statement.query_row([id], read).optional().map_err(StoreError::from).and_then(Option::transpose).transpose()).collect()
}

impl Tx<'_> {
    /// Queues a message for a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn send_message(&mut self, run: &Run, by: &Principal, id: RequestId, text: &str) -> Result<Message, StoreError> {
        let message = Message {
            id: id.to_string(),
            run: run.id,
            sender: by.to_string(),
            text: text.to_owned(),
            sent_at: self.now(),
            delivery: "queued".to_owned(),
            delivered_at: None,
        };
        self.prepare("INSERT INTO messages (id, run, sender, text, sent_at) VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            message.id,
            run.id.to_string(),
            message.sender,
            text,
            self.now().0
        ])?;
        let seq =
            append_event(self, EventKind::MessageSent, run.id, &run.owner.to_string(), None, &message.sender, &super::events::first_line(text))?;
        self.touch(run.id, seq)?;
        Ok(message)
    }

    /// Queues a message for a run that carries a chat entry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn send_entry(&mut self, run: &Run, by: &Principal, id: RequestId, text: &str, entry: Option<i64>) -> Result<(), StoreError> {
        let message = self.send_message(run, by, id, text)?;
        if let Some(entry) = entry {
            self.prepare("UPDATE messages SET entry = ?2 WHERE id = ?1")?.execute(params![message.id, entry])?;
        }
        Ok(())
    }

    /// Marks messages as delivered if the run has read their entries in the chat.
    ///
    /// # Errors
    /// A failure of the store.
    pub(super) fn deliver_entries(&mut self, run: RunId, chat: ChatId, first: i64, last: i64) -> Result<(), StoreError> {
        let ids: Vec<String> = self
            .prepare(
                "SELECT q.id FROM messages q JOIN chat_messages m ON m.id = q.entry
                 WHERE q.run = ?1 AND q.delivery = 'queued' AND m.chat = ?2 AND m.seq BETWEEN ?3 AND ?4",
            )?
            .query_map(params![run.to_string(), chat.0, first, last], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if ids.is_empty() {
            return Ok(());
        }
        let run = self.run(run)?;
        self.deliver_messages(&run, &ids, "tool_result")
    }

    /// Marks queued messages as delivered; repeating the call has no effect. A chat entry that a message carries
    /// then counts as read.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn deliver_messages(&mut self, run: &Run, ids: &[String], how: &'static str) -> Result<(), StoreError> {
        for id in ids {
            let delivered: Option<Option<i64>> = self
                .prepare("UPDATE messages SET delivery = ?3, delivered_at = ?4 WHERE id = ?1 AND run = ?2 AND delivery = 'queued' RETURNING entry")?
                .query_row(params![id, run.id.to_string(), how, self.now().0], |row| row.get(0))
                .optional()?;
            let Some(entry) = delivered else { continue };
            if let Some(entry) = entry.map(|entry| entry_by_id(self.connection(), entry)).transpose()?.flatten() {
                let reader = Participant::Principal(Principal::Run(run.id));
                self.read_chat(entry.chat, &reader, &run.name, entry.seq, entry.seq)?;
            }
            let seq = append_event(self, EventKind::MessageDelivered, run.id, &run.owner.to_string(), None, "supervisor", how)?;
            self.touch(run.id, seq)?;
        }
        Ok(())
    }
}
