//! Errors of the configuration.

use super::problems::{Problem, Structure};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a configuration cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConfigError {
    #[error("{message}")]
    Io { message: String },
    /// The machine is short of a resource, so the file may be readable later.
    #[error("{path}: {source}")]
    Shortage {
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// All problems of the file, each with its line.
    #[error("{path}: {message}")]
    Syntax { path: PathBuf, message: String },
}

impl ConfigError {
    /// Joins all problems of a file into one error.
    pub(super) fn all(path: &Path, problems: &[Problem]) -> Self {
        let lines: Vec<String> = problems
            .iter()
            .map(|Problem { line, text }| format!("line {line}: {text}"))
            .collect();
        let message = match lines.as_slice() {
            [one] => one.clone(),
            all => format!("{} problems: {}", all.len(), all.join("; ")),
        };
        Self::Syntax {
            path: path.to_owned(),
            message,
        }
    }
}

/// Takes the content out of a file's structure.
///
/// # Errors
/// Its problems, if nothing more can be said about it.
pub(super) fn take_file<T>(structure: &mut Structure<T>, path: &Path) -> Result<T, ConfigError> {
    structure
        .file
        .take()
        .ok_or_else(|| ConfigError::all(path, &structure.problems))
}
