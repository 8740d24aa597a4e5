//! The driver below the store: connections, transactions, prepared statements, values and rows, for
//! each engine.
//!
//! The rest of the store writes SQL that every engine understands, with `?1` for parameters. What
//! an engine does in its own way is in its module. No other module names an engine's library.

mod error;
pub(super) mod postgres;
mod row;
pub(super) mod sqlite;
mod values;

pub(super) use error::{Error, Result};
pub(super) use row::{Columns, FromRow, Record, Row, joined, joined_len, joined_text, row, select};
use values::Bind;
pub(super) use values::params;
pub(super) use values::{FromValue, Params, Value, ValueRef, text};
pub(crate) use values::{ToValue, params_from_iter};

use adjutant_core::confirmed::{Confirmed, History};
use std::time::Instant;

/// Runs statements on a server, in a database that needs no schema.
#[cfg(any(test, feature = "testing"))]
pub(super) fn postgres_batch(address: &crate::config::PostgresAddress, sql: &str) -> Result<()> {
    postgres::open::unmanaged(address)?.execute_batch(sql)
}

/// Connects to a server, without a schema and a lock.
#[cfg(test)]
pub(super) fn postgres_unmanaged(address: &crate::config::PostgresAddress) -> Result<Connection> {
    postgres::open::unmanaged(address).map(Connection::from)
}

/// Creates or migrates the schema on a server.
#[cfg(test)]
pub(super) fn postgres_prepare(
    address: &crate::config::PostgresAddress,
    migrations: &[super::migrations::Migration],
) -> Result<()> {
    postgres::open::prepare_schema(&postgres::open::unmanaged(address)?, migrations)
}

row! {
    /// A column of a table.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Column {
        pub name: String,
        /// The type that a parameter for it is converted to. `None`: the engine knows it.
        pub type_name: Option<String>,
    }
}

/// Returns the tables of the schema, those before others that refer to them.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    postgres::tables()
}

/// A connection to the database. Used by one thread at a time.
pub struct Connection(Engine);

enum Engine {
    Sqlite(sqlite::SqliteConnection),
    Postgres(Box<postgres::PgConnection>),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl From<sqlite::SqliteConnection> for Connection {
    fn from(connection: sqlite::SqliteConnection) -> Self {
        Self(Engine::Sqlite(connection))
    }
}

impl From<postgres::PgConnection> for Connection {
    fn from(connection: postgres::PgConnection) -> Self {
        Self(Engine::Postgres(Box::new(connection)))
    }
}

impl Connection {
    /// Opens a database in memory without a schema.
    #[cfg(test)]
    pub(crate) fn open_in_memory() -> Self {
        sqlite::SqliteConnection::open_in_memory().into()
    }

    /// Returns a prepared statement, from the connection's cache if it was used before.
    ///
    /// # Errors
    /// The statement is invalid, or a failure of the database.
    pub(crate) fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        match &self.0 {
            Engine::Sqlite(connection) => {
                connection.prepare(sql).map(Prepared::Sqlite).map(Statement)
            }
            Engine::Postgres(connection) => {
                Ok(Statement(Prepared::Postgres(connection.prepare(sql))))
            }
        }
    }

