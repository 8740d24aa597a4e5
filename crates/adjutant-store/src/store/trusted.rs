//! Agent configuration in directories that the person has trusted.

use super::{StoreError, Tx};
use crate::store::db::{Connection, params};
use adjutant_core::Principal;

/// Returns whether the person has trusted a directory with this content.
///
/// # Errors
/// A failure of the store.
pub fn is_trusted(connection: &Connection, cwd: &str, hash: &str) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM trusted WHERE cwd = ?1 AND hash = ?2)";
    Ok(connection.prepare_cached(sql)?.read_row([cwd, hash])?)
}

/// Returns whether the person has trusted a directory with any content whose hash begins so.
///
/// # Errors
/// A failure of the store.
pub fn has_trusted(
    connection: &Connection,
    cwd: &str,
    hash_prefix: &str,
) -> Result<bool, StoreError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM trusted WHERE cwd = ?1 AND substr(hash, 1, length(?2)) = ?2)";
    Ok(connection
        .prepare_cached(sql)?
        .read_row([cwd, hash_prefix])?)
}

impl Tx<'_> {
    /// Trusts a directory with this content.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn trust(&mut self, cwd: &str, hash: &str, by: &Principal) -> Result<(), StoreError> {
        self.prepare("INSERT INTO trusted (cwd, hash, by, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")?.run(params![
            cwd,
            hash,
            by.to_string(),
            self.now().0
        ])?;
        Ok(())
    }
}
