//! Revoking tokens.

use crate::store::runs::forget_left_with_token;
use crate::store::tokens::forget_token;
use crate::store::{StoreError, Tx};

impl Tx<'_> {
    /// Revokes a token. Its hash is forgotten, and its connections are notified. What is left on
    /// the hosts that connected with it is forgotten.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn revoke_token(&mut self, id: i64) -> Result<(), StoreError> {
        if let Some(name) = forget_token(self, id)? {
            forget_left_with_token(self, &name)?;
        }
        Ok(())
    }
}