    /// Runs statements without parameters, separated by semicolons.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn execute_batch(&self, sql: &str) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.execute_batch(sql),
            Engine::Postgres(connection) => connection.execute_batch(sql),
        }
    }

    /// Runs one statement. Returns the number of changed rows.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn execute(&self, sql: &str, values: impl Params) -> Result<usize> {
        self.prepare_cached(sql)?.execute(values)
    }

    /// Runs one statement whose number of changed rows is not needed.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn run(&self, sql: &str, values: impl Params) -> Result<()> {
        self.prepare_cached(sql)?.run(values)
    }

    /// Announces a read that follows, so that a server receives it together with the next one that
    /// is waited for. `read` must only read; its reply comes from the same function, called later.
    pub fn announce<T, E>(&self, read: impl FnOnce(&Self) -> std::result::Result<T, E>) {
        if let Engine::Postgres(connection) = &self.0 {
            connection.announce(|| drop(read(self)));
        }
    }

    /// Returns the texts in the first column of a query without parameters, if an announced read of
    /// it has been answered and nothing has changed since. `None`: it has to be read.
    #[must_use]
    pub fn known(&self, sql: &str) -> Option<Vec<String>> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(connection) => connection.known(sql),
        }
    }

    /// Runs a write that changes nothing unless the query `condition`, with the same parameters,
    /// has rows. SQLite runs the query first, which costs less than a write without effect. A
    /// server runs only the write, which costs less than waiting for the query.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn run_if(
        &self,
        condition: &str,
        write: &str,
        values: impl Params + Clone,
    ) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(_) if !self.prepare_cached(condition)?.exists(values.clone())? => Ok(()),
            _ => self.run(write, values),
        }
    }

    /// Reads the first row of a query, see [`Statement::read_row`].
    ///
    /// # Errors
    /// `Error::NoRows`, or a failure of the database.
    pub(crate) fn read_row<T: FromRow>(&self, sql: &str, values: impl Params) -> Result<T> {
        self.prepare_cached(sql)?.read_row(values)
    }

    /// Reads the history of a store on a server, and its secret.
    ///
    /// # Errors
    /// The database is a file, or a failure of it.
    pub(super) fn history(&self) -> Result<(History, String)> {
        match &self.0 {
            Engine::Sqlite(_) => Err(Error::Other("a file has no history of leads".to_owned())),
            Engine::Postgres(connection) => postgres::open::history_of(connection),
        }
    }

    /// Reads what other hubs of the store know to be confirmed.
    ///
    /// # Errors
    /// A failure of the database.
    pub(super) fn known_to_others(&self) -> Result<Vec<Confirmed>> {
        match &self.0 {
            Engine::Sqlite(_) => Ok(Vec::new()),
            Engine::Postgres(connection) => postgres::lead::known_to_others(connection),
        }
    }

    /// Returns the id of the lead as which this connection writes.
    pub(super) fn lead(&self) -> Option<&str> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(connection) => connection.lead(),
        }
    }

    /// Begins a transaction that writes. It waits for no other writer later.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn begin_write(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("BEGIN IMMEDIATE"),
            Engine::Postgres(connection) => connection.begin_write(),
        }
    }

    /// Begins a transaction whose reads see one snapshot.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn begin_read(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("BEGIN"),
            Engine::Postgres(connection) => connection.begin_read(),
        }
    }

    /// Returns whether the deadline of reads has not passed. On a server, which counts the time of
    /// each statement, the next one gets what is left.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn has_time_left(&self) -> Result<bool> {
        match &self.0 {
            // The deadline interrupts each statement.
            Engine::Sqlite(_) => Ok(true),
            Engine::Postgres(connection) => connection.has_time_left(),
        }
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn commit(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("COMMIT"),
            Engine::Postgres(connection) => connection.commit(),
        }
    }

    /// Notes that the last transaction of a lost session is confirmed, which this one has found.
    pub(super) fn note_confirmed(&self) {
        if let Engine::Postgres(connection) = &self.0 {
            connection.note_confirmed();
        }
    }

    /// Rolls back the transaction.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn roll_back(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("ROLLBACK"),
            Engine::Postgres(connection) => connection.roll_back(),
        }
    }

    /// Sets the savepoint of a call within the transaction.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn savepoint(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("SAVEPOINT call"),
            Engine::Postgres(connection) => connection.savepoint(),
        }
    }

    /// Removes the savepoint and keeps what was written since.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn release_savepoint(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("RELEASE call"),
            Engine::Postgres(connection) => connection.release_savepoint(),
        }
    }

    /// Undoes what was written since the savepoint, and removes it.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn roll_back_to_savepoint(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection
                .run("ROLLBACK TO call")
                .and_then(|()| connection.run("RELEASE call")),
            Engine::Postgres(connection) => connection.roll_back_to_savepoint(),
        }
    }

    /// Ends a transaction that has only read.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn end_read(&self) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => connection.run("COMMIT"),
            Engine::Postgres(connection) => connection.end_read(),
        }
    }

    /// Returns the error that has made the transaction unusable: it can only be rolled back, whole
    /// or to the savepoint.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(connection) => connection.failure(),
        }
    }

    /// Returns whether a commit that failed with this error has certainly changed nothing.
    #[must_use]
    pub(crate) fn has_rolled_back(&self, error: &Error) -> bool {
        match &self.0 {
            // The disk may have kept it.
            Engine::Sqlite(_) => matches!(error, Error::Full),
            Engine::Postgres(_) => !matches!(error, Error::Lost(_)),
        }
    }

    /// Returns whether the connection to a server is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.0 {
            Engine::Sqlite(_) => false,
            Engine::Postgres(connection) => connection.is_lost(),
        }
    }

    /// Returns what a new session needs to replace this one. `None`: the engine has no sessions.
    pub(super) fn replaced(&self) -> Option<postgres::open::Replaced> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(connection) => connection.replaced(),
        }
    }

    /// Returns the number of the newest transaction that the database has committed. `None`: it has
    /// none.
    pub(super) fn last_transaction(&self) -> Option<i64> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(connection) => Some(connection.transaction()),
        }
    }

    /// Returns whether the full-text index of SQLite is available.
    #[must_use]
    pub(super) fn has_fts5(&self) -> bool {
        matches!(self.0, Engine::Sqlite(_))
    }

    /// Returns whether a transaction is open. The database may have ended one by itself after a
    /// failure.
    #[must_use]
    pub(crate) fn is_in_transaction(&self) -> bool {
        match &self.0 {
            Engine::Sqlite(connection) => connection.is_in_transaction(),
            Engine::Postgres(connection) => connection.is_in_transaction(),
        }
    }

    /// Returns how often this connection has waited for a reply of a server.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        match &self.0 {
            Engine::Sqlite(_) => 0,
            Engine::Postgres(connection) => connection.round_trips(),
        }
    }

    /// Returns the number of rows that this connection has changed. On a server, a statement whose
    /// number of changed rows is not needed counts as one row.
    #[must_use]
    pub(crate) fn total_changes(&self) -> u64 {
        match &self.0 {
            Engine::Sqlite(connection) => connection.total_changes(),
            Engine::Postgres(connection) => connection.total_changes(),
        }
    }

    /// Sets or clears the deadline at which statements fail with `Error::Interrupted`.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<()> {
        match &mut self.0 {
            Engine::Sqlite(connection) => connection.set_deadline(deadline),
            Engine::Postgres(connection) => {
                connection.set_deadline(deadline);
                Ok(())
            }
        }
    }

    /// Reads the rows of a query one after the other, in bounded memory. A transaction is open.
    ///
    /// # Errors
    /// The error of `each`, or a failure of the database.
    pub fn scan(&self, sql: &str, mut each: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        match &self.0 {
            Engine::Sqlite(connection) => {
                let mut statement = connection.prepare(sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    each(&Row::of_sqlite(row))?;
                }
                Ok(())
            }
            Engine::Postgres(connection) => {
                connection.scan(sql, |row| each(&Row::of_postgres(row)))
            }
        }
    }

    /// Returns the columns of a table. Empty: there is no such table.
    ///
    /// # Errors
    /// A failure of the database.
    pub fn columns(&self, table: &str) -> Result<Vec<Column>> {
        let sql = match &self.0 {
            Engine::Sqlite(_) => sqlite::COLUMNS,
            Engine::Postgres(_) => postgres::COLUMNS,
        };
        self.prepare_cached(sql)?.read_rows([table])
    }

    /// Returns the tables whose first column the database numbers.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn numbered_tables(&self) -> Result<Vec<String>> {
        let sql = match &self.0 {
            Engine::Sqlite(_) => sqlite::NUMBERED_TABLES,
            Engine::Postgres(_) => postgres::NUMBERED_TABLES,
        };
        self.prepare_cached(sql)?.read_rows([])
    }

    /// Replaces NUL characters if the engine stores none. Returns whether there were some.
    pub(crate) fn replace_nul(&self, value: &mut Value) -> bool {
        match (&self.0, value) {
            (Engine::Postgres(_), Value::Text(text)) if text.contains('\0') => {
                *text = postgres::without_nul(text);
                true
            }
            _ => false,
        }
    }

    /// Does maintenance that is due, between two transactions of the writer.
    pub(crate) fn maintain(&self, is_idle: bool) {
        match &self.0 {
            Engine::Sqlite(connection) => connection.maintain(is_idle),
            Engine::Postgres(_) => {}
        }
    }
}

