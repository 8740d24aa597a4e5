//! Statistics of chats.

use crate::store::StoreError;
use crate::store::db::{self, Connection};
use adjutant_core::chat::ChatId;

/// The number of newest turns that are included.
const TURNS_MAX: i64 = 10_000;

/// Statistics of one chat, or of all chats.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub chats: i64,
    /// Entries of all kinds.
    pub entries: i64,
    /// Messages and answers.
    pub said: i64,
    /// Different participants.
    pub participants: i64,
    /// Time from the first to the last entry; the mean if there are several chats.
    pub duration_ms: i64,
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    /// Answer times in ascending order.
    pub answer_ms: Vec<i64>,
}

/// Reads the statistics of one chat, or of all chats.
///
/// # Errors
/// A failure of the store.
pub fn stats_of(connection: &Connection, chat: Option<ChatId>) -> Result<Stats, StoreError> {
    let chat = chat.map(|chat| chat.0);
    let mut stats = connection
        .prepare_cached(
            "SELECT count(*), coalesce(sum(last_seq), 0), coalesce(sum(said), 0), coalesce(CAST(sum(last_at - started_at) AS BIGINT) / nullif(count(*), 0), 0)
             FROM chats WHERE importing IS NULL AND (CAST(?1 AS BIGINT) IS NULL OR id = ?1)",
        )?
        .query_row([chat], |row| {
            Ok(Stats { chats: row.get(0)?, entries: row.get(1)?, said: row.get(2)?, duration_ms: row.get(3)?, ..Stats::default() })
        })?;
    stats.participants = connection
        .prepare_cached(
            "SELECT count(DISTINCT who) FROM chat_members WHERE joined_at IS NOT NULL AND (CAST(?1 AS BIGINT) IS NULL OR chat = ?1)
             AND chat NOT IN (SELECT id FROM chats WHERE importing IS NOT NULL)",
        )?
        .query_row([chat], |row| row.get(0))?;
    let mut turns = connection.prepare_cached(
        "SELECT t.state, m.at - t.at FROM (SELECT * FROM chat_turns WHERE CAST(?1 AS BIGINT) IS NULL OR chat = ?1 ORDER BY id DESC LIMIT ?2) t
         LEFT JOIN chat_messages m ON m.chat = t.chat AND m.seq = t.entry",
    )?;
    let mut rows = turns.query(db::params![chat, TURNS_MAX])?;
    while let Some(row) = rows.next()? {
        match row.get::<String>(0)?.as_str() {
            "answered" => {
                stats.answered += 1;
                stats.answer_ms.extend(row.get::<Option<i64>>(1)?);
            }
            "failed" => stats.failed += 1,
            "cancelled" => stats.cancelled += 1,
            _ => stats.open += 1,
        }
    }
    stats.answer_ms.sort_unstable();
    Ok(stats)
}
