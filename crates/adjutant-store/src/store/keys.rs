//! Idempotency: the same call under the same key has one effect and one reply.

use super::{StoreError, Tx};
use crate::store::db::{Connection, params};
use adjutant_core::{Denied, Principal, SteadyTime};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// How long a key is remembered, in milliseconds: 7 days.
pub const KEYS_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// The idempotency key of a call, with a hash of the call. The same key with another body is
/// refused.
#[derive(Debug, Clone)]
pub struct Key {
    key: String,
    body_hash: [u8; 32],
}

impl Key {
    /// Creates the key of the call `name` with `body`.
    #[must_use]
    pub fn new(key: &str, name: &str, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(body);
        Self {
            key: key.to_owned(),
            body_hash: hash.finalize().into(),
        }
    }

    /// Returns the key for a part of its call, as if the part were a call of its own.
    #[must_use]
    pub fn for_part(&self, name: &str, body: &[u8]) -> Self {
        Self::new(&self.key, name, body)
    }

    /// Returns the key for one step of its call. Like the key itself, it belongs to the call's
    /// body.
    #[must_use]
    pub fn for_step(&self, name: &str) -> Self {
        Self {
            key: format!("{}/{name}", self.key),
            body_hash: self.body_hash,
        }
    }

    /// Creates the key of additional data in a reply. It does not depend on the call's body,
    /// because a repeated call may have another wait time.
    #[must_use]
    pub fn with_suffix(&self, what: &str) -> Self {
        Self::new(&format!("{}/{what}", self.key), what, &[])
    }
}

/// Returns whether this principal has used the key.
///
/// # Errors
/// A failure of the store.
pub fn is_key_used(
    connection: &Connection,
    who: &Principal,
    key: &Key,
) -> Result<bool, StoreError> {
    is_key_stored(connection, who, &key.key)
}

/// Returns whether a call of this principal has taken effect under this key.
///
/// # Errors
/// A failure of the store.
pub fn is_key_stored(
    connection: &Connection,
    who: &Principal,
    key: &str,
) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT 1 FROM keys WHERE key = ?1 AND principal = ?2")?
        .exists((key, who.to_string()))?)
}

/// Returns the reply that is stored under a key.
///
/// # Errors
/// `KeyReused` if the key was used with another body; a failure of the store.
pub fn stored_reply<R: DeserializeOwned>(
    connection: &Connection,
    who: &Principal,
    key: &Key,
) -> Result<Option<R>, StoreError> {
    let kept: Option<([u8; 32], String)> = connection
        .prepare_cached("SELECT body_hash, reply FROM keys WHERE key = ?1 AND principal = ?2")?
        .find_row(params![key.key, who.to_string()])?;
    match kept {
        None => Ok(None),
        Some((body_hash, _)) if body_hash != key.body_hash => Err(Denied::KeyReused.into()),
        // From bytes, as elsewhere: parsing the same types from a `str` too would compile their
        // code twice.
        Some((_, reply)) => serde_json::from_slice(reply.as_bytes())
            .map(Some)
            .map_err(|error| StoreError::Corrupt(error.to_string())),
    }
}

impl Tx<'_> {
    /// Runs `work` once for this principal and key. Later calls return the first call's reply.
    ///
    /// # Errors
    /// `KeyReused` if the key was used with another body. Errors of `work` are not remembered.
    pub fn once<T>(
        &mut self,
        who: &Principal,
        key: Option<&Key>,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError>
    where
        T: Serialize + DeserializeOwned,
    {
        let Some(key) = key else { return work(self) };
        if let Some(earlier) = stored_reply(self.connection(), who, key)? {
            return Ok(earlier);
        }
        let value = work(self)?;
        store_reply(self, who, key, &value)?;
        Ok(value)
    }

    /// Runs `work` once for this principal and key, and stores only a receipt. Later calls return
    /// the result that `again` rebuilds from the receipt, which must be the same.
    ///
    /// # Errors
    /// `KeyReused` if the key was used with another body. Errors of `work` are not remembered.
    pub fn once_with_receipt<T, R>(
        &mut self,
        who: &Principal,
        key: Option<&Key>,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
        receipt: impl FnOnce(&T) -> R,
        again: impl FnOnce(&mut Self, R) -> Result<T, StoreError>,
    ) -> Result<T, StoreError>
    where
        R: Serialize + DeserializeOwned,
    {
        let Some(key) = key else { return work(self) };
        if let Some(earlier) = stored_reply(self.connection(), who, key)? {
            return again(self, earlier);
        }
        let value = work(self)?;
        store_reply(self, who, key, &receipt(&value))?;
        Ok(value)
    }

    /// Removes keys that were used before `before`.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_keys(&mut self, before: SteadyTime) -> Result<(), StoreError> {
        // Rows are in order of time, so everything before the first one to keep is removed.
        self.prepare("DELETE FROM keys WHERE no < coalesce((SELECT no FROM keys WHERE at >= ?1 ORDER BY no LIMIT 1), ?2)")?
            .run([before.0, i64::MAX])?;
        Ok(())
    }

    /// Removes the keys of runs that were removed: nobody can repeat their calls.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_keys_of_removed_runs(&mut self) -> Result<(), StoreError> {
        self.prepare("DELETE FROM keys WHERE principal LIKE 'run:%' AND NOT EXISTS (SELECT 1 FROM runs WHERE id = substr(keys.principal, 5))")?
            .run([])?;
        Ok(())
    }
}

fn store_reply(
    tx: &Tx<'_>,
    who: &Principal,
    key: &Key,
    reply: &impl Serialize,
) -> Result<(), StoreError> {
    let reply =
        serde_json::to_string(reply).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    tx.prepare(
        "INSERT INTO keys (key, principal, body_hash, reply, at) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .insert(
        "no",
        params![
            key.key,
            who.to_string(),
            key.body_hash,
            reply,
            tx.steady().0
        ],
    )?;
    Ok(())
}
