//! Announced reads. A round trip to the server takes longer than most reads. Those that a call will
//! make are therefore sent with the first read that is waited for, and their replies are kept until
//! a statement writes to one of their tables.

use super::{Bound, Error, PgConnection, Result, ServerRow, Value};
use crate::store::db::Params;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of announced reads, and of kept replies.
const AHEAD_MAX: usize = 64;

/// A query with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

/// The rows of a reply.
pub(super) type RowsAhead = Arc<Vec<ServerRow>>;

/// The announced reads of a transaction.
#[derive(Default)]
pub(super) struct Ahead {
    /// Whether reads are announced instead of made.
    is_announcing: Cell<bool>,
    /// Announced and not sent.
    waiting: RefCell<Vec<Read>>,
    /// The replies that are still valid.
    kept: RefCell<VecDeque<(Read, RowsAhead)>>,
}

/// What a statement changes.
#[derive(Debug, PartialEq, Eq)]
enum Written<'s> {
    Nothing,
    Table(&'s str),
    /// Possibly several tables.
    Any,
}

/// Returns the table that a statement changes. The removal of a row may remove rows of other
/// tables. The store has no `WITH` that writes.
fn written(sql: &str) -> Written<'_> {
    let sql = sql.trim_start();
    let named = |rest: &'_ str| -> usize {
        rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len())
    };
    match ["INSERT INTO ", "UPDATE "]
        .iter()
        .find_map(|verb| sql.strip_prefix(verb))
    {
        Some(rest) if named(rest) > 0 => Written::Table(&rest[..named(rest)]),
        None if ["SELECT", "WITH"].iter().any(|verb| sql.starts_with(verb)) => Written::Nothing,
        _ => Written::Any,
    }
}

/// Returns whether a statement contains a name as a word.
fn has_word(sql: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    sql.match_indices(name).any(|(at, _)| {
        !sql[..at].ends_with(is_part) && !sql[at + name.len()..].starts_with(is_part)
    })
}

impl Ahead {
    /// Drops the replies that a statement may change.
    pub(super) fn note(&self, sql: &str) {
        // The named table is the only one that an insert or an update changes: no trigger writes,
        // and reads of the numbers that a default advances are never announced.
        match written(sql) {
            Written::Nothing => {}
            Written::Table(table) => self
                .kept
                .borrow_mut()
                .retain(|(read, _)| !has_word(&read.sql, table)),
            Written::Any => self.kept.borrow_mut().clear(),
        }
    }

    /// Drops everything, at the end of a transaction.
    pub(super) fn clear(&self) {
        self.waiting.borrow_mut().clear();
        self.drop_replies();
    }

    /// Drops all replies.
    pub(super) fn drop_replies(&self) {
        self.kept.borrow_mut().clear();
    }

    pub(super) fn is_announcing(&self) -> bool {
        self.is_announcing.get()
    }

    /// Announces a read instead of making it. Fails, so that nothing is done with its reply.
    pub(super) fn announce(&self, sql: &str, values: impl Params) -> Error {
        let mut bound = Bound::default();
        // Numbers are counted here, so a read of them has to be made at its time.
        if written(sql) == Written::Nothing
            && !sql.contains("sqlite_sequence")
            && values.bind_to(&mut bound).is_ok()
        {
            let read = Read {
                sql: sql.to_owned(),
                values: bound.0,
            };
            let mut waiting = self.waiting.borrow_mut();
            if waiting.len() < AHEAD_MAX && !waiting.contains(&read) && self.kept(&read).is_none() {
                waiting.push(read);
            }
        }
        Error::Other("the read was only announced".to_owned())
    }

    /// Returns the reply to a read that was sent ahead.
    pub(super) fn kept(&self, read: &Read) -> Option<RowsAhead> {
        self.kept
            .borrow()
            .iter()
            .find(|(kept, _)| kept == read)
            .map(|(_, reply)| Arc::clone(reply))
    }

    /// Takes the reads to send with another one.
    pub(super) fn take(&self, with: &Read) -> Vec<Read> {
        self.waiting
            .take()
            .into_iter()
            .filter(|read| read != with)
            .collect()
    }

    /// Keeps a reply, in place of the oldest one if there are too many.
    pub(super) fn keep(&self, read: Read, rows: Vec<ServerRow>) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= AHEAD_MAX {
            kept.pop_front();
        }
        kept.push_back((read, Arc::new(rows)));
    }
}

/// Reads are announced while it exists.
struct Announcing<'a>(&'a Cell<bool>);

impl<'a> Announcing<'a> {
    fn begin(flag: &'a Cell<bool>) -> Self {
        flag.set(true);
        Self(flag)
    }
}

impl Drop for Announcing<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl PgConnection {
    /// Announces the reads that `work` makes.
    pub(in crate::store::db) fn announce(&self, work: impl FnOnce()) {
        // Only a transaction has an end at which the replies are dropped. Outside of one, a later
        // read could get a reply from before the commit of another session.
        if self.is_in_transaction() {
            // A guard, because the writer catches panics and uses the connection again: with the
            // flag still set, its later reads would only be announced.
            let _announcing = Announcing::begin(&self.ahead.is_announcing);
            work();
        }
    }

    /// Returns the texts in the first column of the reply to an announced read without parameters,
    /// if it has arrived.
    pub(in crate::store::db) fn known(&self, sql: &str) -> Option<Vec<String>> {
        let rows = self.ahead.kept(&Read {
            sql: sql.to_owned(),
            values: Vec::new(),
        })?;
        rows.iter()
            .map(|row| row.try_get::<_, String>(0).ok())
            .collect()
    }

    /// Refuses a write in a function that only announces reads.
    pub(super) fn check_announces_no_write(&self) -> Result<()> {
        if self.ahead.is_announcing() {
            Err(Error::Other("a write cannot be announced".to_owned()))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_table_is_known() {
        assert_eq!(
            written("INSERT INTO events (at) VALUES (?1)"),
            Written::Table("events")
        );
        assert_eq!(
            written(" UPDATE runs INDEXED BY runs_x SET a = 1"),
            Written::Table("runs")
        );
        assert_eq!(written("SELECT 1"), Written::Nothing);
        for other in ["DELETE FROM runs", "INSERT OR IGNORE INTO a VALUES (1)"] {
            assert_eq!(written(other), Written::Any, "{other}");
        }
    }

    #[test]
    fn tables_are_found_as_words() {
        assert!(
            has_word("SELECT 1 FROM runs", "runs")
                && has_word("FROM a JOIN runs r", "runs")
                && has_word("FROM runs, b", "runs")
        );
        assert!(
            !has_word("SELECT 1 FROM tree_runs", "runs")
                && !has_word("SELECT 1 FROM runs_old", "runs")
        );
    }
}
