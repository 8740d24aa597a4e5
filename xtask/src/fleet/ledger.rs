//! What was acknowledged, and what went wrong.

use adjutant_api::view::{Dispatch, ErrorView};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All acknowledged writes.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The run and the dispatch of each key.
    pub runs: BTreeMap<String, (String, Dispatch)>,
    /// The accepted answer of each request.
    pub answers: BTreeMap<String, String>,
    pub posts: Vec<String>,
    pub problems: Vec<String>,
    /// Counts acknowledged writes.
    pub progress: u64,
    /// Counts waits that ended as they must.
    pub waits: u64,
}

impl Ledger {
    /// Returns what was acknowledged, as text.
    pub fn counts(&self) -> String {
        format!(
            "{} runs, {} answers, {} posts, {} waits",
            self.runs.len(),
            self.answers.len(),
            self.posts.len(),
            self.waits
        )
    }

    pub fn record_post<T>(&mut self, text: String, posted: std::result::Result<T, ErrorView>) {
        match posted {
            Ok(_) => {
                self.posts.push(text);
                self.progress += 1;
            }
            Err(error) => self
                .problems
                .push(format!("{text}: {}: {error}", error.code)),
        }
    }
}

pub type Shared = Arc<Mutex<Ledger>>;

pub fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
