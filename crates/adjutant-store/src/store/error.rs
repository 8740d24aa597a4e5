//! Errors of the store.

use super::db;
use adjutant_core::Denied;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

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
    Unknown(#[source] Problem),
    /// A statement failed; nothing has changed.
    #[error("the store failed: {0}")]
    Sql(#[source] Problem),
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
    #[error(
        "{path} was written by an unreleased version of adj, whose homes this version cannot open: use another ADJ_HOME, or remove this one"
    )]
    Unreleased { path: PathBuf },
    /// A file in the home was not created by Adjutant or cannot be used.
    #[error("{0}: remove it, or use another ADJ_HOME")]
    Unusable(#[source] Problem),
    #[error("{path} is not a store of adj")]
    NotAStore { path: PathBuf },
    /// A read exceeded its deadline.
    #[error("the search took too long")]
    Interrupted,
    /// The database server cannot be used.
    #[error("the store on PostgreSQL cannot be used: {0}")]
    Unreachable(#[source] Problem),
    /// The connection to the server was lost before the commit; nothing has changed.
    #[error("the connection to PostgreSQL was lost, and nothing was changed: {0}")]
    Lost(#[source] Problem),
    #[error("the store is closed")]
    Closed,
}

/// What went wrong, and the error behind it, if there is one. Cheap to clone, because each call of a
/// batch gets it.
#[derive(Debug, Clone)]
pub struct Problem {
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Problem {
    /// A problem that is described in other words than those of its error.
    pub(super) fn new(text: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self {
            text: text.into(),
            source: Some(Arc::new(source)),
        }
    }

    /// An error, in its own words.
    pub(super) fn of(source: impl Error + Send + Sync + 'static) -> Self {
        Self::new(source.to_string(), source)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            source: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_deref()?)
    }
}

impl From<db::Error> for StoreError {
    fn from(error: db::Error) -> Self {
        match error {
            db::Error::Full => Self::Full,
            db::Error::Interrupted => Self::Interrupted,
            db::Error::Lost(ref problem) => Self::Lost(Problem::new(problem.clone(), error)),
            db::Error::SetBack => Self::Closed,
            db::Error::Unreadable { what, .. } => Self::Corrupt(what),
            db::Error::Json(error) => Self::Corrupt(error.to_string()),
            error => Self::Sql(Problem::of(error)),
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
            error => Self::Unreachable(Problem::of(error)),
        }
    }

    /// Converts the error of reading or writing a file next to the database.
    pub(super) fn from_io(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Sql(Problem::of(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_statement_keeps_its_source() {
        let failed = StoreError::from(db::Error::Constraint("no such run".to_owned()));
        assert_eq!(failed.to_string(), "the store failed: no such run");
        let mut source = failed.source();
        while let Some(next) = source.and_then(Error::source) {
            source = Some(next);
        }
        let statement = source.and_then(|source| source.downcast_ref::<db::Error>());
        assert!(
            matches!(statement, Some(db::Error::Constraint(_))),
            "{failed:?}"
        );
    }

    #[test]
    fn lost_connection_is_named_once() {
        let lost = StoreError::from(db::Error::Lost("reset by peer".to_owned()));
        assert_eq!(
            lost.to_string(),
            "the connection to PostgreSQL was lost, and nothing was changed: reset by peer"
        );
    }
}
