//! Removing finished runs with their files.

use crate::clock;
use crate::config::Home;
use crate::ops::{OpError, Ops};
use crate::store::Run;
use crate::view::Cleaned;
use adjutant_core::{Action, Principal, RunId};
use std::collections::BTreeSet;

impl Ops {
    /// Removes finished runs that are old enough, with their files.
    ///
    /// # Errors
    /// The caller may not, or a failure of the store.
    pub async fn clean(&self, who: &Principal, older_than_ms: i64, dry_run: bool) -> Result<Cleaned, OpError> {
        Self::check(who, Action::Clean)?;
        let before = clock::steady().plus_ms(older_than_ms.saturating_neg());
        let mut cleaned = Cleaned { runs: Vec::new(), dry_run };
        loop {
            let skip = if dry_run { u32::try_from(cleaned.runs.len()).unwrap_or(u32::MAX) } else { 0 };
            let old = self.store.read(|connection| crate::store::old_finished(connection, before, skip.saturating_add(100)))?;
            let old: Vec<Run> = old.into_iter().skip(skip as usize).collect();
            if old.is_empty() {
                return Ok(cleaned);
            }
            cleaned.runs.extend(old.iter().map(|run| run.name.clone()));
            if !dry_run {
                for run in &old {
                    self.remove_snapshots(run).await;
                }
                // Files first: after a crash in between, the next clean finds the rest.
                let (home, runs) = (self.home.clone(), old.iter().map(|run| run.id).collect::<Vec<_>>());
                let removed = tokio::task::spawn_blocking(move || crate::ops::runs::clean::remove_files(&home, &runs)).await;
                removed.map_err(|error| OpError::Io(error.to_string()))?;
                self.store.write(move |tx| old.iter().try_for_each(|run| tx.remove(run))).await?;
            }
        }
    }
}

/// Removes the files of runs. Files that cannot be removed are logged and left.
pub(super) fn remove_files(home: &Home, runs: &[RunId]) {
    let runs: BTreeSet<String> = runs.iter().map(RunId::to_string).collect();
    match std::fs::read_dir(home.logs_dir()) {
        Ok(entries) => {
            let is_theirs = |name: &std::ffi::OsStr| name.to_str().and_then(|name| name.split_once('.')).is_some_and(|(run, _)| runs.contains(run));
            for entry in entries.flatten().filter(|entry| is_theirs(&entry.file_name())) {
                if let Err(error) = std::fs::remove_file(entry.path()) {
                    tracing::warn!(%error, path = %entry.path().display(), "a log cannot be removed");
                }
            }
        }
        Err(error) => tracing::warn!(%error, "the logs cannot be listed"),
    }
    for run in runs {
        let dir = home.runs_dir().join(run);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %dir.display(), "a run's files cannot be removed")
            }
            _ => {}
        }
    }
}
