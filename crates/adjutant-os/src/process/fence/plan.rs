//! The plan of a fence, as the supervisor computes it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The paths that a worker can see and write. All are absolute and without links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencePlan {
    pub cwd: PathBuf,
    /// Writable directories and files, with everything below.
    pub writable: Vec<PathBuf>,
    /// Directories that appear empty except for paths of this plan below them.
    pub hidden: Vec<PathBuf>,
    /// Files that cannot be opened.
    pub hidden_files: Vec<PathBuf>,
    /// Directories that are replaced by other, writable ones.
    pub private: Vec<PrivateDir>,
    /// Paths that stay visible below a hidden or private directory. Missing ones are ignored.
    pub readable: Vec<PathBuf>,
    /// Directories in which no file can be created; tested from inside.
    pub denied: Vec<PathBuf>,
    /// Paths that do not exist for the worker; tested from inside.
    pub absent: Vec<PathBuf>,
    /// The directory for temporary files, if it does not replace `/tmp`.
    pub temporary: Option<PathBuf>,
    /// The worker is root, so the kernel's settings in `/proc` must be protected too.
    pub is_root: bool,
}

/// The directory `source`, which replaces the directory `at`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateDir {
    pub at: PathBuf,
    pub source: PathBuf,
}
