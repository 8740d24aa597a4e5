//! Removed runs whose files may be left on runners. Only a run in this list is removed by a runner:
//! that a store does not know a run proves nothing, because it may be another store, or a restored
//! one.

use super::{hosts_of, runner_name};
use crate::store::{Connection, StoreError, Tx, token_by_name};
use adjutant_core::RunId;
use std::collections::BTreeSet;

/// Lists removed runs whose files a host may have, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn left_on_runner(
    connection: &Connection,
    host: &str,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT run FROM left_on_runners WHERE host = ?1 ORDER BY run LIMIT ?2";
    Ok(connection.prepare_cached(sql)?.read_rows((host, limit))?)
}

impl Tx<'_> {
    /// Records the runners that may have files of a run that is to be removed, except those whose
    /// tokens were revoked. They remove these files, with work that they have not sent.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn note_left_on_runners(&mut self, run: RunId) -> Result<(), StoreError> {
        let hosts: BTreeSet<String> = hosts_of(self.connection(), run)?
            .into_iter()
            .map(|(_, host)| host)
            .collect();
        for host in hosts {
            if token_by_name(self.connection(), runner_name(&host))?.is_some() {
                self.prepare("INSERT INTO left_on_runners (host, run) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?.run((host, run.to_string()))?;
            }
        }
        Ok(())
    }

    /// Records that a host has removed the files of runs.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_left_on_runner(&mut self, host: &str, runs: &[String]) -> Result<(), StoreError> {
        for run in runs {
            self.prepare("DELETE FROM left_on_runners WHERE host = ?1 AND run = ?2")?
                .run((host, run))?;
        }
        Ok(())
    }
}

/// Forgets what is left on the hosts of a revoked token. They cannot connect any more.
pub(in crate::store) fn forget_left_with_token(
    tx: &mut Tx<'_>,
    token: &str,
) -> Result<(), StoreError> {
    // `0` is the character after `/`.
    tx.prepare("DELETE FROM left_on_runners WHERE host >= ?1 AND host < ?2")?
        .run((format!("{token}/"), format!("{token}0")))?;
    Ok(())
}
