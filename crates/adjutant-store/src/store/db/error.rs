//! Errors of the driver.

/// The result of a statement.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a statement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The query has no row.
    #[error("the query returned no rows")]
    NoRows,
    /// A column has another type than expected.
    #[error("column {column} has the type {found}")]
    Type { column: usize, found: &'static str },
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

/// Converts the result of a query without rows to `None`.
pub trait OptionalExtension<T> {
    /// Converts [`Error::NoRows`] to `None`.
    ///
    /// # Errors
    /// Other errors remain.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExtension<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoRows) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
