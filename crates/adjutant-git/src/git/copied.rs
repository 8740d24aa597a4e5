//! The record of files that were copied into a workspace because git does not contain them, such as
//! `.env`.
//!
//! ```text
//!  <workspaces>/<run>/.copied   the list of copied files; no snapshot contains them
//! ```

use super::GitError;
use crate::files;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of the record, in bytes.
const RECORD_BYTES_MAX: u64 = 1024 * 1024;

/// The configured files that were copied into a workspace, and those that were not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFiles {
    pub copied: Vec<String>,
    pub not_copied: Vec<NotCopied>,
}

/// A configured file that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopied {
    pub path: String,
    pub why: String,
}

/// Reads the record of a workspace.
///
/// # Errors
/// The record cannot be read.
pub fn copied_files(home: &Path, workspace: &Path) -> Result<CopiedFiles, GitError> {
    let record = record_of(workspace);
    match files::read(home, &record, RECORD_BYTES_MAX) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| GitError::File {
            path: record,
            error: error.into(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CopiedFiles::default()),
        Err(error) => Err(GitError::File {
            path: record,
            error,
        }),
    }
}

pub(super) fn record_of(workspace: &Path) -> PathBuf {
    workspace.parent().unwrap_or(workspace).join(".copied")
}
