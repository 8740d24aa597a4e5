//! Objects at a provider (S3 and compatible servers, Google Cloud Storage, Azure Blob Storage) or
//! in a directory.
//!
//! Credentials are read when a store is opened. Only `store` uses the `object_store` crate, without
//! its HTTP client: requests are made by `http`, with the TLS of the other connections. A build
//! without the feature `log-store` has neither, and opens no store.

#[cfg(not(feature = "log-store"))]
mod absent;
#[cfg(feature = "log-store")]
mod http;
#[cfg(feature = "log-store")]
mod store;

use crate::config::CredentialsError;
use crate::tls::TrustError;
#[cfg(not(feature = "log-store"))]
pub use absent::Objects;
use std::io;
use std::path::PathBuf;
#[cfg(feature = "log-store")]
pub use store::Objects;

/// Files up to this size are one request, larger ones are sent in parts of this size.
pub const PART_BYTES: usize = 8 * 1024 * 1024;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the directory {0} does not exist: create it, or mount its file system")]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Tls(#[from] TrustError),
    /// The provider's client refuses them.
    #[error("the credentials cannot be used: {0}")]
    Unusable(String),
    /// A build without the feature `log-store`.
    #[error(
        "this adj was built without the log store: install one with its default features, or remove log_store"
    )]
    NotBuiltIn,
}

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("there is no such object or bucket")]
    Missing,
    #[error("access is denied: check the credentials and what they permit ({0})")]
    Denied(String),
    #[error("{0}")]
    Failed(String),
    /// What is to be stored cannot be read.
    #[error(transparent)]
    Source(#[from] io::Error),
}
