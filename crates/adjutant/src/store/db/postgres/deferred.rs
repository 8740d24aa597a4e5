//! Deferred statements. A round trip to the server takes longer than most statements. Those whose result nobody reads are therefore sent
//! with the next one that is waited for, in their order. If one of them fails, the whole transaction can only be rolled back.

use super::value::parameter;
use super::{Connection, Error, Result, State, Value};
use futures::TryStreamExt;
use std::future::Future;
use tokio_postgres::{Client, SimpleQueryMessage, Statement as ServerStatement};

/// Maximum number of deferred statements.
const DEFERRED_MAX: usize = 24;

/// A statement that is sent with the next one.
pub(super) enum Deferred {
    /// Begins a transaction that writes. No row changes if another hub has taken over.
    Begin(String),
    Text(String),
    Bound(ServerStatement, Vec<Value>),
}

impl Deferred {
    /// Sends the statement when it is first polled. Returns the number of changed rows of the last statement in it.
    async fn run(&self, client: &Client) -> std::result::Result<u64, tokio_postgres::Error> {
        match self {
            Self::Begin(sql) | Self::Text(sql) => run_text(client, sql).await,
            Self::Bound(form, values) => {
                let parameters = values.iter().zip(form.params()).map(|(value, of)| parameter(value, of));
                let mut stream = std::pin::pin!(client.query_raw(form, parameters.collect::<Vec<_>>()).await?);
                while stream.try_next().await?.is_some() {}
                Ok(stream.rows_affected().unwrap_or(0))
            }
        }
    }
}

/// Runs statements without parameters. Returns the number of rows that the last one changed.
pub(super) async fn run_text(client: &Client, sql: &str) -> std::result::Result<u64, tokio_postgres::Error> {
    let count = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::CommandComplete(count) => Some(*count),
        _ => None,
    };
    Ok(client.simple_query(sql).await?.iter().filter_map(count).next_back().unwrap_or(0))
}

impl Connection {
    /// Sends the deferred statements and a request together, and waits for the replies.
    pub(super) fn exchange<T>(&self, request: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>) -> Result<T> {
        let deferred = self.deferred.take();
        if deferred.is_empty() {
            return self.note(self.session.wait(request));
        }
        let client = self.session.client();
        // Each is sent when it is first polled, which is in this order.
        let earlier = futures::future::join_all(deferred.iter().map(|statement| statement.run(client)));
        let replies = self.session.wait(async { Ok(futures::future::join(earlier, request).await) });
        let (earlier, reply) = self.note(replies)?;
        for (statement, result) in deferred.iter().zip(earlier) {
            match (statement, result) {
                (Deferred::Begin(_), Ok(0)) => return self.note(Err(Error::Lost("another hub has taken over the store".to_owned()))),
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
        if self.deferred.borrow().len() < DEFERRED_MAX { Ok(()) } else { self.flush() }
    }

    /// Sends the deferred statements and waits for their replies.
    pub(super) fn flush(&self) -> Result<()> {
        if self.deferred.borrow().is_empty() { Ok(()) } else { self.exchange(std::future::ready(Ok(()))) }
    }

    /// Runs a statement that writes with the next one.
    pub(super) fn defer_write(&self, (form, values): (ServerStatement, Vec<Value>)) -> Result<()> {
        // How many rows it changes is not known yet.
        self.changes.set(self.changes.get() + 1);
        self.defer(Deferred::Bound(form, values))
    }
}
