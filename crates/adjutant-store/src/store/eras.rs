//! The eras of a store: a new one begins when its database turns out to have been set back (see
//! [`adjutant_core::confirmed`]).

use super::db::{Connection, params};
use super::{Chat, StoreError, Tx, last_seq};
use adjutant_core::Time;
use adjutant_core::confirmed::{Confirmed, NumberGap};
use std::collections::{BTreeMap, BTreeSet};

/// A time between two moments at which the database was set back. Only those that began so are
/// listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Era {
    pub number: i64,
    pub began_at: Time,
    /// The numbers that were left out, by table.
    pub gaps: BTreeMap<String, NumberGap>,
}

impl Era {
    /// Returns the gap in the numbers of a table.
    #[must_use]
    pub fn gap(&self, table: &str) -> Option<NumberGap> {
        self.gaps.get(table).copied()
    }
}

/// Reads the eras, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn eras(connection: &Connection) -> Result<Vec<Era>, StoreError> {
    let rows: Vec<(i64, i64, String)> = connection
        .prepare_cached("SELECT era, began_at, gaps FROM eras ORDER BY era")?
        .read_rows([])?;
    let era = |(number, began_at, gaps): (i64, i64, String)| {
        let gaps: BTreeMap<String, (i64, i64)> = serde_json::from_str(&gaps).map_err(|error| {
            StoreError::Corrupt(format!("the numbers left out by era {number}: {error}"))
        })?;
        let gaps = gaps
            .into_iter()
            .map(|(table, (last, start))| (table, NumberGap { last, start }))
            .collect();
        Ok(Era {
            number,
            began_at: Time(began_at),
            gaps,
        })
    };
    rows.into_iter().map(era).collect()
}

/// Begins an era: the numbers of all tables and of the entries of chats continue above those that
/// can have been given out.
pub(super) fn begin(tx: &Tx<'_>, known: &Confirmed) -> Result<Era, StoreError> {
    let last: Vec<(String, i64)> = tx
        .prepare("SELECT name, max(seq) FROM sqlite_sequence GROUP BY name ORDER BY name")?
        .read_rows([])?;
    let last: BTreeMap<String, i64> = last.into_iter().collect();
    // A table that was first numbered after the time to which the database was set back is only in
    // the note.
    let tables: BTreeSet<&String> = last.keys().chain(known.numbers.keys()).collect();
    let of =
        |numbers: &BTreeMap<String, i64>, table: &str| numbers.get(table).copied().unwrap_or(0);
    let gaps: BTreeMap<String, NumberGap> = tables
        .into_iter()
        .map(|table| {
            (
                table.clone(),
                NumberGap::after(of(&last, table), of(&known.numbers, table)),
            )
        })
        .collect();
    for (table, gap) in &gaps {
        let known = if last.contains_key(table) {
            "UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1"
        } else {
            "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)"
        };
        tx.prepare(known)?.execute(params![table, gap.start])?;
    }
    if let Some(gap) = gaps.get("chat_messages") {
        // A board is read by its changes. The entries of followed chats are numbered by their hubs.
        let sql = "UPDATE chats SET changes = changes + ?1, last_seq = CASE WHEN kind = 'board' THEN last_seq ELSE last_seq + ?1 END
                   WHERE (linked IS NULL OR linked = 'shared') AND importing IS NULL";
        tx.prepare(sql)?.execute([gap.start - gap.last])?;
    }
    let newest: i64 = tx
        .prepare("SELECT coalesce(max(era), 0) FROM eras")?
        .read_row([])?;
    // An era that the database has lost as well is not begun a second time.
    let number = newest.max(known.era) + 1;
    let text: BTreeMap<&String, (i64, i64)> = gaps
        .iter()
        .map(|(table, gap)| (table, (gap.last, gap.start)))
        .collect();
    let text =
        serde_json::to_string(&text).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    tx.prepare("INSERT INTO eras (era, began_at, gaps) VALUES (?1, ?2, ?3)")?
        .execute(params![number, tx.now().0, text])?;
    Ok(Era {
        number,
        began_at: tx.now(),
        gaps,
    })
}

/// Returns the era that began because the database lost the row with this number.
#[must_use]
pub fn era_that_lost<'e>(eras: &'e [Era], table: &str, number: i64) -> Option<&'e Era> {
    eras.iter()
        .find(|era| era.gap(table).is_some_and(|gap| gap.contains(number)))
}

/// A position in a history, as a caller gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The position after which everything is new to the caller.
    pub after: i64,
    /// The caller knows of things that the database has lost, or that another one has.
    pub is_reset: bool,
}

/// Returns the position after an event that a caller knows.
///
/// # Errors
/// A failure of the store.
pub fn position_in_events(
    connection: &Connection,
    eras: &[Era],
    after: i64,
) -> Result<Position, StoreError> {
    let lost = era_that_lost(eras, "events", after).and_then(|era| era.gap("events"));
    let last = last_seq(connection)?.0;
    Ok(match lost {
        Some(gap) => Position {
            after: gap.last,
            is_reset: true,
        },
        None => Position {
            after: after.min(last),
            is_reset: after > last,
        },
    })
}

/// Returns the position after an entry of a chat that a caller knows.
///
/// # Errors
/// A failure of the store.
pub fn position_in_chat(
    connection: &Connection,
    eras: &[Era],
    chat: &Chat,
    after: i64,
) -> Result<Position, StoreError> {
    if eras.is_empty() || after <= 0 || after == chat.last_seq {
        return Ok(Position {
            after,
            is_reset: false,
        });
    }
    let before: Option<i64> = connection
        .prepare_cached("SELECT max(seq) FROM chat_messages WHERE chat = ?1 AND seq <= ?2")?
        .read_row(params![chat.id.0, after])?;
    let before = before.unwrap_or(0);
    Ok(Position {
        after: before,
        is_reset: before != after,
    })
}

/// Counts the entries of a chat after one.
///
/// # Errors
/// A failure of the store.
pub fn entries_beyond(
    connection: &Connection,
    eras: &[Era],
    chat: &Chat,
    seq: i64,
) -> Result<i64, StoreError> {
    if eras.is_empty() || seq >= chat.last_seq {
        return Ok((chat.last_seq - seq).max(0));
    }
    let sql = "SELECT count(*) FROM chat_messages WHERE chat = ?1 AND seq > ?2";
    Ok(connection
        .prepare_cached(sql)?
        .read_row(params![chat.id.0, seq])?)
}
