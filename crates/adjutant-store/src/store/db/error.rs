//! Errors of the driver.

use std::sync::Arc;

/// The result of a statement.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a statement failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The query has no row.
    #[error("the query returned no rows")]
    NoRows,
    /// A column has another type than expected.
    #[error("column {column} has the type {found}")]
    Type { column: usize, found: &'static str },
    /// A value is not one of its type, such as an id or a word.
    #[error("an unreadable value: {what}")]
    Unreadable {
        what: String,
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
    /// A column has JSON that is not a value of its type.
    #[error("{0}")]
    Json(Arc<serde_json::Error>),
    /// The statement violates a constraint of the schema.
    #[error("{0}")]
    Constraint(String),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// The memory that connections share cannot be created.
    #[error("{0}")]
    SharedMemory(String),
    /// The database is damaged.
    #[error("{0}")]
    Corrupt(String),
    /// The connection to the server is lost, or cannot be made.
    #[error("PostgreSQL: {0}")]
    Lost(String),
    /// The database lacks transactions that were confirmed.
    #[error("the database was set back: it lacks transactions that were confirmed")]
    SetBack,
    /// A lost connection cannot be replaced: another hub has used the database since, or uses it.
    #[error("{0}")]
    TakenOver(String),
    /// The statement reached its deadline.
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// The error for a value that is not one of its type.
    pub(in crate::store) fn unreadable(what: impl Into<String>) -> Self {
        Self::Unreadable {
            what: what.into(),
            source: None,
        }
    }

    /// The same for a column with JSON, if the message does not say what is wrong with it.
    pub(in crate::store) fn unreadable_json(what: &str, error: serde_json::Error) -> Self {
        Self::Unreadable {
            what: what.to_owned(),
            source: Some(Arc::new(error)),
        }
    }

    /// The error for a column with invalid JSON.
    pub(in crate::store) fn json(error: serde_json::Error) -> Self {
        Self::Json(Arc::new(error))
    }

    /// Names the row of a value that cannot be understood.
    #[cold]
    pub(super) fn in_row(self, name: impl FnOnce() -> String) -> Self {
        match self {
            Self::Unreadable { .. } => Self::Unreadable {
                what: name(),
                source: Some(Arc::new(self)),
            },
            Self::Json(error) => Self::Unreadable {
                what: format!("{}: {error}", name()),
                source: Some(error),
            },
            error => error,
        }
    }
}
