//! The SQLite engine. The only module that names its library.

mod functions;
pub(in crate::store) mod log;

use super::values::wrong_count;
use super::{Bind, Error, Params, Result, ValueRef};
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::Wal;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef as SqliteValue};
use rusqlite::{ErrorCode, ffi};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How many virtual machine steps a statement runs between two checks of its deadline.
const DEADLINE_CHECK_OPS: i32 = 2_000;
/// How long a connection waits for a lock, such as that of a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Before 3.51.3 a checkpoint could corrupt a WAL database.
const VERSION_MIN: i32 = 3_051_003;

/// The newest schema.
pub(in crate::store) const SCHEMA: &str = include_str!("schema.sql");

/// Lists the columns of a table.
pub(super) const COLUMNS: &str = "SELECT name, NULL FROM pragma_table_info(?1)";
/// Lists the tables whose first column is numbered and never gets the same number twice.
pub(super) const NUMBERED_TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%PRIMARY KEY AUTOINCREMENT%'";

/// Returns the version of the bundled SQLite.
#[must_use]
pub fn version() -> &'static str {
    rusqlite::version()
}

/// A function for SQL statements that converts a text, and its name.
pub(in crate::store) type TextFunction = (&'static str, fn(&str) -> String);

/// A connection to a file.
pub(in crate::store) struct SqliteConnection {
    connection: rusqlite::Connection,
    /// Only of the connection that writes.
    log: Option<log::Log>,
}

/// How a connection uses the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Mode {
    ReadWrite,
    ReadOnly,
}

impl SqliteConnection {
    /// Opens a file. Its statements are cached, up to a number of them, and may use these
    /// functions.
    pub(in crate::store) fn open(
        path: &Path,
        mode: Mode,
        statements_max: usize,
        functions: &[TextFunction],
    ) -> Result<Self> {
        assert!(
            rusqlite::version_number() >= VERSION_MIN,
            "the SQLite in this binary is too old to be safe"
        );
        let mode = match mode {
            Mode::ReadWrite => {
                rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE
                    | rusqlite::OpenFlags::SQLITE_OPEN_CREATE
            }
            Mode::ReadOnly => rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        };
        let connection = rusqlite::Connection::open_with_flags(
            path,
            mode | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.set_prepared_statement_cache_capacity(statements_max);
        // With the planner's stability guarantee, SQLite does not prepare a statement again when a
        // bound value could matter to a partial index.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        functions::register(&connection)?;
        let connection = Self {
            connection,
            log: None,
        };
        for (name, convert) in functions {
            connection.add_text_function(name, *convert)?;
        }
        Ok(connection)
    }

    #[cfg(test)]
    pub(super) fn open_in_memory() -> Self {
        let connection = rusqlite::Connection::open_in_memory().expect("a database");
        functions::register(&connection).expect("functions");
        Self {
            connection,
            log: None,
        }
    }

    /// Counts the pages in the write-ahead log after each commit. Replaces SQLite's own
    /// checkpoints.
    pub(in crate::store) fn watch_log(&mut self) -> Result<()> {
        // This pragma removes the hook, so it comes first.
        self.connection
            .execute_batch("PRAGMA wal_autocheckpoint = 0")?;
        let log = log::Log::default();
        let pages: Arc<AtomicU32> = log.pages();
        self.connection.wal_hook(Some(move |_: &mut Wal, count| {
            pages.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        self.log = Some(log);
        Ok(())
    }

    /// Registers a function that converts a text for SQL statements.
    fn add_text_function(&self, name: &str, convert: fn(&str) -> String) -> Result<()> {
        let flags = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        Ok(self
            .connection
            .create_scalar_function(name, 1, flags, move |context| match context.get_raw(0) {
                SqliteValue::Text(text) => Ok(Some(convert(&String::from_utf8_lossy(text)))),
                _ => Ok(None),
            })?)
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(Statement {
            statement: self.connection.prepare_cached(sql)?,
            connection: &self.connection,
        })
    }

    pub(super) fn execute_batch(&self, sql: &str) -> Result<()> {
        Ok(self.connection.execute_batch(sql)?)
    }

    /// Runs a statement without parameters, such as `BEGIN`.
    pub(super) fn run(&self, sql: &str) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    pub(super) fn total_changes(&self) -> u64 {
        self.connection.total_changes()
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        let handler = deadline.map(|deadline| move || Instant::now() >= deadline);
        Ok(self
            .connection
            .progress_handler(DEADLINE_CHECK_OPS, handler)?)
    }

    pub(super) fn maintain(&self, is_idle: bool) {
        if let Some(log) = &self.log {
            log.checkpoint(self, is_idle);
        }
    }
}

/// A prepared statement.
pub(super) struct Statement<'c> {
    statement: rusqlite::CachedStatement<'c>,
    connection: &'c rusqlite::Connection,
}

impl Statement<'_> {
    fn bind(&mut self, values: impl Params) -> Result<()> {
        let expected = self.statement.parameter_count();
        let mut binding = Binding {
            statement: &mut self.statement,
            bound: 0,
            expected,
        };
        values.bind_to(&mut binding)?;
        if binding.bound == expected {
            Ok(())
        } else {
            Err(wrong_count(binding.bound, expected))
        }
    }

    pub(super) fn execute(&mut self, values: impl Params) -> Result<usize> {
        self.bind(values)?;
        Ok(self.statement.raw_execute()?)
    }

    /// Inserts one row and returns its number.
    pub(super) fn insert(&mut self, values: impl Params) -> Result<i64> {
        self.bind(values)?;
        self.statement.raw_execute()?;
        Ok(self.connection.last_insert_rowid())
    }

    pub(super) fn query(&mut self, values: impl Params) -> Result<Rows<'_>> {
        self.bind(values)?;
        Ok(Rows(self.statement.raw_query()))
    }

    #[cfg(test)]
    pub(super) fn steps(&self) -> i32 {
        self.statement.get_status(rusqlite::StatementStatus::VmStep)
    }
}

struct Binding<'a, 'c> {
    statement: &'a mut rusqlite::CachedStatement<'c>,
    bound: usize,
    expected: usize,
}

impl Bind for Binding<'_, '_> {
    #[inline]
    fn bind(&mut self, value: ValueRef<'_>) -> Result<()> {
        self.bound += 1;
        if self.bound > self.expected {
            return Err(wrong_count(self.bound, self.expected));
        }
        Ok(self
            .statement
            .raw_bind_parameter(self.bound, Bound(value))?)
    }
}

struct Bound<'a>(ValueRef<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            ValueRef::Null => SqliteValue::Null,
            ValueRef::Integer(value) => SqliteValue::Integer(value),
            ValueRef::Real(value) => SqliteValue::Real(value),
            ValueRef::Text(text) => SqliteValue::Text(text),
            ValueRef::Blob(bytes) => SqliteValue::Blob(bytes),
        }))
    }
}

