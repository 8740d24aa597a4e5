//! One transaction: the connection, the time, and which bells to ring once it is durable.

use super::{StoreError, Topic};
use adjutant_core::Time;
use rusqlite::{CachedStatement, Connection};

/// A transaction under way. Everything in it has the same time.
pub struct Tx<'a> {
    connection: &'a Connection,
    now: Time,
    topics: Vec<Topic>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(connection: &'a Connection, now: Time) -> Self {
        Self { connection, now, topics: Vec::new() }
    }

    /// Returns the connection, for the reads that are shared with those outside transactions.
    #[must_use]
    pub fn connection(&self) -> &'a Connection {
        self.connection
    }

    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Has a bell rung after the commit.
    pub fn ring(&mut self, topic: Topic) {
        self.topics.push(topic);
    }

    pub(super) fn into_topics(self) -> Vec<Topic> {
        self.topics
    }

    pub(super) fn prepare(&self, sql: &str) -> Result<CachedStatement<'a>, StoreError> {
        Ok(self.connection.prepare_cached(sql)?)
    }
}
