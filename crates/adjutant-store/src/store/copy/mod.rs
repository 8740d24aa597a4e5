//! Copies the store from one place to another, between engines too. The source is only read, after
//! its migration. The target gets all rows in one transaction, which is committed if both sides
//! have the same rows.

mod insert;
mod tally;

use super::db::{self, Connection, Value};
use super::search::text_for_index;
use super::{ConfirmedNote, StoreError, StoreLocation, Tx};
use crate::clock;
use crate::failpoint::failpoint;
use insert::Inserter;
use tally::Tally;

/// Tables that the target makes itself: its session, the hubs that use it, its counters, and its
/// index of chat entries.
const OWN: &[&str] = &[
    "hub",
    "hubs",
    "leads",
    "sqlite_sequence",
    "chat_fts",
    "chat_seen",
];
/// Tables that have rows in a store without runs and chats. They are replaced.
const STANDING: &[&str] = &["clock", "search_seen"];
/// The index of documents, whose text each engine has in a form of its own.
const INDEX: &str = "search_fts";
/// How many rows are copied between two reports of the progress.
const REPORT_EVERY: u64 = 1_000;

/// What was copied.
#[derive(Debug)]
pub struct Copied {
    pub tables: Vec<CopiedTable>,
    /// The number of texts in which NUL characters were replaced by U+FFFD, because PostgreSQL
    /// stores none.
    pub replaced_texts: u64,
}