/// The rows of a query.
pub(super) struct Rows<'s>(rusqlite::Rows<'s>);

impl Rows<'_> {
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.0.next()?.map(Row))
    }
}

/// A row of a query.
pub(super) struct Row<'a>(&'a rusqlite::Row<'a>);

impl<'a> Row<'a> {
    pub(super) fn width(&self) -> usize {
        self.0.as_ref().column_count()
    }

    pub(super) fn name(&self, column: usize) -> &str {
        self.0.as_ref().column_name(column).unwrap_or_default()
    }

    #[inline]
    pub(super) fn value(&self, column: usize) -> Result<ValueRef<'a>> {
        Ok(match self.0.get_ref(column)? {
            SqliteValue::Null => ValueRef::Null,
            SqliteValue::Integer(value) => ValueRef::Integer(value),
            SqliteValue::Real(value) => ValueRef::Real(value),
            SqliteValue::Text(text) => ValueRef::Text(text),
            SqliteValue::Blob(bytes) => ValueRef::Blob(bytes),
        })
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::OperationInterrupted) => Self::Interrupted,
            Some(ErrorCode::ConstraintViolation) => Self::Constraint(error.to_string()),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt(error.to_string())
            }
            _ if error.sqlite_error().is_some_and(|error| {
                matches!(
                    error.extended_code,
                    ffi::SQLITE_IOERR_SHMSIZE
                        | ffi::SQLITE_IOERR_SHMOPEN
                        | ffi::SQLITE_IOERR_SHMMAP
                )
            }) =>
            {
                Self::SharedMemory(error.to_string())
            }
            _ => Self::Other(error.to_string()),
        }
    }
}
