//! Where the store's database is.

use super::db::{Connection, Error, postgres};
use super::{StoreError, open};
use crate::config::{Home, PostgresAddress};

/// Where the store's database is.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file in the home.
    Home(Home),
    /// A database on a server.
    Postgres(PostgresAddress),
}

impl Place {
    /// Returns whether there is a store, in any version.
    pub(super) fn has_store(&self) -> Result<bool, StoreError> {
        match self {
            Self::Home(home) => Ok(home.database().exists()),
            Self::Postgres(address) => postgres::open::has_store(address).map_err(opening),
        }
    }

    /// Opens the only connection that writes, and creates or migrates the schema. `replaced`: the lost connection before it.
    pub(super) fn writable(&self, replaced: Option<postgres::open::Replaced>) -> Result<Connection, StoreError> {
        match self {
            Self::Home(home) => open::writable(home),
            Self::Postgres(address) => postgres::open::writable(address, replaced).map(Connection::from).map_err(opening),
        }
    }

    /// Opens a connection that reads.
    pub(super) fn read_only(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Home(home) => open::read_only(home),
            Self::Postgres(address) => postgres::open::read_only(address).map(Connection::from).map_err(opening),
        }
    }
}

/// Converts an error of connecting.
fn opening(error: Error) -> StoreError {
    match error {
        Error::Full => StoreError::Full,
        error => StoreError::Away(error.to_string()),
    }
}
