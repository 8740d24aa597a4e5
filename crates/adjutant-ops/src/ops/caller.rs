//! The caller of a use case: its identity, its name for readers, its idempotency key, and the
//! transactions that take effect once for the key.

use crate::ops::error::OpError;
use crate::store::{Connection, Key, Store, StoreError, Tx, run_by_id, stored_reply};
use adjutant_core::Principal;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The caller of a use case, and its idempotency key.
#[derive(Debug, Clone)]
pub struct Caller {
    pub who: Principal,
    pub key: Option<Key>,
}

impl Caller {
    /// Returns the caller of one step of the call, which is made once, like the call.
    pub(super) fn of_step(&self, name: &str) -> Self {
        Self {
            who: self.who.clone(),
            key: self.key.as_ref().map(|key| key.for_step(name)),
        }
    }

    /// Runs one durable transaction once for the caller's key.
    pub(super) async fn write<T>(
        self,
        store: &Store,
        work: impl FnOnce(&mut Tx<'_>, &Principal) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, OpError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let Self { who, key } = self;
        let once = move |tx: &mut Tx<'_>| {
            announce_caller(tx.connection(), &who);
            tx.once(&who, key.as_ref(), |tx| act(tx, &who, work))
        };
        Ok(store.write(once).await?)
    }

    /// Returns the reply that an earlier call under the caller's key has stored.
    pub(super) fn stored_reply<T: DeserializeOwned>(
        &self,
        store: &Store,
    ) -> Result<Option<T>, OpError> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        Ok(store.read(|connection| stored_reply(connection, &self.who, key))?)
    }

    /// Stores the reply of a call with several effects under its key. Returns the reply, or the one
    /// that is already stored.
    pub(super) async fn store_reply<T>(self, store: &Store, reply: T) -> Result<T, OpError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        if self.key.is_none() {
            return Ok(reply);
        }
        self.write(store, move |_, _| Ok(reply)).await
    }

    /// Like `write`, for calls that stop a run and must work on a full disk (see
    /// [`Store::write_using_reserved_space`]).
    pub(super) async fn write_using_reserved_space<T>(
        self,
        store: &Store,
        work: impl FnOnce(&mut Tx<'_>, &Principal) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, OpError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let Self { who, key } = self;
        Ok(store
            .write_using_reserved_space(move |tx| tx.once(&who, key.as_ref(), |tx| work(tx, &who)))
            .await?)
    }

    /// Like `write`, but stores only a receipt under the key: for a repeated call, `again` rebuilds
    /// the same reply from it. `work` must refuse before it writes (see [`Store::write_checked`]).
    /// `announce` announces its first reads.
    pub(super) async fn write_with_receipt<T, R>(
        self,
        store: &Store,
        announce: impl FnOnce(&Connection, &Principal) + Send + 'static,
        work: impl FnOnce(&mut Tx<'_>, &Principal) -> Result<T, StoreError> + Send + 'static,
        receipt: impl FnOnce(&T) -> R + Send + 'static,
        again: impl FnOnce(&mut Tx<'_>, R) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, OpError>
    where
        T: Send + 'static,
        R: Serialize + DeserializeOwned,
    {
        let Self { who, key } = self;
        let once = move |tx: &mut Tx<'_>| {
            announce_caller(tx.connection(), &who);
            announce(tx.connection(), &who);
            tx.once_with_receipt(&who, key.as_ref(), |tx| act(tx, &who, work), receipt, again)
        };
        Ok(store.write_checked(once).await?)
    }
}

/// Returns the display name of a principal without a run: for a client, the last part of its
/// directory.
pub(super) fn name_of(who: &Principal) -> String {
    match who {
        Principal::Person => "person".to_owned(),
        Principal::Client(client) => {
            let name = client.as_str().trim_end_matches('/');
            name.rsplit('/')
                .next()
                .filter(|part| !part.is_empty())
                .unwrap_or(client.as_str())
                .to_owned()
        }
        Principal::Run(id) => id.to_string(),
    }
}

/// Announces the read of the calling run, which most calls begin with.
fn announce_caller(connection: &Connection, who: &Principal) {
    if let Principal::Run(run) = who {
        connection.announce(|connection| run_by_id(connection, *run));
    }
}

/// Performs a call. A run that makes a call has read its delivered messages.
fn act<T>(
    tx: &mut Tx<'_>,
    who: &Principal,
    work: impl FnOnce(&mut Tx<'_>, &Principal) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let done = work(tx, who)?;
    if let Principal::Run(run) = who {
        tx.set_messages_read(*run)?;
    }
    Ok(done)
}
