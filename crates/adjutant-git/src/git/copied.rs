//! The record of files that were copied into a workspace because git does not contain them, such as
//! `.env`.
//!
//! ```text
//!  <workspaces>/<run>/.copied   the list of copied files; no snapshot contains them
//! ```

use super::{GitError, Scratch};
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

impl Scratch {
    /// Returns the paths that were possibly copied into a workspace and that commits on top of the
    /// base contain.
    ///
    /// # Errors
    /// git failed.
    pub async fn committed_copies(
        &self,
        paths: &[String],
        base: &str,
        heads: &[String],
    ) -> Result<Vec<String>, GitError> {
        let mut found = Vec::new();
        for path in paths {
            // Files that the base contains are never copied.
            let listed = self
                .call(&[
                    "--literal-pathspecs",
                    "ls-tree",
                    "-z",
                    "--full-tree",
                    base,
                    "--",
                    path,
                ])
                .output()
                .await?;
            if !listed.is_empty() {
                continue;
            }
            let mut call = self.call(&[
                "--literal-pathspecs",
                "rev-list",
                "--full-history",
                "--max-count=1",
                &format!("^{base}"),
            ]);
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