/// One table of a copied store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTable {
    pub name: String,
    pub rows: u64,
    /// A hash of the rows in any order, in hexadecimal.
    pub hash: String,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    pub table: &'a str,
    pub rows: u64,
    pub rows_total: u64,
    /// The rows are read again from the target and compared.
    pub is_check: bool,
}

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("there is no store to copy")]
    NoSource,
    #[error("the target is not empty: its table {table} has {rows} rows")]
    TargetInUse { table: String, rows: u64 },
    #[error("the tables {table} of the source and of the target have different columns")]
    Columns { table: String },
    #[error("the rows of table {table} differ after the copy, so it was undone")]
    Differs { table: String },
    #[error("table {table}: {source}")]
    Table { table: String, source: StoreError },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<db::Error> for CopyError {
    fn from(error: db::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Copies a store. The caller holds the lock of the home; databases on servers are locked here.
/// Both places are migrated to the newest schema first. Blocks.
///
/// # Errors
/// There is no source, the target has rows, the copy differs from the source, or a failure of a
/// store. The target has then the rows that it had before.
pub fn copy(
    from: &StoreLocation,
    to: &StoreLocation,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Copied, CopyError> {
    if !from.has_store()? {
        return Err(CopyError::NoSource);
    }
    let note = ConfirmedNote::in_memory();
    let source = from.writable(None, &ConfirmedNote::in_memory())?;
    let target = to.writable(None, &note)?;
    source.begin_read()?;
    target.begin_write()?;
    let copied = copy_all(&source, &target, report)?;
    source.end_read()?;
    failpoint!("store.before_commit");
    match target.commit() {
        Ok(()) => Ok(copied),
        Err(lost @ db::Error::Lost(_)) => {
            // The server may have committed before the connection was lost. A new session knows.
            let replaced = target.replaced();
            let is_committed = to.writable(replaced.as_ref(), &note)?.last_transaction()
                == replaced.map(|replaced| replaced.transaction);
            if is_committed {
                Ok(copied)
            } else {
                Err(lost.into())
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn copy_all(
    source: &Connection,
    target: &Connection,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Copied, CopyError> {
    let tables: Vec<&str> = db::tables().filter(|table| !OWN.contains(table)).collect();
    for table in &tables {
        empty(target, table)?;
    }
    let mut copied = Copied {
        tables: Vec::new(),
        replaced_texts: 0,
    };
    for table in tables {
        let copy = TableCopy::plan(source, target, table)?;
        copied
            .tables
            .push(copy.run(&mut copied.replaced_texts, report)?);
    }
    copy_counters(source, target)?;
    target.execute("UPDATE chat_seen SET entry = 0", [])?;
    Tx::new(target, clock::moment(), true).index_entries()?;
    Ok(copied)
}

/// Removes the standing rows of a table. Other rows are not replaced.
fn empty(target: &Connection, table: &str) -> Result<(), CopyError> {
    let rows = count(target, table)?;
    if STANDING.contains(&table) {
        target.execute(&format!("DELETE FROM \"{table}\""), [])?;
    } else if rows > 0 {
        return Err(CopyError::TargetInUse {
            table: table.to_owned(),
            rows,
        });
    }
    Ok(())
}

/// The copy of one table.
struct TableCopy<'c> {
    source: &'c Connection,
    target: &'c Connection,
    table: &'c str,
    columns: Vec<db::Column>,
    /// The same columns of the target, with its types.
    written: Vec<db::Column>,
    /// Reads the rows, on both sides.
    select: String,
    rows_total: u64,
}

impl<'c> TableCopy<'c> {
    /// Checks that both sides have the same columns.
    fn plan(
        source: &'c Connection,
        target: &'c Connection,
        table: &'c str,
    ) -> Result<Self, CopyError> {
        let columns = columns(source, table)?;
        let written = self::columns(target, table)?;
        if sorted(&columns) != sorted(&written) {
            return Err(CopyError::Columns {
                table: table.to_owned(),
            });
        }
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let select = format!(
            "SELECT \"{}\" FROM \"{table}\" ORDER BY 1",
            names.join("\", \"")
        );
        Ok(Self {
            source,
            target,
            table,
            rows_total: count(source, table)?,
            columns,
            written,
            select,
        })
    }

    /// Copies the rows, and checks that the target has them.
    fn run(
        &self,
        replaced_texts: &mut u64,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> Result<CopiedTable, CopyError> {
        let failed = |source: db::Error| CopyError::Table {
            table: self.table.to_owned(),
            source: source.into(),
        };
        let copied = self.copy_rows(replaced_texts, report).map_err(failed)?;
        let found = self.read_copy(report).map_err(failed)?;
        if found != copied || copied.rows() != self.rows_total {
            return Err(CopyError::Differs {
                table: self.table.to_owned(),
            });
        }
        Ok(CopiedTable {
            name: self.table.to_owned(),
            rows: copied.rows(),
            hash: copied.hash(),
        })
    }

    fn copy_rows(
        &self,
        replaced_texts: &mut u64,
        report: &mut dyn FnMut(Progress<'_>),
    ) -> db::Result<Tally> {
        let names: Vec<&str> = self
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let mut tally = Tally::default();
        let mut rows = Inserter::new(self.target, self.table, &names, &self.written);
        self.source.scan(&self.select, |row| {
            let mut values: Vec<Value> = row.values()?;
            if self.table == INDEX {
                convert_indexed(&mut values, &names, self.target);
            }
            *replaced_texts += values
                .iter_mut()
                .map(|value| u64::from(self.target.replace_nul(value)))
                .sum::<u64>();
            tally.add(&values);
            self.report(&tally, false, report);
            rows.add(values)
        })?;
        rows.finish()?;
        Ok(tally)
    }

    fn read_copy(&self, report: &mut dyn FnMut(Progress<'_>)) -> db::Result<Tally> {
        let mut found = Tally::default();
        self.target.scan(&self.select, |row| {
            found.add(&row.values()?);
            self.report(&found, true, report);
            Ok(())
        })?;
        Ok(found)
    }

    fn report(&self, tally: &Tally, is_check: bool, report: &mut dyn FnMut(Progress<'_>)) {
        if tally.rows().is_multiple_of(REPORT_EVERY) {
            report(Progress {
                table: self.table,
                rows: tally.rows(),
                rows_total: self.rows_total,
                is_check,
            });
        }
    }
}

/// Sets the numbers that the next rows get: those of the source, of which some can belong to rows
/// that are gone.
fn copy_counters(source: &Connection, target: &Connection) -> Result<(), CopyError> {
    target.execute("DELETE FROM sqlite_sequence", [])?;
    for table in target.numbered_tables()? {
        let last: Option<i64> = source
            .prepare_cached("SELECT max(seq) FROM sqlite_sequence WHERE name = ?1")?
            .read_row([table.as_str()])?;
        let first_column = columns(target, &table)?.swap_remove(0).name;
        let newest: Option<i64> = target.read_row(
            &format!("SELECT max(\"{first_column}\") FROM \"{table}\""),
            [],
        )?;
        if let Some(number) = last.max(newest) {
            target.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)",
                db::params![table, number],
            )?;
        }
    }
    Ok(())
}

fn count(connection: &Connection, table: &str) -> Result<u64, CopyError> {
    let rows: i64 = connection.read_row(&format!("SELECT count(*) FROM \"{table}\""), [])?;
    Ok(rows.unsigned_abs())
}

/// Converts the text of a document to the form in which the target's index has it.
fn convert_indexed(values: &mut [Value], names: &[&str], target: &Connection) {
    for (value, name) in values.iter_mut().zip(names) {
        if let (Value::Text(text), "text") = (value, *name) {
            *text = text_for_index(target, std::mem::take(text));
        }
    }
}

/// The columns of a table that are copied.
fn columns(connection: &Connection, table: &str) -> Result<Vec<db::Column>, CopyError> {
    let mut columns = connection.columns(table)?;
    if table == INDEX {
        // A virtual table on SQLite.
        columns.retain(|column| ["tags", "text"].contains(&column.name.as_str()));
        columns.insert(
            0,
            db::Column {
                name: "rowid".to_owned(),
                type_name: connection.columns("search_docs")?.swap_remove(0).type_name,
            },
        );
    }
    Ok(columns)
}

fn sorted(columns: &[db::Column]) -> Vec<&str> {
    let mut names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.sort_unstable();
    names
}
