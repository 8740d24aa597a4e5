//! What the hub's store has confirmed, as its hubs tell their runners: a database that was set back
//! is noticed by it.

use crate::config::Home;
use crate::files;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Longest statement of a hub, in bytes.
const STATEMENT_BYTES_MAX: usize = 8 * 1024;

/// What a hub of the store has said last, in the home of the runner. Only the hubs can read it.
#[derive(Debug)]
pub(super) struct RunnerNote {
    base: PathBuf,
    path: PathBuf,
    last: Mutex<Option<String>>,
}

impl RunnerNote {
    /// Reads the note of a runner's home.
    pub(super) fn open(home: &Home) -> Self {
        let (base, path) = (home.dir.clone(), home.confirmed());
        let read = files::read(&base, &path, STATEMENT_BYTES_MAX as u64);
        if let Err(error) = &read
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what the hub has confirmed cannot be read");
        }
        let last = read.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        Self {
            base,
            path,
            last: Mutex::new(last.filter(|text| !text.is_empty())),
        }
    }

    /// Returns what was said last.
    pub(super) fn last(&self) -> Option<String> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps what a hub says.
    pub(super) fn keep(&self, statement: Option<String>) {
        let Some(statement) = statement.filter(|statement| statement.len() <= STATEMENT_BYTES_MAX)
        else {
            return;
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() == Some(&statement) {
            return;
        }
        if let Err(error) = files::write_atomically(&self.base, &self.path, statement.as_bytes()) {
            tracing::warn!(%error, "what the hub has confirmed cannot be noted");
        }
        *last = Some(statement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_keeps_what_was_said_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(dir.path()).expect("a home");
        let note = RunnerNote::open(&home);
        assert_eq!(note.last(), None);
        note.keep(Some("one".to_owned()));
        note.keep(None);
        note.keep(Some("two".to_owned()));
        note.keep(Some("x".repeat(STATEMENT_BYTES_MAX + 1)));
        assert_eq!(RunnerNote::open(&home).last().as_deref(), Some("two"));
    }
}