/// A prepared statement. It returns to the cache when it is dropped.
pub(crate) struct Statement<'c>(Prepared<'c>);

enum Prepared<'c> {
    Sqlite(sqlite::Statement<'c>),
    Postgres(postgres::Statement<'c>),
}

impl Statement<'_> {
    /// Runs the statement. Returns the number of changed rows.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn execute(&mut self, values: impl Params) -> Result<usize> {
        match &mut self.0 {
            Prepared::Sqlite(statement) => statement.execute(values),
            Prepared::Postgres(statement) => statement.execute(values),
        }
    }

    /// Runs a statement whose number of changed rows is not needed. In a transaction, a server
    /// receives it together with the next statement that is waited for, or the commit, which then
    /// reports its failure.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn run(&mut self, values: impl Params) -> Result<()> {
        match &mut self.0 {
            Prepared::Sqlite(statement) => statement.execute(values).map(|_| ()),
            Prepared::Postgres(statement) => statement.run(values),
        }
    }

    /// Runs a statement that must change one row. In a transaction, a server receives it later,
    /// like that of [`Statement::run`].
    ///
    /// # Errors
    /// It changes another number of rows; a failure of the database.
    pub(crate) fn run_on_one(&mut self, values: impl Params) -> Result<()> {
        match &mut self.0 {
            Prepared::Sqlite(statement) => match statement.execute(values)? {
                1 => Ok(()),
                _ => Err(Error::Other(
                    "a row has changed within its transaction".to_owned(),
                )),
            },
            Prepared::Postgres(statement) => statement.run_on_one(values),
        }
    }

    /// Inserts one row and returns its number. `column`: the primary key, which the database
    /// numbers.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn insert(&mut self, column: &str, values: impl Params) -> Result<i64> {
        match &mut self.0 {
            // Cheaper than `RETURNING`.
            Prepared::Sqlite(statement) => statement.insert(values),
            Prepared::Postgres(statement) => statement.insert(column, values),
        }
    }

    /// Runs a query.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn query(&mut self, values: impl Params) -> Result<Rows<'_>> {
        match &mut self.0 {
            Prepared::Sqlite(statement) => statement.query(values).map(Cursor::Sqlite).map(Rows),
            Prepared::Postgres(statement) => {
                statement.query(values).map(Cursor::Postgres).map(Rows)
            }
        }
    }

    /// Reads the first row of a query: a value, a tuple, or a record.
    ///
    /// # Errors
    /// [`Error::NoRows`], or a failure of the database.
    #[inline]
    pub(crate) fn read_row<T: FromRow>(&mut self, values: impl Params) -> Result<T> {
        self.query_row(values, |row| row.read())
    }

    /// Reads the first row of a query, if there is one.
    ///
    /// # Errors
    /// A failure of the database.
    #[inline]
    pub(crate) fn find_row<T: FromRow>(&mut self, values: impl Params) -> Result<Option<T>> {
        self.query(values)?
            .next()?
            .map(|row| row.read())
            .transpose()
    }

    /// Reads all rows of a query.
    ///
    /// # Errors
    /// A failure of the database.
    #[inline]
    pub(crate) fn read_rows<T: FromRow, All: FromIterator<T>>(
        &mut self,
        values: impl Params,
    ) -> Result<All> {
        self.query_map(values, |row| row.read())?.collect()
    }

    /// Reads the first row of a query.
    ///
    /// # Errors
    /// [`Error::NoRows`], or a failure of the database.
    pub(crate) fn query_row<T>(
        &mut self,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.query(values)?
            .next()?
            .ok_or(Error::NoRows)
            .and_then(|row| read(&row))
    }

    /// Reads the rows of a query one after the other.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn query_map<T, F: FnMut(&Row<'_>) -> Result<T>>(
        &mut self,
        values: impl Params,
        read: F,
    ) -> Result<MappedRows<'_, F>> {
        Ok(MappedRows {
            rows: self.query(values)?,
            read,
        })
    }

    /// Returns whether a query has rows.
    ///
    /// # Errors
    /// A failure of the database.
    pub(crate) fn exists(&mut self, values: impl Params) -> Result<bool> {
        Ok(self.query(values)?.next()?.is_some())
    }

    /// Returns how many steps SQLite has taken for the statement.
    #[cfg(test)]
    pub(crate) fn steps(&self) -> i32 {
        match &self.0 {
            Prepared::Sqlite(statement) => statement.steps(),
            Prepared::Postgres(_) => 0,
        }
    }
}

/// The rows of a query.
pub(crate) struct Rows<'s>(Cursor<'s>);

enum Cursor<'s> {
    Sqlite(sqlite::Rows<'s>),
    Postgres(postgres::Rows),
}

impl Rows<'_> {
    /// Returns the next row.
    ///
    /// # Errors
    /// A failure of the database.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>> {
        match &mut self.0 {
            Cursor::Sqlite(rows) => Ok(rows.next()?.map(Row::of_sqlite)),
            Cursor::Postgres(rows) => Ok(rows.next().map(Row::of_postgres)),
        }
    }
}

/// The values that a function reads from rows.
pub(crate) struct MappedRows<'s, F> {
    rows: Rows<'s>,
    read: F,
}

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for MappedRows<'_, F> {
    type Item = Result<T>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.read)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}
