//! Errors of the store.

use super::db;
use adjutant_core::Denied;
use std::path::PathBuf;

/// Why a transaction was not, or may not have been, committed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The core rejected the operation; nothing has changed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The disk is full; nothing has changed.
    #[error("the disk that holds the store is full")]
    Full,
    /// The commit failed, and its outcome is unknown. Repeat the call with its key.
    #[error("the store failed while committing: {0}")]
    Unknown(String),
    /// A statement failed; nothing has changed.
    #[error("the store failed: {0}")]
    Sql(String),
    /// A row that this binary cannot understand.
    #[error("the store contains an unreadable value: {0}")]
    Corrupt(String),
    #[error(
        "{path} was written by a newer version of adj (schema {found}, this one knows {known}): use that version, or another ADJ_HOME"
    )]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    /// A file in the home was not created by Adjutant or cannot be used.
    #[error("{0}: remove it, or use another ADJ_HOME")]
    Unusable(String),
    #[error("{path} is not a store of adj")]
    NotAStore { path: PathBuf },
    /// A read exceeded its deadline.
    #[error("the search took too long")]
    Interrupted,
    /// The database server cannot be used.
    #[error("the store on PostgreSQL cannot be used: {0}")]
    Unreachable(String),
    /// The connection to the server was lost before the commit; nothing has changed.
    #[error("the connection to PostgreSQL was lost, and nothing was changed: {0}")]
    Lost(String),
    #[error("the store is closed")]
    Closed,
}

impl From<db::Error> for StoreError {
    fn from(error: db::Error) -> Self {
        match error {
            db::Error::Full => Self::Full,
            db::Error::Interrupted => Self::Interrupted,
            db::Error::Lost(problem) => Self::Lost(problem),
            db::Error::SetBack => Self::Closed,
            error => Self::Sql(error.to_string()),
        }
    }
}

impl StoreError {
    /// Converts [`StoreError::Denied`], such as an unknown name, to `None`. Other errors remain.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn none_if_denied<T>(result: Result<T, Self>) -> Result<Option<T>, Self> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(Self::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Converts an error of connecting.
    pub(super) fn of_opening(error: db::Error) -> Self {
        match error {
            db::Error::Full => Self::Full,
            // It is opened again.
            db::Error::SetBack => Self::Closed,
            error => Self::Unreachable(error.to_string()),
        }
    }

    /// Converts the error of reading or writing a file next to the database.
    pub(super) fn from_io(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Sql(error.to_string()),
        }
    }
}
