//! The PostgreSQL engine. The only module that names its driver.
//!
//! One session writes. It holds a session lock, so that only one hub uses the store, and each of
//! its transactions checks and advances a row (`hub`): the epoch that the lock began, and the
//! number of the transaction. After a lost connection, the row tells whether the transaction was
//! committed.

mod address;
mod ahead;
mod deferred;
mod history;
pub(in crate::store) mod lead;
mod numbers;
pub(in crate::store) mod open;
mod pipeline;
mod session;
mod socket;
mod tls;
mod translate;
mod value;

use super::values::wrong_count;
use super::{Bind, Error, Params, Result, Value, ValueRef};
use crate::store::confirmed::ConfirmedNote;
use adjutant_core::confirmed::Reached;
use ahead::{Ahead, Read, RowsAhead};
use deferred::{Deferred, run_text};
use futures::TryStreamExt;
use numbers::Numbers;
use session::PgSession;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row as ServerRow, Statement as ServerStatement};
use value::{Raw, parameter, type_of};

/// Number of prepared statements that a connection keeps.
const STATEMENTS_MAX: usize = 512;

/// Lists the columns of a table and their types.
pub(super) const COLUMNS: &str = "SELECT a.attname::text, format_type(a.atttypid, NULL)
  FROM pg_attribute a WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
/// Lists the tables whose first column is numbered by the schema's function.
pub(super) const NUMBERED_TABLES: &str = "SELECT c.relname::text FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
  WHERE c.relnamespace = current_schema()::regnamespace AND pg_get_expr(d.adbin, d.adrelid) LIKE 'next_number(%' ORDER BY 1";

/// Returns the tables of the schema in its order.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let name = |line: &'static str| {
        line.strip_prefix("CREATE TABLE ")?
            .split_whitespace()
            .next()
            .map(|name| name.trim_matches('"'))
    };
    open::SCHEMA.lines().filter_map(name)
}

/// Replaces NUL characters, which PostgreSQL does not store.
pub(super) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// The problem of an address at which sessions are shared, so that locks and prepared statements
/// would not stay with theirs.
const POOLER: &str = "a connection pooler (such as PgBouncer) answers at this address, and a hub needs sessions of its own: name the server itself";
/// How much earlier than its deadline a statement may be interrupted by it.
const DEADLINE_SLACK: Duration = Duration::from_millis(50);

/// This long after the last read began, a read checks first whether the connection still works: a
/// new one can then replace it.
const CHECKED_AFTER: Duration = Duration::from_millis(100);

/// A connection to the server.
pub(in crate::store) struct PgConnection {
    session: PgSession,
    /// The process that serves the session.
    backend: i32,
    /// The epoch of the session lock. `None`: this connection only reads.
    epoch: Option<i64>,
    /// The id of the lead that the epoch belongs to.
    lead: String,
    /// Where what this session has confirmed is noted.
    note: Option<Arc<ConfirmedNote>>,
    /// The statements that were prepared, by their text in the store.
    statements: RefCell<HashMap<String, Prepared>>,
    numbers: Numbers,
    /// Statements that are sent with the next one, oldest first.
    deferred: RefCell<Vec<Deferred>>,
    ahead: Ahead,
    state: Cell<State>,
    /// Why the transaction is doomed.
    doom: RefCell<Option<Error>>,
    changes: Cell<u64>,
    /// The number of the last transaction that was begun.
    transaction: Cell<i64>,
    deadline: Cell<Option<Instant>>,
    /// When the last read began.
    read_at: Cell<Option<Instant>>,
}

/// What the server does for this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    InTransaction,
    /// A statement has failed. The transaction can only be rolled back, whole or to the savepoint.
    Failed,
    /// A deferred statement has failed. The transaction can only be rolled back as a whole, because
    /// the statement may be from before the savepoint.
    Doomed,
    /// The connection is unusable.
    Lost,
}

struct Prepared {
    text: String,
    /// One for each combination of parameter types.
    forms: Vec<ServerStatement>,
}

impl PgConnection {
    fn new(session: PgSession) -> Result<Self> {
        let mut connection = Self {
            session,
            backend: 0,
            epoch: None,
            lead: String::new(),
            note: None,
            statements: RefCell::default(),
            numbers: Numbers::default(),
            deferred: RefCell::default(),
            ahead: Ahead::default(),
            doom: RefCell::default(),
            state: Cell::new(State::Idle),
            changes: Cell::new(0),
            transaction: Cell::new(0),
            deadline: Cell::new(None),
            read_at: Cell::new(None),
        };
        connection.backend = connection
            .number("SELECT pg_backend_pid()")?
            .try_into()
            .unwrap_or(0);
        if connection.backend != connection.session.announced_backend() {
            return Err(Error::Other(POOLER.to_owned()));
        }
        Ok(connection)
    }

