//! What a fence leaves to a worker, as its supervisor works it out.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a worker can see and write. All paths are absolute, without links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencePlan {
    pub cwd: PathBuf,
    /// Directories and files that can be written, with everything below.
    pub writable: Vec<PathBuf>,
    /// Directories that appear empty, but for what this plan names below them.
    pub hidden: Vec<PathBuf>,
    /// Files that cannot be opened.
    #[serde(default)]
    pub hidden_files: Vec<PathBuf>,
    /// Directories in whose place another one stands, which can be written.
    pub private: Vec<PrivateDir>,
    /// What stays visible below a hidden or private directory. Left out where it does not exist.
    pub readable: Vec<PathBuf>,
    /// Directories in which no file can be created: tested from inside.
    pub denied: Vec<PathBuf>,
    /// What does not exist for the worker: tested from inside.
    pub absent: Vec<PathBuf>,
    /// The directory for temporary files, if it is not in the place of `/tmp`.
    #[serde(default)]
    pub temporary: Option<PathBuf>,
    /// The worker is root: it must not reach the kernel's settings in `/proc` either.
    pub is_root: bool,
}

/// A directory that stands in the place of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateDir {
    pub at: PathBuf,
    pub source: PathBuf,
}
