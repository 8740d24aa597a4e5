//! Where the store's database is.

use super::db::{Connection, Error, postgres};
use super::lead::Lead;
use super::{ConfirmedNote, StoreError, open};
use crate::config::{Home, PostgresAddress};
use std::sync::Arc;

/// Where the store's database is.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// A file in the home.
    Home(Home),
    /// A database on a server.
    Postgres(PostgresAddress),
}

impl StoreLocation {
    /// Returns whether there is a store, in any version.
    pub(super) fn has_store(&self) -> Result<bool, StoreError> {
        match self {
            Self::Home(home) => Ok(home.database().exists()),
            Self::Postgres(address) => {
                postgres::open::has_store(address).map_err(StoreError::of_opening)
            }
        }
    }

    /// Opens the only connection that writes, and creates or migrates the schema. `replaced`: the
    /// lost connection before it. `note`: where what a database on a server has confirmed is noted.
    pub(super) fn writable(
        &self,
        replaced: Option<&postgres::open::Replaced>,
        note: &Arc<ConfirmedNote>,
    ) -> Result<Connection, StoreError> {
        match self {
            Self::Home(home) => open::writable(home),
            Self::Postgres(address) => postgres::open::writable(address, replaced, note)
                .map(Connection::from)
                .map_err(StoreError::of_opening),
        }
    }

    /// Opens a connection that reads.
    pub(super) fn read_only(&self, note: Option<&ConfirmedNote>) -> Result<Connection, StoreError> {
        match self {
            Self::Home(home) => open::read_only(home),
            Self::Postgres(address) => postgres::open::read_only(address, note)
                .map(Connection::from)
                .map_err(StoreError::of_opening),
        }
    }
}

/// How the store of a hub is reached.
pub(super) enum Access {
    /// The note is unused if the database is a file.
    Place(StoreLocation, Arc<ConfirmedNote>),
    /// A database that several hubs share, while this hub is the leader.
    Lead(Arc<Lead>),
}

impl Access {
    pub(super) fn writable(
        &self,
        replaced: Option<&postgres::open::Replaced>,
    ) -> Result<Connection, StoreError> {
        match self {
            Self::Place(place, note) => place.writable(replaced, note),
            Self::Lead(lead) => lead.writable(replaced).map_err(|error| match error {
                // The hub becomes a standby hub, and passes repeated calls to the leader.
                Error::TakenOver(_) => StoreError::Closed,
                error => StoreError::of_opening(error),
            }),
        }
    }

    pub(super) fn read_only(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Place(place, note) => place.read_only(Some(note)),
            Self::Lead(lead) => postgres::open::read_only(lead.address(), Some(lead.note()))
                .map(Connection::from)
                .map_err(StoreError::of_opening),
        }
    }

    /// Returns the home, if the store is in a file there.
    pub(super) fn home(&self) -> Option<&Home> {
        match self {
            Self::Place(StoreLocation::Home(home), _) => Some(home),
            Self::Place(StoreLocation::Postgres(_), _) | Self::Lead(_) => None,
        }
    }

    /// Returns the note of what is confirmed, if the store is on a server.
    pub(super) fn note(&self) -> Option<&Arc<ConfirmedNote>> {
        match self {
            Self::Place(StoreLocation::Home(_), _) => None,
            Self::Place(StoreLocation::Postgres(_), note) => Some(note),
            Self::Lead(lead) => Some(lead.note()),
        }
    }
}