    /// The epoch of the session lock. `None`: this session only reads.
    pub(in crate::store) fn epoch(&self) -> Option<i64> {
        self.epoch
    }

    /// The id of the lead as which this session writes. `None`: it only reads.
    pub(in crate::store) fn lead(&self) -> Option<&str> {
        self.epoch.map(|_| self.lead.as_str())
    }

    /// The process that serves this session.
    pub(in crate::store) fn backend(&self) -> i32 {
        self.backend
    }

    pub(super) fn prepare(&self, sql: &str) -> Statement<'_> {
        Statement {
            connection: self,
            sql: sql.to_owned(),
        }
    }

    pub(super) fn execute_batch(&self, sql: &str) -> Result<()> {
        self.ahead.drop_replies();
        self.exchange(self.session.client().batch_execute(sql))
    }

    /// Runs statements of the driver itself. Returns the number of rows that the last one changed.
    fn run(&self, sql: &str) -> Result<u64> {
        self.exchange(run_text(self.session.client(), sql))
    }

    /// Reads one number.
    fn number(&self, sql: &str) -> Result<i64> {
        let mut statement = self.prepare(sql);
        let mut rows = statement.query([])?;
        let row = rows.next().ok_or(Error::NoRows)?;
        match row.value(0)? {
            ValueRef::Integer(value) => Ok(value),
            other => Err(Error::Type {
                column: 0,
                found: other.type_name(),
            }),
        }
    }

    /// Returns whether the deadline of the reads has passed, as far as two clocks agree.
    fn is_late(&self) -> bool {
        self.deadline
            .get()
            .is_some_and(|deadline| Instant::now() + DEADLINE_SLACK >= deadline)
    }

    /// Records what a result says about the session.
    fn note<T>(&self, result: Result<T>) -> Result<T> {
        // Before its deadline, a statement is cancelled by an administrator or by a timeout of the
        // role.
        let is_cancelled = matches!(result, Err(Error::Interrupted)) && !self.is_late();
        let result = if is_cancelled {
            Err(Error::Lost(
                "a statement was cancelled on the server".to_owned(),
            ))
        } else {
            result
        };
        if let Err(error) = &result {
            match (error, self.state.get()) {
                (Error::Lost(_), _) => self.state.set(State::Lost),
                (_, State::InTransaction) => self.state.set(State::Failed),
                _ => {}
            }
        }
        result
    }

    pub(super) fn begin_write(&self) -> Result<()> {
        let Some(epoch) = self.epoch else {
            return Err(Error::Other("this connection only reads".to_owned()));
        };
        let number = self.transaction.get() + 1;
        // A prepared statement is not planned again.
        let values = vec![Value::Integer(number), Value::Integer(epoch)];
        let fence = self.form("UPDATE hub SET transaction = ?1 WHERE epoch = ?2", &values)?;
        self.begin(Deferred::Begin(self.form("BEGIN", &[])?))?;
        self.defer(Deferred::Fence(fence, values))?;
        self.transaction.set(number);
        Ok(())
    }

    pub(super) fn begin_read(&self) -> Result<()> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.begin(match self.deadline.get() {
            None => Deferred::Bound(self.form(begin, &[])?, Vec::new()),
            Some(deadline) => {
                let left = deadline
                    .saturating_duration_since(Instant::now())
                    .as_millis()
                    .max(1);
                Deferred::Text(format!("{begin}; SET LOCAL statement_timeout = {left}"))
            }
        })?;
        let last = self.read_at.replace(Some(Instant::now()));
        if last.is_none_or(|last| last.elapsed() > CHECKED_AFTER) {
            self.flush()
        } else {
            Ok(())
        }
    }

    pub(super) fn has_time_left(&self) -> Result<bool> {
        let Some(deadline) = self.deadline.get() else {
            return Ok(true);
        };
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis();
        if left == 0 {
            return Ok(false);
        }
        self.defer(Deferred::Text(format!(
            "SET LOCAL statement_timeout = {left}"
        )))?;
        Ok(true)
    }

    fn begin(&self, statement: Deferred) -> Result<()> {
        // The server may have ended the session meanwhile.
        if self.is_lost() {
            return self.note(Err(Error::Lost("the connection ended".to_owned())));
        }
        self.doom.take();
        self.ahead.clear();
        self.state.set(State::InTransaction);
        self.defer(statement)
    }

    pub(super) fn end_read(&self) -> Result<()> {
        if self.state.get() == State::Lost {
            return Err(Error::Lost("the connection ended".to_owned()));
        }
        self.state.set(State::Idle);
        self.ahead.clear();
        // What has not been sent needs no end.
        if std::mem::take(&mut *self.deferred.borrow_mut()).is_empty() {
            self.session
                .send(self.session.client().simple_query("COMMIT"));
        }
        Ok(())
    }

    /// Commits. A failed transaction is refused: the server would roll it back without an error.
    pub(super) fn commit(&self) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        self.store_numbers()?;
        // The server must have confirmed the epoch, and the changes of single rows, before it may
        // commit.
        if self.deferred.borrow().iter().any(Deferred::is_checked) {
            self.flush()?;
        }
        self.finish("COMMIT")?;
        self.note_confirmed();
        Ok(())
    }

    /// Notes that the last transaction is confirmed.
    pub(super) fn note_confirmed(&self) {
        if let (Some(note), Some(epoch)) = (&self.note, self.epoch) {
            note.note(
                &self.lead,
                Reached {
                    epoch,
                    transaction: self.transaction.get(),
                },
                self.numbers.last(),
            );
        }
    }

    /// Stores the numbers that were used, with the next statement.
    fn store_numbers(&self) -> Result<()> {
        self.numbers
            .to_store()
            .into_iter()
            .try_for_each(|counter| self.store_number(counter))
    }

    /// Stores the last used number of a table, with the next statement.
    fn store_number(&self, (table, last): (String, i64)) -> Result<()> {
        let values = vec![Value::Text(table), Value::Integer(last)];
        let form = self.form("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET seq = ?2", &values)?;
        self.defer(Deferred::Bound(form, values))
    }

    pub(super) fn roll_back(&self) -> Result<()> {
        self.numbers.forget();
        let unsent = self.deferred.take();
        if unsent
            .iter()
            .any(|statement| matches!(statement, Deferred::Begin(_)))
        {
            self.ahead.clear();
            self.state.set(State::Idle);
            return Ok(());
        }
        self.finish("ROLLBACK")
    }

    fn finish(&self, sql: &str) -> Result<()> {
        let result = self.run(sql);
        if result.is_err() {
            self.numbers.forget();
        }
        self.doom.take();
        self.ahead.clear();
        if self.state.get() != State::Lost {
            self.state.set(State::Idle);
        }
        result.map(|_| ())
    }

    pub(super) fn savepoint(&self) -> Result<()> {
        self.numbers.mark();
        self.defer(Deferred::Bound(
            self.form("SAVEPOINT call", &[])?,
            Vec::new(),
        ))
    }

    pub(super) fn release_savepoint(&self) -> Result<()> {
        self.defer(Deferred::Bound(self.form("RELEASE call", &[])?, Vec::new()))
    }

    pub(super) fn roll_back_to_savepoint(&self) -> Result<()> {
        if let Some(error) = self.doom.borrow().clone() {
            return Err(error);
        }
        self.ahead.clear();
        self.run("ROLLBACK TO call; RELEASE call")?;
        self.numbers.return_to_mark();
        if self.state.get() == State::Failed {
            self.state.set(State::InTransaction);
        }
        Ok(())
    }

    /// Returns why the transaction can only be rolled back.
    pub(super) fn failure(&self) -> Option<Error> {
        match self.state.get() {
            State::Failed => Some(Error::Other(
                "a statement of the transaction has failed".to_owned(),
            )),
            State::Doomed => self.doom.borrow().clone(),
            State::Idle | State::InTransaction | State::Lost => None,
        }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        matches!(
            self.state.get(),
            State::InTransaction | State::Failed | State::Doomed
        )
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state.get() == State::Lost || self.session.is_closed()
    }

    /// Waits for the next notification. `None`: there was none before `until`.
    fn notification(&self, until: Instant) -> Result<Option<String>> {
        self.note(self.session.notification(until))
    }

    /// Returns how often a reply of the server was waited for.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn round_trips(&self) -> u64 {
        self.session.round_trips()
    }

    pub(super) fn total_changes(&self) -> u64 {
        self.changes.get()
    }

    pub(super) fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.set(deadline);
    }

    /// The number of the last transaction that was begun.
    pub(super) fn transaction(&self) -> i64 {
        self.transaction.get()
    }

    /// Returns the form of a statement for these values.
    fn form(&self, sql: &str, values: &[Value]) -> Result<ServerStatement> {
        let types: Vec<Option<Type>> = values.iter().map(type_of).collect();
        let suits = |form: &&ServerStatement| {
            form.params().len() == types.len()
                && form
                    .params()
                    .iter()
                    .zip(&types)
                    .all(|(of, wanted)| wanted.as_ref().is_none_or(|wanted| wanted == of))
        };
        let text = match self.statements.borrow().get(sql) {
            Some(prepared) => {
                if let Some(form) = prepared.forms.iter().find(suits) {
                    return Ok(form.clone());
                }
                prepared.text.clone()
            }
            None => translate::translated(sql),
        };
        let types: Vec<Type> = types
            .into_iter()
            .map(|of| of.unwrap_or(Type::UNKNOWN))
            .collect();
        let collated = translate::with_collation(&text, |parameter| {
            types.get(parameter - 1) == Some(&Type::TEXT)
        });
        let form = self.exchange(self.session.client().prepare_typed(&collated, &types))?;
        if form.params().len() != values.len() {
            return Err(wrong_count(values.len(), form.params().len()));
        }
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS_MAX {
            // Statements with changing text, such as lists, would otherwise stay on the server.
            statements.clear();
        }
        statements
            .entry(sql.to_owned())
            .or_insert_with(|| Prepared {
                text,
                forms: Vec::new(),
            })
            .forms
            .push(form.clone());
        Ok(form)
    }

    /// Reads the rows of a query while they arrive. The driver receives only a few in advance.
    pub(super) fn scan(
        &self,
        sql: &str,
        mut each: impl FnMut(Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let form = self.form(sql, &[])?;
        let rows = self.exchange(
            self.session
                .client()
                .query_raw(&form, std::iter::empty::<&str>()),
        )?;
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = self.note(self.session.wait(rows.try_next()))? {
            each(Row(&row))?;
        }
        Ok(())
    }

    /// Returns the form of a statement and its values.
    fn bound(&self, sql: &str, values: impl Params) -> Result<(ServerStatement, Vec<Value>)> {
        let mut bound = Bound::default();
        values.bind_to(&mut bound)?;
        Ok((self.form(sql, &bound.0)?, bound.0))
    }

    /// Reads the rows of a query, or runs a statement that writes and waits for the number of
    /// changed rows.
    fn fetch(&self, sql: &str, values: impl Params) -> Result<(RowsAhead, u64)> {
        if self.ahead.is_announcing() {
            return Err(self.ahead.announce(sql, values));
        }
        self.numbers
            .yield_to(sql)
            .into_iter()
            .try_for_each(|counter| self.store_number(counter))?;
        let (form, values) = self.bound(sql, values)?;
        let is_write = form.columns().is_empty()
            || ["INSERT", "UPDATE", "DELETE"]
                .iter()
                .any(|word| sql.trim_start().starts_with(word));
        if is_write {
            self.ahead.note(sql);
            let (rows, count) = self.exchange(query(self.session.client(), &form, &values))?;
            self.changes.set(self.changes.get() + count);
            return Ok((Arc::new(rows), count));
        }
        let read = Read {
            sql: sql.to_owned(),
            values,
        };
        if let Some(reply) = self.ahead.kept(&read) {
            let count = reply.len() as u64;
            return Ok((reply, count));
        }
        let mut others = Vec::new();
        for other in self.ahead.take(&read) {
            others.push((self.form(&other.sql, &other.values)?, other));
        }
        let client = self.session.client();
        let others_reply = futures::future::try_join_all(
            others
                .iter()
                .map(|(form, other)| query(client, form, &other.values)),
        );
        let ((rows, count), replies) = self.exchange(futures::future::try_join(
            query(client, &form, &read.values),
            others_reply,
        ))?;
        for ((_, other), (rows, _)) in others.into_iter().zip(replies) {
            self.ahead.keep(other, rows);
        }
        Ok((Arc::new(rows), count))
    }

    /// Runs a statement that writes, with the next one if a transaction is open.
    fn apply(&self, sql: &str, values: impl Params) -> Result<()> {
        self.check_announces_no_write()?;
        if self.state.get() != State::InTransaction {
            return self.fetch(sql, values).map(|_| ());
        }
        self.numbers
            .yield_to(sql)
            .into_iter()
            .try_for_each(|counter| self.store_number(counter))?;
        let (form, values) = self.bound(sql, values)?;
        self.defer_write(sql, Deferred::Bound(form, values))
    }

    /// Runs a statement that must change one row, with the next one if a transaction is open.
    fn apply_to_one(&self, sql: &str, values: impl Params) -> Result<()> {
        self.check_announces_no_write()?;
        if self.state.get() != State::InTransaction {
            return match self.fetch(sql, values)? {
                (_, 1) => Ok(()),
                _ => Err(deferred::not_one_row()),
            };
        }
        let (form, values) = self.bound(sql, values)?;
        self.defer_write(sql, Deferred::One(form, values))
    }

    /// Inserts one row and returns its number, which is in a column.
    fn insert(&self, sql: &str, column: &str, values: impl Params) -> Result<i64> {
        self.check_announces_no_write()?;
        let mut bound = Bound::default();
        values.bind_to(&mut bound)?;
        let Bound(mut values) = bound;
        let numbered = numbers::with_number(sql, column, values.len())
            .filter(|_| self.epoch.is_some() && self.state.get() == State::InTransaction);
        let Some((table, numbered)) = numbered else {
            let (rows, _) = self.fetch(
                &format!("{sql} RETURNING {column}"),
                super::params_from_iter(values),
            )?;
            return match Row(rows.first().ok_or(Error::NoRows)?).value(0)? {
                ValueRef::Integer(number) => Ok(number),
                other => Err(Error::Type {
                    column: 0,
                    found: other.type_name(),
                }),
            };
        };
        let number = match self.numbers.next(table) {
            Some(number) => number,
            None => {
                let last = self.number(&format!(
                    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0)"
                ))?;
                self.numbers.learn(table, last);
                self.numbers.next(table).unwrap_or(last + 1)
            }
        };
        values.push(Value::Integer(number));
        let form = self.form(&numbered, &values)?;
        self.defer_write(sql, Deferred::Bound(form, values))?;
        Ok(number)
    }
}

