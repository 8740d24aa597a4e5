//! Deferred statements. A round trip to the server takes longer than most statements. Those whose
//! result nobody reads are therefore sent with the next one that is waited for, in their order. If
//! one of them fails, the whole transaction can only be rolled back.

use super::{Error, PgConnection, Result, State, Value, query};
use std::future::Future;
use tokio_postgres::{Client, SimpleQueryMessage, Statement as ServerStatement};

/// Maximum number of deferred statements.
const DEFERRED_MAX: usize = 24;

/// A statement that is sent with the next one.
pub(super) enum Deferred {
    /// Begins a transaction that writes.
    Begin(ServerStatement),
    /// Advances the row of the leader. No row changes if another hub has taken over.
    Fence(ServerStatement, Vec<Value>),
    Text(String),
    Bound(ServerStatement, Vec<Value>),
    /// Must change one row.
    One(ServerStatement, Vec<Value>),
}

/// The error of a statement that should have changed one row.
pub(super) fn not_one_row() -> Error {
    Error::Other("a row has changed within its transaction".to_owned())
}

impl Deferred {
    /// Sends the statement when it is first polled. Returns the number of changed rows of the last
    /// statement in it.
    async fn run(&self, client: &Client) -> std::result::Result<u64, tokio_postgres::Error> {
        match self {
            Self::Begin(form) => Ok(query(client, form, &[]).await?.1),
            Self::Text(sql) => run_text(client, sql).await,
            Self::Fence(form, values) | Self::Bound(form, values) | Self::One(form, values) => {
                Ok(query(client, form, values).await?.1)
            }
        }
    }

    /// Returns whether its number of changed rows has to be checked before the commit.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self, Self::Fence(..) | Self::One(..))
    }
}

/// Runs statements without parameters. Returns the number of rows that the last one changed.
pub(super) async fn run_text(
    client: &Client,
    sql: &str,
) -> std::result::Result<u64, tokio_postgres::Error> {
    let count = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::CommandComplete(count) => Some(*count),
        _ => None,
    };
    Ok(client
        .simple_query(sql)
        .await?
        .iter()
        .filter_map(count)
        .next_back()
        .unwrap_or(0))
}

impl PgConnection {
    /// Sends the deferred statements and a request together, and waits for the replies.
    pub(super) fn exchange<T>(
        &self,
        request: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let deferred = self.deferred.take();
        if deferred.is_empty() {
            return self.note(self.session.wait(request));
        }
        let client = self.session.client();
        // Each is sent when it is first polled, which is in this order.
        let earlier =
            futures::future::join_all(deferred.iter().map(|statement| statement.run(client)));
        let replies = self
            .session
            .wait(async { Ok(futures::future::join(earlier, request).await) });
        let (earlier, reply) = self.note(replies)?;
        // In the order of sending: the server answers all statements after a failed one with 25P02,
        // which counts as a lost connection and would hide the cause.
        for (statement, result) in deferred.iter().zip(earlier) {
            match (statement, result) {
                // As a lost connection, so that the writer opens a new session, which finds the
                // epoch of the other hub.
                (Deferred::Fence(..), Ok(0)) => {
                    return self.note(Err(Error::Lost(
                        "another hub has taken over the store".to_owned(),
                    )));
                }
                (Deferred::One(..), Ok(count)) if count != 1 => {
                    return self
                        .note(Err(not_one_row()))
                        .inspect_err(|error| self.doom(error));
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => {
                    let error = self.session.error(&error);
                    return self.note(Err(error)).inspect_err(|error| self.doom(error));
                }
            }
        }
        self.note(reply.map_err(|error| self.session.error(&error)))
    }

    /// Records that a deferred statement has failed.
    fn doom(&self, error: &Error) {
        if self.state.get() != State::Lost {
            self.state.set(State::Doomed);
            self.doom.borrow_mut().get_or_insert_with(|| error.clone());
        }
    }

    /// Runs a statement with the next one.
    pub(super) fn defer(&self, statement: Deferred) -> Result<()> {
        self.deferred.borrow_mut().push(statement);
        if self.deferred.borrow().len() < DEFERRED_MAX {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Sends the deferred statements and waits for their replies.
    pub(super) fn flush(&self) -> Result<()> {
        if self.deferred.borrow().is_empty() {
            Ok(())
        } else {
            self.exchange(std::future::ready(Ok(())))
        }
    }

    /// Runs a statement that writes with the next one.
    pub(super) fn defer_write(&self, sql: &str, statement: Deferred) -> Result<()> {
        self.ahead.note(sql);
        // How many rows it changes is not known yet. At least one is assumed, because the writer
        // takes a refused call without changes for one that needs no rollback.
        self.changes.set(self.changes.get() + 1);
        self.defer(statement)
    }
}
