//! The caller of a use case: its identity, its name for readers, and its idempotency key.

use crate::store::Key;
use adjutant_core::Principal;

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
