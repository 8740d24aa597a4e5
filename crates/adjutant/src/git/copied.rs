//! Which files of the user's work tree a workspace was given although git does not have them, such as `.env`.
//!
//! ```text
//!  <workspaces>/<run>/.copied   which ones; no snapshot has them
//! ```

use super::{GitError, Scratch};
use crate::files;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Largest record, in bytes.
const RECORD_BYTES_MAX: u64 = 1024 * 1024;

/// The files that a workspace was given, and those that it was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFiles {
    pub copied: Vec<String>,
    pub not_copied: Vec<NotCopied>,
}

/// A configured file that a workspace was not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCopied {
    pub path: String,
    pub why: String,
}

/// Reads which files a workspace was given.
///
/// # Errors
/// The record cannot be read.
pub fn copied_files(home: &Path, workspace: &Path) -> Result<CopiedFiles, GitError> {
    let record = record_of(workspace);
    match files::read(home, &record, RECORD_BYTES_MAX) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| GitError::File { path: record, error: error.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CopiedFiles::default()),
        Err(error) => Err(GitError::File { path: record, error }),
    }
}

impl Scratch {
    /// Returns those of the files that a workspace may have been given, and that commits on top of the base have.
    ///
    /// # Errors
    /// git failed.
    pub async fn committed_copies(&self, paths: &[String], base: &str, heads: &[String]) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        for path in paths {
            // A file of the repository itself is not copied.
            let listed = self.call(&["--literal-pathspecs", "ls-tree", "-z", "--full-tree", base, "--", path]).output().await?;
            if !listed.is_empty() {
                continue;
            }
            let mut call = self.call(&["--literal-pathspecs", "rev-list", "--full-history", "--max-count=1", &format!("^{base}")]);
            for head in heads {
                call = call.arg(head);
            }
            if !call.arg("--").arg(path).output().await?.is_empty() {
                found.push(path.clone());
            }
        }
        Ok(found)
    }
}

pub(super) fn record_of(workspace: &Path) -> PathBuf {
    workspace.parent().unwrap_or(workspace).join(".copied")
}

/// Returns the pattern that excludes one path from the top, whatever characters are in it.
pub fn pattern_of(path: &[u8]) -> Vec<u8> {
    let mut pattern = vec![b'/'];
    for byte in path {
        if b"\\*?[! #".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}
