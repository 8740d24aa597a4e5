//! Statistics of chats.

use crate::store::StoreError;
use crate::store::db::{self, Connection};
use adjutant_core::chat::ChatId;
use std::collections::BTreeMap;

/// The number of newest turns that are included.
const TURNS_MAX: i64 = 10_000;

/// Maximum number of participants that are listed.
const PARTICIPANTS_MAX: i64 = 20;

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
    /// The turns of all agents.
    pub turns: Turns,
    /// The participants that posted most.
    pub by_participant: Vec<ParticipantRow>,
}

/// Turns by their outcome.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    pub answered: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub open: i64,
    /// Answer times in ascending order.
    pub answer_ms: Vec<i64>,
}

impl Turns {
    fn count(&mut self, state: &str, answer_ms: Option<i64>) {
        match state {
            "answered" => {
                self.answered += 1;
                self.answer_ms.extend(answer_ms);
            }
            "failed" => self.failed += 1,
            "cancelled" => self.cancelled += 1,
            _ => self.open += 1,
        }
    }

    /// Returns an answer time that this percentage of the answers did not exceed.
    #[must_use]
    pub fn answer_ms_at(&self, percent: usize) -> Option<i64> {
        self.answer_ms
            .get((self.answer_ms.len().saturating_sub(1)) * percent / 100)
            .copied()
    }
}

/// One participant of one chat or of all chats.
#[derive(Debug, Clone)]
pub struct ParticipantRow {
    pub who: String,
    pub name: String,
    pub said: i64,
    /// `None`: it is not an agent, or has no turns.
    pub turns: Option<Turns>,
}

/// Reads the statistics of one chat, or of all chats.
///
/// # Errors
/// A failure of the store.
pub fn stats_of(connection: &Connection, chat: Option<ChatId>) -> Result<Stats, StoreError> {
    let chat = chat.map(|chat| chat.0);
    let (chats, entries, said, duration_ms) = connection
        .prepare_cached(
            "SELECT count(*), CASE WHEN EXISTS (SELECT 1 FROM eras)
                      THEN (SELECT count(*) FROM chat_messages m JOIN chats c ON c.id = m.chat WHERE c.importing IS NULL AND (CAST(?1 AS BIGINT) IS NULL OR c.id = ?1))
                      ELSE CAST(coalesce(sum(last_seq), 0) AS BIGINT) END, coalesce(sum(said), 0), coalesce(CAST(sum(last_at - started_at) AS BIGINT) / nullif(count(*), 0), 0)
             FROM chats WHERE importing IS NULL AND (CAST(?1 AS BIGINT) IS NULL OR id = ?1)",
        )?
        .read_row([chat])?;
    let mut stats = Stats {
        chats,
        entries,
        said,
        duration_ms,
        ..Stats::default()
    };
    stats.participants = connection
        .prepare_cached(
            "SELECT count(DISTINCT who) FROM chat_members WHERE joined_at IS NOT NULL AND (CAST(?1 AS BIGINT) IS NULL OR chat = ?1)
             AND chat NOT IN (SELECT id FROM chats WHERE importing IS NOT NULL)",
        )?
        .read_row([chat])?;
    let mut turns = connection.prepare_cached(
        "SELECT t.state, m.at - t.at, t.agent FROM (SELECT * FROM chat_turns WHERE CAST(?1 AS BIGINT) IS NULL OR chat = ?1 ORDER BY id DESC LIMIT ?2) t
         LEFT JOIN chat_messages m ON m.chat = t.chat AND m.seq = t.entry",
    )?;
    let mut rows = turns.query(db::params![chat, TURNS_MAX])?;
    let mut by_agent: BTreeMap<String, Turns> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (state, answer_ms, agent): (String, Option<i64>, String) = row.read()?;
        stats.turns.count(&state, answer_ms);
        by_agent
            .entry(format!("agent:{agent}"))
            .or_default()
            .count(&state, answer_ms);
    }
    by_agent
        .values_mut()
        .chain([&mut stats.turns])
        .for_each(|turns| turns.answer_ms.sort_unstable());
    stats.by_participant = participants(connection, chat, by_agent)?;
    Ok(stats)
}

/// Reads the participants that posted most, with the turns of each agent.
fn participants(
    connection: &Connection,
    chat: Option<i64>,
    mut by_agent: BTreeMap<String, Turns>,
) -> Result<Vec<ParticipantRow>, StoreError> {
    let found: Vec<(String, String, i64)> = connection
        .prepare_cached(
            "SELECT who, min(name), CAST(sum(said) AS BIGINT) AS posts FROM chat_members
             WHERE joined_at IS NOT NULL AND (CAST(?1 AS BIGINT) IS NULL OR chat = ?1) AND chat NOT IN (SELECT id FROM chats WHERE importing IS NOT NULL)
             GROUP BY who ORDER BY posts DESC, who LIMIT ?2",
        )?
        .read_rows(db::params![chat, PARTICIPANTS_MAX])?;
    Ok(found
        .into_iter()
        .map(|(who, name, said)| ParticipantRow {
            turns: by_agent.remove(&who),
            who,
            name,
            said,
        })
        .collect())
}
