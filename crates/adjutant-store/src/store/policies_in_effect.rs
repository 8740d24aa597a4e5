//! The policies of the configuration file that are in effect.

use super::{StoreError, Tx};
use crate::config::PolicySet;
use crate::store::db::{Connection, params, row, select};

row! {
    /// What identifies the policies in effect.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PoliciesInEffect {
        pub digest: String,
        /// A run is live, or was live when the policies changed or could not be read: a change needs
        /// the person's trust.
        pub is_guarded: bool = "guarded = 1",
    }
}

/// Returns what identifies the policies in effect. `None`: none were recorded.
///
/// # Errors
/// A failure of the store.
pub fn policies_in_effect(connection: &Connection) -> Result<Option<PoliciesInEffect>, StoreError> {
    Ok(connection
        .prepare_cached(select!(PoliciesInEffect, "FROM policies_in_effect"))?
        .find_row([])?)
}

/// Returns the policies in effect, as [`PolicySet::source`].
///
/// # Errors
/// A failure of the store.
pub fn source_in_effect(connection: &Connection) -> Result<Option<String>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT source FROM policies_in_effect")?
        .find_row([])?)
}

/// Returns whether any run may have a live attempt.
///
/// # Errors
/// A failure of the store.
pub fn has_live_runs(connection: &Connection) -> Result<bool, StoreError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM runs WHERE state IN ('starting', 'running', 'stopping'))";
    Ok(connection.prepare_cached(sql)?.read_row([])?)
}

impl Tx<'_> {
    /// Records the policies in effect.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_policies_in_effect(
        &mut self,
        policies: &PolicySet,
        is_guarded: bool,
    ) -> Result<(), StoreError> {
        let sql = "INSERT INTO policies_in_effect (one, source, digest, guarded) VALUES (1, ?1, ?2, ?3)
                   ON CONFLICT (one) DO UPDATE SET source = excluded.source, digest = excluded.digest, guarded = excluded.guarded";
        self.prepare(sql)?.run(params![
            policies.source(),
            policies.digest(),
            i64::from(is_guarded)
        ])?;
        Ok(())
    }

    /// Records whether a change of the policies needs the person's trust.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_policies_guarded(&mut self, is_guarded: bool) -> Result<(), StoreError> {
        self.prepare("UPDATE policies_in_effect SET guarded = ?1 WHERE guarded <> ?1")?
            .run([i64::from(is_guarded)])?;
        Ok(())
    }
}
