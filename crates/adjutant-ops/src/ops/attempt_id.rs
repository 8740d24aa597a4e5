//! One attempt of one run: its identity, its directory, and whether it is the newest one.

use crate::config::Home;
use crate::protocol::AttemptDir;
use crate::store::{Store, StoreError, run_by_id};
use adjutant_core::{AttemptNo, RunId, RunState};

/// One attempt of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    pub run: RunId,
    pub n: AttemptNo,
}

impl AttemptId {
    /// Parses `<run-id>/<attempt>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (run, n) = text.split_once('/')?;
        Some(Self {
            run: RunId::parse(run).ok()?,
            n: AttemptNo(n.parse().ok()?),
        })
    }

    /// Returns the directory of the attempt's files.
    pub fn dir(self, home: &Home) -> AttemptDir {
        AttemptDir::new(&home.dir, &self.run.to_string(), self.n.0)
    }

    /// Returns whether the attempt is still starting. True if unknown.
    pub fn is_starting(self, store: &Store) -> bool {
        let run = store.read(|connection| run_by_id(connection, self.run));
        run.map_or(true, |run| {
            run.is_some_and(|run| run.attempt == self.n && run.state == RunState::Starting)
        })
    }

    /// Returns whether the attempt is settled.
    pub fn is_settled(self, store: &Store) -> Result<bool, StoreError> {
        let run = store.read(|connection| run_by_id(connection, self.run))?;
        Ok(run.is_none_or(|run| run.attempt != self.n || !run.state.is_live()))
    }
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.run, self.n)
    }
}