/// Sends a query when it is first polled. Returns its rows, and the number of rows that it returned
/// or changed.
async fn query(
    client: &Client,
    form: &ServerStatement,
    values: &[Value],
) -> std::result::Result<(Vec<ServerRow>, u64), tokio_postgres::Error> {
    let parameters: Vec<_> = values
        .iter()
        .zip(form.params())
        .map(|(value, of)| parameter(value, of))
        .collect();
    let mut stream = std::pin::pin!(client.query_raw(form, parameters).await?);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    Ok((rows, stream.rows_affected().unwrap_or(0)))
}

#[derive(Default)]
struct Bound(Vec<Value>);

impl Bind for Bound {
    fn bind(&mut self, value: ValueRef<'_>) -> Result<()> {
        self.0.push(match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(value) => Value::Integer(value),
            ValueRef::Real(value) => Value::Real(value),
            ValueRef::Text(text) => {
                let text =
                    std::str::from_utf8(text).map_err(|error| Error::Other(error.to_string()))?;
                Value::Text(if text.contains('\0') {
                    without_nul(text)
                } else {
                    text.to_owned()
                })
            }
            ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        });
        Ok(())
    }
}

/// A statement. It is prepared with the types of its first values.
pub(super) struct Statement<'c> {
    connection: &'c PgConnection,
    sql: String,
}

