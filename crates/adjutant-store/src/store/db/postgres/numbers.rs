//! The numbers of new rows. The session that writes is the only one that numbers rows, so it counts
//! by itself, without asking the server for each number. The counters are stored with the
//! transaction that used them.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The last used numbers of tables.
#[derive(Default)]
pub(super) struct Numbers {
    counters: RefCell<BTreeMap<String, Counter>>,
    /// Those at the last savepoint.
    at_savepoint: RefCell<BTreeMap<String, i64>>,
}

struct Counter {
    last: i64,
    is_stored: bool,
}

impl Counter {
    /// Returns the counter to store, unless it is stored.
    fn take_unstored(&mut self, table: &str) -> Option<(String, i64)> {
        let counter = (!self.is_stored).then(|| (table.to_owned(), self.last));
        self.is_stored = true;
        counter
    }
}

impl Numbers {
    /// Returns the next number of a table. `None`: its last one is not known yet.
    pub(super) fn next(&self, table: &str) -> Option<i64> {
        let mut counters = self.counters.borrow_mut();
        let counter = counters.get_mut(table)?;
        counter.last += 1;
        counter.is_stored = false;
        Some(counter.last)
    }

    /// Learns the last used number of a table.
    pub(super) fn learn(&self, table: &str, last: i64) {
        self.counters.borrow_mut().insert(
            table.to_owned(),
            Counter {
                last,
                is_stored: true,
            },
        );
    }

    /// Returns the tables with numbers that were counted and not stored, with the last number of
    /// each.
    pub(super) fn to_store(&self) -> Vec<(String, i64)> {
        self.counters
            .borrow_mut()
            .iter_mut()
            .filter_map(|(table, counter)| counter.take_unstored(table))
            .collect()
    }

    /// Returns the last numbers that are known.
    pub(super) fn last(&self) -> Vec<(String, i64)> {
        self.counters
            .borrow()
            .iter()
            .map(|(table, counter)| (table.clone(), counter.last))
            .collect()
    }

    /// Prepares for a statement that numbers rows on the server or reads the counters. Returns what
    /// must be stored before it.
    pub(super) fn yield_to(&self, sql: &str) -> Vec<(String, i64)> {
        let sql = sql.trim_start();
        if sql.contains("sqlite_sequence") {
            let counters = self.to_store();
            if !sql.starts_with("SELECT") {
                self.forget();
            }
            return counters;
        }
        let table = sql
            .strip_prefix("INSERT INTO ")
            .and_then(|rest| rest.split([' ', '(']).next());
        let counter = table.and_then(|table| self.counters.borrow_mut().remove_entry(table));
        counter
            .and_then(|(table, mut counter)| counter.take_unstored(&table))
            .into_iter()
            .collect()
    }

    /// Remembers what was counted before a savepoint.
    pub(super) fn mark(&self) {
        *self.at_savepoint.borrow_mut() = self
            .counters
            .borrow()
            .iter()
            .map(|(table, counter)| (table.clone(), counter.last))
            .collect();
    }

    /// Continues after a return to the savepoint, which has undone what was stored since.
    pub(super) fn return_to_mark(&self) {
        let mut counters = self.counters.borrow_mut();
        for (table, last) in &*self.at_savepoint.borrow() {
            let counter = counters.entry(table.clone()).or_insert(Counter {
                last: *last,
                is_stored: false,
            });
            counter.last = counter.last.max(*last);
        }
        counters
            .values_mut()
            .for_each(|counter| counter.is_stored = false);
    }

    /// Forgets all numbers, because the transaction was rolled back or another statement may have
    /// used numbers.
    pub(super) fn forget(&self) {
        self.counters.borrow_mut().clear();
    }
}

/// Returns the table into which a statement inserts one row of values, and the statement with the
/// row's number as an additional last value.
pub(super) fn with_number<'s>(
    sql: &'s str,
    column: &str,
    values: usize,
) -> Option<(&'s str, String)> {
    let (table, rest) = sql
        .trim_start()
        .strip_prefix("INSERT INTO ")?
        .split_once(" (")?;
    let (columns, rest) = rest.split_once(')')?;
    let rest = rest.trim_start().strip_prefix("VALUES (")?;
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_name(table).then(|| {
        (
            table,
            format!(
                "INSERT INTO {table} ({column}, {columns}) VALUES (?{}, {rest}",
                values + 1
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_stored_once_and_forgotten() {
        let numbers = Numbers::default();
        assert_eq!(numbers.next("events"), None);
        numbers.learn("events", 7);
        assert!(numbers.to_store().is_empty());
        assert_eq!(
            (numbers.next("events"), numbers.next("events")),
            (Some(8), Some(9))
        );
        assert_eq!(numbers.to_store(), [("events".to_owned(), 9)]);
        assert!(numbers.to_store().is_empty());
        numbers.forget();
        assert_eq!(numbers.next("events"), None);
    }

    #[test]
    fn statements_that_number_rows_on_the_server_come_after_the_counters() {
        let numbers = Numbers::default();
        numbers.learn("events", 7);
        numbers.learn("requests", 1);
        assert_eq!(numbers.next("events"), Some(8));
        assert!(
            numbers
                .yield_to("INSERT INTO keys (key) VALUES (?1)")
                .is_empty()
        );
        assert!(numbers.yield_to("UPDATE events SET text = ''").is_empty());
        assert_eq!(
            numbers
                .yield_to("INSERT INTO events (at) VALUES (?1)")
                .len(),
            1
        );
        assert_eq!(
            (numbers.next("events"), numbers.next("requests")),
            (None, Some(2))
        );
        assert_eq!(
            numbers
                .yield_to("SELECT max(seq) FROM sqlite_sequence")
                .len(),
            1
        );
        assert_eq!(numbers.next("requests"), Some(3));
        assert_eq!(
            numbers.yield_to("UPDATE sqlite_sequence SET seq = 9").len(),
            1
        );
        assert_eq!(numbers.next("requests"), None);
    }

    #[test]
    fn counters_outlive_a_return_to_a_savepoint() {
        let numbers = Numbers::default();
        numbers.learn("events", 7);
        assert_eq!(numbers.next("events"), Some(8));
        numbers.mark();
        assert_eq!(numbers.next("events"), Some(9));
        assert_eq!(
            numbers.yield_to("INSERT INTO events (at) VALUES (?1)"),
            [("events".to_owned(), 9)]
        );
        numbers.return_to_mark();
        assert_eq!(numbers.to_store(), [("events".to_owned(), 8)]);
        numbers.return_to_mark();
        assert_eq!(
            (numbers.to_store(), numbers.next("events")),
            (vec![("events".to_owned(), 8)], Some(9))
        );
    }

    #[test]
    fn only_an_insert_of_one_row_gets_a_number() {
        let (table, sql) = with_number("INSERT INTO events (at, kind) VALUES (?1, ?2)", "seq", 2)
            .expect("one row");
        assert_eq!(
            (table, sql.as_str()),
            (
                "events",
                "INSERT INTO events (seq, at, kind) VALUES (?3, ?1, ?2)"
            )
        );
        assert_eq!(
            with_number("INSERT INTO outbox (id) SELECT id FROM runs", "no", 0),
            None
        );
        assert_eq!(
            with_number("UPDATE hub SET epoch = epoch + 1", "epoch", 0),
            None
        );
    }
}
