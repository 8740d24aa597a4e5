//! Idempotency: the same call under the same key has one effect and one reply.

use super::{StoreError, Tx};
use adjutant_core::{Denied, Principal, Time};
use rusqlite::OptionalExtension;
use rusqlite::params;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// How long a key is remembered, in milliseconds: 7 days.
pub const KEYS_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// A call's key, with what it is about: the same key with another body is refused.
#[derive(Debug, Clone)]
pub struct Key {
    key: String,
    body_hash: [u8; 32],
}

impl Key {
    /// Makes the key of one call: `name` and `body` are what it asks for.
    #[must_use]
    pub fn new(key: &str, name: &str, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(body);
        Self { key: key.to_owned(), body_hash: hash.finalize().into() }
    }
}

impl Tx<'_> {
    /// Runs `work` once for this principal and key; later calls get the first one's reply.
    ///
    /// # Errors
    /// `KeyReused` for another body under the key; whatever `work` refuses is not remembered.
    pub fn once<T>(&mut self, who: &Principal, key: Option<&Key>, work: impl FnOnce(&mut Self) -> Result<T, StoreError>) -> Result<T, StoreError>
    where
        T: Serialize + DeserializeOwned,
    {
        let Some(key) = key else { return work(self) };
        let who = who.to_string();
        let earlier: Option<(Vec<u8>, String)> = self
            .prepare("SELECT body_hash, reply FROM keys WHERE principal = ?1 AND key = ?2")?
            .query_row(params![who, key.key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((body_hash, reply)) = earlier {
            if body_hash != key.body_hash {
                return Err(Denied::KeyReused.into());
            }
            return serde_json::from_str(&reply).map_err(|error| StoreError::Corrupt(error.to_string()));
        }
        let value = work(self)?;
        let reply = serde_json::to_string(&value).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("INSERT INTO keys (principal, key, body_hash, reply, at) VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            who,
            key.key,
            key.body_hash,
            reply,
            self.now().0
        ])?;
        Ok(value)
    }

    /// Forgets keys that were used before `before`.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_keys(&mut self, before: Time) -> Result<(), StoreError> {
        self.prepare("DELETE FROM keys WHERE at < ?1")?.execute([before.0])?;
        Ok(())
    }
}