impl Statement<'_> {
    pub(super) fn execute(&mut self, values: impl Params) -> Result<usize> {
        let (_, count) = self.connection.fetch(&self.sql, values)?;
        usize::try_from(count).map_err(|error| Error::Other(error.to_string()))
    }

    pub(super) fn run(&mut self, values: impl Params) -> Result<()> {
        self.connection.apply(&self.sql, values)
    }

    /// Runs a statement that must change one row.
    pub(super) fn run_on_one(&mut self, values: impl Params) -> Result<()> {
        self.connection.apply_to_one(&self.sql, values)
    }

    pub(super) fn query(&mut self, values: impl Params) -> Result<Rows> {
        let (rows, _) = self.connection.fetch(&self.sql, values)?;
        Ok(Rows { rows, next: 0 })
    }

    /// Inserts one row and returns the number in a column.
    pub(super) fn insert(&mut self, column: &str, values: impl Params) -> Result<i64> {
        self.connection.insert(&self.sql, column, values)
    }
}

/// The rows of a query, all of which were received.
pub(super) struct Rows {
    rows: RowsAhead,
    next: usize,
}

impl Rows {
    pub(super) fn next(&mut self) -> Option<Row<'_>> {
        let row = self.rows.get(self.next)?;
        self.next += 1;
        Some(Row(row))
    }
}

/// A row of a query.
pub(super) struct Row<'a>(&'a ServerRow);

impl<'a> Row<'a> {
    pub(super) fn width(&self) -> usize {
        self.0.len()
    }

    pub(super) fn name(&self, column: usize) -> &str {
        self.0
            .columns()
            .get(column)
            .map_or("", |column| column.name())
    }

    pub(super) fn value(&self, column: usize) -> Result<ValueRef<'a>> {
        let raw: Raw<'a> = self
            .0
            .try_get(column)
            .map_err(|error| Error::Other(error.to_string()))?;
        raw.value()
    }
}
