//! The policies of the repositories that a run and its parents work in, as they were at the start
//! of each.

use super::{StoreError, Tx};
use crate::config::RepositoryPolicies;
use crate::store::db::{Connection, params};
use adjutant_core::RunId;
use serde::{Deserialize, Serialize};

/// The serialized policies of one file.
#[derive(Serialize, Deserialize)]
struct PoliciesRow {
    directory: String,
    text: Result<String, String>,
    only_narrows: bool,
}

/// Reads the policies of repositories that apply to a run.
///
/// # Errors
/// A failure of the store.
pub fn repository_policies_of(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<RepositoryPolicies>, StoreError> {
    let written: Option<Option<String>> = connection
        .prepare_cached("SELECT repository_policies FROM runs WHERE id = ?1")?
        .find_row([run.to_string()])?;
    let Some(written) = written.flatten() else {
        return Ok(Vec::new());
    };
    let rows: Vec<PoliciesRow> = serde_json::from_str(&written)
        .map_err(|error| StoreError::Corrupt(format!("policies of run {run}: {error}")))?;
    let policies = |PoliciesRow {
                        directory,
                        text,
                        only_narrows,
                    }: PoliciesRow| RepositoryPolicies {
        directory,
        text,
        only_narrows,
    };
    Ok(rows.into_iter().map(policies).collect())
}

impl Tx<'_> {
    /// Stores the policies of repositories that apply to a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_repository_policies(
        &mut self,
        run: RunId,
        policies: Vec<RepositoryPolicies>,
    ) -> Result<(), StoreError> {
        let row = |RepositoryPolicies {
                       directory,
                       text,
                       only_narrows,
                   }: RepositoryPolicies| PoliciesRow {
            directory,
            text,
            only_narrows,
        };
        let rows: Vec<PoliciesRow> = policies.into_iter().map(row).collect();
        let written =
            serde_json::to_string(&rows).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("UPDATE runs SET repository_policies = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), written])?;
        Ok(())
    }
}
