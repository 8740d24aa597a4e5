//! What can go wrong with the store.

use adjutant_core::Denied;
use rusqlite::ErrorCode;
use std::path::PathBuf;

/// Why a transaction did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The rules say no; nothing has changed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// No room; nothing has changed.
    #[error("the disk that holds the store is full")]
    Full,
    /// The commit failed: it may or may not be in the store. Repeat it with its key.
    #[error("the store failed while committing: {0}")]
    Unknown(String),
    /// A statement failed; nothing has changed.
    #[error("the store failed: {0}")]
    Sql(String),
    /// A row that this binary cannot understand.
    #[error("the store holds something unreadable: {0}")]
    Corrupt(String),
    #[error("{path} was written by a newer version of adj (schema {found}, this one knows {known}): use that version, or another ADJ_HOME")]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// A file of the store is none of Adjutant.
    #[error("{0}: remove it, or use another ADJ_HOME")]
    Unusable(String),
    #[error("{path} is not a store of adj")]
    NotAStore { path: PathBuf },
    /// A read went on beyond its deadline.
    #[error("the search took too long")]
    Interrupted,
    #[error("the store is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::OperationInterrupted) => Self::Interrupted,
            _ => Self::Sql(error.to_string()),
        }
    }
}

impl StoreError {
    /// Returns `None` for what the rules refuse, such as a name that nothing has. Other failures stay errors.
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

    /// A file beside the database could not be read or written.
    pub(super) fn from_io(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Sql(error.to_string()),
        }
    }
}

/// Tells whether an error means that there is no room on the disk.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull))
}
